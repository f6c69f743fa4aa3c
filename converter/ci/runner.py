"""Run a manifest: take models from the cache, or convert them in several processes."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from tpuconvert.ci.cache import Cache, DamagedEntry, Entry, key_of
from tpuconvert.ci.manifest import ACCEPTED, ACCURACY, DEVICE, LIMITS, PROGRAM, Job, Limit
from tpuconvert.ci.measures import Measurement, Measures, convert_and_measure
from tpuconvert.conversion.reproduction import file_sha256
from tpuconvert.known_errors import known_error
from tpuconvert.model.accuracy_notes import KEY as ACCURACY_SECTION
from tpuconvert.schema.errors import CorruptInputError, TpuConvertError, UsageError
from tpuconvert.schema.system.content_digest import CHUNK
from tpuconvert.schema.system.file_errors import unwritable
from tpuconvert.schema.system.file_replacement import replacing
from tpuconvert.schema.system.input_files import refuse_input
from tpuconvert.schema.system.temporary_files import remove_abandoned
from tpuconvert.schema.text.plain_values import Plain, Unbounded
from tpuconvert.text.text_format import against_limit
from tpuconvert.workers.choice import open_workers
from tpuconvert.workers.workers import Failure, Shard, ThisProcess, Workers

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Miss(Plain, hidden=("limit", "reason"), keys={"key": "limit", "__str__": "message"}):
    """A limit that a model misses."""

    limit: Limit
    wanted: Unbounded
    found: Unbounded
    reason: str = ""

    @property
    def key(self) -> str:
        """Key of the limit in the manifest."""
        return self.limit.key

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        text = against_limit(self.found, self.wanted, is_least=self.limit.is_least, unit=self.limit.unit)
        return f"{self.limit.key} {text}"


@dataclass(frozen=True)
class Trouble(Plain, hidden=("exit_code",), keys={"text": "message"}):
    """Error of a model's conversion: its id, exit code and text."""

    id: str
    exit_code: int
    text: str

    @staticmethod
    def of(error: TpuConvertError) -> Trouble:
        """Return the id, exit code and text of an error, which can be pickled."""
        return Trouble(error.id, error.exit_code, str(error))


@dataclass(frozen=True)
class Outcome(
    Plain,
    hidden=("is_cached", "accepted", "model", "sections"),
    added=("status", "misses"),
    keys={"trouble": "error"},
):
    """Result of one model.

    Args:
        name: in the manifest.
        source: path of the source, relative to the working directory if possible.
        is_cached: whether the model was taken from the cache.
        measures: measurements by name; empty if there is no model.
        limits: limits of the job by key.
        accepted: names of outputs that may be below the accuracy limits.
        trouble: error that prevented the conversion, or None.
        note: reason why an existing cache entry was not used; usually empty.
        model: the model file in the cache, or None.
        sections: descriptions for the report by key; empty if there is no model.
    """

    name: str
    source: str
    is_cached: bool = False
    measures: Annotated[Measures, dict[str, float | str | None]] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    accepted: tuple[str, ...] = ()
    trouble: Trouble | None = None
    note: str = ""
    model: Path | None = None
    sections: dict[str, Any] = field(default_factory=dict)

    @property
    def misses(self) -> list[Miss]:
        """The limits that the model misses."""
        misses = []
        for limit in LIMITS:
            if limit.key in self.limits and limit.measure in self.measures:
                bound, value = self.limits[limit.key], float(self.measures[limit.measure])
                # A comparison with NaN is false: NaN misses every limit.
                if not (value >= bound if limit.is_least else value <= bound):
                    misses.append(Miss(limit, bound, value))
        if self.measures.get(PROGRAM.measure):
            text = f"{DEVICE}: {self.measures[DEVICE]}, {self.measures['first_device_difference']}"
            misses.append(Miss(PROGRAM, 0.0, float(self.measures[PROGRAM.measure]), text))
        inaccurate = {name: text for name, text in self._inaccurate.items() if name not in self.accepted}
        return [*misses, *(Miss(ACCURACY, 0.0, float(len(inaccurate)), str(text)) for text in inaccurate.values())]

    @property
    def _inaccurate(self) -> Mapping[str, str]:
        """Texts about outputs below the accuracy limits, by name."""
        texts = self.sections.get(ACCURACY_SECTION, {}).get("inaccurate", {})
        return texts if isinstance(texts, Mapping) else {}

    @property
    def status(self) -> Literal["made", "cached", "failed", "error"]:
        """``error`` if there is no model, ``failed`` if it misses a limit, otherwise ``cached`` or ``made``."""
        if self.trouble is not None:
            return "error"
        return "failed" if self.misses else "cached" if self.is_cached else "made"


