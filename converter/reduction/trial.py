"""One trial: convert and run a model as requested, and return its failures."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.options.options import READING_OPTIONS, Options, group_options
from tpuconvert.conversion.source import Source
from tpuconvert.conversion.source_loading import load_source
from tpuconvert.frontends.onnx.file.messages import ModelProto
from tpuconvert.model.model import Model
from tpuconvert.reduction.failure import BACKENDS, CONDITION, ENGINE, ERROR, VERIFY, Failure, failures_of
from tpuconvert.reduction.source_files import SourceFiles
from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.random_samples import random_feeds
from tpuconvert.schema.errors import ThresholdError, TpuConvertError, UsageError
from tpuconvert.schema.types import Array
from tpuconvert.schema.user_code import with_place
from tpuconvert.user_functions import load_function
from tpuconvert.verify.difference import FLOAT_TOLERANCE
from tpuconvert.verify.verify import verify

SAMPLES = 2
"""Random feeds for ranges and comparisons."""


@dataclass(frozen=True)
class Request:
    """Task of a trial.

    Args:
        kinds: kinds of failures to look for, in this order; the first that is found ends the trial.
        options: options of the conversion by name, as ``convert`` takes them.
        limits: limits of a comparison, as ``Verification.check`` takes them.
        condition: ``module:function`` or a command with ``{}``, for the kind CONDITION.
        seed: seed of the random inputs of comparisons of both engines.

    """

    kinds: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    condition: str = ""
    seed: int = 0


def observe(files: SourceFiles, request: Request) -> list[Failure]:
    """Return the failures of a model; an empty list if there is none of the requested kinds.

    Args:
        files: the source.
        request: what to examine.

    Raises:
        UsageError: the condition cannot be evaluated.

    """
    if request.kinds == (CONDITION,):
        with files.as_paths(together=True) as (path, _):
            return _check_condition(path, request.condition)
    if files.format == "onnx" and isinstance(files.model, bytes):
        return _observe(ModelProto.FromString(files.model), None, request)
    with files.as_paths() as (path, weights):
        return _observe(path, weights, request)


def can_be_read(files: SourceFiles) -> dict[str, bool]:
    """Return an entry if the frontend accepts a model, otherwise an empty mapping."""
    with files.as_paths() as (path, weights):
        try:
            load_source(Source(path, weights), Options.of())
        except Exception:  # also of the converters of plugins
            return {}
    return {"can be read": True}


def _observe(source: Any, weights: str | None, request: Request) -> list[Failure]:
    try:
        model = _convert(source, weights, request.options)
        _run(model, "auto", request.seed)
    except Exception as error:
        paths = [path for path in (source, weights) if isinstance(path, str)]
        return failures_of(error, paths) if ERROR in request.kinds else []
    for kind in request.kinds:
        failure = None
        if kind == BACKENDS:
            with suppress(TpuConvertError):  # the native engine is not installed
                failure = _compare_backends(model, request.seed)
        elif kind in (VERIFY, ENGINE):
            failure = _compare_source(model, source, weights, request, kind)
        if failure is not None:
            return [failure]
    return []


def _convert(source: Any, weights: str | None, options: Mapping[str, Any]) -> Model:
    """Convert with ranges of random inputs."""
    checked = Options.of(**options)
    opened = Source(source, weights)
    samples = None
    if checked.quantize is not None:
        samples = random_feeds(load_source(opened, checked).input_ports, SAMPLES)
    return Conversion(checked, samples).of_source(opened)


def _run(model: Model, backend: Any, seed: int) -> dict[str, Array]:
    """Run a model on random inputs. Models with symbolic extents besides the batch are not run."""
    with suppress(UsageError):
        feeds = random_feeds(model.graph.input_ports, 1, seed)
        with Session(model, backend=backend) as session:
            return dict(session.run(feeds[0]))
    return {}


def _compare_backends(model: Model, seed: int) -> Failure | None:
    """Compare the outputs of both engines: integers exactly, floats up to the order of sums."""
    reference, native = (_run(model, backend, seed) for backend in ("reference", "native"))
    for name, array in reference.items():
        other = native[name]
        if array.shape != other.shape or array.dtype != other.dtype:
            return Failure(BACKENDS, "type", f"output '{name}': types differ between the engines", (name,))
        if array.dtype.kind != "f":
            count = int(np.count_nonzero(array != other))
        else:
            same = (array == other) | (np.isnan(array) & np.isnan(other))
            with np.errstate(all="ignore"):
                limit = FLOAT_TOLERANCE * float(np.nan_to_num(np.abs(array), posinf=0).max(initial=0))
                count = int(np.count_nonzero(~same & ~(np.abs(array - other) <= limit)))
        if count:
            message = f"output '{name}': {count} of {array.size} elements differ between the engines"
            return Failure(BACKENDS, f"{array.dtype.kind}", message, (name,))
    return None


def _compare_source(model: Model, source: Any, weights: str | None, request: Request, kind: str) -> Failure | None:
    """Compare a model with its source as ``verify`` does; for the kind ENGINE also the source with another engine."""
    options = group_options(**{name: request.options[name] for name in READING_OPTIONS if name in request.options})
    try:
        oracle = "auto" if kind == ENGINE else "none"
        verification = verify(model, source, weights, samples=SAMPLES, oracle=oracle, **options)
        verification.check(**request.limits)  # type: ignore[arg-type]  # by name
    except ThresholdError as error:
        first = verification.first
        stage = "" if first is None else first.stage
        if kind == ENGINE and stage != "import":
            return None
        message = f"{error.id} {error.message}" + (f" (stage {stage})" if stage else "")
        names = () if first is None else (first.name.partition(":")[0],)
        return Failure(kind, f"{error.id} {stage}", message, names)
    except TpuConvertError:  # no samples for symbolic extents, or the engine refuses the model
        return None
    return None


def _check_condition(path: str, condition: str) -> list[Failure]:
    """Call a function or a command with the path of a model."""
    failure = Failure(CONDITION, "", f"the condition '{condition}' is true")
    if "{}" in condition:
        command = [part.replace("{}", path) for part in shlex.split(condition)]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            raise UsageError(
                f"--until: {command[0]} cannot be started: {error.strerror}", hint="name a program on the PATH"
            ) from error
        return [failure] if done.returncode == 0 else []
    function = load_function(condition)
    try:
        return [failure] if function(path) else []
    except Exception as error:
        raise UsageError(
            f"--until: {condition} raised {type(error).__name__}: {with_place(error)}",
            hint="the function takes the path of a model and returns a bool",
        ) from error
