"""Names of options in messages: ``--input-shapes`` on the command line, ``input_shapes`` in Python.

Messages are written with the names of the command line. An error that Python code prints has the names of arguments.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)(?:=| (?=([a-z]*)))?(?=([^a-z\s]?))")
_PROSE = frozenset(
    {
        "and",
        "are",
        "as",
        "belongs",
        "chooses",
        "continues",
        "for",
        "from",
        "gives",
        "has",
        "in",
        "is",
        "itself",
        "leaves",
        "lists",
        "names",
        "of",
        "on",
        "or",
        "out",
        "refines",
        "selects",
        "sets",
        "states",
        "than",
        "that",
        "to",
        "which",
        "with",
        "without",
    }
)
"""Words that may follow an option in a sentence; anything else after a space is its value."""

_COMMAND = re.compile(r"\b(?:tpuconvert|pip|dask|bmrt_test) (?:[a-z][a-z-]*|--)[^\n]*")

_arguments = {"plugin": "plugins", "input": "data"}
"""Option -> argument where the names differ. The declarations of the options add theirs."""
_is_command_line = False


def name_argument(option: str, argument: str) -> None:
    """Declare the argument of an option whose name does not follow from it, such as ``disable_rules``."""
    _arguments[option.removeprefix("--")] = argument


@contextlib.contextmanager
def command_line_style() -> Iterator[None]:
    """Keep the names of the command line in the texts of errors while the block runs, in all threads."""
    global _is_command_line
    before, _is_command_line = _is_command_line, True
    try:
        yield
    finally:
        _is_command_line = before


def in_style(text: str) -> str:
    """Return a message with the names of options that its reader can use. Commands for a shell stay as they are."""
    if _is_command_line or "--" not in text:
        return text
    parts, end = [], 0
    for command in _COMMAND.finditer(text):
        parts += [_with_arguments(text[end : command.start()]), command.group()]
        end = command.end()
    return "".join([*parts, _with_arguments(text[end:])])


def _with_arguments(text: str) -> str:
    def argument(match: re.Match[str]) -> str:
        name = _arguments.get(match[1], match[1].replace("-", "_"))
        if match[0].endswith("="):
            return f"{name}="
        if match[0].endswith(" "):
            is_value = match[2] not in _PROSE and bool(match[2] or match[3])
            return f"{name}=" if is_value else f"{name} "
        return name

    return _OPTION.sub(argument, text)
