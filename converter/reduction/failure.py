"""Failures of a model, and the part of a failure that a smaller model has to repeat."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from tpuconvert.known_errors import known_error
from tpuconvert.schema.errors import InternalError, TpuConvertError, UnsupportedError

ERROR = "error"
VERIFY = "verify"
BACKENDS = "backends"
ENGINE = "engine"
CONDITION = "condition"
CRASH = "crash"
TIMEOUT = "timeout"

DESCRIPTIONS = {
    ERROR: "the conversion or the first run ends with an error",
    VERIFY: "the converted model differs from its source",
    BACKENDS: "the native engine differs from the reference",
    ENGINE: "the source as it is read differs from another engine",
    CONDITION: "the given function or command reports the failure",
    CRASH: "the process ends by a signal",
    TIMEOUT: "the conversion does not end in time",
}
"""Kind of failure -> description."""

_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_NUMBER = re.compile(r"(?<![A-Za-z_0-9])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_LIST = re.compile(r"N(?:(?:, |,| x |x)N)+")
_SHAPE = re.compile(r"\[[^\[\]\n]*\]")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass(frozen=True)
class Failure:
    """One failure of a model.

    Args:
        kind: one of ``DESCRIPTIONS``.
        pattern: text that is equal for failures with the same reason: without names and numbers.
        message: text for users.
        names: nodes or tensors of the source that the failure names.

    """

    kind: str
    pattern: str
    message: str
    names: tuple[str, ...] = ()

    def is_alike(self, other: Failure) -> bool:
        """Return True if both have the same kind and pattern."""
        return (self.kind, self.pattern) == (other.kind, other.pattern)


def message_pattern(message: str) -> str:
    """Replace quoted names by ``''``, shapes by ``[]``, numbers and lists of numbers by ``N``.

    Digits in words such as INT8 are kept.
    """
    return _LIST.sub("N", _NUMBER.sub("N", _SHAPE.sub("[]", _QUOTED.sub("''", message))))


def failures_of(error: Exception, paths: Sequence[str] = ()) -> list[Failure]:
    """Return the failures that an exception reports: one for each problem of a model, otherwise one.

    Args:
        error: the exception.
        paths: files of the model; messages that contain one have the name ``MODEL`` in its place.

    """
    if isinstance(error, UnsupportedError):
        return [
            Failure(
                ERROR,
                f"{problem.kind.id} {problem.op}: {message_pattern(problem.message)}",
                f"{problem.kind.id} {problem.kind.heading}: {problem.op}"
                + (f": {problem.message}" if problem.message else ""),
                (problem.node,),
            )
            for problem in error.problems
        ]
    reported = known_error(error)
    text = reported.message
    for path in paths:
        text = text.replace(path, "MODEL")
    names = (reported.node, *(quoted[1:-1] for quoted in _QUOTED.findall(text)))
    if isinstance(error, TpuConvertError) and not isinstance(error, InternalError):
        pattern = message_pattern(text)
    else:
        origin = error.__cause__ if isinstance(error, InternalError) and error.__cause__ else error
        pattern = f"{type(origin).__name__} in {_place(origin)}"
    return [Failure(ERROR, f"{reported.id} {pattern}", f"{reported.id} {text}", tuple(name for name in names if name))]


def _place(error: BaseException) -> str:
    """Return file and function of the innermost frame of this package, without the line, which edits change."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(_PACKAGE)] or frames
    return f"{os.path.basename(own[-1].filename)}:{own[-1].name}" if own else "unknown"
