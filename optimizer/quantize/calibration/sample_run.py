"""Run of calibration samples through a graph, part by part, so that the caller can change a part before it runs.

All samples run through one part before the next one starts. A part of integer nodes is a graph of its own, which the
native engine runs with its fused kernels; its results equal the results of the reference implementation, byte for byte.
Nodes with floating-point tensors run their reference implementation, so that the results do not depend on the engine,
unless the caller requests the engine for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tpuconvert.runtime.session.border import to_value
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.types import Array, Chip


@dataclass(frozen=True)
class Part:
    """Consecutive nodes of a graph.

    Args:
        nodes: in topological order.
        results: values that later parts or the graph outputs need.
        release: values that no later part needs.
    """

    nodes: tuple[Node, ...]
    results: tuple[Value, ...]
    release: tuple[Value, ...]


@dataclass(frozen=True)
class _Program:
    graph: Graph
    chip: Chip


class SampleRun:
    """A run of samples through a graph.

    Args:
        graph: its constants may change until the part that reads them runs.
        chip: the target, whose arithmetic is used.
        feeds: feeds for ``Session.run``.
        first: nodes with which a part begins.
        runs_floats: whether the engine also runs nodes with floating-point tensors.
    """

    def __init__(
        self,
        graph: Graph,
        chip: Chip,
        feeds: Sequence[Mapping[str, Array]],
        first: Collection[Node],
        runs_floats: bool = False,
    ) -> None:
        self._chip = chip
        self._runs_floats = runs_floats
        self._count = len(feeds)
        self._parts = _parts(graph, first, runs_floats)
        self._values: dict[Value, list[Array]] = {
            value: [to_value(feed[port.name], port, value, {}) for feed in feeds]
            for value, port in zip(graph.inputs, graph.input_ports, strict=True)
        }

    def __iter__(self) -> Iterator[Part]:
        """Yield every part before it runs."""
        for part in self._parts:
            yield part
            self._run(part)
            for value in part.release:
                del self._values[value]

    def arrays(self, value: Value) -> list[Array]:
        """The arrays of a value that is not constant, one per feed."""
        return self._values[value]

    def _run(self, part: Part) -> None:
        if not self._runs_floats and not all(_is_integer(node) for node in part.nodes):
            for node in part.nodes:
                self._evaluate(node)
            return
        graph = _graph_of(part)
        with Session(_Program(graph, self._chip)) as session:
            names = [value.name for value in graph.inputs]
            operands = [self._values[value] for value in _operands(part)]
            results = [session.run(dict(zip(names, arrays, strict=True))) for arrays in zip(*operands, strict=True)]
        for value in part.results:
            self._values[value] = [result[value.name] for result in results]

    def _evaluate(self, node: Node) -> None:
        operands = [
            [None if value is None else value.array] * self._count
            if value is None or value.is_constant
            else self._values[value]
            for value in node.inputs
        ]
        results = [node.op.evaluate(*arrays, chip=self._chip) for arrays in zip(*operands, strict=True)]
        for position, value in enumerate(node.outputs):
            self._values[value] = [result[position] for result in results]


def _is_integer(node: Node) -> bool:
    return not any(value.dtype.is_float for value in (*node.inputs, *node.outputs) if value is not None)


def _parts(graph: Graph, first: Collection[Node], joins_floats: bool) -> list[Part]:
    """Split the nodes of a graph. A node with floating-point tensors is a part of its own, unless they are joined."""
    groups: list[list[Node]] = []
    joins = False
    for node in graph.sorted_nodes():
        is_integer = joins_floats or _is_integer(node)
        if joins and is_integer and node not in first:
            groups[-1].append(node)
        else:
            groups.append([node])
        joins = is_integer
    part_of: dict[Value, int] = {}
    last: dict[Value, int] = dict.fromkeys(graph.inputs, 0)
    for number, nodes in enumerate(groups):
        for node in nodes:
            for value in node.inputs:
                if value is not None and not value.is_constant:
                    last[value] = number
            for value in node.outputs:
                part_of[value] = last[value] = number
    for value in graph.outputs:
        last[value] = len(groups)
    results: list[list[Value]] = [[] for _ in groups]
    release: list[list[Value]] = [[] for _ in groups]
    for value, number in last.items():
        is_needed = part_of.get(value, -1) < number
        if is_needed and value in part_of:
            results[part_of[value]].append(value)
        if is_needed and number < len(groups):
            release[number].append(value)
    return [
        Part(tuple(nodes), tuple(made_here), tuple(released))
        for nodes, made_here, released in zip(groups, results, release, strict=True)
    ]


def _operands(part: Part) -> list[Value]:
    """The values that a part reads from earlier parts or from the graph inputs."""
    results = {value for node in part.nodes for value in node.outputs}
    read = [value for node in part.nodes for value in node.inputs if value is not None and not value.is_constant]
    return [value for value in dict.fromkeys(read) if value not in results]


def _graph_of(part: Part) -> Graph:
    """Copy a part to a graph whose inputs are ``_operands`` and whose outputs are the results."""
    graph = Graph()
    twin = {value: graph.input(value.name, value.type) for value in _operands(part)}
    for node in part.nodes:
        for value in node.inputs:
            if value is not None and value not in twin:
                twin[value] = graph.constant(value.array, value.name)
        operands = [None if value is None else twin[value] for value in node.inputs]
        outputs = graph.add_all(node.op, *operands, names=[value.name for value in node.outputs], sources=node.sources)
        twin.update(zip(node.outputs, outputs, strict=True))
    for value in part.results:
        graph.output(twin[value])
    return graph
