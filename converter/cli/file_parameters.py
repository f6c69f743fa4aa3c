"""Types of parameters that name files: what a command reads, and what it writes.

Every parameter with a file's name has one of them, which a test checks. What is read is noted, so that nothing that the
command writes may take its place (``schema/input_files.py``).
"""

from __future__ import annotations

import os
from typing import Any

import click
from click.types import StringParamType

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.input_files import note_input

_OUTPUTS = "tpuconvert.outputs"


class InputFile(StringParamType):
    """A file or a folder that is read; or other text, where a parameter takes both.

    Args:
        is_named: whether ``NAME=`` may precede it.

    """

    def __init__(self, *, is_named: bool = False) -> None:
        self._is_named = is_named

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, and note the file that it names."""
        text: str = super().convert(value, param, ctx)
        note_input(text)
        if self._is_named:
            note_input(text.partition("=")[2])
            note_input(text.rpartition("=")[2])  # a name may have the sign too
        return text


class OutputFile(StringParamType):
    """A file that is written.

    Args:
        is_named: whether ``NAME=`` precedes it; a text without it names no file.

    """

    def __init__(self, *, is_named: bool = False) -> None:
        self._is_named = is_named

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text.

        Raises:
            UsageError: another parameter of the call names the same file.

        """
        text: str = super().convert(value, param, ctx)
        path = text.partition("=")[2] if self._is_named else text
        if path and param is not None and ctx is not None:
            place = os.path.normcase(os.path.realpath(path))
            other = ctx.meta.setdefault(_OUTPUTS, {}).setdefault(place, param)
            if other is not param:
                message = f"{other.opts[-1]} and {param.opts[-1]} name the same file"
                raise UsageError(message, file=path, hint="name another file for one of them")
        return text


class OutputFolder(StringParamType):
    """A folder that files are written into; each of them is compared with what is read when it is written."""
