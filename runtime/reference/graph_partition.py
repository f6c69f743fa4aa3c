"""Split a graph at the nodes whose results have data-dependent extents.

Between these nodes, all extents follow from the shapes of arrays that are known when a part begins. Each part can
therefore have a native plan per set of shapes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.graph.graph_copy import copy_subgraph
from tpuconvert.schema.types import TensorType


@dataclass(frozen=True, eq=False)
class Part:
    """Nodes without new data-dependent extents, as a graph.

    Args:
        graph: copy of the nodes.
        inputs: values of the whole graph that the part reads, in the order of the inputs.
        outputs: values of the whole graph that the part computes for others, in the order of the outputs.
    """

    graph: Graph
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @property
    def has_data_dependent_shapes(self) -> bool:
        """Return True if extents of the inputs depend on data."""
        return any(is_data_dependent(value.type) for value in self.inputs)

    @property
    def has_macs(self) -> bool:
        """Return True if a node has multiply-accumulates: a native plan is then worth the time to create it."""
        return any(type(node.op).count_macs is not Op.count_macs for node in self.graph.nodes)


def is_data_dependent(type_: TensorType) -> bool:
    """Return True if an extent depends on data."""
    return any(isinstance(extent, str) and "?" in extent for extent in type_.shape)


def creates_extents(node: Node) -> bool:
    """Return True if a result of the node has an extent that does not follow from the shapes of the operands."""
    if not any(is_data_dependent(value.type) for value in node.outputs):
        return False
    types: list[TensorType | None] = []
    for index, value in enumerate(node.inputs):
        if value is None:
            types.append(None)
            continue
        shape = tuple(
            f"operand{index}_{axis}" if isinstance(extent, str) and "?" in extent else extent
            for axis, extent in enumerate(value.shape)
        )
        types.append(TensorType(value.dtype, shape))
    try:
        return any(map(is_data_dependent, node.op.infer(*types)))
    except ShapeError:  # equal extents that got different names
        return True


def split(graph: Graph) -> list[Part | Node]:
    """Return the parts of a graph, and the nodes between them that create extents, in topological order."""
    level: dict[Value, int] = {}
    creators: dict[int, list[Node]] = {}
    nodes: dict[int, list[Node]] = {}
    for node in graph.sorted_nodes():
        here = max((level.get(value, 0) for value in node.inputs if value is not None), default=0)
        is_creator = creates_extents(node)
        (creators if is_creator else nodes).setdefault(here, []).append(node)
        for value in node.outputs:
            level[value] = here + is_creator
    parts: list[Part | Node] = []
    for number in range(max((*creators, *nodes), default=-1) + 1):
        if number in nodes:
            parts.append(_part(graph, nodes[number]))
        parts.extend(creators.get(number, ()))
    return parts


def _part(graph: Graph, nodes: list[Node]) -> Part:
    inside = set(nodes)
    results = {value for node in nodes for value in node.outputs}
    read = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
    inputs = tuple(value for value in read if value not in results and not value.is_constant)
    outputs = tuple(
        value
        for node in nodes
        for value in node.outputs
        if graph.is_output(value) or any(user not in inside for user, _ in value.uses)
    )
    return Part(copy_subgraph(graph, inputs, outputs), inputs, outputs)
