"""Models with control flow at run time: INT8, verification and exports."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tests.support.onnx.models import model, one, save_model
from tpuconvert.exporters.export import export
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.types import Array

RANDOM = np.random.default_rng(0)


def normal(*shape: int, scale: float = 1.0) -> Array:
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


def branch(op: str, *inputs: str) -> onnx.GraphProto:
    result = helper.make_tensor_value_info("result", TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node(op, list(inputs), ["result"])], op, [], [result])


def conv_if_conv(folder: Path) -> Path:
    """Conv, ReLU, then a 1x1 conv or nothing, then conv."""
    weights = {"w1": normal(8, 3, 3, 3, scale=0.2), "w2": normal(8, 8, 3, 3, scale=0.1), "w3": normal(8, 8, 1, 1)}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"]),
        one("If", "c", outputs=["t"], then_branch=branch("Conv", "r", "w3"), else_branch=branch("Identity", "r")),
        helper.make_node("Conv", ["t", "w2"], ["y"], pads=[1, 1, 1, 1]),
    ]
    return save_model(model(nodes, {"x": normal(1, 3, 16, 16), "c": np.array(True)}, ["y"], weights), folder)


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> tuple[tc.Model, Path]:
    source = conv_if_conv(tmp_path_factory.mktemp("control"))
    samples = [{"x": normal(1, 3, 16, 16), "c": np.array(index % 2 == 0)} for index in range(8)]
    return tc.convert(source, quantize="int8", calibration=samples), source


def test_int8_around_a_float_subgraph(quantized: tuple[tc.Model, Path], tmp_path: Path) -> None:
    converted, source = quantized
    names = [node.op.name for node in converted.graph.nodes]
    assert names.count("conv_v2") == 2 and names.count("host_if") == 1
    assert any(note.node == "t" and "it has no integer form" in note.message for note in converted.notes)
    converted.save(tmp_path / "int8.tpum")
    float_session = tc.Session(tc.convert(source))
    for condition in (True, False):
        feeds = {"x": normal(1, 3, 16, 16), "c": np.array(condition)}
        expected = float_session.run(feeds)["y"]
        results = [tc.Session(tmp_path / "int8.tpum", backend=name).run(feeds)["y"] for name in ("reference", "auto")]
        assert results[0].tobytes() == results[1].tobytes()
        noise = np.square(results[0] - expected).sum()
        assert 10 * np.log10(np.square(expected).sum() / noise) > 25  # 8 bits: 30 to 40 dB are usual


def test_verification_accepts_control_flow(tmp_path: Path) -> None:
    source = conv_if_conv(tmp_path)
    tc.convert(source).save(tmp_path / "m.tpum")
    tc.verify(tmp_path / "m.tpum", source).check()


def test_control_flow_is_left_to_the_host(quantized: tuple[tc.Model, Path], tmp_path: Path) -> None:
    manifest = export(quantized[0], tmp_path / "out").manifest
    assert manifest["host_nodes"][0]["operator"] == "host_if" and 0 < manifest["host_share"] < 1


@pytest.mark.parametrize("form", ["tpulang", "onnx"])
def test_export_names_the_node_with_subgraphs(form: str, quantized: tuple[tc.Model, Path], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"host_if.* run on the host\n +end the model before"):
        export(quantized[0], tmp_path / ("out.onnx" if form == "onnx" else "out"), to=form)
    assert not list(tmp_path.iterdir())
