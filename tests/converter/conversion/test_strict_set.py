"""Composite operators are kept in a model, and are expanded by ``strict_set`` or if the chip requires it."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tpuconvert.__main__ import main
from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.options.options import Options
from tpuconvert.schema.definition.op import OpKind
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.types import F32, Chip, TensorType

PLUGIN = """
import tpuconvert as tc
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.normalization import LayerNorm
from tpuconvert.schema.ops.smooth_activation import Silu


@tc.register_converter("onnx", "Block", domain="com.strict", since=1)
def block(node, g):
    x = g.add(LayerNorm(), node.input(0))
    return g.add(Silu(), g.add(Attention(), x, x, x))

"""


@pytest.fixture
def plugin(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.getbasetemp() / "strict_set_plugin.py"
    path.write_text(PLUGIN, encoding="utf-8")
    return str(path)


def model(path: Path) -> str:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3, 3)) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Block", ["x"], ["y"], "n", domain="com.strict")], "g", ports[:1], ports[1:]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.strict", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    return str(path)


def composites(converted: tc.Model) -> list[str]:
    return [node.op.name for node in converted.graph.nodes if node.op.kind is OpKind.COMPOSITE]


def test_whole_or_strict(tmp_path: Path, plugin: str) -> None:
    source = model(tmp_path / "m.onnx")
    whole = tc.convert(source, chip="bm1684", plugins=[plugin])
    strict = tc.convert(source, chip="bm1684", plugins=[plugin], strict_set=True)
    assert composites(whole) == ["layer_norm", "attention", "silu"]
    assert composites(strict) == []
    x = np.random.default_rng(0).normal(size=(2, 3, 3)).astype(np.float32)
    strict.save(tmp_path / "m.tpum")
    for one in (strict, tc.load(tmp_path / "m.tpum")):
        with tc.Session(whole) as a, tc.Session(one) as b:
            # about twenty float32 operators instead of three roundings
            np.testing.assert_allclose(b.run({"x": x})["y"], a.run({"x": x})["y"], rtol=1e-5, atol=1e-5)


def test_expanded_where_the_chip_lacks_an_operator(tmp_path: Path, plugin: str) -> None:
    converted = tc.convert(model(tmp_path / "m.onnx"), chip=Chip.BM1682, plugins=[plugin])
    assert composites(converted) == ["layer_norm", "silu"]
    assert "softmax" not in [node.op.name for node in converted.graph.nodes]


def test_the_command_line(tmp_path: Path, plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = model(tmp_path / "m.onnx"), str(tmp_path / "m.tpum")
    assert main(["convert", source, "-o", out, "--plugin", plugin, "--strict-set", "--verify"]) == 0
    assert composites(tc.load(out)) == []
    capsys.readouterr()
    assert main(["check", source, "--plugin", plugin]) == 0
    assert ": 3 nodes" in capsys.readouterr().out
    assert main(["check", source, "--plugin", plugin, "--strict-set"]) == 0
    assert ": 3 nodes" not in capsys.readouterr().out


def open_product() -> Graph:
    graph = Graph("g", "g.onnx")
    x = graph.input("x", TensorType(F32, ("N", 3, 3)))
    graph.output(graph.add(BatchMatmul(), x, x))
    return graph


def test_open_extents_keep_a_composite_operator_whole() -> None:
    assert composites(Conversion(Options.of()).of_graph(open_product())) == ["batch_matmul"]


def test_a_composite_that_open_extents_keep_whole_is_refused() -> None:
    message = r"batch_matmul can only be expanded for extents that are numbers(.|\n)*--input-shapes"
    with pytest.raises(UnsupportedError, match=message):
        Conversion(Options.of(strict_set=True)).of_graph(open_product())
