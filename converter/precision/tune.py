"""Mixed-precision search over the conversions of one source."""

from __future__ import annotations

import glob
import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.options.options import Options, default_of, takes_groups
from tpuconvert.conversion.options.quantization import Quantization
from tpuconvert.conversion.options.source import SourceOptions
from tpuconvert.conversion.quantization.quantization import CalibrationCache
from tpuconvert.conversion.recipe import write_options
from tpuconvert.conversion.source import AnySource, Source, Weights, open_source
from tpuconvert.model.integer_share import integer_share
from tpuconvert.model.model import Model
from tpuconvert.plugins import load_plugins
from tpuconvert.precision.attribution import attribute
from tpuconvert.precision.metrics import Metric
from tpuconvert.precision.search import BudgetSpentError, Chosen, best_of, pareto, search
from tpuconvert.precision.tuning_text import HEADING, headline, row, tuning_lines
from tpuconvert.progress import SILENT, Progress
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.definition.chip_names import device_of
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.graph.cost import macs
from tpuconvert.schema.system.bounded_files import read_text
from tpuconvert.schema.system.content_digest import digest_of
from tpuconvert.schema.system.file_digest import file_digest
from tpuconvert.schema.system.file_errors import unreadable
from tpuconvert.schema.system.file_replacement import replacing
from tpuconvert.schema.text.json_text import parse_json
from tpuconvert.schema.text.plain_values import Keyword, Plain, Unbounded
from tpuconvert.schema.types import Chip
from tpuconvert.text.result import Result
from tpuconvert.text.text_format import several
from tpuconvert.workers.choice import open_workers
from tpuconvert.workers.workers import Workers

if TYPE_CHECKING:
    from tpuconvert.samples.calibration_data import CalibrationSource

FORMAT = "tpuconvert tuning"
VERSION = 1

SAMPLES = 8
"""Number of calibration samples on which the error of each node is measured."""

NODES = 32
"""Largest number of nodes that are candidates."""

