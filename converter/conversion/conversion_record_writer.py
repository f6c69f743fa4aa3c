"""Record of a conversion for the metadata of a model file; ``conversion_record.py`` describes and reads it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpuconvert.model.conversion_record import COLUMNS, tensors_of
from tpuconvert.optimizer.quantize.ranges.range_statistics import RangeStatistics, typical_growth
from tpuconvert.schema.graph.graph import Graph

if TYPE_CHECKING:
    from tpuconvert.optimizer.quantize.ranges.ranges import Range

_BITS = 16
"""Widest integer type of an activation, in bits. Wider integers are accumulators."""

_DIGITS = 5
"""Significant digits of numbers in the record."""


def make_record(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, Any]:
    """Return the record of a finished graph as plain values; empty if there is nothing to record.

    Args:
        graph: the graph, with its nodes in the order of the file.
        ranges: ranges of the calibration, by name of the tensor.
    """
    rules = _rules_table(graph)
    tensors = {
        position: (value.name, ranges[value.name])
        for position, value in enumerate(tensors_of(graph))
        if value.name in ranges and value.quant is not None and value.dtype.is_integer and value.dtype.bits <= _BITS
    }
    measured = {position: item for position, item in tensors.items() if item[1].statistics is not None}
    record: dict[str, Any] = {"rules": rules} if rules else {}
    if measured:
        record["tensors"] = _tensors_table({position: range_ for position, (_, range_) in measured.items()})
        convergence = _convergence_table({name: (position, range_) for position, (name, range_) in measured.items()})
        if convergence:
            record["convergence"] = convergence
    return record


def _rules_table(graph: Graph) -> dict[str, Any]:
    """Return the names of rules, lists of their indices, and pairs of a node and a list; empty without rules."""
    names: dict[str, int] = {}
    lists: dict[tuple[int, ...], int] = {}
    pairs: list[int] = []
    for index, node in enumerate(graph.nodes):
        if node.rules:
            indices = tuple(names.setdefault(name, len(names)) for name in node.rules)
            pairs += [index, lists.setdefault(indices, len(lists))]
    return {"names": list(names), "lists": [list(indices) for indices in lists], "nodes": pairs} if pairs else {}


def _tensors_table(ranges: Mapping[int, Range]) -> dict[str, Any]:
    """Return one list per field; lists of histograms have an entry per tensor with a histogram."""
    methods: dict[str, int] = {}
    rows = []
    for position, range_ in ranges.items():
        statistics = _statistics(range_)
        method = methods.setdefault(statistics.method, len(methods))
        levels = base64.b64encode(statistics.levels.rstrip(b"\0")).decode("ascii")
        clipped = None if statistics.clipped is None else _rounded(statistics.clipped)
        numbers = map(_rounded, (range_.low, range_.high, range_.threshold))
        rows.append((position, *numbers, method, clipped, statistics.exponent, levels))
    columns = zip(COLUMNS, zip(*rows, strict=True), strict=True)
    return {"methods": list(methods), **{name: list(column) for name, column in columns}}


def _convergence_table(ranges: Mapping[str, tuple[int, Range]]) -> dict[str, Any]:
    samples, median, smallest, slowest = typical_growth(
        {name: _statistics(range_) for name, (_, range_) in ranges.items()}
    )
    if not samples:
        return {}
    shares = {"median": [_rounded(share) for share in median], "smallest": [_rounded(share) for share in smallest]}
    return {"samples": samples, **shares, "slowest": ranges[slowest][0]}


def _statistics(range_: Range) -> RangeStatistics:
    assert range_.statistics is not None, "only tensors with statistics are recorded"
    return range_.statistics


def _rounded(value: float) -> float:
    """Round to the digits of the record. Integers take less space without a fraction."""
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 10**_DIGITS else rounded
