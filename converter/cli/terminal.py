"""Text output: rich draws styles on a terminal, where lines are wrapped; a file or a pipe gets whole plain lines."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from tpuconvert.schema.text.visible_text import for_log, may_begin_command
from tpuconvert.text.styled_text import Style, StyledText, concat, spans_of, split_lines, style

if TYPE_CHECKING:
    from rich.text import Text

NARROWEST = 40
"""Smallest width, in columns, of a terminal for which lines are wrapped."""

STYLES: dict[Style, str] = {"heading": "bold", "good": "green", "warning": "yellow", "bad": "bold red", "hint": "dim"}
"""Styles in the notation of rich."""


def echo_text(text: str) -> None:
    """Print text; on a terminal, wrap long lines at word boundaries with indented continuation lines."""
    echo(text, wraps=True)


def echo(text: str, *, err: bool = False, wraps: bool = False) -> None:
    """Print text and a line feed, on stderr if ``err``. Commands print all text except JSON documents here.

    A message that stderr cannot take, because the disk is full or its reader has ended, is lost: the command goes on.

    The text may contain names from untrusted files, so control sequences for terminals and build services are escaped.
    On a terminal, the styles of the text are drawn, and long lines are wrapped if ``wraps``.
    """
    try:
        _write(text, err, wraps)
    except OSError:
        if not err:
            raise


def _write(text: str, err: bool, wraps: bool) -> None:
    _write_escaped(_for_stream(sys.stderr if err else sys.stdout, text, wraps) + "\n", err)


def _write_escaped(text: str, err: bool) -> None:
    if text.isascii():  # any encoding can represent ASCII; this avoids importing click
        stream = sys.stderr if err else sys.stdout
        stream.write(text)
        stream.flush()
        return
    import click

    click.echo(text, err=err, nl=False)


class StreamedText:
    """Text that is printed on stdout in pieces, escaped as by :func:`echo`.

    A command of a build service may be divided between two pieces. So the end of a piece waits for the next one if it
    may begin a command.
    """

    def __init__(self) -> None:
        self._waiting = ""
        self._is_within_line = False

    def write(self, piece: str) -> None:
        """Print a piece."""
        text = self._waiting + piece
        within = "." if self._is_within_line else ""  # a command at the start of a line is escaped only there
        end = len(text) - may_begin_command(within + text)
        self._waiting, text = text[end:], text[:end]
        if text:
            _write_escaped(for_log(within + text).removeprefix(within), err=False)
            self._is_within_line = bool((within + text).rpartition("\n")[2].strip())

    def end(self) -> None:
        """Print the rest, and a line feed."""
        self.write("\n")


def _for_stream(stream: TextIO | None, text: str, wraps: bool) -> str:
    """Escape a text for a stream; for a terminal, add its styles as control sequences, and line breaks."""
    if not (wraps or spans_of(text)) or stream is None or not stream.isatty():
        return for_log(text)
    # 15 ms: most commands write to files and pipes, or print one plain line.
    from rich.console import Console

    colors = None if os.environ.get("NO_COLOR") else "auto"  # rich itself keeps bold text
    console = Console(file=stream, color_system=colors)  # type: ignore[arg-type]  # rich has a literal type for it
    lines: Iterable[Text] = map(_rich_line, split_lines(text))
    if wraps and console.width >= NARROWEST:
        lines = (part for line in lines for part in wrap_line(line, console.width))
    with console.capture() as capture:
        for line in lines:
            console.print(line, soft_wrap=True)
    return capture.get().removesuffix("\n")


def _rich_line(line: str) -> Text:
    """Escape one line; if this changes its characters, the positions of its styles are unknown and it stays plain."""
    from rich.text import Span, Text

    safe = for_log(line)
    spans = spans_of(line) if safe == line else ()
    return Text(safe, spans=[Span(start, end, STYLES[name]) for start, end, name in spans])


def wrap_line(line: Text, width: int) -> list[Text]:
    """Wrap a line between words. Continuation lines are indented by four more columns, and long words stay whole.

    rich can only wrap without an indentation, and would break or crop words.
    """
    import textwrap

    from rich.text import Text

    indent = " " * (len(line.plain) - len(line.plain.lstrip()) + 4)
    wrapped = textwrap.wrap(
        line.plain,
        width,
        expand_tabs=False,
        replace_whitespace=False,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    if len(wrapped) < 2:
        return [line]
    lines, at = [], 0
    for number, part in enumerate(wrapped):
        content = part.removeprefix(indent) if number else part
        start = line.plain.index(content, at)
        at = start + len(content)
        lines.append(Text(indent if number else "") + line[start:at])
    return lines


def echo_error(text: str) -> None:
    """Print text and a line feed on stderr."""
    echo(text, err=True)


def style_error(text: str) -> str:
    """Mark the ID of an error, and the following lines as its hint."""
    first, *hints = text.splitlines()
    match = re.match(r"error\[\w+\]:", first)
    if match:
        first = StyledText(first, [(0, match.end(), "bad")])
    return concat([first, *(style(hint, "hint") for hint in hints)], "\n")


def write_commands(lines: Sequence[str]) -> None:
    """Write build-service commands, which are escaped already, to stderr unchanged."""
    with contextlib.suppress(OSError):
        for line in lines:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