MOST_OF_COST = 0.01
"""Share of the multiply-accumulates that is added to the cost of each candidate, so that nodes without any are not
preferred without limit."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Trial(Plain):
    """One conversion.

    Args:
        keep_float: selectors of the nodes in float, in addition to the nodes of the options.
        metric: the larger, the better.
        cost: share of the multiply-accumulates that are not in integers.
        is_enough: whether the drop against the float model is within the limit.

    """

    keep_float: tuple[str, ...]
    metric: Unbounded
    cost: Annotated[float, Keyword("minimum", 0), Keyword("maximum", 1)]
    is_enough: bool

    @property
    def nodes(self) -> int:
        """Number of further selectors of nodes in float."""
        return len(self.keep_float)

    @property
    def rules(self) -> str:
        """The precision rules as YAML, for ``--precision @FILE``."""
        return "".join(f"{json.dumps(name)}: float32\n" for name in self.keep_float) or "{}\n"


@dataclass(frozen=True, repr=False)
class Tuning(Result):
    """Result of a search.

    Args:
        metric: name of the metric.
        of_float: the metric of the float model.
        max_drop: largest drop, in points of a hundredth; for ``sqnr`` the smallest value in decibel.
        max_cost: largest share of the multiply-accumulates in float.
        trials: all conversions, the one without further nodes in float first.
        curve: those that no other one beats in metric and cost, the cheapest first.
        best: the chosen one.
        is_complete: False if the budget was spent before the search ended.
        output: the model file that was written.
        rules: the file with the precision rules of this model, for ``convert --precision @FILE``.

    """

    metric: str
    of_float: Unbounded
    max_drop: float
    max_cost: float | None
    trials: tuple[Trial, ...]
    curve: tuple[Trial, ...]
    best: Trial
    is_complete: bool
    output: str = field(default="", compare=False)
    rules: str = field(default="", compare=False)

    def lines(self) -> list[str]:
        """Return the result in a sentence, the nodes in float, the table of the curve, and the written files."""
        written = f"wrote {self.output} and {self.rules} (convert --precision @FILE)"
        return [*tuning_lines(self.to_dict()), *([written] if self.output else [])]

    def _notebook(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        values = self.to_dict()
        return [headline(values)], [HEADING, *(row(trial, values) for trial in values["curve"])]


NOT_TUNED = ("min_int8_share", "exact_on")
"""Options of a quantization that refuse models with nodes in float, which the trials of a search are."""


@takes_groups
def tune(
    source: AnySource,
    weights: Weights = None,
    *,
    calibration: str | os.PathLike[str],
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    metric: str = "agreement",
    max_drop: float = 0.5,
    max_cost: float | None = None,
    budget: str = "10m",
    chip: str | Chip = Chip.BM1686,
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    quantization: Quantization | None = None,
    source_options: SourceOptions | None = None,
    strict_set: bool = False,
    plugins: Iterable[str | Path] = (),
    progress: Progress | None = None,
) -> Tuning:
    """Find the nodes to keep in float so that an INT8 model is as accurate as wanted, at the smallest cost.

    The best model so far is in ``output`` at any time, and all trials in a file beside it (``.tuning.json``): the same
    call continues a search that was interrupted.

    Args:
        source: The source, as for ``convert``.
        weights: The caffemodel of a prototxt.
        calibration: Calibration samples: a folder of images, an ``.npz`` or ``.npy`` file.
        data: Other samples, on which the metric is measured; labeled as for ``evaluate`` for ``top1``.
        output: The model file to write.
        metric: ``agreement`` (share of samples with the class of the float model), ``top1``, ``cosine``, ``sqnr``, or
            ``module:function``: called with a model and ``data``, it returns a number that is larger for better models.
        max_drop: Largest drop of the metric against the float model, in points of a hundredth. For ``sqnr`` the
            smallest value in decibel.
        max_cost: Largest share of the multiply-accumulates in float, from 0 to 1.
        budget: Time after which no further trial begins: ``90s``, ``10m`` or ``2h``.
        chip: Target chip, as for ``convert``.
        preprocess: Preprocessing, as for ``convert``.
        quantization: Options of the quantization, without ``min_int8_share`` and ``exact_on``, which refuse models with
            nodes in float.
        source_options: Options that decide how the source is read.
        strict_set: Expand composite operators, as for ``convert``.
        plugins: Python files with custom operators and converters.
        progress: Receives the stages and a line for each trial.

    Returns:
        The chosen precision, and all trials.

    Raises:
        UsageError: The samples are the calibration samples, or the file beside ``output`` belongs to another search.

    Example:
        >>> samples = {"calibration": "calibration.npz", "data": "labeled.npz"}
        >>> tuning = tc.tune("digits.onnx", **samples, output="tuned.tpum", preprocess="color=GRAY,scale=0.0625")
        >>> tuning.best.is_enough, tuning.best.keep_float
        (True, ())

    """
    load_plugins(plugins)
    for name in NOT_TUNED:
        if quantization is not None and getattr(quantization, name) != default_of(name):
            raise UsageError(f"{name} with tune, whose trials keep nodes in float", hint="leave it out")
    quantize = quantization or "int8"
    checked = Options.of(source_options, chip=chip, preprocess=preprocess, quantize=quantize, strict_set=strict_set)
    goal = Goal(metric, max_drop, max_cost)
    limit = seconds_of(budget)
    with open_source(source, weights, as_file=True) as opened:
        return Search(
            opened, checked, calibration, data, output, goal, limit, progress or SILENT, device=device_of(chip)
        ).run()


@dataclass(frozen=True)
class Goal:
    """Goal of a search.

    Args:
        metric: name of the metric.
        max_drop: as for :func:`tune`.
        max_cost: as for :func:`tune`.

    """

    metric: str
    max_drop: float
    max_cost: float | None = None


def seconds_of(budget: str) -> float:
    """Convert a duration such as ``90s``, ``10m`` or ``2h`` to seconds.

    Raises:
        UsageError: the text is not a positive duration.

    """
    try:
        seconds = float(budget[:-1]) * _UNITS[budget[-1:]]
    except (ValueError, KeyError):
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"budget '{budget}' is not a duration", hint="90s, 10m or 2h")
    return seconds


def files_beside(output: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Return the file with the state of a search and that with the rules of its best model, beside the model file."""
    return Path(output).with_suffix(".tuning.json"), Path(output).with_suffix(".rules.yaml")


