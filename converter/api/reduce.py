"""``tpuconvert.reduce``: cut a failing model to a small one that fails in the same way."""

from __future__ import annotations

import collections
import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from tpuconvert.frontends.onnx.messages import ModelProto
from tpuconvert.memory_sources import AnySource, source_paths
from tpuconvert.option_types import ReduceOptions
from tpuconvert.options import Options, default_of
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import SILENT, Progress
from tpuconvert.reduction.constants import tensors_of
from tpuconvert.reduction.failure import BACKENDS, CONDITION, CRASH, ENGINE, ERROR, TIMEOUT, VERIFY, Failure
from tpuconvert.reduction.names import identifying_texts
from tpuconvert.reduction.reducer import LEAST_SECONDS, Outcome, Reducer
from tpuconvert.reduction.result import Reduction, Size
from tpuconvert.reduction.source import APPLIED, apply_options, load_model
from tpuconvert.reduction.tensor_types import import_types, infer_types
from tpuconvert.reduction.trial import Request, observe
from tpuconvert.reduction.worker import Worker, WorkerDiedError
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.file_replacement import replacing
from tpuconvert.schema.input_files import note_input, noting_inputs, refuse_input
from tpuconvert.source_loading import source_format
from tpuconvert.tuning.mixed_precision import seconds_of
from tpuconvert.user_functions import is_function_name

KINDS = {"error": (ERROR,), "difference": (VERIFY, BACKENDS, ENGINE)}
"""Words of ``until`` -> kinds of failures, in the order in which they are looked for."""

FIRST_SECONDS = 600.0
"""Time limit of the trial of the whole model, unless the budget is larger."""


def reduce(
    source: AnySource,
    *,
    until: str | Callable[[str], Any] = "error|difference",
    output: str | os.PathLike[str] | None = None,
    match: str | None = None,
    budget: str = "10m",
    seed: int = 0,
    resume: bool = False,
    max_difference: float | None = None,
    min_cosine: float | None = None,
    min_sqnr: float | None = None,
    plugins: Iterable[str | Path] = (),
    progress: Progress | None = None,
    **options: Unpack[ReduceOptions],
) -> Reduction:
    """Cut a failing ONNX model to a small one that fails in the same way, with random weights and generic names.

    Every trial converts and runs a smaller model in a separate process. It is kept if it has the same kind of failure,
    with a message that is equal except for names and numbers. Calibration and comparisons use random inputs.

    Args:
        source: The ONNX model. It is not modified.
        until: The failure: ``error`` of the conversion or the first run; ``difference`` between the model and its
            source as ``verify`` finds it, between the native engine and the reference, or between the source and ONNX
            Runtime if it is installed; or both, separated by ``|``: the first one found. Otherwise a function that gets
            the path of an ONNX file and returns True if it fails, also as ``module:function``, or a command with ``{}``
            in place of the path whose exit code is 0 if it fails.
        output: File to write. It contains the smallest model so far at any time. None: only return the model.
        match: Regular expression that is searched in the message, to choose one of several failures.
        budget: Time after which no further trial of the search begins: ``90s``, ``10m`` or ``2h``. Weights and names
            are replaced after it.
        seed: Seed of random weights and inputs.
        resume: Continue from ``output``, if the file exists and fails in the same way.
        max_difference: Limit of a difference, as for ``verify``.
        min_cosine: Limit of a difference, as for ``verify``.
        min_sqnr: Limit of a difference, as for ``verify``.
        plugins: Python files with custom operators and converters.
        progress: Receives the steps.
        options: The options of the conversion with which the model fails, as for ``convert``.

    Returns:
        The reduced model, and what it has in common with the source.

    Raises:
        UsageError: The model does not fail, is no ONNX model, or an argument is invalid.

    Example:
        >>> found = tc.reduce("digits.onnx", until=lambda path: "softmax" in tc.check(path).operators)
        >>> found.before.nodes, found.after.nodes, dict(found.operators)
        (17, 1, {'Softmax': 1})

    """
    seconds = seconds_of(budget)
    condition, kinds = _read_until(until)
    pattern = _read_pattern(match)
    limits = {"max_difference": max_difference, "min_cosine": min_cosine, "min_sqnr": min_sqnr}
    plugin_files = [os.fspath(plugin) for plugin in plugins]
    load_plugins(plugin_files)
    settings = Options.of(**options)
    given = {name: value for name, value in options.items() if getattr(settings, name) != default_of(name)}
    request = Request(
        kinds, given, {name: limit for name, limit in limits.items() if limit is not None}, condition, seed
    )
    watcher, start = progress or SILENT, time.monotonic()
    with noting_inputs(), source_paths(source, None) as (path, _), Worker(plugin_files) as worker:
        note_input(path)
        if output is not None:
            refuse_input(output)
        _ensure_onnx(path)
        run = _Run(worker, request, until if callable(until) else None, watcher, seconds)
        file = os.fspath(source) if isinstance(source, (str, os.PathLike)) else "<model>"
        model = load_model(path, settings.allow_root)
        size = _size(model)
        failure, duration = run.find_failure(os.fspath(path), pattern, file)
        run.request = replace(request, kinds=kinds if failure.kind in (CRASH, TIMEOUT) else (failure.kind,))
        model = run.apply(model, settings, failure)
        if resume and output is not None and os.path.isfile(output):
            model = run.resume(model, output, failure)
        reducer = run.reducer(model, failure, duration, None if output is None else Path(output))
        outcome = reducer.run()
        needed = reducer.needed_options(run.request.options)
        content = outcome.model.SerializeToString()
        last = next((each for each in run.observe(content, needed) if each.is_alike(failure)), failure)
        if output is not None:
            _write(Path(output), outcome.model)
    return Reduction(
        file=os.path.basename(file),
        output=None if output is None else os.fspath(output),
        kind=failure.kind,
        until=_until_of(failure, condition),
        message=failure.message,
        reduced_message=last.message,
        before=size,
        after=_size(outcome.model),
        operators=dict(collections.Counter(_operator(node) for node in outcome.model.graph.node)),
        options={name: _text(value) for name, value in (*needed.options.items(), *needed.limits.items())},
        plugins=tuple(plugin_files),
        random_weights=outcome.random_weights,
        kept_weights=outcome.kept_weights,
        names=_names_of(outcome),
        identifying=identifying_texts(outcome.model),
        trials=outcome.trials,
        seconds=time.monotonic() - start,
        is_complete=outcome.is_complete,
        model=outcome.model,
    )


