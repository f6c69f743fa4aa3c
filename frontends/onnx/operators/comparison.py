"""Comparisons, logic and ``where``. Boolean values are FLOAT32 0 and 1 in the graph."""

from __future__ import annotations

import math
from collections.abc import Callable

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.elementwise import BEFORE_NUMPY_BROADCASTING, operands
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.compare import Comparison, Eqs, Ne, Nes
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import DType, Scalar


def compare(g: Graph, comparison: Comparison, a: Value, b: Value) -> Value:
    """Add a comparison with broadcasting; a constant with one element becomes the scalar of the operator.

    Integers are cast to FLOAT32, which is exact below 2^24.
    """
    a, b = (_float_operand(g, x) for x in (a, b))
    for x, y, relation in ((a, b, comparison), (b, a, comparison.mirror)):
        if y.is_constant and y.array.size == 1 and x.rank >= y.rank and not x.is_constant:
            number = Scalar.f32(float(y.array.reshape(-1)[0]))
            return g.add(relation.with_scalar(number), x)
    return g.add(comparison.of_tensors(), *emit.align(g, a, b))


def _float_operand(g: Graph, x: Value) -> Value:
    if x.dtype is DType.FLOAT32:
        return x
    if x.is_constant:
        return emit.float_constant(g, x.array, x.name)
    return emit.as_float(g, x)


def _comparison(name: str, comparison: Comparison, since: int) -> None:
    def convert(node: OnnxNode, g: Graph) -> Result:
        if node.version < BEFORE_NUMPY_BROADCASTING:
            a, b = operands(node)
        else:
            a, b = node.input(0), node.input(1)
        return node.elementwise(compare(g, comparison, a, b), element_types.BOOL)

    convert.__doc__ = f"{name}, element-wise; the result is 0 or 1."
    onnx_op(name, since=since, kind=Kind.DIRECT)(convert)


_comparison("Equal", Comparison.EQ, 1)
_comparison("Greater", Comparison.GT, 1)
_comparison("Less", Comparison.LT, 1)
_comparison("GreaterOrEqual", Comparison.GE, 12)
_comparison("LessOrEqual", Comparison.LE, 12)


def _logic(name: str, function: Callable[[Graph, Value, Value], Value]) -> None:
    def convert(node: OnnxNode, g: Graph) -> Result:
        a, b = operands(node)
        if a.dtype is not DType.FLOAT32 or b.dtype is not DType.FLOAT32:
            types = f"{node.element(0)} and {node.element(1)}"
            raise node.fail(UNSUPPORTED_TYPE, f"its inputs have types {types}, expected BOOL", "insert a Cast to BOOL")
        return node.elementwise(function(g, a, b), element_types.BOOL)

    convert.__doc__ = f"{name} of Boolean values, which are 0 or 1."
    onnx_op(name, since=1, kind=Kind.DIRECT)(convert)


_logic("And", emit.mul)
_logic("Or", lambda g, a, b: emit.binary(g, "max", a, b))
_logic("Xor", lambda g, a, b: compare(g, Comparison.NE, a, b))


@onnx_op("Not", since=1, kind=Kind.DIRECT)
def negation(node: OnnxNode, g: Graph) -> Result:
    """``1 - x`` of Boolean values, which are 0 or 1."""
    return node.elementwise(g.add(Eqs(Scalar.f32(0)), emit.floats(node.input(0))), element_types.BOOL)


@onnx_op("IsNaN", since=9, kind=Kind.DIRECT)
def is_nan(node: OnnxNode, g: Graph) -> Result:
    """``x != x``: only NaN differs from itself."""
    x = emit.floats(node.input(0))
    return node.elementwise(g.add(Ne(), x, x), element_types.BOOL)


@onnx_op("IsInf", since=10)
def is_inf(node: OnnxNode, g: Graph) -> Result:
    """``x == inf`` or ``x == -inf``, with either or both signs by attribute."""
    x = emit.floats(node.input(0))
    negative, positive = bool(node.attr("detect_negative", 1)), bool(node.attr("detect_positive", 1))
    if not negative and not positive:
        return node.elementwise(g.add(Nes(Scalar.f32(0)), emit.muls(g, g.add(Ne(), x, x), 0)), element_types.BOOL)
    if negative and positive:
        x = formulas.absolute(g, x)
    return node.elementwise(g.add(Eqs(Scalar.f32(math.inf if positive else -math.inf)), x), element_types.BOOL)


@onnx_op("Where", since=9)
def where(node: OnnxNode, g: Graph) -> Result:
    """``where(condition, x, y)`` after broadcasting. Integers are cast to FLOAT32."""
    condition = emit.floats(node.input(0), "its condition")
    branches = [node.input(1), node.input(2)]
    if branches[0].dtype is not branches[1].dtype:
        raise node.invalid(f"its inputs 1 and 2 have types {node.element(1)} and {node.element(2)}")
    dtype = branches[0].dtype
    shape = emit.broadcast_shape(*(emit.extents(value) for value in (condition, *branches)))
    branches = [_float_operand(g, value) for value in branches]
    if condition.is_constant:
        condition = g.add(Constdata(), condition)  # the TPU operator does not accept a constant condition
    condition = emit.expand(g, condition, shape)
    selected = g.add(ConditionSelect(), condition, *(_broadcast_branch(g, value, shape) for value in branches))
    return node.elementwise(emit.cast(g, selected, dtype), node.element(1))


def _broadcast_branch(g: Graph, value: Value, shape: tuple[int, ...]) -> Value:
    """Broadcast a branch to the shape of the result; a constant with one element stays as it is."""
    if not value.is_constant:
        return emit.expand(g, value, shape)
    return value if value.array.size == 1 else emit.expand(g, g.add(Constdata(), value), shape)