class Search:
    """A search whose state is in a file.

    Args:
        source: the source, in files.
        options: options of the conversions.
        calibration: calibration samples.
        data: samples of the metric.
        output: the model file to write. The state is beside it, with the suffix ``.tuning.json``, and the rules of the
            best model so far, with the suffix ``.rules.yaml``.
        goal: the metric and its limits.
        budget: seconds.
        progress: receives stages and reports.
        clock: returns seconds.
        device: chip of the vendor's compiler, of whose export the models get a note.

    """

    def __init__(
        self,
        source: Source,
        options: Options,
        calibration: CalibrationSource | os.PathLike[str],
        data: str | os.PathLike[str],
        output: str | os.PathLike[str],
        goal: Goal,
        budget: float,
        progress: Progress = SILENT,
        clock: Callable[[], float] = time.monotonic,
        *,
        device: str = "",
    ) -> None:
        self._source, self._options, self._device = source, options, device
        self._calibration, self._data = os.fspath(calibration), os.fspath(data)  # type: ignore[arg-type]
        self._output = Path(output)
        self._goal = goal
        self._budget, self._progress, self._clock = budget, progress, clock
        self._start = clock()
        self._cache = CalibrationCache()
        self._candidates: list[_Candidate] = []
        self._trials: dict[tuple[str, ...], Trial] = {}
        self._metric: Metric | None = None

    @property
    def state_file(self) -> Path:
        """The file with all trials."""
        return files_beside(self._output)[0]

    @property
    def rules_file(self) -> Path:
        """The file with the precision rules of the best model so far."""
        return files_beside(self._output)[1]

    def run(self) -> Tuning:
        """Search, or continue a search.

        Raises:
            UsageError: as for :func:`tune`.

        """
        self._check_data()
        state = self._read_state()
        with open_workers(self._options.workers, self._options.scheduler) as workers:
            return self._run_on(workers, state)

    def _run_on(self, workers: Workers, state: dict[str, Any] | None) -> Tuning:
        self._cache.workers = workers
        self._progress.report("float model")
        floats = Conversion(self._options.in_float(), progress=self._progress).of_source(self._source)
        self._metric = Metric(self._goal.metric, self._data, floats, self._progress, workers)
        self._progress.report(f"float model: {self.describe(self._metric.of_float)}")
        if state is not None:
            self._continue(state)
            self._progress.report(f"continuing after {len(self._trials)} trials of {self.state_file}")
        is_complete = True
        try:
            self._measure(frozenset())
            if not self._candidates:
                self._find_candidates()
            costs = [item.cost for item in self._candidates]
            search(costs, _count_within(costs, self._goal.max_cost), self._measure)
        except BudgetSpentError:
            is_complete = False
        return self._result(is_complete)

    def _continue(self, state: Mapping[str, Any]) -> None:
        """Take candidates and trials from a state.

        Raises:
            CorruptInputError: it is damaged.
        """
        try:
            candidates = [_Candidate(tuple(map(str, names)), float(cost)) for names, cost in state["candidates"]]
            trials = [
                (tuple(map(str, item["keep_float"])), item["metric"], float(item["cost"])) for item in state["trials"]
            ]
            values = [math.inf if value is None else float(value) for _, value, _ in trials]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CorruptInputError(f"is damaged: {error!r}", file=str(self.state_file), hint="remove it") from error
        self._candidates = candidates
        for (names, _, cost), value in zip(trials, values, strict=True):
            self._trials[names] = Trial(names, value, cost, self._is_enough(value))

    def describe(self, value: float) -> str:
        """Format a value of the metric."""
        if self._metric is not None and not self._metric.is_share:
            return f"{self._goal.metric} {value:.2f} dB"
        return f"{self._goal.metric} {value:.5f}"

    def _check_data(self) -> None:
        same = os.path.realpath(self._calibration) == os.path.realpath(self._data)
        if same or _files_of(self._calibration) & _files_of(self._data):
            raise UsageError(
                f"{self._data}: has the calibration samples",
                hint="measure on other samples: on the calibration samples every model looks better than it is",
            )

    def _key(self) -> dict[str, Any]:
        """Everything that a search depends on, by the name under which messages mention it."""
        key: dict[str, Any] = {"the source": self._source.digest()}
        if self._source.weights is not None:
            key["the weights"] = file_digest(self._source.weights)
        key["--calibration"] = _digest_of(self._calibration)
        key["--data"] = _digest_of(self._data)
        key["--metric"] = self._goal.metric
        key["--chip"] = self._options.chip.value
        options = write_options(self._options)
        return {**key, **{f"--{name.replace('_', '-')}": value for name, value in options.items()}}

    def _read_state(self) -> dict[str, Any] | None:
        try:
            state = parse_json(read_text(self.state_file))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(error, self.state_file) from error
        except ValueError as error:
            raise CorruptInputError(f"is not JSON: {error}", file=str(self.state_file), hint="remove it") from error
        if not isinstance(state, dict) or state.get("format") != FORMAT or state.get("version") != VERSION:
            raise CorruptInputError("holds no state of a search", file=str(self.state_file), hint="remove it")
        stored_key, key = state.get("key"), self._key()
        if not isinstance(stored_key, dict):
            raise CorruptInputError("holds no state of a search", file=str(self.state_file), hint="remove it")
        changed = sorted(name for name in stored_key.keys() | key.keys() if stored_key.get(name) != key.get(name))
        if changed:
            raise UsageError(
                f"{self.state_file}: the search was made with another value of {', '.join(changed)}",
                hint="use the same, write to another file with -o, or remove this one to start again",
            )
        return state

    def _write_state(self) -> None:
        state = {
            "format": FORMAT,
            "version": VERSION,
            "key": self._key(),
            "candidates": [[list(item.names), item.cost] for item in self._candidates],
            "trials": [trial.to_dict() for trial in self._trials.values()],
        }
        with replacing(self.state_file) as file:
            file.write((json.dumps(state, indent=1) + "\n").encode("utf-8"))

    def _is_enough(self, value: float) -> bool:
        assert self._metric is not None
        if self._metric.is_share:
            return self._metric.of_float - value <= self._goal.max_drop / 100 + 1e-12
        return value >= self._goal.max_drop

    def _convert(self, keep: Sequence[str]) -> Model:
        rules = (*self._options.precision, *(f"{name}=float32" for name in keep))
        options = replace(self._options, precision=rules)
        progress = self._progress if self._cache.ranges is None else SILENT
        return Conversion(
            options, self._calibration, cache=self._cache, progress=progress, device=self._device
        ).of_source(self._source)

    def _find_candidates(self) -> None:
        """Rank the nodes by the error that each of them causes, measured on calibration samples."""
        model = self._convert(())
        attribution = attribute(
            model,
            self._source.model,
            self._source.weights,
            data=self._calibration,
            samples=SAMPLES,
            nodes=NODES,
            measured_rules=0,
            allow_root=self._options.allow_root,
            progress=self._progress,
        )
        counts = {node.name: macs(node, open_extent=1) or 0 for node in model.graph.nodes}
        total = sum(counts.values()) or 1
        scores: dict[tuple[str, ...], tuple[float, float]] = {}
        for node in attribution.nodes:
            names = tuple(_escape(name) for name in node.keep_float)
            cost = sum(_macs_of(name, counts) for name in node.keep_float) / total
            if node.isolated.noise > 0:
                scores.setdefault(names, (node.isolated.noise / (cost + MOST_OF_COST), cost))
        order = sorted(scores, key=lambda names: -scores[names][0])
        self._candidates = [_Candidate(names, scores[names][1]) for names in order]
        self._write_state()

    def _measure(self, chosen: Chosen) -> Trial:
        """Convert with some candidates in float, and measure.

        Raises:
            BudgetSpentError: the time is over.

        """
        names = self._names(chosen)
        trial = self._trials.get(names)
        if trial is None:
            spent = self._clock() - self._start
            if self._trials and spent > self._budget:
                raise BudgetSpentError
            assert self._metric is not None
            self._progress.stage(f"trial {len(self._trials) + 1}")
            model = self._convert(names)
            value = self._metric.measure(model)
            share = integer_share(model.graph.nodes)
            trial = Trial(names, value, 0.0 if share is None else 1.0 - share, self._is_enough(value))
            self._trials[names] = trial
            self._write_state()
            if self._best() is trial:
                self._save(model, trial)
            left = max(0.0, self._budget - (self._clock() - self._start))
            self._progress.report(
                f"trial {len(self._trials)}: {several(len(names), 'node')} in float, {trial.cost:.2%} of the MACs, "
                f"{self.describe(value)}; at most {left / 60:.1f} minutes left"
            )
        return trial

    def _names(self, chosen: Chosen) -> tuple[str, ...]:
        names = itertools.chain.from_iterable(self._candidates[index].names for index in sorted(chosen))
        return tuple(dict.fromkeys(names))

    def _best(self) -> Trial:
        limit = self._goal.max_cost
        trials = self._trials.values()
        return best_of([trial for trial in trials if limit is None or trial.cost <= limit] or trials)

    def _save(self, model: Model, trial: Trial) -> None:
        model.save(self._output)
        with replacing(self.rules_file) as file:
            file.write(trial.rules.encode("utf-8"))

    def _is_saved(self, trial: Trial) -> bool:
        """Return True if the files belong to a trial. The rules are written last, so that a kill is noticed."""
        try:
            return read_text(self.rules_file) == trial.rules
        except (OSError, UnicodeDecodeError):
            return False

    def _result(self, is_complete: bool) -> Tuning:
        assert self._metric is not None
        best = self._best()
        if not self._output.exists() or not self._is_saved(best):
            self._save(self._convert(best.keep_float), best)
        return Tuning(
            self._goal.metric,
            self._metric.of_float,
            self._goal.max_drop,
            self._goal.max_cost,
            tuple(self._trials.values()),
            tuple(pareto(self._trials.values())),
            best,
            is_complete,
            str(self._output),
            str(self.rules_file),
        )


