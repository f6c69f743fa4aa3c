"""Sign, bounds and Boolean property of the elements of a value, derived from the few nodes before it."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.engine.node_properties import operands
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls, Rsubs, ScalarArithmetic, Subs
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.selection import ConditionSelect

Bounds = tuple[float, float]
UNKNOWN: Bounds = (-math.inf, math.inf)

_LARGEST = float(np.finfo(np.float32).max)
_DEPTH = 4
_BOUNDS_DEPTH = 8


def is_never_negative(value: Value, depth: int = _DEPTH) -> bool:
    """Return True if every element is known to be 0 or more, or NaN, for every input."""
    node = value.producer
    if node is None:
        return value.is_constant and bool((value.array >= 0).all())
    if node.op.is_non_negative() or _is_square(node):
        return True
    if node.op.keeps_sign() and depth > 0:
        return all(is_never_negative(operand, depth - 1) for operand in operands(node))
    return False


def _is_square(node: Node) -> bool:
    return isinstance(node.op, Mul) and node.inputs[0] is node.inputs[1]


def is_boolean(graph: Graph, value: Value, depth: int = _DEPTH) -> bool:
    """Return True if every element is known to be 0 or 1: comparisons, and operators that keep this property."""
    if value.is_constant:
        return bool(((value.array == 0) | (value.array == 1)).all())
    node = value.producer
    if node is None:
        return value in graph.inputs and graph.input_ports[graph.inputs.index(value)].dtype == "bool"
    if Trait.COMPARISON in node.op.traits:
        return True
    if (node.op.only_moves_data or Trait.KEEPS_BOOLEAN in node.op.traits) and depth > 0:
        return all(is_boolean(graph, operand, depth - 1) for operand in operands(node))
    return False


def is_finite(graph: Graph, value: Value) -> bool:
    """Return True if no element is infinite for any input. NaN may still result from NaN inputs."""
    low, high = bounds(graph, value)
    return low >= -_LARGEST and high <= _LARGEST


def bounds(graph: Graph, value: Value, depth: int = _BOUNDS_DEPTH) -> Bounds:
    """Lower and upper bound of the elements. Bounds beyond the float32 range are infinite."""
    if value.is_constant:
        numbers = value.array
        return (float(numbers.min()), float(numbers.max())) if numbers.size and not np.isnan(numbers).any() else UNKNOWN
    if value.dtype.is_integer:
        return float(value.dtype.min), float(value.dtype.max)
    if is_boolean(graph, value):
        return 0.0, 1.0
    node = value.producer
    if node is None or depth == 0:
        return UNKNOWN
    low, high = UNKNOWN
    if _has_rule(node.op):
        chosen = operands(node)[1:] if isinstance(node.op, ConditionSelect) else operands(node)
        low, high = _of_node(node.op, [bounds(graph, item, depth - 1) for item in chosen])
    if math.isnan(low) or math.isnan(high):
        return UNKNOWN
    return (-math.inf if low < -_LARGEST else low), (math.inf if high > _LARGEST else high)


def _has_rule(op: Op) -> bool:
    """Return True if the bounds of the result follow from the bounds of the operands."""
    if isinstance(op, ScalarArithmetic) and Trait.AFFINE in op.traits:
        return True
    is_choice = op.only_moves_data or op.clamp_range() is not None or isinstance(op, ConditionSelect)
    return is_choice or isinstance(op, (Add, Cast))


def _of_node(op: Op, operand_bounds: list[Bounds]) -> Bounds:
    """Return the bounds of a result from the bounds of its operands."""
    low, high = min(a for a, _ in operand_bounds), max(b for _, b in operand_bounds)
    if isinstance(op, Add):
        return sum(a for a, _ in operand_bounds), sum(b for _, b in operand_bounds)
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
