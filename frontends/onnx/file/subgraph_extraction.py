"""Select the nodes between given inputs and outputs of a source graph, in topological order."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Container, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from tpuconvert.frontends.onnx.file.messages import GraphProto, NodeProto
from tpuconvert.frontends.onnx.file.reader import initializers, reads_of
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.text.spelling import did_you_mean


def producers_of(graph: GraphProto, file: str) -> dict[str, int]:
    """Map each tensor to the index of its producer.

    Raises:
        CorruptInputError: two nodes have the same output.
    """
    sources = {value.name for value in graph.input} | {tensor.name for tensor in initializers(graph)}
    return check_outputs(graph.node, sources, file)


def check_outputs(nodes: Iterable[NodeProto], sources: Container[str], file: str) -> dict[str, int]:
    """Check that no two nodes have the same output, and no output has the name of an input or a constant.

    Returns:
        Index of the producer of each tensor.

    Raises:
        CorruptInputError: a name is taken.
    """
    producers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in node.output[:]:
            if name and (name in producers or name in sources):
                raise CorruptInputError(f"tensor '{name}' is the output of more than one node", file=file)
            if name:
                producers[name] = index
    return producers


def nodes_for(nodes: Sequence[NodeProto], outputs: Iterable[str]) -> list[NodeProto]:
    """Return the nodes that ``outputs`` depend on; the given nodes are in topological order."""
    needed, selected = set(outputs), []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.output[:]):
            selected.append(node)
            needed |= reads_of(node)
    return selected[::-1]


def needed_nodes(graph: GraphProto, inputs: Iterable[str], outputs: Sequence[str], file: str) -> list[NodeProto]:
    """Return the nodes that ``outputs`` depend on if the graph begins at ``inputs``, in topological order.

    The order of the file is kept if it is topological.

    Raises:
        CorruptInputError: the nodes form a cycle, or two nodes have the same output.
    """
    producers = producers_of(graph, file)
    stop = set(inputs)
    reads = [reads_of(node) for node in graph.node]
    waiting: dict[int, set[int]] = {}
    pending = [producers[name] for name in outputs if name in producers and name not in stop]
    while pending:
        index = pending.pop()
        if index not in waiting:
            waiting[index] = {producers[name] for name in reads[index] if name in producers and name not in stop}
            pending.extend(waiting[index])
    if all(max(sources, default=-1) < index for index, sources in waiting.items()):
        return [node for index, node in enumerate(graph.node) if index in waiting]
    sorter, order = TopologicalSorter(waiting), list[int]()
    with contextlib.suppress(CycleError):  # a cycle leaves nodes without an order, which is reported below
        sorter.prepare()
    ready = list(sorter.get_ready())
    heapq.heapify(ready)
    while ready:
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
        for index in sorter.get_ready():
            heapq.heappush(ready, index)
    if len(order) != len(waiting):
        stuck = graph.node[min(waiting.keys() - set(order))]
        raise CorruptInputError("its nodes form a cycle", file=file, node=stuck.name or stuck.output[0])
    return [graph.node[index] for index in order]


def check_names(graph: GraphProto, names: Sequence[str], what: str, file: str) -> None:
    """Check that tensors named by the caller exist.

    Raises:
        UsageError: one does not exist, or is named twice.
    """
    tensor_names = {name for node in graph.node for name in node.output} | {value.name for value in graph.input}
    tensor_names |= {tensor.name for tensor in initializers(graph)}
    unknown = [name for name in names if name not in tensor_names]
    if unknown:
        some = ", ".join(value.name for value in (graph.output if what == "outputs" else graph.input))
        meant = did_you_mean(unknown[0], tensor_names)
        raise UsageError(
            f"{what}: the model has no tensor {', '.join(repr(name) for name in unknown)}",
            file=file,
            hint=f"{meant}\nthe model's own {what}: {some}" if meant else f"the model's own {what}: {some}",
        )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise UsageError(f"{what}: {', '.join(repr(name) for name in repeated)} is named more than once", file=file)
