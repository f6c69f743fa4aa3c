"""Correspondence of the integer nodes of a model with the nodes of its float graph.

A node of the float graph is lowered to several integer nodes, and some nodes are lowered together, as a conv and its
ReLU. An ``IntegerUnit`` is the smallest such group: its operands and its result are tensors of both graphs, matched by
name, and it computes everything between them.

The quantization of a tensor belongs to the unit that uses it: if only this unit is in integers, its operands are
quantized, and its accumulator is not. Concat is an exception. Its operands and its result share one scale, which is
the reason for their error. Their quantization belongs to the concat and not to the users of its result.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpuconvert.optimizer.engine.node_properties import computed_operands
from tpuconvert.optimizer.quantize.traits import is_product, keeps_scale
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.types import I32

_ACCUMULATOR = ":int32"
"""Suffix of the name of an accumulator whose dequantized values equal the values of the tensor without the suffix."""


@dataclass(frozen=True)
class UnitOperand:
    """Operand of a unit.

    Args:
        value: the tensor in the float graph.
        integer: the tensor in the model; float if the integer nodes read floats.
        is_own: whether the error of its quantization belongs to this unit.
        origin: the value of the model whose integers these are, before data movement.

    """

    value: Value
    integer: Value
    is_own: bool
    origin: Value


@dataclass(frozen=True)
class IntegerUnit:
    """Nodes of a float graph and the integer nodes that compute the same.

    Args:
        nodes: nodes of the float graph, in topological order.
        operands: operands of the nodes that are not constant.
        result: result in the float graph; before an activation if the model has the accumulator.
        integer: the same tensor in the model.
        owns_result: whether the error of rounding the result belongs to this unit: no other unit quantizes it.
        stored: the 8- or 16-bit result in the model, after an activation that is part of the unit.
        stored_value: the tensor of the float graph that ``stored`` approximates.

    """

    nodes: tuple[Node, ...]
    operands: tuple[UnitOperand, ...]
    result: Value
    integer: Value
    owns_result: bool
    stored: Value
    stored_value: Value

    @property
    def node(self) -> Node:
        """The node that names the unit: the linear operator, otherwise the last node that is not a clamp."""
        linear = [node for node in self.nodes if is_product(node.op)]
        others = [node for node in self.nodes if node.op.clamp_range() is None]
        return (linear or others or list(self.nodes))[-1]

    @property
    def name(self) -> str:
        """Name of the result of ``node``, by which precision rules select it."""
        return self.node.name


def find_units(graph: Graph, model: Graph) -> tuple[list[IntegerUnit], list[str]]:
    """Find the units of a model in execution order.

    Args:
        graph: the float graph that was quantized. It has the names of the model.
        model: the graph of the model.

    Returns:
        The units, and the names of integer tensors whose nodes have no counterpart in the float graph. Data movement
        with one operand is in neither list, because it has no error.

    """
    values = {value.name: value for value in graph.values if not value.is_constant}
    order = {node: position for position, node in enumerate(graph.sorted_nodes())}
    units, unmatched = [], []
    for node in model.sorted_nodes():
        for stored in node.outputs:
            value = values.get(stored.name)
            if value is None or value.producer is None or stored.quant is None or not stored.dtype.is_integer:
                continue
            if keeps_scale(value.producer.op) and len(computed_operands(value.producer)) == 1:
                continue
            unit = _find_unit(value, stored, values, model, order)
            if unit is None:
                unmatched.append(stored.name)
            else:
                units.append(unit)
    return units, unmatched


def _find_unit(
    value: Value, stored: Value, values: dict[str, Value], model: Graph, order: dict[Node, int]
) -> IntegerUnit | None:
    """Return the unit that computes a tensor, or None if the graphs have no common operands."""
    assert value.producer is not None
    integers = _integer_operands(stored, values)
    if integers is None or len(set(integers.values())) < len(integers):
        return None
    between = _nodes_between(list(integers.values()), value)
    if between is None:
        return None
    is_concat = keeps_scale(value.producer.op)
    leaves = model.is_output(stored) or any(user.outputs[0].dtype.is_float for user in stored.users)
    owns_result = is_concat or leaves
    result, integer = value, stored
    before = computed_operands(stored.producer) if stored.producer is not None else []
    if len(before) == 1 and not owns_result and before[0].name.endswith(_ACCUMULATOR):
        accumulated = values.get(before[0].name.removesuffix(_ACCUMULATOR))
        if before[0].dtype is I32 and before[0].quant is not None and accumulated is not None:
            result, integer = accumulated, before[0]
    operands = []
    for item, float_value in integers.items():
        origin = _origin(item)
        is_own = is_concat or origin.producer is None or not keeps_scale(origin.producer.op)
        operands.append(UnitOperand(float_value, item, is_own, origin))
    nodes = tuple(sorted(between, key=order.__getitem__))
    return IntegerUnit(nodes, tuple(operands), result, integer, owns_result, stored, value)


def _integer_operands(stored: Value, values: dict[str, Value]) -> dict[Value, Value] | None:
    """Return the nearest values before ``stored`` that quantize tensors of the float graph, with these tensors."""
    operands: dict[Value, Value] = {}
    seen = {stored}
    stack = [stored]
    while stack:
        value = stack.pop()
        if value.producer is None:
            return None
        for operand in reversed(computed_operands(value.producer)):
            if operand in seen:
                continue
            seen.add(operand)
            quantized = _quantized_tensor(operand, values)
            if quantized is not None:
                operands[operand] = quantized
            else:
                stack.append(operand)
    return operands


def _quantized_tensor(value: Value, values: dict[str, Value]) -> Value | None:
    """Return the tensor of the float graph that a value of the model represents, or None."""
    if value.name in values:
        return values[value.name]
    if value.quant is None or value.producer is None:
        return None
    before = computed_operands(value.producer)
    while len(before) == 1 and before[0].dtype.is_float:
        if before[0].name in values:
            return values[before[0].name]
        producer = before[0].producer
        before = computed_operands(producer) if producer is not None else []
    return None


def _nodes_between(operands: list[Value], result: Value) -> set[Node] | None:
    """Return the nodes of the float graph that compute a result, or None if they also use another tensor."""
    nodes: set[Node] = set()
    stack = [result]
    while stack:
        value = stack.pop()
        if value.producer is None:
            return None
        nodes.add(value.producer)
        needed = [item for item in computed_operands(value.producer) if item not in operands]
        stack += [item for item in needed if item.producer not in nodes]
    return nodes


def _origin(value: Value) -> Value:
    """Return the value whose integers a value has: before data movement with one operand."""
    while value.producer is not None and keeps_scale(value.producer.op):
        before = computed_operands(value.producer)
        if len(before) != 1:
            break
        value = before[0]
    return value
