"""``tpuconvert.reduce``: cut a failing model to a small one that fails in the same way."""

from __future__ import annotations

import collections
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tpuconvert.conversion.options.options import OPTIONS, Options, default_of, takes_groups
from tpuconvert.conversion.options.packed_weights import PackedWeights
from tpuconvert.conversion.options.quantization import Quantization
from tpuconvert.conversion.options.source import SourceOptions
from tpuconvert.conversion.source import AnySource, Source, Weights, open_source, unexpected_second_file
from tpuconvert.plugins import load_plugins
from tpuconvert.precision.tune import seconds_of
from tpuconvert.progress import SILENT, Progress
from tpuconvert.reduction.caffe_format import CaffeFormat
from tpuconvert.reduction.failure import BACKENDS, CONDITION, CRASH, ENGINE, ERROR, TIMEOUT, VERIFY, Failure
from tpuconvert.reduction.model_format import ModelFormat
from tpuconvert.reduction.onnx_format import OnnxFormat
from tpuconvert.reduction.reducer import LEAST_SECONDS, Outcome, Reducer
from tpuconvert.reduction.result import Reduction
from tpuconvert.reduction.source_files import FileWriter, SourceFiles, weights_path
from tpuconvert.reduction.tflite_format import TfliteFormat
from tpuconvert.reduction.trial import Request, observe
from tpuconvert.reduction.worker import Worker, WorkerDiedError
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.input_files import note_input, noting_inputs, refuse_input
from tpuconvert.schema.types import Chip
from tpuconvert.user_functions import is_function_name

FORMATS: Mapping[str, Callable[[], ModelFormat[Any]]] = {
    "onnx": OnnxFormat,
    "tflite": TfliteFormat,
    "caffe": CaffeFormat,
}
"""Format of a source -> the operations of a reduction on its models."""

KINDS = {"error": (ERROR,), "difference": (VERIFY, BACKENDS, ENGINE)}
"""Words of ``until`` -> kinds of failures, in the order in which they are looked for."""

FIRST_SECONDS = 600.0
"""Time limit of the trial of the whole model, unless the budget is larger."""


