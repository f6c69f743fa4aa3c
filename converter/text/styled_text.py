"""Text with styles: the lines of results mark headings and outcomes, and the command line draws them on terminals.

A styled text is a string. Files, pipes and notebooks get its characters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from tpuconvert.schema.text.visible_text import one_line

Style = Literal["heading", "good", "warning", "bad", "hint"]

Span = tuple[int, int, Style]
"""First character, end, and style of a part of a text."""


class StyledText(str):
    """A string with styles of some of its parts.

    Args:
        text: the characters.
        spans: the parts with a style, in the order of the text. They do not overlap.

    """

    __slots__ = ("spans",)

    spans: tuple[Span, ...]

    def __new__(cls, text: str, spans: Iterable[Span] = ()) -> StyledText:
        """Create the string."""
        styled = super().__new__(cls, text)
        styled.spans = tuple(spans)
        return styled


def style(text: str, name: Style) -> StyledText:
    """Give a whole text one style."""
    return StyledText(text, [(0, len(text), name)] if text else ())


def spans_of(text: str) -> tuple[Span, ...]:
    """Return the styles of a text; a plain string has none."""
    return text.spans if isinstance(text, StyledText) else ()


def concat(parts: Iterable[str], separator: str = "") -> str:
    """Join texts as ``separator.join(parts)`` does, and keep their styles."""
    parts = list(parts)
    joined = separator.join(parts)
    spans: list[Span] = []
    at = 0
    for part in parts:
        spans += [(at + start, at + end, name) for start, end, name in spans_of(part)]
        at += len(part) + len(separator)
    return StyledText(joined, spans) if spans else joined


def join_lines(lines: Iterable[str]) -> str:
    """Join the lines of a result. A line feed within one of them belongs to a name, which cannot begin a new line."""
    return concat((one_line(line) if "\n" in line else line for line in lines), "\n")


def split_lines(text: str) -> list[str]:
    """Split a text at its line feeds, and keep the styles. A span that contains a line feed is dropped."""
    lines: list[str] = []
    at = 0
    for line in text.split("\n"):
        end = at + len(line)
        spans = [(start - at, stop - at, name) for start, stop, name in spans_of(text) if at <= start and stop <= end]
        lines.append(StyledText(line, spans) if spans else line)
        at = end + 1
    return lines
