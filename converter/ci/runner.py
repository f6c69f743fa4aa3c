"""Going through a manifest: what is in the cache is taken from there, the rest is made by several processes."""

from __future__ import annotations

import fnmatch
import multiprocessing
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpuconvert.ci.cache import Cache, content, key_of
from tpuconvert.ci.manifest import LIMITS, Job, Limit
from tpuconvert.schema.errors import TpuConvertError, UsageError
from tpuconvert.schema.file_replacement import replacing
from tpuconvert.wording import against_limit

Measures = dict[str, Any]


@dataclass(frozen=True)
class Miss:
    """A limit that a model does not keep."""

    limit: Limit
    wanted: float
    found: float

    def __str__(self) -> str:
        text = against_limit(self.found, self.wanted, is_least=self.limit.is_least, unit=self.limit.unit)
        return f"{self.limit.key} {text}"


@dataclass(frozen=True)
class Trouble:
    """Why there is no model: an error with its id, as one text and in parts."""

    id: str
    exit_code: int
    text: str

    @staticmethod
    def of(error: TpuConvertError) -> Trouble:
        """What is kept of an error; errors themselves do not travel between processes."""
        return Trouble(error.id, error.exit_code, str(error))


@dataclass(frozen=True)
class Outcome:
    """What came of one model.

    Args:
        name: in the manifest.
        source: as a path relative to the working folder where it is below that.
        is_cached: whether it was taken from the cache.
        measures: by name; empty without a model.
        limits: what it was held to.
        trouble: why there is no model.
    """

    name: str
    source: str
    is_cached: bool = False
    measures: Measures = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    trouble: Trouble | None = None

    @property
    def misses(self) -> list[Miss]:
        """The limits that are not kept."""
        found = []
        for limit in LIMITS:
            if limit.key in self.limits and limit.measure in self.measures:
                wanted, value = self.limits[limit.key], float(self.measures[limit.measure])
                # A comparison with NaN is false, and a measure that is none keeps no limit.
                if not (value >= wanted if limit.is_least else value <= wanted):
                    found.append(Miss(limit, wanted, value))
        return found

    @property
    def status(self) -> str:
        """``error`` without a model, ``failed`` with a limit that is not kept, else ``cached`` or ``made``."""
        if self.trouble is not None:
            return "error"
        return "failed" if self.misses else "cached" if self.is_cached else "made"


Watch = Callable[[Outcome], None]


def chosen(jobs: Sequence[Job], patterns: Sequence[str]) -> list[Job]:
    """The jobs whose names fit one of some patterns; all of them without a pattern.

    Raises:
        UsageError: a pattern fits none.
    """
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(job.name, pattern) for job in jobs):
            names = ", ".join(job.name for job in jobs)
            raise UsageError(f"no model fits '{pattern}'", hint=f"the manifest has {names}")
    return [job for job in jobs if not patterns or any(fnmatch.fnmatchcase(job.name, each) for each in patterns)]


def run(jobs: Sequence[Job], cache: Cache, processes: int, watch: Watch) -> list[Outcome]:
    """Bring all models up to date.

    Args:
        jobs: the models.
        cache: where finished models are kept.
        processes: how many are made at once.
        watch: is told of each outcome when it is known.

    Returns:
        One outcome per job, in their order.
    """
    outcomes: dict[str, Outcome] = {}
    waiting: list[tuple[Job, str]] = []
    for job in jobs:
        try:
            key = key_of(job)
        except OSError as error:
            problem = UsageError(f"cannot be read ({error.strerror or error})", file=str(error.filename))
            _tell(outcomes, _failed(job, Trouble.of(problem)), watch)
            continue
        measures = cache.measures(key)
        if measures is None or any(limit.measure not in measures for limit in LIMITS if limit.key in job.limits):
            waiting.append((job, key))
        else:
            _tell(outcomes, _finished(job, cache, key, measures, is_cached=True), watch)
    for job, key, made in _made(waiting, cache, processes):
        if isinstance(made, Trouble):
            _tell(outcomes, _failed(job, made), watch)
        else:
            cache.keep(key, made)
            _tell(outcomes, _finished(job, cache, key, made, is_cached=False), watch)
    return [outcomes[job.name] for job in jobs]


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """That of the first error, else 5 for a limit that is not kept, else 0."""
    errors = [outcome.trouble.exit_code for outcome in outcomes if outcome.trouble is not None]
    return errors[0] if errors else 5 if any(outcome.misses for outcome in outcomes) else 0


def _made(waiting: Sequence[tuple[Job, str]], cache: Cache, processes: int) -> Any:
    if len(waiting) <= 1 or processes == 1:
        for job, key in waiting:
            yield job, key, _make(job, cache.model(key))
        return
    context = multiprocessing.get_context("spawn")  # threads of the engine do not survive a fork
    with ProcessPoolExecutor(min(processes, len(waiting)), mp_context=context) as pool:
        running: dict[Future[Measures | Trouble], tuple[Job, str]] = {
            pool.submit(_make, job, cache.model(key)): (job, key) for job, key in waiting
        }
        for future in as_completed(running):
            job, key = running[future]
            try:
                yield job, key, future.result()
            except Exception as error:  # the process is gone, whatever it died of
                text = f"the process that made it ended: {type(error).__name__} {error}"
                yield job, key, Trouble(TpuConvertError.id, TpuConvertError.exit_code, text)


def _make(job: Job, target: Path) -> Measures | Trouble:
    from tpuconvert.ci.measures import make

    try:
        return make(job, target)
    except TpuConvertError as error:
        return Trouble.of(error)


def _finished(job: Job, cache: Cache, key: str, measures: Measures, *, is_cached: bool) -> Outcome:
    output = job.files.get("output")
    if output is not None:
        try:
            _bring(cache.model(key), output)
        except OSError as error:
            problem = UsageError(f"cannot be written ({error.strerror or error})", file=str(output))
            return _failed(job, Trouble.of(problem))
    return Outcome(job.name, _shown(job), is_cached, measures, dict(job.limits))


def _failed(job: Job, trouble: Trouble) -> Outcome:
    return Outcome(job.name, _shown(job), limits=dict(job.limits), trouble=trouble)


def _bring(model: Path, output: Path) -> None:
    """Copy a model out of the cache, unless it is there already."""
    if output.is_file() and output.stat().st_size == model.stat().st_size and content(output) == content(model):
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    with replacing(output) as target, model.open("rb") as source:
        shutil.copyfileobj(source, target)


def _shown(job: Job) -> str:
    """The source as reports name it, with slashes on every system."""
    source = job.files["source"]
    try:
        return source.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return Path(os.path.relpath(source)).as_posix()


def _tell(outcomes: dict[str, Outcome], outcome: Outcome, watch: Watch) -> None:
    outcomes[outcome.name] = outcome
    watch(outcome)
