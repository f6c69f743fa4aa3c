"""What the few nodes before a value say about its elements: whether they can be negative, or are 0 and 1 only."""

from __future__ import annotations

from tpuconvert.optimizer.limits import interval
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Mins, Muls
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.compare import ScalarComparison, TensorComparison
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.tile import Repetition
from tpuconvert.schema.ops.upsample import Upsample

_NOT_NEGATIVE = (
    ActiveType.ACTIVE_ABSVAL,
    ActiveType.ACTIVE_EXP,
    ActiveType.ACTIVE_RSQRT,
    ActiveType.ACTIVE_SIGMOID,
    ActiveType.ACTIVE_SQRT,
    ActiveType.ACTIVE_SQUARE,
)
_MOVES = (ChannelShuffle, Concat, Extract, Permute, Repetition, Reshape, Split)
_KEEPS_SIGN = (*_MOVES, Add, Div, Max, Min, Mul, Pool, Reduce, Upsample)
_SCALED = (Adds, Divs, Mins, Muls)
_COMPARISONS = (ScalarComparison, TensorComparison)
_DEPTH = 4


def is_never_negative(value: Value, depth: int = _DEPTH) -> bool:
    """True when every element is 0 or more for every input (or not a number); False when that is not known."""
    node = value.producer
    if node is None:
        return value.is_constant and bool((value.array >= 0).all())
    bounds = interval(node.op)
    if bounds is not None and bounds[0] >= 0:
        return True
    if isinstance(node.op, (Softmax, *_COMPARISONS)) or _is_square(node):
        return True
    if isinstance(node.op, Active):
        return node.op.active_type in _NOT_NEGATIVE
    is_kept = isinstance(node.op, _KEEPS_SIGN) or (isinstance(node.op, _SCALED) and node.op.scalar.value >= 0)
    if is_kept and depth > 0:
        return all(operand is not None and is_never_negative(operand, depth - 1) for operand in node.inputs)
    return False


def _is_square(node: Node) -> bool:
    return isinstance(node.op, Mul) and node.inputs[0] is node.inputs[1]


def is_truth(graph: Graph, value: Value, depth: int = _DEPTH) -> bool:
    """True when every element is 0 or 1: constants, comparisons, inputs of booleans, and what is made of them."""
    if value.is_constant:
        return bool(((value.array == 0) | (value.array == 1)).all())
    node = value.producer
    if node is None:
        return value in graph.inputs and graph.input_ports[graph.inputs.index(value)].dtype == "bool"
    if isinstance(node.op, _COMPARISONS):
        return True
    if isinstance(node.op, (*_MOVES, Max, Min, Mul)) and depth > 0:
        return all(operand is not None and is_truth(graph, operand, depth - 1) for operand in node.inputs)
    return False
