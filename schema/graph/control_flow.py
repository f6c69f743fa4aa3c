"""Subgraphs of control-flow operators: bodies of loops and branches of conditions.

An operator with subgraphs is a ``ControlFlowOp``. Its parameters of type ``Subgraph`` own the graphs. A subgraph has
no access to the values of the graph around it: everything that it uses is one of its inputs or constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from tpuconvert.schema.definition.extents import shapes_of
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.graph_copy import FlatGraph, specialize
from tpuconvert.schema.graph.type_inference import may_be_same_type
from tpuconvert.schema.types import Array, Chip, TensorType

MAX_DEPTH = 8
"""Largest depth of nested subgraphs."""

MAX_EXPANDED_NODES = 1 << 20
"""Largest number of nodes of all subgraphs, each counted once per operator that refers to it."""


class Subgraph:
    """A graph that is a parameter of an operator. Two subgraphs are equal only if they are the same object."""

    __slots__ = ("graph",)

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __repr__(self) -> str:
        return f"<{self.graph.name}: {len(self.graph)} nodes>"

    def __reduce__(self) -> tuple[Callable[[FlatGraph], Subgraph], tuple[FlatGraph]]:
        return _unpickle, (FlatGraph.of(self.graph),)

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        """Declared types of the inputs; extents may be symbolic."""
        return tuple(value.type for value in self.graph.inputs)

    def result_types(self, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """Types of the outputs for inputs of some types.

        Raises:
            ShapeError: the subgraph does not accept these types.
        """
        declared = self.input_types
        if len(types) != len(declared) or not all(map(may_be_same_type, types, declared)):
            raise ShapeError(
                f"subgraph '{self.graph.name}' takes inputs of shapes {shapes_of(declared)}, got {shapes_of(types)}"
            )
        graph = self.graph if tuple(types) == declared else specialize(self.graph, [item.shape for item in types])
        return tuple(value.type for value in graph.outputs)


def _unpickle(content: FlatGraph) -> Subgraph:
    return Subgraph(content.build())


RunSubgraph = Callable[[Subgraph, Sequence[Array]], Sequence[Array]]
"""Function that computes the outputs of a subgraph from its inputs."""


class ControlFlowOp(Op):
    """Base of operators with subgraphs, which the host executes.

    ``execute`` is the meaning of the operator; it calls a function that runs a subgraph once. A session runs compiled
    subgraphs, ``reference`` runs every node by NumPy.
    """

    has_subgraphs: ClassVar[bool] = True
    chip_dependent: ClassVar[bool] = True
    execute: ClassVar[Callable[..., tuple[Array, ...]]]

    def subgraphs(self) -> dict[str, Subgraph]:
        """The subgraphs by the names of the parameters."""
        return {name: value for name, value in self.attributes().items() if isinstance(value, Subgraph)}

    def reference(self, *arrays: Array | None, chip: Chip = Chip.BM1686) -> tuple[Array, ...]:
        """Execute the operator, with the references of all nodes of its subgraphs."""
        return self.execute(lambda subgraph, operands: run_reference(subgraph.graph, operands, chip), *arrays)


def run_reference(graph: Graph, arrays: Sequence[Array], chip: Chip) -> list[Array]:
    """Compute the outputs of a graph by the NumPy reference of every node."""
    results: dict[Any, Array] = dict(zip(graph.inputs, arrays, strict=True))
    for node in graph.sorted_nodes():
        operands = [None if x is None else x.array if x.is_constant else results[x] for x in node.inputs]
        results.update(zip(node.outputs, node.op.evaluate(*operands, chip=chip), strict=True))
    return [value.array if value.is_constant else results[value] for value in graph.outputs]


def subgraphs_of(op: Op) -> dict[str, Subgraph]:
    """The subgraphs of an operator by the names of its parameters; empty for most operators."""
    return op.subgraphs() if isinstance(op, ControlFlowOp) else {}


def all_graphs(graph: Graph) -> list[Graph]:
    """A graph and all its subgraphs."""
    return [graph, *nested_graphs(graph)]


def nested_graphs(graph: Graph) -> Iterator[Graph]:
    """Yield the subgraphs of all nodes of a graph and their subgraphs, each after those inside it."""
    for node in graph.nodes:
        for subgraph in subgraphs_of(node.op).values():
            yield from nested_graphs(subgraph.graph)
            yield subgraph.graph