Watch = Callable[[Outcome], None]


def select_jobs(jobs: Sequence[Job], patterns: Sequence[str]) -> list[Job]:
    """Select the jobs whose names match at least one pattern; all jobs if there are no patterns.

    Raises:
        UsageError: a pattern matches no job.
    """
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(job.name, pattern) for job in jobs):
            names = ", ".join(job.name for job in jobs)
            raise UsageError(f"no model fits '{pattern}'", hint=f"the manifest has {names}")
    return [job for job in jobs if not patterns or any(fnmatch.fnmatchcase(job.name, each) for each in patterns)]


def run(jobs: Sequence[Job], cache: Cache, processes: int, watch: Watch, scheduler: str | None = None) -> list[Outcome]:
    """Bring all models up to date. An error of one model does not stop the others.

    Args:
        jobs: the models of the manifest.
        cache: cache of converted models.
        processes: number of models that are converted at once.
        watch: called with each outcome as soon as it is known.
        scheduler: address of a dask scheduler that converts the models instead of processes. Its workers need all
            files of the manifest and the cache under the same paths.

    Returns:
        One outcome per job, in their order.
    """
    outcomes: dict[str, Outcome] = {}

    def record(outcome: Outcome) -> None:
        outcomes[outcome.name] = outcome
        watch(outcome)

    # Compute all keys before any file is written: this registers the source files, which must not be overwritten.
    keys = {job.name: _attempt(_checked_key, job) for job in jobs}
    waiting: list[tuple[Job, str]] = []
    notes: dict[str, str] = {}
    for job in jobs:
        key = keys[job.name]
        cached = key if isinstance(key, Trouble) else _attempt(_find_entry, job, key, cache, notes)
        if isinstance(cached, Trouble):
            record(_failure(job, cached))
        elif cached is None:
            waiting.append((job, str(key)))
        else:
            record(_success(job, cached, is_cached=True))
    count = 1 if scheduler is not None else max(1, min(processes, len(waiting)))
    with contextlib.ExitStack() as stack:
        folder = _attempt(stack.enter_context, cache.new_models()) if waiting else cache.folder
        if isinstance(folder, Trouble):
            for job, _ in waiting:
                record(_failure(job, folder, notes.get(job.name, "")))
            return [outcomes[job.name] for job in jobs]
        workers = stack.enter_context(open_workers(count, scheduler if waiting else None, in_processes=True))
        for job, key, converted in _convert_all(waiting, folder, workers):
            entry = converted if isinstance(converted, Trouble) else _attempt(_keep_entry, job, key, cache, *converted)
            if isinstance(entry, Trouble):
                record(_failure(job, entry, notes.get(job.name, "")))
            else:
                record(_success(job, entry, is_cached=False, note=notes.get(job.name, "")))
    return [outcomes[job.name] for job in jobs]


