"""What the few nodes before a value say about its elements: whether they can be negative, or are 0 and 1 only."""

from __future__ import annotations

from tpuconvert.optimizer.limits import interval
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Mins, Muls

_NOT_NEGATIVE = (
    ActiveType.ACTIVE_ABSVAL,
    ActiveType.ACTIVE_EXP,
    ActiveType.ACTIVE_RSQRT,
    ActiveType.ACTIVE_SIGMOID,
    ActiveType.ACTIVE_SQRT,
    ActiveType.ACTIVE_SQUARE,
)
_MOVES = ("broadcast", "channel_shuffle", "concat", "extract", "permute", "repeat", "reshape", "split", "tile")
KEEPS_TRUTH = frozenset({*_MOVES, "max", "min", "mul"})
KEEPS_SIGN = frozenset({*_MOVES, "add", "div", "max", "min", "mul", "pool", "reduce", "upsample"})
COMPARISONS = frozenset({"eq", "eqs", "ge", "ges", "gt", "gts", "le", "les", "lt", "lts", "ne", "nes"})
_SCALED = (Adds, Divs, Mins, Muls)
_DEPTH = 4


def is_never_negative(value: Value, depth: int = _DEPTH) -> bool:
    """True when every element is 0 or more for every input (or not a number); False when that is not known."""
    node = value.producer
    if node is None:
        return value.is_constant and bool((value.array >= 0).all())
    bounds = interval(node.op)
    if bounds is not None and bounds[0] >= 0:
        return True
    if node.op.name in COMPARISONS or node.op.name == "softmax" or _is_square(node):
        return True
    if isinstance(node.op, Active):
        return node.op.active_type in _NOT_NEGATIVE
    is_kept = node.op.name in KEEPS_SIGN or (isinstance(node.op, _SCALED) and node.op.scalar.value >= 0)
    if is_kept and depth > 0:
        return all(operand is not None and is_never_negative(operand, depth - 1) for operand in node.inputs)
    return False


def _is_square(node: Node) -> bool:
    return node.op.name == "mul" and node.inputs[0] is node.inputs[1]


def is_truth(graph: Graph, value: Value, depth: int = _DEPTH) -> bool:
    """True when every element is 0 or 1: constants, comparisons, inputs of booleans, and what is made of them."""
    if value.is_constant:
        return bool(((value.array == 0) | (value.array == 1)).all())
    node = value.producer
    if node is None:
        return value in graph.inputs and graph.input_ports[graph.inputs.index(value)].dtype == "bool"
    if node.op.name in COMPARISONS:
        return True
    if node.op.name in KEEPS_TRUTH and depth > 0:
        return all(operand is not None and is_truth(graph, operand, depth - 1) for operand in node.inputs)
    return False