@takes_groups
def reduce(
    source: AnySource,
    weights: Weights = None,
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
    chip: str | Chip = Chip.BM1686,
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    quantize: str | Quantization | None = None,
    packed_weights: PackedWeights | None = None,
    source_options: SourceOptions | None = None,
    strict_set: bool = False,
    disable_rules: Iterable[str] = (),
    strict_accuracy: bool = False,
    plugins: Iterable[str | Path] = (),
    progress: Progress | None = None,
) -> Reduction:
    """Cut a failing model to a small one that fails in the same way, with random weights and generic names.

    Every trial converts and runs a smaller model in a separate process. It is kept if it has the same kind of failure,
    with a message that is equal except for names and numbers. Calibration and comparisons use random inputs.

    Args:
        source: The model: ONNX, TFLite or a prototxt. It is not modified.
        weights: The caffemodel of a prototxt.
        until: The failure: ``error`` of the conversion or the first run; ``difference`` between the model and its
            source as ``verify`` finds it, between the native engine and the reference, or between the source and ONNX
            Runtime if it is installed; or both, separated by ``|``: the first one found. Otherwise a function that gets
            the path of a file in the format of the source and returns True if it fails, also as ``module:function``, or
            a command with ``{}`` in place of the path whose exit code is 0 if it fails. A caffemodel is beside its
            prototxt, with the same name.
        output: File to write. It contains the smallest model so far at any time. None: only return the model. The
            caffemodel of a prototxt is written beside it, with the same name and the suffix ``.caffemodel``.
        match: Regular expression that is searched in the message, to choose one of several failures.
        budget: Time after which no further trial of the search begins: ``90s``, ``10m`` or ``2h``. Weights and names
            are replaced after it.
        seed: Seed of random weights and inputs.
        resume: Continue from ``output``, if the file exists and fails in the same way.
        max_difference: Limit of a difference, as for ``verify``.
        min_cosine: Limit of a difference, as for ``verify``.
        min_sqnr: Limit of a difference, as for ``verify``.
        chip: Target chip, as for ``convert``.
        preprocess: Preprocessing, as for ``convert``.
        quantize: ``int8``, ``none`` or ``Quantization(...)``, as for ``convert``.
        packed_weights: Types of weights and activations, as for ``convert``.
        source_options: Options that decide how the source is read.
        strict_set: Expand composite operators, as for ``convert``.
        disable_rules: Optimizer rules to skip, as for ``convert``.
        strict_accuracy: Refuse an inaccurate model, as for ``convert``.
        plugins: Python files with custom operators and converters.
        progress: Receives the steps.

    Returns:
        The reduced model, and what it has in common with the source.

    Raises:
        UsageError: The model does not fail, or an argument is invalid.
        CorruptInputError: A file is damaged, or of no known format.

    Example:
        >>> reduction = tc.reduce("digits.onnx", until=lambda path: "softmax" in tc.check(path).operators)
        >>> reduction.before.nodes, reduction.after.nodes, dict(reduction.operators)
        (17, 1, {'Softmax': 1})

    """
    seconds = seconds_of(budget)
    condition, kinds = _read_until(until)
    pattern = _read_pattern(match)
    limits = {"max_difference": max_difference, "min_cosine": min_cosine, "min_sqnr": min_sqnr}
    plugin_files = [os.fspath(plugin) for plugin in plugins]
    load_plugins(plugin_files)
    settings = Options.of(
        source_options,
        packed_weights,
        chip=chip,
        preprocess=preprocess,
        quantize=quantize,
        strict_set=strict_set,
        disable_rules=disable_rules,
        strict_accuracy=strict_accuracy,
    )
    values = {name: getattr(settings, name) for name in OPTIONS}
    changed = {name: value for name, value in values.items() if value != default_of(name)}
    request = Request(
        kinds, changed, {name: limit for name, limit in limits.items() if limit is not None}, condition, seed
    )
    watcher, start = progress or SILENT, time.monotonic()
    with noting_inputs(), open_source(source, weights, as_file=True) as opened, Worker(plugin_files) as worker:
        original = _check_files(opened, output)
        run = _Run(worker, request, until if callable(until) else None, watcher, seconds)
        file = os.fspath(source) if isinstance(source, (str, os.PathLike)) else "<model>"
        form = FORMATS[original.format]()
        model = form.load(original, settings)
        size = form.size(model)
        failure, duration = run.find_failure(original, pattern, file)
        run.request = replace(request, kinds=kinds if failure.kind in (CRASH, TIMEOUT) else (failure.kind,))
        model = run.apply(form, model, settings, failure)
        if form.is_rewritten:
            run.ensure_fails(form.files(model), failure, file)
        if resume and output is not None and os.path.isfile(output):
            model = run.resume(form, model, output, failure)
        writer = FileWriter(output, is_continued=resume)
        reducer = run.reducer(form, model, failure, duration, writer)
        outcome = reducer.run()
        needed = reducer.needed_options(run.request.options)
        last = next((each for each in run.observe(outcome.files, needed) if each.is_alike(failure)), failure)
        writer.write(outcome.files)
    return Reduction(
        file=os.path.basename(file),
        format=form.name,
        output=None if output is None else os.fspath(output),
        weights_output=None if output is None or outcome.files.weights is None else os.fspath(weights_path(output)),
        kind=failure.kind,
        until=_until_of(failure, condition),
        message=failure.message,
        reduced_message=last.message,
        before=size,
        after=form.size(outcome.model),
        operators=dict(collections.Counter(form.operators(outcome.model))),
        options={name: _text(value) for name, value in (*needed.options.items(), *needed.limits.items())},
        plugins=tuple(plugin_files),
        random_weights=outcome.random_weights,
        kept_weights=outcome.kept_weights,
        names=_names_of(outcome),
        identifying=form.identifying_texts(outcome.model),
        trials=outcome.trials,
        seconds=time.monotonic() - start,
        is_complete=outcome.is_complete,
        model=form.value(outcome.files),
        weights=None if outcome.files.weights is None else outcome.files.content[1],
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

    def observe(self, files: SourceFiles, request: Request, seconds: float = FIRST_SECONDS) -> list[Failure]:
        """Return the failures of a model, including the end of the process."""
        if self.function is not None:
            return [Failure(CONDITION, "", "the given function returns True")] if self._call(files) else []
        try:
            failures: list[Failure] = self.worker.call(observe, files, request, seconds=seconds)
        except WorkerDiedError as ending:
            return [ending.failure]
        return failures

    def _call(self, files: SourceFiles) -> bool:
        assert self.function is not None
        with files.as_paths(together=True) as (path, _):
            return bool(self.function(path))

    def find_failure(self, files: SourceFiles, pattern: re.Pattern[str] | None, file: str) -> tuple[Failure, float]:
        """Return the failure of the whole model that is to remain, and the duration of the trial."""
        self._progress.stage("find the failure")
        start = time.monotonic()
        failures = self.observe(files, self.request, max(FIRST_SECONDS, self._seconds))
        chosen = [each for each in failures if pattern is None or pattern.search(each.message)]
        if chosen:
            return chosen[0], time.monotonic() - start
        if failures:
            listed = "\n".join(each.message for each in failures[:6])
            raise UsageError(f"no failure matches '{pattern.pattern if pattern else ''}'", file=file, hint=listed)
        raise UsageError(
            "the model does not fail: there is nothing to reduce",
            file=file,
            hint="add the options of the conversion that fails, or describe the failure by --until",
        )

    def _fails(self, files: SourceFiles, request: Request, failure: Failure) -> bool:
        return any(each.is_alike(failure) for each in self.observe(files, request))

    def ensure_fails(self, files: SourceFiles, failure: Failure, file: str) -> None:
        """Check that a model fails in the same way after it was read and written again.

        Raises:
            UsageError: it does not.

        """
        if not self._fails(files, self.request, failure):
            raise UsageError(
                f"the failure depends on a part of the file that is lost when it is written again: {failure.message}",
                file=file,
                hint="it cannot be reduced; --match REGEX selects another failure",
            )

    def apply(self, form: ModelFormat[Any], model: Any, settings: Options, failure: Failure) -> Any:
        """Apply the options that name tensors to the model. If it fails no longer, the options stay as they are."""
        if not set(form.applied) & set(self.request.options):
            return model
        applied = form.apply(model, settings, self._find, self.request.options)
        if applied is None:
            return model
        options = {name: value for name, value in self.request.options.items() if name not in form.applied}
        fewer = replace(self.request, options=options)
        if self._fails(form.files(applied), fewer, failure):
            self.request = fewer
            return applied
        return model

    def _find(self, function: Callable[..., dict[Any, Any]], *arguments: object) -> dict[Any, Any]:
        """Call a function in the process for trials; an empty result if that ends the process."""
        try:
            answer: dict[Any, Any] = self.worker.call(function, *arguments, seconds=LEAST_SECONDS)
        except WorkerDiedError:
            return {}
        return answer

    def resume(self, form: ModelFormat[Any], model: Any, output: str | os.PathLike[str], failure: Failure) -> Any:
        """Return the model in the output file if it fails in the same way, otherwise the given one."""
        caffemodel = weights_path(output) if form.name == "caffe" else None
        weights = os.fspath(caffemodel) if caffemodel is not None and caffemodel.is_file() else None
        earlier = form.load(SourceFiles(form.name, os.fspath(output), weights), Options.of())
        if self._fails(form.files(earlier), self.request, failure):
            self._progress.report(f"continue from {os.fspath(output)}: {len(form.links(earlier))} nodes")
            return earlier
        self._progress.report(f"{os.fspath(output)} does not fail in this way: begin with the whole model")
        return model

    def reducer(
        self,
        form: ModelFormat[Any],
        model: Any,
        failure: Failure,
        duration: float,
        writer: FileWriter,
    ) -> Reducer[Any]:
        """Return the reducer of a model."""
        return Reducer(
            form,
            model,
            failure,
            self.request,
            self.worker,
            seconds=self._seconds,
            trial_seconds=duration,
            write=writer.write,
            progress=self._progress,
            test=None if self.function is None else self._call,
        )


def _check_files(source: Source, output: str | os.PathLike[str] | None) -> SourceFiles:
    """Return the files of the source, which no output may replace.

    Raises:
        CorruptInputError: the source has no known format.
        UsageError: an output would replace an input, or a second file does not belong to the format.

    """
    kind, weights = source.format, source.weights
    source.note()
    if weights is not None and kind != "caffe":
        raise unexpected_second_file(weights)
    if output is not None:
        refuse_input(output)
        if kind == "caffe":
            refuse_input(weights_path(output))
    return SourceFiles(kind, source.name, None if weights is None else weights.path)


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
    raise UsageError(f"until is '{until}', which is not a failure", hint=hint)


def _read_pattern(match: str | None) -> re.Pattern[str] | None:
    try:
        return None if match is None else re.compile(match)
    except re.error as error:
        raise UsageError(
            f"match is '{match}', which is not a regular expression: {error}",
            hint="escape its special characters with a backslash",
        ) from error


def _until_of(failure: Failure, condition: str) -> str:
    if failure.kind == CONDITION:
        return condition or "module:function"
    return next((word for word, kinds in KINDS.items() if failure.kind in kinds), "error")


def _names_of(outcome: Outcome[Any]) -> str:
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
