"""Ranges of the values that a session keeps between runs, such as key-value caches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tpuconvert.optimizer.quantize.ranges.ranges import Channels, Range
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.graph.states import find_states


def tie_state_ranges(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Return the ranges in which every state input has the range of the output that is its next value.

    Calibration samples usually begin with the first token: their caches are empty, and their states zero. The range of
    an input becomes the union of its range and the range of the output. So do the ranges of values that are only
    elements of the input in another shape or order, for which there were no elements either.

    Args:
        graph: float graph.
        ranges: measured ranges, by value name.
    """
    tied = dict(ranges)
    for state in find_states(graph):
        source, result = graph.inputs[state.input], graph.outputs[state.output]
        if source.name not in ranges or result.name not in ranges:
            continue
        for value in (source, *_moved_values(source)):
            if value.name in ranges:
                tied[value.name] = join_ranges(ranges[value.name], ranges[result.name])
    return tied


def _moved_values(source: Value) -> Iterator[Value]:
    """Yield the values that have the elements of one value, and none of others."""
    waiting = [source]
    while waiting:
        for node in waiting.pop().users:
            others = [item for item in node.inputs if item is not None and not item.is_constant]
            if node.op.only_moves_data and len(others) == 1:
                yield from node.outputs
                waiting += node.outputs


def join_ranges(first: Range, second: Range) -> Range:
    """Return the range of all samples of two ranges. One that contains the other is returned as it is."""
    for outer, inner in ((second, first), (first, second)):
        if _contains(outer, inner):
            return outer
    return replace(
        second,
        low=min(first.low, second.low),
        high=max(first.high, second.high),
        threshold=max(first.threshold, second.threshold),
        channels=_join_channels(first.channels, second.channels),
    )


def _contains(outer: Range, inner: Range) -> bool:
    return outer.low <= inner.low and inner.high <= outer.high and inner.threshold <= outer.threshold


def _join_channels(first: Channels | None, second: Channels | None) -> Channels | None:
    if first is None or second is None or len(first.largest) != len(second.largest):
        return None

    def pairs(name: str) -> Iterable[tuple[float, float]]:
        one, other = getattr(first, name), getattr(second, name)
        return zip(one, other, strict=True) if len(one) == len(other) else ()

    return Channels(
        largest=tuple(max(pair) for pair in pairs("largest")),
        second=tuple(max(pair) for pair in pairs("second")),
        variance=tuple(max(pair) for pair in pairs("variance")),
        mean=tuple(sum(pair) / 2 for pair in pairs("mean")),
        low=tuple(min(pair) for pair in pairs("low")),
        high=tuple(max(pair) for pair in pairs("high")),
    )
