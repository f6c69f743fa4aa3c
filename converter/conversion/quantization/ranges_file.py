"""File with the ranges of all tensors of a source: measured once, used by repeated quantizations."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tpuconvert.conversion.optimization import optimize_graph
from tpuconvert.conversion.quantization.auto_methods import calibrate_and_check
from tpuconvert.conversion.quantization.calibration_feeds import calibration_feeds
from tpuconvert.conversion.source import Source
from tpuconvert.conversion.source_loading import is_quantized_source, load_source, with_preprocessing_of
from tpuconvert.model.conversion_record import finite_number
from tpuconvert.optimizer.prepare_quantization import prepare
from tpuconvert.optimizer.quantize import apply_rules
from tpuconvert.optimizer.quantize.ranges.range_statistics import BINS, RangeStatistics, sample_counts
from tpuconvert.optimizer.quantize.ranges.ranges import Channels, Range
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.system.bounded_files import read_text
from tpuconvert.schema.system.content_digest import ALGORITHM, digest_of
from tpuconvert.schema.system.file_errors import unreadable
from tpuconvert.schema.system.file_replacement import replacing
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.text.json_text import parse_json
from tpuconvert.text.result import Result
from tpuconvert.text.text_format import several
from tpuconvert.workers.choice import open_workers
from tpuconvert.workers.workers import Workers

if TYPE_CHECKING:
    from tpuconvert.conversion.options.options import Options
    from tpuconvert.progress import Progress
    from tpuconvert.samples.calibration_data import CalibrationSource
    from tpuconvert.schema.graph.graph import Graph

FORMAT = "tpuconvert ranges"
VERSION = 3
"""Version of the file format. Since version 3, ranges do not depend on the order of samples, and means are over all
samples."""


@dataclass(frozen=True, repr=False)
class MeasuredRanges(Result, hidden=("source", "ranges", "methods"), added=("tensors",)):
    """Ranges of the tensors of one source.

    Args:
        source: digests of the source, of its weights file and of its external data files, if it has them.
        method: calibration method.
        samples: number of samples.
        ranges: ranges in dequantized units, by tensor name after the optimizer.
        methods: calibration methods of tensors that do not use ``method``, by name.

    """

    source: tuple[str, ...]
    method: str
    samples: int
    ranges: Mapping[str, Range]
    methods: Mapping[str, str] = field(default_factory=dict)

    @property
    def tensors(self) -> int:
        """Number of tensors."""
        return len(self.ranges)

    def lines(self) -> list[str]:
        """Return the number of tensors and samples in one line."""
        tensors, samples = several(len(self.ranges), "tensor"), several(self.samples, "sample")
        return [f"ranges of {tensors} from {samples}, by {self.method}"]

    def _notebook(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        heading = ("tensor", "low", "high", "threshold")
        rows = ((name, range_.low, range_.high, range_.threshold) for name, range_ in self.ranges.items())
        return self.lines(), [heading, *((name, *(f"{each:.6g}" for each in numbers)) for name, *numbers in rows)]

    def of(self, graph: Graph) -> Mapping[str, Range]:
        """Return the ranges for all tensors of an optimized graph.

        Raises:
            UsageError: a tensor has no range.

        """
        results = [value for node in graph.nodes for value in node.outputs]
        missing = [v.name for v in (*graph.inputs, *results) if v.dtype.is_float and v.name not in self.ranges]
        if missing:
            raise UsageError(
                f"no range for {several(len(missing), 'tensor')}, the first is '{missing[0]}'",
                hint="calibrate with the options that quantize gets: --chip, --input-shapes, --inputs, --outputs",
            )
        return self.ranges

    def check_methods(self, methods: Mapping[str, str]) -> None:
        """Check that precision rules request the calibration methods with which the ranges were measured.

        Args:
            methods: methods by name of the tensor; other tensors may have any method.

        Raises:
            UsageError: a tensor has another method.

        """
        for name, method in methods.items():
            used = self.methods.get(name, self.method)
            if used != method:
                raise UsageError(
                    f"a precision rule requests {method} for '{name}', its range was measured with {used}",
                    hint="calibrate with the same --precision",
                )

    def check_source(self, source: Source, external: Sequence[str]) -> None:
        """Check that the ranges were measured on the files that are to be quantized.

        Raises:
            UsageError: the ranges belong to another model.

        """
        if self.source != source.digests(external):
            raise UsageError(f"{source.name}: the ranges belong to another model", hint="calibrate this one")

    def digest(self) -> str:
        """Digest of the file content without white space, in hexadecimal digits."""
        return digest_of(_compact(self._content()).encode("utf-8")).hex()

    def to_json(self) -> str:
        """Return the file content as JSON; equal ranges give equal text."""
        return _lines(self._content(), _DEPTH) + "\n"

    def _content(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "source": {ALGORITHM: list(self.source)},
            "method": self.method,
            "samples": self.samples,
            **({"methods": dict(self.methods)} if self.methods else {}),
            "ranges": {name: _fields(range_) for name, range_ in self.ranges.items()},
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file; an existing file is replaced atomically.

        Raises:
            UsageError: the file cannot be written.

        """
        with replacing(path) as file:
            file.write(self.to_json().encode("utf-8"))