class _Run:
    """Trials of one reduction.

    Args:
        worker: process for trials.
        request: what the trials examine.
        function: the caller's function, which is called in this process, or None.
        progress: receives the steps.
        seconds: limit of the search.

    """

    def __init__(
        self,
        worker: Worker,
        request: Request,
        function: Callable[[str], Any] | None,
        progress: Progress,
        seconds: float,
    ) -> None:
        self.worker, self.request, self.function = worker, request, function
        self._progress, self._seconds = progress, seconds

    def observe(self, source: str | bytes, request: Request, seconds: float = FIRST_SECONDS) -> list[Failure]:
        """Return the failures of a model, including the end of the process."""
        if self.function is not None:
            return [Failure(CONDITION, "", "the given function returns True")] if self._call(source) else []
        try:
            found: list[Failure] = self.worker.call(observe, source, request, seconds=seconds)
        except WorkerDiedError as ending:
            return [ending.failure]
        return found

    def _call(self, source: str | bytes) -> bool:
        assert self.function is not None
        if isinstance(source, str):
            return bool(self.function(source))
        with tempfile.TemporaryDirectory(prefix="tpuconvert-") as folder:
            path = Path(folder, "model.onnx")
            path.write_bytes(source)
            return bool(self.function(str(path)))

    def find_failure(self, path: str, pattern: re.Pattern[str] | None, file: str) -> tuple[Failure, float]:
        """Return the failure of the whole model that is to remain, and the duration of the trial."""
        self._progress.stage("find the failure")
        start = time.monotonic()
        found = self.observe(path, self.request, max(FIRST_SECONDS, self._seconds))
        chosen = [each for each in found if pattern is None or pattern.search(each.message)]
        if chosen:
            return chosen[0], time.monotonic() - start
        if found:
            listed = "\n".join(each.message for each in found[:6])
            raise UsageError(f"no failure matches '{pattern.pattern if pattern else ''}'", file=file, hint=listed)
        raise UsageError(
            "the model does not fail: there is nothing to reduce",
            file=file,
            hint="add the options of the conversion that fails, or describe the failure by --until",
        )

    def apply(self, model: ModelProto, settings: Options, failure: Failure) -> ModelProto:
        """Apply the options that name tensors to the model. If it fails no longer, the options stay as they are."""
        if not set(APPLIED) & set(self.request.options):
            return model
        content = model.SerializeToString()
        infos: dict[str, Any] = {}
        for function, arguments in ((import_types, (content, {})), (infer_types, (content,))):
            try:
                infos |= self.worker.call(function, *arguments, seconds=LEAST_SECONDS)
            except WorkerDiedError:
                continue
        applied = apply_options(model, settings, infos)
        if applied is None:
            return model
        options = {name: value for name, value in self.request.options.items() if name not in APPLIED}
        fewer = replace(self.request, options=options)
        if any(each.is_alike(failure) for each in self.observe(applied.SerializeToString(), fewer)):
            self.request = fewer
            return applied
        return model

    def resume(self, model: ModelProto, output: str | os.PathLike[str], failure: Failure) -> ModelProto:
        """Return the model in the output file if it fails in the same way, otherwise the given one."""
        earlier = load_model(output, None)
        if any(each.is_alike(failure) for each in self.observe(earlier.SerializeToString(), self.request)):
            self._progress.report(f"continue from {os.fspath(output)}: {len(earlier.graph.node)} nodes")
            return earlier
        self._progress.report(f"{os.fspath(output)} does not fail in this way: begin with the whole model")
        return model

    def reducer(self, model: ModelProto, failure: Failure, duration: float, output: Path | None) -> Reducer:
        """Return the reducer of a model."""
        return Reducer(
            model,
            failure,
            self.request,
            self.worker,
            seconds=self._seconds,
            trial_seconds=duration,
            write=lambda smaller: None if output is None else _write(output, smaller),
            progress=self._progress,
            test=None if self.function is None else self._call,
        )


