"""Float graphs that round and saturate values of an annotated graph as its integers would be.

Weights stay float, and the integer arithmetic is not simulated. The error at the outputs is therefore caused by
the activations alone. Refinement reduces the errors of weights and biases later; until then they would hide it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tpuconvert.optimizer.engine.node_properties import computed_operands
from tpuconvert.optimizer.quantize.lowering.lowering import Lowering
from tpuconvert.optimizer.quantize.lowering.wide_plan import NO_PLAN, WidePlan
from tpuconvert.optimizer.quantize.traits import keeps_scale
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.types import I16, Chip, QuantParams


def simulate(
    graph: Graph,
    plan: WidePlan = NO_PLAN,
    narrow: Mapping[str, QuantParams] | None = None,
    floats: Collection[str] = (),
) -> Graph:
    """Return a float graph in which every annotated value of ``graph`` is quantized and dequantized.

    Values that data movement or a clamp leaves on the same scale are rounded once. A value between two float nodes is
    not rounded: the integers that other nodes read are another form of it.

    Args:
        graph: annotated float graph.
        plan: the values with 16 bits, and the nodes that take them.
        narrow: parameters of the 8-bit forms of these values, which all other integer nodes read, by name.
        floats: names of the nodes that stay float.
    """
    lowering = Lowering(graph, Chip.BM1686)  # the only chip that quantizes by per-channel scales
    lowering.g.is_estimate = True
    narrowed: dict[Value, Value] = {}
    rounded: dict[Value, Value] = {}

    def integer_form(value: Value) -> Value:
        """Rounded form of a value. A float node makes both forms."""
        if value.producer is None or value.producer.name not in floats or value.quant is None:
            return lowering.float_value(value)
        if value not in rounded:
            rounded[value] = lowering.rounded_float(lowering.float_value(value), value.quant, f"{value.name}:rounded")
        return rounded[value]

    def operand(node: Node, value: Value) -> Value:
        if node.name in floats:
            return lowering.float_value(value)
        is_wide = value in plan.values and value.quant is not None and value.quant.dtype is I16
        if node.outputs[0].quant is None or not is_wide or plan.reads(node):
            return integer_form(value)
        if value not in narrowed:
            params = (narrow or {})[value.name]
            narrowed[value] = lowering.rounded_float(lowering.float_value(value), params, f"{value.name}:narrow")
        return narrowed[value]

    for value, port in zip(graph.inputs, graph.input_ports, strict=True):
        lowering.set_float_value(value, lowering.g.input(value.name, value.type, port))
        if value.quant is not None:
            lowering.saturate_float_value(value)
    for node in graph.sorted_nodes():
        inputs = [None if value is None else operand(node, value) for value in node.inputs]
        results = lowering.g.add_all(node.op, *inputs, names=[value.name for value in node.outputs])
        for old, new in zip(node.outputs, results, strict=True):
            lowering.set_float_value(old, new)
            if old.quant is not None and node.name not in floats and not _is_rounded_elsewhere(node, old):
                lowering.saturate_float_value(old)
    for value, port in zip(graph.outputs, graph.output_ports, strict=True):
        lowering.g.output(lowering.float_value(value), port)
    lowering.g.prune()
    lowering.g.sort()
    return lowering.g


def round_operands(graph: Graph, name: str) -> Graph:
    """Return a float graph in which one node reads quantized and dequantized operands.

    Args:
        graph: annotated float graph.
        name: name of the node. Its constants, and operands without scale, stay as they are.
    """
    lowering = Lowering(graph, Chip.BM1686)
    lowering.g.is_estimate = True

    def operand(node: Node, value: Value) -> Value:
        result = lowering.float_value(value)
        if node.name != name or value.is_constant or value.quant is None:
            return result
        return lowering.rounded_float(result, value.quant, f"{value.name}:rounded")

    for value, port in zip(graph.inputs, graph.input_ports, strict=True):
        lowering.set_float_value(value, lowering.g.input(value.name, value.type, port))
    for node in graph.sorted_nodes():
        inputs = [None if value is None else operand(node, value) for value in node.inputs]
        results = lowering.g.add_all(node.op, *inputs, names=[value.name for value in node.outputs])
        for old, new in zip(node.outputs, results, strict=True):
            lowering.set_float_value(old, new)
    for value, port in zip(graph.outputs, graph.output_ports, strict=True):
        lowering.g.output(lowering.float_value(value), port)
    lowering.g.prune()
    lowering.g.sort()
    return lowering.g


def _is_rounded_elsewhere(node: Node, value: Value) -> bool:
    """Return True if a clamp that is the only user has the same scale, or all operands of data movement have it."""
    if len(value.uses) == 1:
        user = value.users[0]
        if user.op.clamp_range() is not None and user.outputs[0].quant == value.quant:
            return True
    return keeps_scale(node.op) and all(operand.quant == value.quant for operand in computed_operands(node))
