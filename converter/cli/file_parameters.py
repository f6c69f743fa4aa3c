"""click parameter types for names of input files, output files and output folders.

A test checks that every parameter that names a file has one of these types. Input files are registered, so that the
command cannot overwrite them (``schema/system/input_files.py``).
"""

from __future__ import annotations

import os
from typing import Any

import click
from click.types import StringParamType

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.input_files import note_input

_OUTPUTS = "tpuconvert.outputs"


def _check_is_named(text: str, param: click.Parameter | None) -> None:
    """Refuse an empty name, of a variable of the shell that is not set.

    Raises:
        UsageError: the name is empty.

    """
    if not text.strip():
        what = param.opts[-1] if isinstance(param, click.Option) else param.human_readable_name if param else "a file"
        raise UsageError(f"{what} is empty", hint="name a file; a variable of the shell may not be set")


class InputFile(StringParamType):
    """An input file or folder. The parameter may also accept text that names no file.

    Args:
        is_named: whether ``NAME=`` may precede the file name.

    """

    def __init__(self, *, is_named: bool = False) -> None:
        self._is_named = is_named

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, and register the file that it names as an input."""
        text: str = super().convert(value, param, ctx)
        _check_is_named(text, param)
        note_input(text)
        if self._is_named:
            note_input(text.partition("=")[2])
            note_input(text.rpartition("=")[2])  # NAME may contain "=" too
        return text


class OutputFile(StringParamType):
    """An output file.

    Args:
        is_named: whether ``NAME=`` precedes the file name; text without ``=`` then names no file.

    """

    def __init__(self, *, is_named: bool = False) -> None:
        self._is_named = is_named

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text.

        Raises:
            UsageError: another parameter of the call names the same file.

        """
        text: str = super().convert(value, param, ctx)
        _check_is_named(text, param)
        path = text.partition("=")[2] if self._is_named else text
        if path and param is not None and ctx is not None:
            real_path = os.path.normcase(os.path.realpath(path))
            other = ctx.meta.setdefault(_OUTPUTS, {}).setdefault(real_path, param)
            if other is not param:
                message = f"{other.opts[-1]} and {param.opts[-1]} name the same file"
                raise UsageError(message, file=path, hint="name another file for one of them")
        return text


class OutputFolder(StringParamType):
    """An output folder. Each file in it is compared with the registered inputs when it is written."""