@dataclass(frozen=True)
class _Candidate:
    """Nodes that are kept in float together, and the share of the multiply-accumulates that they have."""

    names: tuple[str, ...]
    cost: float


def _count_within(costs: Sequence[float], limit: float | None) -> int:
    """Return the number of first candidates whose cost together is within a limit."""
    if limit is None:
        return len(costs)
    return sum(total <= limit for total in itertools.accumulate(costs))


def _escape(name: str) -> str:
    """Return a selector that selects one name only."""
    return glob.escape(name) if any(character in name for character in "*?[") else name


def _macs_of(name: str, counts: Mapping[str, int]) -> int:
    """Multiply-accumulates of a node; the integer nodes of ``x`` are called ``x:int32`` and so on."""
    return sum(count for node, count in counts.items() if node == name or node.startswith(f"{name}:"))


def _files_of(path: str) -> set[str]:
    if not os.path.isdir(path):
        return {os.path.realpath(path)}
    return {os.path.realpath(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names}


def _digest_of(path: str) -> str:
    """Digest of a file, or of all files of a folder with their names."""
    if not os.path.isdir(path):
        return file_digest(path)
    names = sorted(
        os.path.relpath(os.path.join(folder, name), path) for folder, _, files in os.walk(path) for name in files
    )
    lines = "\n".join(f"{name} {file_digest(os.path.join(path, name))}" for name in names)
    return digest_of(lines.encode("utf-8")).hex()
