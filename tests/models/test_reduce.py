"""``tpuconvert.reduce`` on models of the test data: some cannot be converted without more options."""

from pathlib import Path

import pytest

import tpuconvert as tc
from tpuconvert.frontends.caffe.file.description import read_description
from tpuconvert.frontends.tflite.file.reader import read_model


@pytest.mark.slow
@pytest.mark.parametrize(("name", "operator", "nodes"), [("text_det_en_ppocrv3_onnx", "Add", 524)])
def test_symbolic_extents_are_reduced_to_the_node_that_refuses_them(
    name: str, operator: str, nodes: int, data_root: Path, tmp_path: Path
) -> None:
    found = tc.reduce(data_root / "models" / name / "model.onnx", until="error", output=tmp_path / "small.onnx")
    assert found.before.nodes == nodes
    assert found.operators == {operator: 1}
    assert found.names == "generic" and found.kept_weights == 0
    with pytest.raises(tc.UnsupportedError):
        tc.check(tmp_path / "small.onnx")


@pytest.mark.parametrize(
    ("name", "operator", "nodes"),
    [
        pytest.param("deeplabv3_257_tflite", "RESIZE_BILINEAR", 70, marks=pytest.mark.slow),
        ("mnist_lstm_tflite", "UNIDIRECTIONAL_SEQUENCE_LSTM", 4),
        pytest.param("retinaface_mnet_caffe", "Crop", 219, marks=pytest.mark.slow),
        ("imagenet_squeezenet_v1.1_caffe", "Concat", 66),
    ],
)
def test_one_operator_remains_of_other_formats(name: str, operator: str, nodes: int, data_root: Path) -> None:
    folder = data_root / "models" / name
    if name.endswith("tflite"):
        files = [folder / "model.tflite"]
    else:
        files = [next(folder.glob("*.prototxt")), next(folder.glob("*.caffemodel"))]

    def fails(path: str) -> bool:
        if path.endswith(".tflite"):
            return operator in {each.name for each in read_model(path).subgraphs[0].operators}
        return operator in {layer.message.type for layer in read_description(path).layers}

    found = tc.reduce(*files, until=fails)
    assert found.before.nodes == nodes
    assert found.operators == {operator: 1}
    assert found.names == "generic" and found.kept_weights == 0
    assert isinstance(found.model, bytes)
    tc.check(found.model, found.weights)
