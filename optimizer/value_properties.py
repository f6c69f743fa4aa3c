"""Properties of the elements of a value, derived from the few nodes before it: non-negative, or Boolean."""

from __future__ import annotations

from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.op import Trait
from tpuconvert.schema.ops.arithmetic import Mul

_DEPTH = 4


def is_never_negative(value: Value, depth: int = _DEPTH) -> bool:
    """Return True if every element is known to be 0 or more, or NaN, for every input."""
    node = value.producer
    if node is None:
        return value.is_constant and bool((value.array >= 0).all())
    if node.op.is_non_negative() or _is_square(node):
        return True
    if node.op.keeps_sign() and depth > 0:
        return all(operand is not None and is_never_negative(operand, depth - 1) for operand in node.inputs)
    return False


def _is_square(node: Node) -> bool:
    return isinstance(node.op, Mul) and node.inputs[0] is node.inputs[1]


def is_boolean(graph: Graph, value: Value, depth: int = _DEPTH) -> bool:
    """Return True if every element is known to be 0 or 1, as for comparisons and what is computed from them."""
    if value.is_constant:
        return bool(((value.array == 0) | (value.array == 1)).all())
    node = value.producer
    if node is None:
        return value in graph.inputs and graph.input_ports[graph.inputs.index(value)].dtype == "bool"
    if Trait.COMPARISON in node.op.traits:
        return True
    if (node.op.only_moves_data or Trait.KEEPS_BOOLEAN in node.op.traits) and depth > 0:
        return all(operand is not None and is_boolean(graph, operand, depth - 1) for operand in node.inputs)
    return False