def _attempt(function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T | Trouble:
    """Return the result of a function, or its error as a value."""
    try:
        return function(*arguments, **keywords)
    except Exception as error:
        return Trouble.of(known_error(error))


def _checked_key(job: Job) -> str:
    if job.missing:
        raise UsageError(job.missing, hint="correct the manifest, or make the file first")
    return key_of(job)


def _find_entry(job: Job, key: str, cache: Cache, notes: dict[str, str]) -> Entry | None:
    """Return the usable cache entry of a job, or None. Add a note if there is an entry that cannot be used."""
    output = job.files.get("output")
    if output is not None:
        refuse_input(output)  # fail before a conversion that can take minutes
    try:
        entry = cache.find(key, job)
    except DamagedEntry as error:
        notes[job.name] = f"the cache has an entry that cannot be used: {error}; converted again"
        return None
    if entry is None or any(
        limit.measure not in entry.measurement.measures for limit in LIMITS if limit.key in job.limits
    ):
        return None
    return entry


def _keep_entry(job: Job, key: str, cache: Cache, file: Path, measurement: Measurement) -> Entry:
    """Add a new model to the cache, unless one of its source files changed during the conversion."""
    try:
        if key_of(job) != key:
            raise UsageError("a source file changed during the conversion", hint="run the command again")
        return cache.keep(key, file, measurement)
    finally:
        file.unlink(missing_ok=True)


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Exit code of the first error; otherwise 5 if a limit is missed, else 0."""
    errors = [outcome.trouble.exit_code for outcome in outcomes if outcome.trouble is not None]
    return errors[0] if errors else 5 if any(outcome.misses for outcome in outcomes) else 0


def _convert_all(
    waiting: Sequence[tuple[Job, str]], folder: Path, workers: Workers
) -> Iterator[tuple[Job, str, tuple[Path, Measurement] | Trouble]]:
    shards = [Shard(f"model '{job.name}'", 1, (job, key)) for job, key in waiting]
    if not isinstance(workers, ThisProcess):
        folder = folder.absolute()  # the working directory of workers may be another one
    for index, converted in workers.outcomes(_Conversion(folder), shards):
        yield *waiting[index], Trouble.of(converted.error) if isinstance(converted, Failure) else converted


@dataclass(frozen=True)
class _Conversion:
    """Task: convert a model of the manifest, with its key, into a file of a folder."""

    folder: Path

    def run(self, shard: tuple[Job, str], progress: Callable[[int], None]) -> tuple[Path, Measurement] | Trouble:
        job, key = shard
        target = self.folder / f"{key}.{os.urandom(8).hex()}.tpum"  # jobs may have equal keys
        measurement = _attempt(convert_and_measure, job, target)
        return measurement if isinstance(measurement, Trouble) else (target, measurement)


def _success(job: Job, entry: Entry, *, is_cached: bool, note: str = "") -> Outcome:
    output = job.files.get("output")
    if output is not None:
        trouble = _attempt(_bring, entry, output)
        if isinstance(trouble, Trouble):
            return _failure(job, trouble, note)
    measurement = entry.measurement
    measured = measurement.sections.get(ACCURACY_SECTION, {}).get("outputs", [])
    unknown = [name for name in job.accepted if name not in measured]
    if unknown:
        listed = ", ".join(map(str, measured)) or "none: the model is not quantized on calibration samples"
        hint = f"outputs with a measured accuracy: {listed}"
        error = UsageError(f"{ACCEPTED}: there is no output '{unknown[0]}'", file=_source_name(job), hint=hint)
        return _failure(job, Trouble.of(error), note)
    return Outcome(
        job.name,
        _source_name(job),
        is_cached,
        measurement.measures,
        dict(job.limits),
        job.accepted,
        note=note,
        model=entry.model,
        sections=measurement.sections,
    )


def _failure(job: Job, trouble: Trouble, note: str = "") -> Outcome:
    return Outcome(job.name, _source_name(job), limits=dict(job.limits), trouble=trouble, note=note)


def _bring(entry: Entry, output: Path) -> None:
    """Copy a model from the cache to its output file, unless that file is equal already.

    Raises:
        CorruptInputError: another program changed the entry after it was verified.
    """
    if output.is_file() and file_sha256(output).hex() == entry.sha256:
        remove_abandoned(os.path.realpath(output))
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(error, output) from error
    digest = hashlib.sha256()
    with replacing(output) as target, entry.open() as source:
        while part := source.read(CHUNK):
            digest.update(part)
            target.write(part)
        if digest.hexdigest() != entry.sha256:
            raise CorruptInputError("changed in the cache while it was copied", file=str(entry.model))


def _source_name(job: Job) -> str:
    """Path of the source for reports: relative if possible, with slashes on every system."""
    source = job.files["source"]
    try:
        return source.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return Path(os.path.relpath(source)).as_posix()
