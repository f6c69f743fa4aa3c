"""``tpuconvert.convert`` accepts an ``onnx.ModelProto`` instead of a file."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.external_data_helper import set_external_data

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp

X = ramp(2, 3)


def small_model() -> onnx.ModelProto:
    return model([one("Gemm", "x", "w", "b")], {"x": X}, ["y"], {"w": ramp(3, 4, seed=1), "b": ramp(4, seed=2)})


def test_gives_the_model_of_the_same_file(tmp_path: Path) -> None:
    proto = small_model()
    path = tmp_path / "<ModelProto>"  # the model file contains the name of the source
    path.write_bytes(proto.SerializeToString())
    models = [tc.convert(path), tc.convert(proto)]
    for name, converted in zip(("file", "message"), models, strict=True):
        converted.save(tmp_path / name)
    assert models[1].sources == ()
    assert (tmp_path / "file").read_bytes() == (tmp_path / "message").read_bytes()


def test_leaves_the_message_as_it_is() -> None:
    proto = small_model()
    before = proto.SerializeToString(deterministic=True)
    converted = tc.convert(proto)
    expected = tc.Session(converted).run({"x": X})["y"]
    assert proto.SerializeToString(deterministic=True) == before
    proto.graph.initializer[0].raw_data = b""  # the converted model is independent of the message
    assert np.array_equal(tc.Session(converted).run({"x": X})["y"], expected)


def test_names_the_message_in_errors() -> None:
    proto = small_model()
    proto.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(tc.UnsupportedError, match=r"<ModelProto>: 1 problem.*\n.*NoSuchOperator"):
        tc.convert(proto)
    with pytest.raises(tc.CorruptInputError, match="<ModelProto>: not a valid ONNX model: it has no graph"):
        tc.convert(onnx.ModelProto())


def test_finds_the_initializer_that_is_not_finite() -> None:
    proto = small_model()
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.full((3, 4), np.nan, np.float32), "w"))
    with pytest.raises(tc.UnsupportedError, match="'w'"):
        tc.convert(proto)


def test_declines_external_data() -> None:
    proto = small_model()
    set_external_data(proto.graph.initializer[0], "weights.bin")
    proto.graph.initializer[0].ClearField("raw_data")
    with pytest.raises(tc.CorruptInputError, match=r"'w' has external data in 'weights\.bin'") as caught:
        tc.convert(proto)
    assert "onnx.load_external_data_for_model" in str(caught.value)


@pytest.mark.parametrize("source", [7, onnx.GraphProto()])
def test_declines_other_objects(source: object) -> None:
    expected = f"the source has the type {type(source).__name__}, expected a path, bytes or an onnx.ModelProto"
    with pytest.raises(tc.UsageError, match=expected):
        tc.convert(source)  # type: ignore[arg-type]


def test_takes_extents_and_cuts() -> None:
    proto = small_model()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    assert tc.convert(proto).inputs[0].shape == ("N", 3)
    assert tc.convert(proto, source_options=tc.SourceOptions(input_shapes={"x": (5, 3)})).outputs[0].shape == (5, 4)
