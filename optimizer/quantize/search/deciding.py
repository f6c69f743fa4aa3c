"""Mixed precision for operators that decide: topk, sort, nms, floor, comparisons, gather by computed indices.

An error of one INT8 step is small in a sum. It matters if the order or the integer part of values determines what is
computed next: if two scores are swapped, other boxes are selected. Operators declare such operands (``Op.decides_by``).
The effect of quantization noise depends on how close the decisions are, so that it has to be measured: the quantized
graph runs on samples. While outputs that depend on a decision differ from float, a path to the decision is kept in
float: first the last linear operator before it, then the last two, four, and so on up to the inputs.

Detections are compared as a set: swapping two of almost equal score does not count as a loss.

A label or a mask at the end of a network (argmax, a comparison) affects one element only: no path is kept for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from tpuconvert.optimizer.engine.node_properties import dependent_nodes
from tpuconvert.optimizer.quantize.legalize import Legalized
from tpuconvert.optimizer.quantize.search.similarity import cosine_similarity
from tpuconvert.optimizer.quantize.traits import is_product, keeps_scale
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.types import Array

ENOUGH = 0.995
"""Minimum cosine similarity to the float outputs for which decisions count as equal."""

_ABOUT = 0.002
"""If no path reaches ``ENOUGH``, choose the shortest one whose similarity is within this distance of the best one."""

SAMPLES = 8
"""Number of samples to run."""

Samples = Iterable[Mapping[str, Array]]

Quantize = Callable[[Mapping[str, str]], Legalized]
"""Annotates and legalizes a float graph. The argument has the nodes that stay float, with the reasons."""


def float_paths(graph: Graph, quantize: Quantize, samples: Samples | None) -> dict[str, str]:
    """Choose the nodes that stay in float because a decision depends on them.

    Args:
        graph: calibrated float graph. Annotations made during the search are removed.
        quantize: annotates and legalizes the graph.
        samples: feeds; without them the last linear operators before every decision are chosen.

    Returns:
        Reasons by the name of the node.
    """
    depths = _depths(graph)
    deepest = max((depth for depth, _ in depths.values()), default=0)
    if deepest == 0 or samples is None:
        return _nodes_within(depths, 1)
    feeds = [feed for feed, _ in zip(samples, range(SAMPLES), strict=False)]
    outputs = _dependent_outputs(graph)
    with Session(graph) as session:
        float_outputs = [session.run(feed) for feed in feeds]
    similarity_of_depth: dict[int, float] = {}
    for depth in _doubling(deepest):
        integer = quantize(_nodes_within(depths, depth)).graph
        forget_annotations(graph)
        with Session(integer) as session:
            results = [session.run(feed) for feed in feeds]
        pairs = zip(float_outputs, results, strict=True)
        similarity_of_depth[depth] = min(
            (similarity_of_rows if is_set else _similarity)(exact[name], other[name])
            for exact, other in pairs
            for name, is_set in outputs.items()
        )
        if similarity_of_depth[depth] >= ENOUGH:
            break
    best = max(similarity_of_depth.values())
    chosen = next(
        depth for depth in sorted(similarity_of_depth) if similarity_of_depth[depth] >= min(best - _ABOUT, ENOUGH)
    )
    return _nodes_within(depths, chosen)


def _depths(graph: Graph) -> dict[Node, tuple[int, Node]]:
    """Map nodes to the number of linear operators up to the nearest decision (at least 1), and to that decision."""
    needed: dict[Value, tuple[int, Node]] = {}
    depths: dict[Node, tuple[int, Node]] = {}

    def need(value: Value | None, depth: int, decision: Node) -> None:
        if value is not None and not value.is_constant and depth < needed.get(value, (depth + 1, decision))[0]:
            needed[value] = (depth, decision)

    for node in reversed(graph.sorted_nodes()):
        for value in _deciding_operands(graph, node):
            need(value, 1, node)
        after = [needed[value] for value in node.outputs if value in needed]
        if after:
            depths[node] = min(after, key=lambda item: item[0])
            for operand in node.inputs:
                need(operand, depths[node][0] + is_product(node.op), depths[node][1])
    return depths


def _deciding_operands(graph: Graph, node: Node) -> list[Value]:
    names = node.op.decides_by
    if not names or (node.op.decides_elements and _ends(graph, node)):
        return []
    pairs = zip(node.op.inputs, node.inputs, strict=False)
    return [value for operand, value in pairs if operand.name in names and value is not None and not value.is_constant]


def _ends(graph: Graph, node: Node) -> bool:
    """Return True if only outputs of the graph depend on a node, through data movement and casts."""
    return all(keeps_scale(user.op) or user.op.name == "cast" for user in dependent_nodes(graph, [node]))


def _dependent_outputs(graph: Graph) -> dict[str, bool]:
    """Names of the outputs that depend on a decision, mapped to True if the order of their rows does not matter."""
    deciding = [node for node in graph.nodes if _deciding_operands(graph, node)]
    reached = {value for node in (*deciding, *dependent_nodes(graph, deciding)) for value in node.outputs}
    pairs = zip(graph.outputs, graph.output_ports, strict=True)
    return {port.name: _is_row_set(value) for value, port in pairs if value in reached}


def _is_row_set(value: Value) -> bool:
    return value.producer is not None and value.producer.op.has_row_set


def _nodes_within(depths: Mapping[Node, tuple[int, Node]], max_depth: int) -> dict[str, str]:
    text = "it decides what {} '{}' gives, and INT8 would change the decision"
    return {
        node.name: text.format(decision.op.name, decision.name)
        for node, (depth, decision) in depths.items()
        if depth <= max_depth
    }


def _doubling(last: int) -> Iterator[int]:
    """Yield 0, 1, 2, 4 and so on below ``last``, then ``last``."""
    yield 0
    depth = 1
    while depth < last:
        yield depth
        depth *= 2
    yield last


def forget_annotations(graph: Graph) -> None:
    """Remove the annotations of ``quantize`` from a graph."""
    for value in graph.values:
        if not value.is_constant:
            value.quant = None


def _similarity(expected: Array, actual: Array) -> float:
    """Cosine similarity; 0 for another shape, 1 for two tensors of zeros."""
    if expected.shape != actual.shape:
        return 0.0
    a, b = (np.nan_to_num(array.astype(np.float64)).reshape(-1) for array in (expected, actual))
    return cosine_similarity(a, b)


def similarity_of_rows(expected: Array, actual: Array) -> float:
    """Cosine similarity after each row is paired with the nearest row of the other tensor; the lower direction.

    The number of rows may differ, as the number of selected boxes does. The rows of a vector are its elements.
    """
    if expected.shape[1:] != actual.shape[1:] or not (expected.size and actual.size):
        return float(expected.shape == actual.shape)
    columns = expected.shape[-1] if expected.ndim > 1 else 1
    a, b = (np.nan_to_num(array.astype(np.float64)).reshape(-1, columns) for array in (expected, actual))
    unit = a.std(axis=0) + 1e-9
    distances = np.stack([np.abs((row - b) / unit).sum(axis=1) for row in a])
    return min(_similarity(a, b[distances.argmin(axis=1)]), _similarity(a[distances.argmin(axis=0)], b))
