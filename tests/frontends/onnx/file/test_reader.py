"""Files that are not valid ONNX models, and unusual ones that are."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.onnx.models import graph_of as graph_of
from tests.support.onnx.models import model, one, ops, ramp, save_model
from tpuconvert.frontends.onnx import load
from tpuconvert.schema.errors import CorruptInputError, ResourceLimitError, TpuConvertError, UnsupportedError
from tpuconvert.schema.system.limits import Limits


def small() -> onnx.ModelProto:
    x = ramp(1, 2, 4, 4)
    w = ramp(3, 2, 3, 3, seed=1)
    nodes = [one("Conv", "x", "w", outputs=["c"]), one("Relu", "c")]
    return model(nodes, {"x": x}, ["y"], {"w": w})


def changed_model(change: Callable[[onnx.ModelProto], None]) -> onnx.ModelProto:
    proto = small()
    change(proto)
    return proto


def test_small_model_loads(tmp_path: Path) -> None:
    assert ops(graph_of(small(), tmp_path)) == ["conv", "active"]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.9, 0.99])
def test_truncated(share: float, tmp_path: Path) -> None:
    content = small().SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CorruptInputError) as caught:
        load(path)
    assert caught.value.exit_code == 4
    assert "cut.onnx" in str(caught.value)


def test_every_cut_gives_one_of_our_errors_or_a_model(tmp_path: Path) -> None:
    content = small().SerializeToString()
    path = tmp_path / "cut.onnx"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(TpuConvertError):
            load(path)


def test_random_bytes_and_flipped_bits_never_escape(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    content = np.frombuffer(small().SerializeToString(), np.uint8)
    path = tmp_path / "noise.onnx"
    for _ in range(300):
        noisy = content.copy()
        noisy[random.integers(0, len(noisy), 3)] = random.integers(0, 256, 3)
        path.write_bytes(noisy.tobytes())
        try:
            load(path)
        except TpuConvertError as error:
            assert error.exit_code in (2, 3, 4, 6), error  # noqa: PT017  many inputs, several legal outcomes
    for size in (1, 10, 1000):
        path.write_bytes(random.bytes(size))
        with pytest.raises(CorruptInputError):
            load(path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda m: m.ClearField("graph"), "it has no graph"),
        (lambda m: m.graph.ClearField("output"), "its graph has no outputs"),
        (lambda m: m.ClearField("opset_import"), "it names no opset"),
        (lambda m: setattr(m, "ir_version", -5), "its IR version is -5"),
        (lambda m: setattr(m.graph.node[0], "op_type", ""), "a node has no operator"),
        (lambda m: setattr(m.graph.output[0], "name", ""), "a graph input or output has no name"),
        (lambda m: m.graph.input.append(m.graph.input[0]), "several graph inputs have the name 'x'"),
        (lambda m: setattr(m.opset_import[0], "version", -1), "opset version -1"),
        (lambda m: m.opset_import.append(helper.make_opsetid("", 3)), "two opset versions"),
        (lambda m: m.graph.node[1].output.append("c"), "tensor 'c' is the output of more than one node"),
        (lambda m: m.graph.node[1].output.append("w"), "tensor 'w' is the output of more than one node"),
        (lambda m: m.graph.node[0].input.__setitem__(0, "y"), "its nodes form a cycle"),
        (lambda m: setattr(m.graph.initializer[0], "raw_data", b"123"), "constant 'w' holds 3 bytes, but float32"),
        (lambda m: m.graph.initializer[0].dims.__setitem__(0, -3), "negative extent"),
        (lambda m: setattr(m.graph.initializer[0], "data_type", 99), "elements of type 99"),
        (lambda m: setattr(m.graph.initializer[0], "data_type", TensorProto.STRING), "elements of string"),
        (lambda m: setattr(m.graph.initializer[0].segment, "begin", 1), "segments"),
    ],
)
def test_inconsistent_files(change: Callable[[onnx.ModelProto], None], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(CorruptInputError) as caught:
        load(save_model(changed_model(change), tmp_path))
    assert complaint in str(caught.value)


def test_wrong_kinds_of_files(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for content, words in (
        (b"<html><body>Not found</body></html>", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (bytes(4) + b"TFL3" + bytes(200), "TFLite model"),
        (b"PK\x03\x04" + bytes(100), "ZIP archive"),
    ):
        path.write_bytes(content)
        with pytest.raises(CorruptInputError, match=words):
            load(path)


def test_models_older_than_opsets(tmp_path: Path) -> None:
    def first_version(proto: onnx.ModelProto) -> None:
        proto.ClearField("opset_import")
        proto.ir_version = 2

    graph = graph_of(changed_model(first_version), tmp_path)
    assert ops(graph) == ["conv", "active"]
    assert any("files of its IR version use opset 1" in note for note in graph.notes)


def test_opset_and_ir_of_the_future(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="the newest known opset is 28"):
        load(save_model(changed_model(lambda m: setattr(m.opset_import[0], "version", 99)), tmp_path))
    graph = graph_of(changed_model(lambda m: setattr(m, "ir_version", 77)), tmp_path)
    assert any("IR version 77" in note for note in graph.notes)


def test_limits(tmp_path: Path) -> None:
    path = save_model(small(), tmp_path)
    for limits, complaint in (
        (Limits(max_nodes=1), "2 nodes, more than 1"),
        (Limits(max_tensors=0), "1 tensors, more than 0"),
        (Limits(max_constant_bytes=100), "constant 'w' has 216 bytes, more than 100"),
        (Limits(max_file_bytes=50), "bytes, more than 50"),
    ):
        with pytest.raises(ResourceLimitError, match=complaint):
            load(path, limits=limits)


def test_huge_shapes_are_refused_before_they_are_made(tmp_path: Path) -> None:
    huge = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 40, 1 << 40], raw_data=b"")
    proto = small()
    proto.graph.initializer[0].CopyFrom(huge)
    with pytest.raises(ResourceLimitError, match="constant 'w'"):
        load(save_model(proto, tmp_path))
    nodes = [one("ConstantOfShape", "shape", outputs=["big"]), one("Add", "x", "big")]
    proto = model(nodes, {"x": ramp(1)}, ["y"], {"shape": np.array([1 << 20, 1 << 20, 64])})
    with pytest.raises(UnsupportedError, match="too large"):
        load(save_model(proto, tmp_path))


def test_a_function_that_calls_itself(tmp_path: Path) -> None:
    call = helper.make_node("Deep", ["x"], ["y"], domain="local")
    function = helper.make_function("local", "Deep", ["x"], ["y"], [call], [helper.make_opsetid("local", 1)])
    proto = model([call], {"x": ramp(2)}, ["y"], domains={"local": 1})
    proto.functions.append(function)
    with pytest.raises(CorruptInputError, match="its function 'Deep' calls itself"):
        load(save_model(proto, tmp_path))
