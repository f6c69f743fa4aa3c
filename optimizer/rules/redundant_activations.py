"""Removal of activations that do not change any value.

These are |x|, and a lower limit of 0 or less, if x is never negative; and rounding of values that are rounded already.
"""

from __future__ import annotations

import math

from tpuconvert.optimizer.annotations import is_interchangeable
from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.optimizer.value_properties import is_never_negative
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.op import Trait
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.round_to_integer import Rounding
from tpuconvert.schema.types import F32

_ROUNDINGS = (ActiveType.ACTIVE_ROUND, ActiveType.ACTIVE_CEIL, ActiveType.ACTIVE_FLOOR)


def _is_float(node: Node) -> bool:
    return all(value is not None and value.dtype is F32 for value in (*node.inputs, *node.outputs))


def _changes_nothing(node: Node) -> bool:
    """Return True for a limit or absolute value of a non-negative operand, and for rounding of integers."""
    (x,) = node.inputs
    if x is None or not _is_float(node):
        return False
    bounds = node.op.clamp_range()
    if bounds is not None:
        return bounds[0] <= 0 and math.isinf(bounds[1]) and is_never_negative(x)
    if isinstance(node.op, Active) and node.op.active_type == ActiveType.ACTIVE_ABSVAL:
        return is_never_negative(x)
    return _rounds_to_integers(node) and x.producer is not None and _rounds_to_integers(x.producer)


def _rounds_to_integers(node: Node) -> bool:
    return isinstance(node.op, Rounding) or (isinstance(node.op, Active) and node.op.active_type in _ROUNDINGS)


@rule(p(Trait.LUT, "x", name="op", where=_changes_nothing), stage="fuse", formerly="remove_useless_function")
def remove_redundant_activation(graph: Graph, m: Match) -> Replacement:
    """``|x| -> x`` and ``max(x, 0) -> x`` for x >= 0, and ``round(round(x)) -> round(x)``."""
    return m.x if is_interchangeable(m.x, m.op.output) else Skip("it changes the quantization")
