"""Comparisons, logical operators and select. Boolean tensors are FLOAT32 0 and 1."""

from __future__ import annotations

from tpuconvert.frontends import emit
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.lowering import align, broadcast_shape, expand, reshape
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value, static
from tpuconvert.schema.ops.arithmetic import Max, Mul
from tpuconvert.schema.ops.compare import Eq, Eqs, Ge, Gt, Le, Lt, Ne
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import I16, Array, Scalar

_COMPARISONS: dict[str, Op] = {
    **{"EQUAL": Eq(), "NOT_EQUAL": Ne(), "LESS": Lt(), "LESS_EQUAL": Le()},
    **{"GREATER": Gt(), "GREATER_EQUAL": Ge()},
}
_DIRECTIONS: tuple[Op, ...] = (Eq(), Ne(), Ge(), Gt(), Le(), Lt())


@tflite_op(*_COMPARISONS, kind=Kind.DIRECT)
def compare(node: TfliteNode, g: Graph) -> Value:
    """Comparison of two tensors; integers are cast to FLOAT32, which is exact below 2^24."""
    return _relation(node, g, _COMPARISONS[node.op_type])


@tflite_op("STABLEHLO_COMPARE", kind=Kind.DIRECT)
def stablehlo_compare(node: TfliteNode, g: Graph) -> Value:
    """Comparison that the option ``comparison_direction`` selects."""
    node.ignore_option("compare_type")  # redundant: the tensors have types
    direction = node.option("comparison_direction")
    if not 0 <= direction < len(_DIRECTIONS):
        raise node.fail(INVALID_NODE, f"comparison_direction is {direction}")
    return _relation(node, g, _DIRECTIONS[direction])


def _relation(node: TfliteNode, g: Graph, op: Op) -> Value:
    _check_scales(node, op)
    a, b = align(g, emit.as_float(g, node.input(0)), emit.as_float(g, node.input(1)))
    return g.add(op, a, b)


def _check_scales(node: TfliteNode, op: Op) -> None:
    """Raise an error for scales of 1 or more: the kernel would shift by a negative number of bits, or abort.

    INT16 is rescaled for equality only.
    """
    quants = [quant for quant in (node.quant(0), node.quant(1)) if quant is not None]
    is_rescaled = isinstance(op, Eq | Ne) or any(quant.dtype is not I16 for quant in quants)
    if is_rescaled and any(scale >= 1 for quant in quants for scale in quant.scale):
        raise node.fail(
            UNSUPPORTED_TYPE,
            "a scale of 1 or more, for which the result of the TFLite kernel is undefined",
            "export the model with DEQUANTIZE before it",
        )


_LOGICAL: dict[str, Op] = {
    **{"LOGICAL_AND": Mul(), "STABLEHLO_AND": Mul(), "LOGICAL_OR": Max(), "STABLEHLO_OR": Max()},
}


@tflite_op(*_LOGICAL, kind=Kind.DIRECT)
def logical(node: TfliteNode, g: Graph) -> Value:
    """Logical AND and OR of Boolean tensors, as the product and maximum of 0 and 1."""
    if node.tensor(0).type != "BOOL":
        raise node.fail(UNSUPPORTED_TYPE, f"bits of {node.tensor(0).type}", "supported: BOOL")
    return g.add(_LOGICAL[node.op_type], *align(g, node.input(0), node.input(1)))


@tflite_op("LOGICAL_NOT")
def logical_not(node: TfliteNode, g: Graph) -> Value:
    """Logical NOT: ``x == 0``."""
    return g.add(Eqs(Scalar.f32(0)), node.input(0))


@tflite_op("SELECT", "SELECT_V2", "STABLEHLO_SELECT", kind=Kind.DIRECT)
def select(node: TfliteNode, g: Graph) -> Value | Array:
    """``where(condition, x, y)``. SELECT applies a condition of rank 1 to whole rows; SELECT_V2 broadcasts it."""
    condition, yes, no = node.input(0), node.input(1), node.input(2)
    if node.op_type == "SELECT" and node.rank(0) == 1 and node.rank(1) > 1:
        rows = (static(condition.shape)[0], *(1,) * (node.rank(1) - 1))
        condition = reshape(g, condition, rows)
    shape = broadcast_shape(*align(g, condition, yes, no))
    if 0 in shape:
        return node.empty(shape)
    parts = [expand(node.graph, emit.as_float(g, value), shape) for value in (condition, yes, no)]
    if parts[0].is_constant:
        parts[0] = g.add(Copy(), parts[0])
    return emit.cast(g, g.add(ConditionSelect(), *parts), yes.dtype)
