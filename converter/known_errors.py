"""Convert exceptions to errors with an id and an exit code, and errors to text for users."""

from __future__ import annotations

import os
import traceback

from tpuconvert.schema.errors import (
    InternalError,
    PluginError,
    TpuConvertError,
    UnsupportedError,
)
from tpuconvert.schema.system.file_errors import file_error
from tpuconvert.schema.system.memory_errors import not_enough_memory
from tpuconvert.schema.user_code import HINT, place_of, unexpected


def known_error(error: Exception) -> TpuConvertError:
    """Convert an exception to a :class:`TpuConvertError`."""
    if isinstance(error, InternalError) and (location := place_of(error)):
        message = f"{error.message}, raised by a plugin at {location}"
        return PluginError(message, file=error.file, node=error.node, hint=HINT)
    if isinstance(error, TpuConvertError):
        return error
    if isinstance(error, MemoryError):
        return not_enough_memory("this command", error)
    if isinstance(error, OSError):
        return file_error(error)
    if place_of(error):
        return unexpected("a plugin failed", error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return InternalError(
        f"internal error: {type(error).__name__}: {error}{where}",
        hint="this is a mistake in tpuconvert; please report it with the output of: tpuconvert --traceback ...",
    )


def explain(error: TpuConvertError) -> str:
    """Return the text of an error: its id, its message, and the ids of the kinds of problems in it."""
    first, *others = f"error[{error.id}]: {error}".split("\n")
    # A name in the message may contain a line feed: what follows it must not look like a line of a command.
    text = "\n".join([first, *(line if line.startswith(" ") else f"    {line}" for line in others)])
    if isinstance(error, UnsupportedError):
        kinds = sorted({(problem.kind.id, problem.kind.heading) for problem in error.problems})
        text += "\n  about these: " + ", ".join(f"{number} ({heading})" for number, heading in kinds)
    return text