_DEPTH = 4
"""Depth down to which every entry of a file has a line: statistics of a tensor's channels, each a list of numbers."""


def _lines(content: object, depth: int, indent: str = "") -> str:
    """Return JSON with one line per entry of the objects down to a depth.

    ``json.dumps`` with an indentation writes one number per line, and takes 1.8 times as long.
    """
    if depth == 0 or not isinstance(content, dict) or not content:
        return _compact(content)
    inner = indent + " "
    entries = (f"{inner}{_compact(str(key))}: {_lines(value, depth - 1, inner)}" for key, value in content.items())
    return "{\n" + ",\n".join(entries) + f"\n{indent}}}"


def _compact(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False)


_COLUMNS = ("largest", "second", "variance", "mean")
"""Fields of ``Channels`` in a file. The others serve algorithms that need samples."""


def _fields(range_: Range) -> dict[str, Any]:
    """Return the fields. ``dataclasses.asdict`` would copy the tuples, which takes as long as writing them."""
    channels = None if range_.channels is None else {key: getattr(range_.channels, key) for key in _COLUMNS}
    fields = {**vars(range_), "channels": channels, "statistics": _statistics_fields(range_.statistics)}
    del fields["unevenness"]  # it serves algorithms that need samples
    if not range_.method:
        del fields["method"]
    if not range_.has_zero_point:
        del fields["has_zero_point"]
    if not fields["statistics"]:
        del fields["statistics"]
    return fields


def _statistics_fields(record: RangeStatistics | None) -> dict[str, Any] | None:
    return None if record is None else {**vars(record), "levels": record.levels.hex(), "growth": list(record.growth)}


@np.errstate(all="ignore")
def measure_ranges(
    source: Source, options: Options, calibration: CalibrationSource, *, progress: Progress
) -> MeasuredRanges:
    """Run a source on samples and collect the range of every tensor.

    Args:
        source: the source.
        options: options of the quantization that will use the ranges.
        calibration: samples, as ``convert`` takes them.
        progress: receives the stages.

    Raises:
        UsageError: the source is already quantized, or the samples do not fit.

    """
    with open_workers(options.workers, options.scheduler) as workers:
        return _measure_on(workers, source, options, calibration, progress)


