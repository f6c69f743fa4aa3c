"""Element-wise arithmetic with broadcasting: Add, Sub, Mul, Div, and Sum, Max, Min, Mean of several inputs."""

from __future__ import annotations

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.onnx.element_types import SMALL
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.small_integers import small_product, small_sum
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.types import DType

BEFORE_NUMPY_BROADCASTING = 7
"""First opset with NumPy broadcasting. Before, only the second operand is broadcast, aligned by an attribute."""


_ARITHMETIC = (DType.FLOAT32, DType.INT32, *SMALL)


def operands(node: OnnxNode) -> tuple[Value, Value]:
    """Return both operands of an element-wise operator, aligned on the right."""
    a, b = node.input(0), node.input(1)
    if node.version < BEFORE_NUMPY_BROADCASTING:
        b = _aligned_by_attribute(node, a, b)
    if a.dtype not in _ARITHMETIC:
        raise node.fail(UNSUPPORTED_TYPE, f"its input is {node.element(0)}", "supported: numbers")
    if a.dtype is not b.dtype:
        raise node.fail(INVALID_NODE, f"operands of types {node.element(0)} and {node.element(1)}")
    return a, b


def _aligned_by_attribute(node: OnnxNode, a: Value, b: Value) -> Value:
    axis = node.optional_attr("axis")
    if not node.attr("broadcast", 0):
        if node.shape(0) != node.shape(1):
            raise node.fail(INVALID_NODE, f"shapes {list(node.shape(0))} and {list(node.shape(1))} without broadcast")
        return b
    if axis is None:
        return b
    first = node.axis(axis, node.rank(0))
    after = node.rank(0) - first - node.rank(1)
    return emit.reshape(node.graph, b, emit.extents(b) + (1,) * max(after, 0))


def _sum(g: Graph, function: str, a: Value, b: Value) -> Value:
    if a.dtype in SMALL:
        return small_sum(g, function, a, b)
    return emit.binary(g, function, a, b)


@onnx_op("Add", since=1, kind=Kind.DIRECT)
def add(node: OnnxNode, g: Graph) -> Result:
    """``a + b``."""
    return node.elementwise(_sum(g, "add", *operands(node)))


@onnx_op("Sub", since=1, kind=Kind.DIRECT)
def subtract(node: OnnxNode, g: Graph) -> Result:
    """``a - b``."""
    return node.elementwise(_sum(g, "sub", *operands(node)))


@onnx_op("Mul", since=1, kind=Kind.DIRECT)
def multiply(node: OnnxNode, g: Graph) -> Result:
    """``a * b``."""
    a, b = operands(node)
    if a.dtype in SMALL:
        return node.elementwise(small_product(g, a, b))
    return node.elementwise(emit.mul(g, a, b))


@onnx_op("Div", since=1, kind=Kind.DIRECT)
def divide(node: OnnxNode, g: Graph) -> Result:
    """``a / b``; quotients of integers are truncated toward zero and computed in FLOAT32 (exact below 2^24)."""
    a, b = operands(node)
    if a.dtype is DType.FLOAT32:
        return node.elementwise(emit.div(g, a, b))
    quotient = emit.div(g, *(as_float_operand(g, x) for x in (a, b)))
    return node.elementwise(emit.cast(g, functions.truncate(g, quotient), a.dtype))


def as_float_operand(g: Graph, x: Value) -> Value:
    """Cast an operand to FLOAT32; a constant is converted directly."""
    if x.is_constant:
        return emit.float_constant(g, x.array, x.name)
    return emit.as_float(g, x)


def _chain(node: OnnxNode, g: Graph, function: str) -> Value:
    values = [node.input(index) for index in range(len(node.inputs))]
    accepted = (DType.FLOAT32, DType.INT32) if function == "add" else _ARITHMETIC
    if not values or values[0].dtype not in accepted:
        raise node.fail(UNSUPPORTED_TYPE, "its inputs", "supported: floating point, int32, int64")
    found = values[0]
    for value in values[1:]:
        found = emit.binary(g, function, found, value)
    return found


@onnx_op("Sum", since=1)
def sum_(node: OnnxNode, g: Graph) -> Result:
    """Element-wise sum of all inputs."""
    return node.elementwise(_chain(node, g, "add"))


@onnx_op("Max", since=1, kind=Kind.DIRECT)
def maximum(node: OnnxNode, g: Graph) -> Result:
    """Element-wise maximum of all inputs."""
    return node.elementwise(_chain(node, g, "max"))


@onnx_op("Min", since=1, kind=Kind.DIRECT)
def minimum(node: OnnxNode, g: Graph) -> Result:
    """Element-wise minimum of all inputs."""
    return node.elementwise(_chain(node, g, "min"))


@onnx_op("Mean", since=1)
def mean(node: OnnxNode, g: Graph) -> Result:
    """Element-wise mean of all inputs."""
    return node.elementwise(emit.divs(g, emit.floats(_chain(node, g, "add")), len(node.inputs)))