def _read_until(until: str | Callable[[str], Any]) -> tuple[str, tuple[str, ...]]:
    """Return the condition, empty if there is none, and the kinds of failures.

    Raises:
        UsageError: the text has none of the forms.

    """
    if not isinstance(until, str):
        return "", (CONDITION,)
    words = until.split("|")
    if all(word in KINDS for word in words):
        return "", tuple(kind for word in KINDS if word in words for kind in KINDS[word])
    if "{}" in until or is_function_name(until):
        module = until.rpartition(":")[0]
        if "{}" not in until and module.endswith(".py"):
            note_input(module)
        return until, (CONDITION,)
    hint = "error, difference, 'error|difference', module:function, FILE.py:function, or a command with {}"
    raise UsageError(f"until is '{until}', which is no failure", hint=hint)


def _read_pattern(match: str | None) -> re.Pattern[str] | None:
    try:
        return None if match is None else re.compile(match)
    except re.error as error:
        raise UsageError(f"match is '{match}', which is no regular expression: {error}") from error


def _ensure_onnx(path: str | os.PathLike[str]) -> None:
    kind = source_format(path)
    if kind != "onnx":
        raise UsageError(
            f"this is a {kind} model, expected an ONNX model: no others can be reduced",
            file=os.fspath(path),
            hint="--inputs and --outputs of check and convert select a part of it",
        )


def _write(path: Path, model: ModelProto) -> None:
    with replacing(path) as file:
        file.write(model.SerializeToString())


def _size(model: ModelProto) -> Size:
    constants = sum(math.prod(tensor.dims) for tensor in tensors_of(model.graph))
    return Size(len(model.graph.node), constants, model.ByteSize())


def _operator(node: Any) -> str:
    return f"{node.domain}:{node.op_type}" if node.domain else str(node.op_type)


def _until_of(failure: Failure, condition: str) -> str:
    if failure.kind == CONDITION:
        return condition or "module:function"
    return next((word for word, kinds in KINDS.items() if failure.kind in kinds), "error")


def _names_of(outcome: Outcome) -> str:
    if not outcome.has_generic_names:
        return "kept"
    return "ports" if outcome.has_port_names else "generic"


def _text(value: Any) -> str:
    """Return the value of an option as it is written on a command line; empty for a flag."""
    if value is True:
        return ""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_text(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(getattr(value, "value", value)).lower() if hasattr(value, "value") else str(value)