def _measure_on(
    workers: Workers,
    source: Source,
    options: Options,
    calibration: CalibrationSource,
    progress: Progress,
) -> MeasuredRanges:
    progress.stage("load")
    graph = load_source(source, options)
    options = with_preprocessing_of(graph, options)
    if is_quantized_source(graph):
        raise UsageError(
            "the source is quantized already and keeps its own scales",
            file=graph.file,
            hint="convert it without ranges",
        )
    feeds = calibration_feeds(graph, options, calibration)
    optimized = optimize_graph(graph, options, progress=progress)
    progress.report(f"calibration: {feeds.description}")
    prepare(graph, options.disable_rules)
    precision = apply_rules(graph, options.precision_rules, options.chip, optimized.tensors)
    ranges, decisions = calibrate_and_check(workers, graph, feeds, options, optimized.expected, progress, precision)
    for note in itertools.chain.from_iterable(decision.notes() for decision in decisions):
        progress.report(f"{'check the samples' if note.kind == 'preprocessing' else note.kind}: {note.message}")
    return MeasuredRanges(
        source.digests(graph.files), options.calibration_method, feeds.samples, ranges, precision.methods
    )


def read_ranges(path: str | os.PathLike[str]) -> MeasuredRanges:
    """Read a file written by ``MeasuredRanges.save``.

    Raises:
        UsageError: the file cannot be read, or has a later version.
        CorruptInputError: the file is damaged, or is not a ranges file.

    """
    note_input(path)
    try:
        content = parse_json(read_text(path))
    except OSError as error:
        raise unreadable(error, path) from error
    except ValueError as error:
        raise CorruptInputError(f"is not JSON: {error}", file=str(path), hint=_HINT) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CorruptInputError("holds no ranges", file=str(path), hint=_HINT)
    if content.get("version") != VERSION:
        raise UsageError(f"{path}: version {content.get('version')}, this tpuconvert reads {VERSION}", hint=_HINT)
    try:
        ranges = {str(name): _range(fields) for name, fields in content["ranges"].items()}
        source = tuple(str(digest) for digest in content["source"][ALGORITHM])
        methods = {str(name): str(method) for name, method in content.get("methods", {}).items()}
        return MeasuredRanges(source, str(content["method"]), int(content["samples"]), ranges, methods)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptInputError(f"is damaged: {error}", file=str(path), hint=_HINT) from error


_HINT = "tpuconvert calibrate writes such files"


def _range(fields: Mapping[str, Any]) -> Range:
    low, high, threshold = (_float32(fields[key]) for key in ("low", "high", "threshold"))
    if low > high or threshold < 0:
        raise ValueError(f"a range from {low} to {high} with threshold {threshold}")
    channels, method, has_zero_point = (
        fields["channels"],
        str(fields.get("method", "")),
        fields.get("has_zero_point", False),
    )
    if not isinstance(has_zero_point, bool):
        raise ValueError(f"has_zero_point is {has_zero_point!r}, expected true or false")
    statistics = _statistics(fields["statistics"]) if "statistics" in fields else None
    if channels is None:
        return Range(low, high, threshold, None, method, statistics, has_zero_point)
    columns = {key: tuple(map(finite_number, channels[key])) for key in _COLUMNS}
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("channels of different numbers")
    return Range(low, high, threshold, Channels(**columns), method, statistics, has_zero_point)


def _statistics(fields: Mapping[str, Any]) -> RangeStatistics:
    levels, clipped = bytes.fromhex(fields["levels"]), fields["clipped"]
    if len(levels) not in (0, BINS):
        raise ValueError(f"a histogram of {len(levels)} bins, expected {BINS}")
    growth, samples = tuple(map(finite_number, fields["growth"])), int(fields["samples"])
    if growth and len(growth) != len(sample_counts(samples)):
        raise ValueError(f"{len(growth)} numbers about {samples} samples")
    clipped = None if clipped is None else finite_number(clipped)
    return RangeStatistics(str(fields["method"]), levels, int(fields["exponent"]), clipped, growth, samples)


def _float32(value: Any) -> float:
    """Return a finite number that is an element of a float32 tensor: larger ones would have no scale."""
    number = finite_number(value)
    if abs(number) > _LARGEST:
        raise ValueError(f"{number} exceeds float32")
    return number


_LARGEST = float(np.finfo(np.float32).max)
