"""Operators that do nothing but limit their operand to an interval."""

from __future__ import annotations

import math

from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs, Mins
from tpuconvert.schema.ops.clamp import Clamp


def interval(op: Op) -> tuple[float, float] | None:
    """Lower and upper bound in real units when a float operator only limits its operand, else None."""
    if isinstance(op, Active):
        return (0.0, math.inf) if op.active_type == ActiveType.ACTIVE_RELU else None
    if isinstance(op, Clamp):
        return op.min.value, op.max.value
    if isinstance(op, Maxs):
        return op.scalar.value, math.inf
    if isinstance(op, Mins):
        return -math.inf, op.scalar.value
    return None
