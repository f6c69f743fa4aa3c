r"""Escape untrusted names and texts before they are shown in terminals, build logs, XML, HTML and JSON documents.

A model file, a file name or a label may contain any character. Control characters move the cursor, change the clipboard
of a terminal or reorder a line, and XML 1.0 forbids most of them; build services execute lines of a log that begin with
``::`` or contain ``##[``. This module replaces such characters by visible escapes such as ``\x1b``. Only the output is
changed: names in models stay the same, and so do the strings that a JSON document encodes.
"""

from __future__ import annotations

import os
import re
import shlex

_REORDERING = frozenset((0x061C, 0x200E, 0x200F, 0xFEFF, *range(0x2028, 0x202F), *range(0x2066, 0x206A)))
"""Characters that change the direction of text, and separators of lines and paragraphs."""

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_LINE_COMMAND = "::"
"""Prefix of a line that GitHub Actions executes. White space may precede it."""

_COMMANDS = ("##[", "##vso[", "##teamcity[")
"""Commands that GitHub Actions, Azure Pipelines and TeamCity execute anywhere in a line, also after a further ``#``."""

_COMMAND_START = re.compile("#(?=" + "|".join(re.escape(command[1:]) for command in _COMMANDS) + ")", re.IGNORECASE)


def visible(text: str) -> str:
    """Replace control characters except line feeds and tabs by visible escapes."""
    return text if text.isprintable() else text.translate(_VISIBLE)


def one_line(text: str) -> str:
    """Replace control characters, including line feeds and tabs, by visible escapes, for a name within a line."""
    return text if text.isprintable() else text.translate(_ONE_LINE)


def for_log(text: str) -> str:
    """Escape a text so that neither a terminal nor a build service executes parts of it."""
    text = visible(text)
    if _LINE_COMMAND in text:
        text = "\n".join(map(_as_text, text.split("\n")))
    return _without_commands(text, "\\x23")


def may_begin_command(text: str) -> int:
    """Number of characters at the end of the last line of a text that may be the beginning of a command."""
    line = text.rpartition("\n")[2]
    start = line.lstrip()
    if start == _LINE_COMMAND[: len(start)]:
        return len(start)
    sizes = range(min(len(line), max(map(len, _COMMANDS)) - 1), 0, -1)
    return next((size for size in sizes if any(name.startswith(line[-size:].lower()) for name in _COMMANDS)), 0)


def for_json(document: str) -> str:
    """Replace the same characters in a JSON document by JSON escapes, which do not change its content."""
    if not document.isprintable():
        document = document.translate(_JSON)
    return _without_commands(document, "\\u0023")


def _as_text(line: str) -> str:
    start = line.lstrip()
    return f"{line[: len(line) - len(start)]}\\x3a{start[1:]}" if start.startswith(_LINE_COMMAND) else line


def _without_commands(text: str, escape: str) -> str:
    """Replace the first character of each occurrence of ``_COMMANDS``, in upper or lower case, by ``escape``."""
    return _COMMAND_START.sub(lambda _: escape, text) if "##" in text else text


def is_unsafe(code: int) -> bool:
    """Return True for a character that must always be escaped."""
    return (
        (code < 0x20 and code not in (0x09, 0x0A))
        or 0x7F <= code <= 0x9F
        or code in _REORDERING
        or 0xD800 <= code <= 0xDFFF
        or code in (0xFFFE, 0xFFFF)
    )


class _Escapes(dict[int, str]):
    """Table for ``str.translate`` whose entries are created when a character first occurs."""

    def __init__(self, allowed: str, *, is_json: bool = False) -> None:
        self._allowed = allowed
        self._is_json = is_json

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character in _SHORT:
            text = character if character in self._allowed else _SHORT[character]
        elif not is_unsafe(code):
            text = character
        else:
            text = f"\\x{code:02x}" if code < 0x100 and not self._is_json else f"\\u{code:04x}"
        self[code] = text
        return text


_VISIBLE, _ONE_LINE, _JSON = _Escapes("\n\t"), _Escapes(""), _Escapes("\n\t", is_json=True)


def shell_word(path: str | os.PathLike[str]) -> str:
    """Return the name of a file as one word of a shell command, in one line; a leading dash does not make an option."""
    name = os.fspath(path)
    return shlex.quote(one_line(f"./{name}" if name.startswith("-") else name))
