"""Functions that return operands of nodes, and conditions on nodes that several rules share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic_with_scalar import Divs, Muls
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.types import F32, I32


def operand(node: Node, index: int = 0) -> Value:
    """Return an operand that is known to be present."""
    value = node.inputs[index]
    assert value is not None
    return value


def operands(node: Node) -> list[Value]:
    """The operands that are not absent."""
    return [value for value in node.inputs if value is not None]


def concatenates_channels(node: Node) -> bool:
    """Return True for a concat along axis 1."""
    return isinstance(node.op, Concat) and node.op.axis % node.outputs[0].rank == 1


def element_operands(node: Node) -> list[Value | None]:
    """The operands, present or absent, except operands of which only the shapes are used."""
    if not node.op.shape_operands:
        return list(node.inputs)
    pairs = zip(node.inputs, node.op.inputs, strict=False)
    return [value for value, declared in pairs if declared.name not in node.op.shape_operands]


def computed_operands(node: Node) -> list[Value]:
    """The operands that are neither absent nor constant, except operands of which only the shapes are used."""
    return [value for value in element_operands(node) if value is not None and value.data is None]


def is_float32(node: Node) -> bool:
    """Return True if all operands and results are FLOAT32."""
    return all(value is not None and value.dtype is F32 for value in (*node.inputs, *node.outputs))


def is_active(kind: ActiveType) -> Callable[[Node], bool]:
    """Return the condition that a node applies an activation function to FLOAT32."""
    return lambda node: isinstance(node.op, Active) and node.op.active_type is kind and is_float32(node)


def may_round_integers(node: Node) -> bool:
    """Return True if some chip computes the node's INT32 in binary32, where even ``x + 0`` rounds beyond 2^24."""
    return node.outputs[0].dtype is I32 and any(
        case.compute == "FLOAT32" for support in node.op.dtypes.values() for case in support.cases
    )


def reduced_axes(node: Node) -> list[int]:
    """The reduced axes of the operand of a reduce, sorted."""
    assert isinstance(node.op, Reduce)
    return sorted(axis % operand(node).rank for axis in node.op.axis_list[: node.op.axis_num])


def scalar_factor(op: Op) -> float:
    """Factor of ``muls``, or the reciprocal of the divisor of ``divs``."""
    assert isinstance(op, (Muls, Divs))
    if isinstance(op, Muls):
        return op.scalar.value
    return 1.0 / op.scalar.value if op.scalar.value else math.inf


def dependent_nodes(graph: Graph, nodes: Iterable[Node]) -> list[Node]:
    """Nodes that depend on one of the given nodes, which are not included, in execution order."""
    first = set(nodes)
    reached = {value for node in first for value in node.outputs}
    dependent = []
    for node in graph.sorted_nodes():
        if node not in first and any(value in reached for value in node.inputs):
            dependent.append(node)
            reached.update(node.outputs)
    return dependent
