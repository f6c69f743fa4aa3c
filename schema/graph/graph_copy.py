"""Copies of a graph, optionally with integers in place of symbolic extents, and of parts of a graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tpuconvert.schema.definition.op import Op, find_op
from tpuconvert.schema.graph.deferred import DeferredOp
from tpuconvert.schema.graph.graph import Deviation, Graph, Node, Port, Source, Value
from tpuconvert.schema.types import Array, Dim, QuantParams, Shape, TensorType


def copy_graph(graph: Graph, extents: Mapping[str, Dim] | None = None) -> Graph:
    """Copy nodes and values under the same names. The data of constants are shared.

    Args:
        graph: not modified.
        extents: integers or names that replace symbolic extents; the types of all results are inferred again.

    Raises:
        ShapeError: an operator does not accept these extents.

    """
    copy = Graph(graph.name, graph.file)
    copy.rescale, copy.notes, copy.deviations = graph.rescale, list(graph.notes), list(graph.deviations)
    copy.is_estimate = graph.is_estimate
    twin: dict[Value, Value] = {}
    for value, port in zip(graph.inputs, graph.input_ports, strict=True):
        type_ = TensorType(value.dtype, tuple(_number(extent, extents or {}) for extent in value.shape))
        twin[value] = copy.input(value.name, type_, port, value.quant)
    for value in graph.values:
        if value.data is not None:  # not the aligned copy of ``array``, which can be freed
            twin[value] = copy.constant(value.data, value.name, value.quant, value.stored)
    reserved = {value.name for value in graph.values}
    for node in graph.sorted_nodes():
        _copy_node(copy, node, twin, reserved, keeps_types=extents is None)
    for value, port in zip(graph.outputs, graph.output_ports, strict=True):
        copy.output(twin[value], port)
    _remove_unused(copy, graph)
    return copy


def specialize(graph: Graph, shapes: Sequence[Shape]) -> Graph:
    """Copy a graph under the same names, with other shapes of its inputs; all types of results are inferred again.

    Raises:
        ShapeError: an operator does not accept the shapes.

    """
    copy = Graph(graph.name, graph.file)
    copy.rescale, copy.is_estimate = graph.rescale, graph.is_estimate
    twin: dict[Value, Value] = {}
    for value, shape in zip(graph.inputs, shapes, strict=True):
        twin[value] = copy.input(value.name, TensorType(value.dtype, shape), quant=value.quant)
    for value in graph.values:
        if value.data is not None:  # not the aligned copy of ``array``, which can be freed
            twin[value] = copy.constant(value.data, value.name, value.quant, value.stored)
    reserved = {value.name for value in graph.values}
    for node in graph.sorted_nodes():
        _copy_node(copy, node, twin, reserved, keeps_types=False)
    for value in graph.outputs:
        copy.output(twin[value])
    _remove_unused(copy, graph)
    return copy


def _remove_unused(copy: Graph, graph: Graph) -> None:
    """Remove operands of which an expansion of the original's operators used only the shape."""
    if any(isinstance(node.op, DeferredOp) for node in graph.nodes):
        copy.prune()


def _copy_node(
    copy: Graph, node: Node, twin: dict[Value, Value], reserved: Collection[str], *, keeps_types: bool = True
) -> None:
    """Add a node to a copy; ``twin`` maps original values to their copies and gets the results.

    Values of an expansion do not take the names ``reserved`` of the original: its later nodes keep theirs, and the
    calibration finds the copy of a value by its name.
    """
    operands = [None if value is None else twin[value] for value in node.inputs]
    names = [value.name for value in node.outputs]
    with copy.derived_from(node):
        if isinstance(node.op, DeferredOp) and all(value is None or value.type.is_static for value in operands):
            results = _expand(copy, node.op, operands, names, reserved)
        else:
            results = copy.add_all(node.op, *operands, names=names)
    for old, new in zip(node.outputs, results, strict=True):
        new.quant = old.quant
        if keeps_types:
            new.type = old.type
        twin[old] = new


def _expand(
    copy: Graph, op: DeferredOp, operands: Sequence[Value | None], names: Sequence[str], reserved: Collection[str]
) -> Sequence[Value]:
    """Add the expansion of an operator whose extents are known now. The results get the names of the original."""
    copying = find_op("copy")  # by its stored name, as a file reader: operators are above graphs
    assert copying is not None
    copy.reserved_names = reserved
    results = [copy.add(copying(), new) if new in operands else new for new in op.expand(copy, *operands)]
    copy.reserved_names = ()
    for name, new in zip(names, results, strict=True):
        copy.rename(new, name)
    return results


