"""Bounds of the elements of a value, derived from the few nodes before it."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.value_properties import is_boolean
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls, Rsubs, Subs
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.selection import ConditionSelect

Bounds = tuple[float, float]
UNKNOWN: Bounds = (-math.inf, math.inf)

_LARGEST = float(np.finfo(np.float32).max)
_DEPTH = 8


def is_finite(graph: Graph, value: Value) -> bool:
    """Return True if no element is infinite for any input. NaN may still result from NaN inputs."""
    low, high = bounds(graph, value)
    return low >= -_LARGEST and high <= _LARGEST


def bounds(graph: Graph, value: Value, depth: int = _DEPTH) -> Bounds:
    """Lower and upper bound of the elements. Bounds beyond the float32 range are infinite."""
    if value.is_constant:
        numbers = value.array
        return (float(numbers.min()), float(numbers.max())) if numbers.size and not np.isnan(numbers).any() else UNKNOWN
    if value.dtype.is_integer:
        return float(value.dtype.min), float(value.dtype.max)
    if is_boolean(graph, value):
        return 0.0, 1.0
    node = value.producer
    if node is None or depth == 0 or any(item is None for item in node.inputs):
        return UNKNOWN
    if node.op.only_moves_data or isinstance(node.op, ConditionSelect):
        operands = node.inputs[1:] if isinstance(node.op, ConditionSelect) else node.inputs
    elif node.op.clamp_range() is not None or isinstance(node.op, (Add, Adds, Cast, Divs, Muls, Rsubs, Subs)):
        operands = node.inputs
    else:
        return UNKNOWN
    found = [bounds(graph, item, depth - 1) for item in operands if item is not None]
    return _rounded(_of_node(node.op, found))


def _of_node(op: Op, found: list[Bounds]) -> Bounds:
    """Bounds of a result from the bounds of its operands."""
    low, high = min(a for a, _ in found), max(b for _, b in found)
    if isinstance(op, Add):
        return sum(a for a, _ in found), sum(b for _, b in found)
    if isinstance(op, (Adds, Subs)):
        shift = op.scalar.value if isinstance(op, Adds) else -op.scalar.value
        return low + shift, high + shift
    if isinstance(op, Rsubs):
        return op.scalar.value - high, op.scalar.value - low
    if isinstance(op, (Muls, Divs)):
        factor = op.scalar.value if isinstance(op, Muls) else 1 / op.scalar.value if op.scalar.value else math.nan
        ends = low * factor, high * factor
        return UNKNOWN if math.isnan(sum(map(abs, ends))) else (min(ends), max(ends))
    limits = op.clamp_range()
    return (low, high) if limits is None else (max(low, limits[0]), min(max(high, limits[0]), limits[1]))


def _rounded(found: Bounds) -> Bounds:
    """Make bounds beyond the float32 range infinite, and NaN unknown."""
    low, high = found
    if math.isnan(low) or math.isnan(high):
        return UNKNOWN
    return (-math.inf if low < -_LARGEST else low), (math.inf if high > _LARGEST else high)
