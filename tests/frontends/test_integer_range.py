"""Warnings about integers that are rounded or saturated, and bounds that prove that none can be."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

import tpuconvert as tc
from tests.support.onnx.models import model, one
from tpuconvert.frontends.value_bounds import ValueBounds
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Muls, Rsubs
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.types import Array, DType, Scalar, TensorType

WIDE = np.zeros(3, np.int32)


def warned(nodes: Sequence[onnx.NodeProto], chip: str, x: Array = WIDE, **constants: Array) -> list[str]:
    converted = tc.convert(model(nodes, {"x": x}, ["y"], constants, opset=18), chip=chip)
    return [note.node for note in converted.notes if note.kind == "deviation"]


@pytest.mark.parametrize("chip", ["bm1684", "bm1686"])
@pytest.mark.parametrize(
    "nodes",
    [
        [one("Add", "x", "one")],
        [one("Mul", "x", "x")],
        [one("Neg", "x")],
        [one("ReduceSum", "x", keepdims=0)],
        [one("Equal", "x", "x")],
        [one("Gather", "x", "index")],
        [one("Cast", "x", to=onnx.TensorProto.FLOAT, outputs=["f"]), one("Cast", "f", to=onnx.TensorProto.INT64)],
    ],
    ids=lambda nodes: nodes[-1].op_type,
)
def test_unknown_integers_are_warned_about(nodes: list[onnx.NodeProto], chip: str) -> None:
    constants = {"one": np.array([1], np.int32), "index": np.array([2, 0])}
    assert warned(nodes, chip, **constants) == [f"the_{nodes[-1].op_type}"]


@pytest.mark.parametrize("chip", ["bm1684", "bm1686"])
@pytest.mark.parametrize(
    "nodes",
    [
        [one("Equal", "x", "seven")],  # an integer beyond 2^24 does not round to 7
        [one("Less", "x", "seven")],
        [one("Clip", "x", "zero", "seven", outputs=["c"]), one("Mul", "c", "c")],
        [one("Greater", "seven", "x")],
        [one("Equal", "x", "seven", outputs=["e"]), one("Cast", "e", to=6, outputs=["b"]), one("CumSum", "b", "zero")],
        [one("BitwiseAnd", "x", "seven", outputs=["b"]), one("ArgMax", "b", outputs=["i"]), one("Add", "i", "i")],
        [one("Cast", "x", to=onnx.TensorProto.FLOAT)],  # rounds in the standard too
        [one("Concat", "x", "x", axis=0)],
        [one("BitwiseAnd", "x", "seven", outputs=["b"]), one("Sub", "b", "seven")],
        [one("Gather", "table", "x")],  # an index is never as large
        [one("NonZero", "x")],
    ],
    ids=lambda nodes: "-".join(node.op_type for node in nodes),
)
def test_bounds_prove_that_integers_are_exact(nodes: list[onnx.NodeProto], chip: str) -> None:
    table = np.arange(9, dtype=np.float32)
    constants = {"zero": np.array(0, np.int32), "seven": np.array(7, np.int32), "table": table}
    used = {name for node in nodes for name in node.input}
    assert warned(nodes, chip, **{name: array for name, array in constants.items() if name in used}) == []


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_small_integers_are_never_warned_about(dtype: str) -> None:
    x = np.zeros((2, 3), dtype)
    for nodes in (["Add", "x", "x"], ["Mul", "x", "x"], ["Div", "x", "x"], ["Equal", "x", "x"], ["Abs", "x"]):
        assert warned([one(*nodes)], "bm1684", x) == []


@pytest.mark.parametrize("chip", ["bm1684", "bm1686"])
def test_positions_of_maxima_are_below_the_number_of_elements(chip: str) -> None:
    pool = one("MaxPool", "x", outputs=["maxima", "positions"], kernel_shape=[2, 2])
    assert warned([pool, one("Add", "positions", "positions")], chip, np.zeros((1, 2, 4, 6), np.float32)) == []


def test_bounds_of_values() -> None:
    g = Graph()
    x = g.input("x", TensorType(DType.INT8, (4,)))
    wide = g.add(Cast(DType.FLOAT32), x)
    bounds = ValueBounds(g)
    assert bounds.of(wide) == (-128, 127)
    assert bounds.of(g.add(Muls(Scalar.f32(-2)), wide)) == (-254, 256)
    assert bounds.of(g.add(Rsubs(Scalar.f32(1)), wide)) == (-126, 129)
    assert bounds.of(g.add(Clamp(Scalar.f32(-1), Scalar.f32(500)), wide)) == (-1, 127)
    assert bounds.of(formulas.square(g, wide)) == (0, 128 * 128)
    assert bounds.of(g.add(Cast(DType.INT8), g.add(Adds(Scalar.f32(100)), wide))) == (-28, 127)
    assert bounds.of(formulas.exp(g, wide)) == (0, np.inf)


def test_time_of_bounds_is_limited() -> None:
    """Only the last nodes before a value are examined; bounds of the others are the bounds of the type."""
    g = Graph()
    value = g.input("x", TensorType(DType.FLOAT32, (4,)))
    value = g.add(Clamp(Scalar.f32(0), Scalar.f32(1)), value)
    for _ in range(2000):
        value = g.add(Muls(Scalar.f32(1)), value)
    assert ValueBounds(g).of(value) == (-np.inf, np.inf)