def copy_subgraph(graph: Graph, inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
    """Copy the nodes that compute some values from others. Names are kept; the data of constants are shared.

    Args:
        graph: not modified.
        inputs: values that become the inputs of the copy, in this order.
        outputs: values that become its outputs; all of them depend only on ``inputs`` and constants.

    Raises:
        ValueError: an output depends on a graph input that is not in ``inputs``.

    """
    needed, stack = set(inputs), list(outputs)
    nodes: set[Node] = set()
    while stack:
        value = stack.pop()
        if value in needed:
            continue
        needed.add(value)
        if value.producer is not None:
            nodes.add(value.producer)
            stack += [operand for operand in value.producer.inputs if operand is not None]
        elif not value.is_constant:
            raise ValueError(f"'{outputs[0].name}' depends on '{value.name}', which is not among the inputs")
    copy = Graph(graph.name, graph.file)
    twin = {value: copy.input(value.name, value.type, quant=value.quant) for value in inputs}
    order = {node: position for position, node in enumerate(graph.sorted_nodes())}
    reserved = {value.name for value in graph.values}
    for node in sorted(nodes, key=order.__getitem__):
        for operand in node.inputs:
            if operand is not None and operand.is_constant and operand not in twin:
                twin[operand] = copy.constant(operand.array, operand.name, operand.quant, operand.stored)
        _copy_node(copy, node, twin, reserved)
    for value in outputs:
        if value.data is not None and value not in twin:  # no node reads it
            twin[value] = copy.constant(value.data, value.name, value.quant, value.stored)
        copy.output(twin[value])
    return copy


def _number(extent: Dim, extents: Mapping[str, Dim]) -> Dim:
    return extents.get(extent, extent) if isinstance(extent, str) else extent


_Result = tuple[str, TensorType, QuantParams | None]


@dataclass(frozen=True)
class FlatGraph:
    """Content of a graph without references between nodes, which can be pickled whatever the depth of the graph.

    Args:
        name: name of the model.
        file: base name of the source file.
        rescale: see ``Graph``.
        inputs: name, type, port and quantization.
        constants: name, data, quantization and original integers.
        nodes: operator, names of the operands, names, types and quantization of the results, and sources.
        outputs: name and port.
    """

    name: str
    file: str
    rescale: str
    inputs: tuple[tuple[str, TensorType, Port, QuantParams | None], ...]
    constants: tuple[tuple[str, Array, QuantParams | None, Array | None], ...]
    nodes: tuple[tuple[Op, tuple[str | None, ...], tuple[_Result, ...], tuple[Source, ...]], ...]
    outputs: tuple[tuple[str, Port], ...]
    deviations: tuple[Deviation, ...] = ()

    @staticmethod
    def of(graph: Graph) -> FlatGraph:
        """Return the content of a graph, which shares the data of its constants."""
        return FlatGraph(
            graph.name,
            graph.file,
            graph.rescale,
            tuple((v.name, v.type, port, v.quant) for v, port in zip(graph.inputs, graph.input_ports, strict=True)),
            tuple((v.name, v.array, v.quant, v.stored) for v in graph.values if v.is_constant),
            tuple(
                (
                    node.op,
                    tuple(None if v is None else v.name for v in node.inputs),
                    tuple((v.name, v.type, v.quant) for v in node.outputs),
                    node.sources,
                )
                for node in graph.sorted_nodes()
            ),
            tuple((v.name, port) for v, port in zip(graph.outputs, graph.output_ports, strict=True)),
            tuple(graph.deviations),
        )

    def build(self) -> Graph:
        """Return a graph with this content, with nodes in topological order."""
        graph = Graph(self.name, self.file)
        graph.rescale, graph.deviations = self.rescale, list(self.deviations)
        values = {name: graph.input(name, type_, port, quant) for name, type_, port, quant in self.inputs}
        for name, data, quant, stored in self.constants:
            values[name] = graph.constant(data, name, quant, stored)
        for op, operands, results, sources in self.nodes:
            inputs = [None if name is None else values[name] for name in operands]
            outputs = graph.add_all(op, *inputs, names=[name for name, _, _ in results], sources=sources)
            for value, (name, type_, quant) in zip(outputs, results, strict=True):
                value.type, value.quant = type_, quant
                values[name] = value
        for name, port in self.outputs:
            graph.output(values[name], port)
        return graph
