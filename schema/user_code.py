"""Code of the user: plugins, and functions that a command names. Their mistakes are reported with file and line."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from tpuconvert.schema.errors import InternalError, PluginError, TpuConvertError

_files: set[str] = set()
"""Files of the user's code that this process has loaded, as their code objects name them."""

HINT = "mend the plugin, or leave it out; tpuconvert --traceback ... shows all calls"


def note_user_code(file: str | os.PathLike[str] | None) -> None:
    """Register a file of the user's code."""
    if file is not None:
        _files.update((os.fspath(file), os.path.abspath(file)))


def note_definition(definition: Callable[..., Any]) -> None:
    """Register the file of a function or class that a plugin defines."""
    code = getattr(definition, "__code__", None)
    module = sys.modules.get(getattr(definition, "__module__", ""))
    note_user_code(getattr(code, "co_filename", None) or getattr(module, "__file__", None))


def is_user_code(function: Callable[..., Any]) -> bool:
    """Return True if a function is defined in a file of the user's code."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename in _files


def place_of(error: BaseException) -> str:
    """Return file and line of the last call in the user's code that led to an exception, or an empty text."""
    chain: BaseException | None = error
    while chain is not None:
        frames = traceback.extract_tb(chain.__traceback__) if _files else ()
        places = [f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in frames if frame.filename in _files]
        if places:
            return places[-1]
        chain = chain.__cause__
    return ""


def with_place(error: BaseException) -> str:
    """Return the text of an exception, with the place if it is in the user's code."""
    location = place_of(error)
    return f"{error} ({location})" if location else str(error)


def unexpected(failure: str, error: BaseException, *, file: str = "", node: str = "") -> TpuConvertError:
    """Create the error for an unexpected exception: a mistake of a plugin if it was raised by one, else of tpuconvert.

    Args:
        failure: what could not be done.
        error: the exception.
        file: name of the model file.
        node: name of the node.
    """
    location = place_of(error)
    text = f"{failure}: {type(error).__name__}: {error}"
    if location:
        return PluginError(f"{text}, raised by a plugin at {location}", file=file, node=node, hint=HINT)
    return InternalError(text, file=file, node=node)


def wrong_result(function: Callable[..., Any], text: str) -> TpuConvertError:
    """Create the error for a function whose result violates an invariant, which may be one of a plugin."""
    if not is_user_code(function):
        return InternalError(text)
    code = function.__code__
    return PluginError(f"{text} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})", hint=HINT)
