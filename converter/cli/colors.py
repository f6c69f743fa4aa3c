"""Styles of text on terminals. A file, a pipe and a terminal without colors get the characters alone."""

from __future__ import annotations

import os
import re
from typing import TextIO

from tpuconvert.schema.visible_text import for_log
from tpuconvert.styled_text import Style, StyledText, concat, spans_of, split_lines, style

PLAIN = "\x1b[0m"

CODES: dict[Style, str] = {
    "heading": "\x1b[1m",
    "good": "\x1b[32m",
    "warning": "\x1b[33m",
    "bad": "\x1b[1;31m",
    "hint": "\x1b[2m",
}


def has_colors(stream: TextIO | None) -> bool:
    """Return True if a stream is a terminal with colors; NO_COLOR and TERM=dumb switch them off."""
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def text_for(stream: TextIO | None, text: str) -> str:
    """Escape a text for a stream; on a terminal with colors, replace its styles by control sequences."""
    if not spans_of(text) or not has_colors(stream):
        return for_log(text)
    return "\n".join(map(_paint_line, split_lines(text)))


def _paint_line(line: str) -> str:
    """Escape one line; if this changes its characters, the positions of its styles are unknown and it stays plain."""
    safe = for_log(line)
    if safe != line:
        return safe
    parts, at = [], 0
    for start, end, name in spans_of(line):
        parts += [line[at:start], CODES[name], line[start:end], PLAIN]
        at = end
    return "".join([*parts, line[at:]])


def style_error(text: str) -> str:
    """Mark the ID of an error, and the following lines as its hint."""
    first, *hints = text.splitlines()
    found = re.match(r"error\[\w+\]:", first)
    if found:
        first = StyledText(first, [(0, found.end(), "bad")])
    return concat([first, *(style(hint, "hint") for hint in hints)], "\n")
