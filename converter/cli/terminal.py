"""Text output: lines are wrapped on a terminal, and left whole in a file or a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from tpuconvert.cli.colors import text_for
from tpuconvert.styled_text import StyledText, concat, spans_of, split_lines

NARROWEST = 40
"""Smallest width, in columns, of a terminal for which lines are wrapped."""


def echo_text(text: str) -> None:
    """Print text; on a terminal, wrap long lines at word boundaries with indented continuation lines."""
    if sys.stdout.isatty():
        import shutil

        width = shutil.get_terminal_size().columns
        if width >= NARROWEST:
            text = concat((wrap_line(line, width) for line in split_lines(text)), "\n")
    echo(text)


def echo(text: str, *, err: bool = False) -> None:
    """Print text and a line feed, on stderr if ``err``. Commands print all text except JSON documents here.

    A message that stderr cannot take, because the disk is full or its reader has ended, is lost: the command goes on.

    The text may contain names from untrusted files, so control sequences for terminals and build services are escaped.
    On a terminal with colors, the styles of the text are drawn.
    """
    try:
        _write(text, err)
    except OSError:
        if not err:
            raise


def _write(text: str, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    text = text_for(stream, text)
    if text.isascii():  # any encoding can represent ASCII; this avoids importing click
        stream.write(f"{text}\n")
        stream.flush()
        return
    import click

    click.echo(text, err=err)


def echo_error(text: str) -> None:
    """Print text and a line feed on stderr."""
    echo(text, err=True)


def write_commands(lines: Sequence[str]) -> None:
    """Write build-service commands, which are escaped already, to stderr unchanged."""
    with contextlib.suppress(OSError):
        for line in lines:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def wrap_line(line: str, width: int) -> str:
    """Wrap a line at ``width`` columns, between words. Styles are kept in the first of the resulting lines."""
    import textwrap

    indent = line[: len(line) - len(line.lstrip())]
    wrapped = textwrap.fill(
        line,
        width,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        drop_whitespace=True,
    )
    first = wrapped.find("\n") if "\n" in wrapped else len(wrapped)
    spans = [span for span in spans_of(line) if span[1] <= first]
    return StyledText(wrapped, spans) if spans else wrapped
