"""Record of a conversion in the metadata of a model file: for reports only, results do not depend on it.

It has the rewrite rules that each node comes from, and of the calibration the histogram, threshold and clipped share of
each integer tensor and the convergence. Nodes and tensors are referred to by their position, and numbers have the
digits that a report shows, so that the record takes about a hundredth of a file. Equal conversions give equal records.
Files of earlier versions have none.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tpuconvert.schema.arithmetic.count_levels import counts_of
from tpuconvert.schema.errors import CorruptInputError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.text.plain_values import Plain

KEY = "conversion"
"""Key of the record in the metadata of a model."""

COLUMNS = ("positions", "low", "high", "thresholds", "method", "clipped", "exponents", "levels")
"""Columns of the table of tensors."""


@dataclass(frozen=True)
class TensorStatistics(
    Plain,
    hidden=("width", "levels"),
    added=("counts",),
    keys={"low": "minimum", "high": "maximum", "lower_end": "low", "upper_end": "high"},
):
    """Calibration result of one tensor.

    Args:
        low: smallest value of all samples.
        high: largest value of all samples.
        threshold: largest magnitude that the integers represent.
        method: calibration method of the threshold; ``rule`` for the method of a precision rule.
        clipped: share of the values with a larger magnitude than the threshold; None without a histogram.
        width: width of a bin of the histogram.
        levels: ``8 * log2(1 + count)`` per bin of magnitudes, rounded, the first bin starting at 0. Empty bins at the
            end are left out; empty without a histogram.
    """

    low: float
    high: float
    threshold: float
    method: str
    clipped: float | None = None
    width: float = 0.0
    levels: tuple[int, ...] = ()

    @property
    def lower_end(self) -> float:
        """Lower end of the histogram of magnitudes: 0."""
        return 0.0

    @property
    def upper_end(self) -> float:
        """Upper end of the histogram."""
        return self.width * len(self.levels)

    @property
    def counts(self) -> list[int]:
        """Number of values in bins of equal width, with an error of at most 4.5 %; empty without a histogram."""
        return counts_of(self.levels)


@dataclass(frozen=True)
class Convergence(Plain):
    """Growth of the largest magnitude of the tensors with the number of samples, relative to all samples.

    Args:
        samples: numbers of samples: 1, 2, 4 ... and all.
        median: median of the tensors, for each number of samples.
        smallest: smallest share of a tensor.
        slowest: name of the tensor that grows most at the end.
    """

    samples: tuple[int, ...]
    median: tuple[float, ...]
    smallest: tuple[float, ...]
    slowest: str


@dataclass(frozen=True)
class ConversionRecord:
    """Content of a record.

    Args:
        rules: names of the rules by the index of the node.
        tensors: statistics by the name of the tensor.
        convergence: None if no tensor was calibrated.
    """

    rules: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    tensors: Mapping[str, TensorStatistics] = field(default_factory=dict)
    convergence: Convergence | None = None


def read_record(graph: Graph, metadata: Mapping[str, Any]) -> ConversionRecord:
    """Return the record in the metadata of a model; an empty one if there is none.

    Raises:
        CorruptInputError: the record is damaged.
    """
    if KEY not in metadata:
        return ConversionRecord()
    try:
        record = metadata[KEY]
        if not isinstance(record, Mapping):
            raise ValueError(f"a {type(record).__name__}")
        tensors = [value.name for value in tensors_of(graph)]
        return ConversionRecord(
            _read_rules(record["rules"], len(graph)) if "rules" in record else {},
            _read_tensors(record["tensors"], tensors) if "tensors" in record else {},
            _read_convergence(record["convergence"], tensors) if "convergence" in record else None,
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, binascii.Error) as error:
        raise CorruptInputError(f"the record of the conversion is damaged: {error}", file=graph.file) from error


def tensors_of(graph: Graph) -> Iterable[Value]:
    """Return the values that are not constant, in the order of their positions in a record."""
    yield from graph.inputs
    for node in graph.nodes:
        yield from node.outputs


def _read_rules(table: Mapping[str, Any], nodes: int) -> dict[int, tuple[str, ...]]:
    names = [_text(name) for name in table["names"]]
    lists = [tuple(names[_index(index, len(names))] for index in indices) for indices in table["lists"]]
    pairs = table["nodes"]
    return {
        _index(node, nodes): lists[_index(number, len(lists))]
        for node, number in zip(pairs[::2], pairs[1::2], strict=True)
    }


def _read_tensors(table: Mapping[str, Any], tensors: list[str]) -> dict[str, TensorStatistics]:
    methods = [_text(name) for name in table["methods"]]
    statistics = {}
    columns = (table[name] for name in COLUMNS)
    for position, low, high, threshold, method, clipped, exponent, levels in zip(*columns, strict=True):
        statistics[tensors[_index(position, len(tensors))]] = TensorStatistics(
            finite_number(low),
            finite_number(high),
            finite_number(threshold),
            methods[_index(method, len(methods))],
            None if clipped is None else finite_number(clipped),
            finite_number(math.ldexp(1.0, exponent)) if levels else 0.0,
            tuple(base64.b64decode(levels, validate=True)),
        )
    return statistics


def _read_convergence(table: Mapping[str, Any], tensors: list[str]) -> Convergence:
    samples = tuple(_index(count, 1 << 53) for count in table["samples"])
    columns = [tuple(map(finite_number, table[name])) for name in ("median", "smallest")]
    if any(len(column) != len(samples) for column in columns):
        raise ValueError("columns of different lengths")
    return Convergence(samples, columns[0], columns[1], tensors[_index(table["slowest"], len(tensors))])


def finite_number(value: Any) -> float:
    """Return a number of a JSON text. Raises ValueError for anything else, NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _index(value: Any, count: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        raise ValueError(f"{value!r} is not an index below {count}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value
