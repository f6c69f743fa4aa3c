"""Text on stdout: lines of the terminal's width, or whole lines in a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tpuconvert.schema.visible_text import for_log

NARROWEST = 40
"""Columns. A narrower terminal gets whole lines: breaking them would not help."""


def echo_text(text: str) -> None:
    """Print text of short lines and sentences; long lines are broken at words, the rest of them further indented."""
    if sys.stdout.isatty():
        import shutil

        width = shutil.get_terminal_size().columns
        if width >= NARROWEST:
            text = "\n".join(wrap_line(line, width) for line in text.splitlines())
    echo(text)


def echo(text: str, *, err: bool = False) -> None:
    """Print text and a line feed, on stderr if ``err``. All text of the commands leaves here, except documents.

    Names from files are part of it: what would control a terminal or a build service is shown as an escape.
    """
    text = for_log(text)
    if text.isascii():  # every stream can show that, and click takes its time to load
        stream = sys.stderr if err else sys.stdout
        if stream is not None:  # it was closed before the program began
            stream.write(f"{text}\n")
            stream.flush()
        return
    import click

    click.echo(text, err=err)


def echo_error(text: str) -> None:
    """Print text and a line feed on stderr."""
    echo(text, err=True)


def write_commands(lines: Sequence[str]) -> None:
    """Write commands for the build service to stderr as they are; their texts have been escaped."""
    for line in lines:
        sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def wrap_line(line: str, width: int) -> str:
    """Wrap a line at ``width`` columns, between words."""
    import textwrap

    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line,
        width,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        drop_whitespace=True,
    )
