"""Part of an exported graph that the program of the device does not compute: the host runs it after the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpuconvert.exporters.tpu_mlir.lowering import Lowering
from tpuconvert.schema.graph.cost import macs
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.graph.graph_copy import copy_subgraph


@dataclass(frozen=True)
class HostPart:
    """Nodes that the host computes.

    Args:
        graph: the graph of which they are a part.
        computed: operands that the program returns, in execution order.
        inputs: operands that are inputs of the graph.
        outputs: outputs of the graph that the host computes.
        nodes: the nodes, in execution order.
        reasons: why a node has no form on the device. The other nodes depend on these.
    """

    graph: Graph
    computed: tuple[Value, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    reasons: Mapping[Node, str]

    @property
    def share(self) -> float:
        """Share of the multiply-accumulates of the graph that the host computes, 0 to 1."""
        total = sum(macs(node, 1) or 0 for node in self.graph.nodes)
        return sum(macs(node, 1) or 0 for node in self.nodes) / total if total else 0.0

    @property
    def is_everything(self) -> bool:
        """True if the program would compute nothing, or none of the multiply-accumulates."""
        return len(self.nodes) == len(self.graph.nodes) or self.share == 1.0

    def to_graph(self) -> Graph:
        """Return a graph of these nodes, with the names and ports of the outputs."""
        copy = copy_subgraph(self.graph, [*self.inputs, *self.computed], self.outputs)
        ports = zip(self.graph.outputs, self.graph.output_ports, strict=True)
        copy.output_ports = [port for value, port in ports if value in self.outputs]
        return copy


def find_host_part(lowering: Lowering) -> HostPart:
    """Return what a lowered program leaves to the host: all that the outputs need and the program does not compute."""
    graph = lowering.graph
    outputs = [value for value in graph.outputs if not lowering.is_returnable(value)]
    nodes: set[Node] = set()
    operands: set[Value] = set()
    stack = list(outputs)
    while stack:
        value = stack.pop()
        if value.producer is None or lowering.is_returnable(value):
            operands.add(value)
        elif value.producer not in nodes:
            nodes.add(value.producer)
            stack += [operand for operand in value.producer.inputs if operand is not None]
    order = [node for node in graph.nodes if node in nodes]
    return HostPart(
        graph,
        tuple(value for node in graph.nodes for value in node.outputs if value in operands),
        tuple(value for value in graph.inputs if value in operands),
        tuple(outputs),
        tuple(order),
        {node: lowering.without_form[node] for node in order if node in lowering.without_form},
    )
