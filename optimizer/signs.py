"""Whether a value can be negative, as far as the few nodes before it say."""

from __future__ import annotations

from tpuconvert.optimizer.limits import interval
from tpuconvert.schema.graph import Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.upsample import Upsample

_NOT_NEGATIVE = (
    ActiveType.ACTIVE_ABSVAL,
    ActiveType.ACTIVE_EXP,
    ActiveType.ACTIVE_SIGMOID,
    ActiveType.ACTIVE_SQUARE,
)
_KEEPS_SIGN = (ChannelShuffle, Concat, Extract, Permute, Pool, Reshape, Split, Upsample)
_DEPTH = 4


def is_never_negative(value: Value, depth: int = _DEPTH) -> bool:
    """True when every element is 0 or more for every input (or not a number); False when that is not known."""
    node = value.producer
    if node is None:
        return value.is_constant and bool((value.array >= 0).all())
    bounds = interval(node.op)
    if bounds is not None and bounds[0] >= 0:
        return True
    if isinstance(node.op, Softmax) or (isinstance(node.op, Active) and node.op.active_type in _NOT_NEGATIVE):
        return True
    if isinstance(node.op, _KEEPS_SIGN) and depth > 0:
        return all(operand is not None and is_never_negative(operand, depth - 1) for operand in node.inputs)
    return False
