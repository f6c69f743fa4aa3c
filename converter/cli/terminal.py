"""Text for whoever reads stdout: lines of a terminal's width, or whole lines for a file or a program."""

from __future__ import annotations

import sys

NARROWEST = 40
"""Columns. A narrower terminal gets whole lines: breaking them would not help."""


def echo_text(text: str) -> None:
    """Print text of short lines and sentences; long lines are broken at words, the rest of them further indented."""
    if sys.stdout.isatty():
        import shutil

        width = shutil.get_terminal_size().columns
        if width >= NARROWEST:
            text = "\n".join(broken(line, width) for line in text.splitlines())
    if text.isascii() and "\033" not in text:  # every stream shows that, and click takes its time to load
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        return
    import click

    click.echo(text)


def broken(line: str, width: int) -> str:
    """One line as several of at most ``width`` columns; words are not cut."""
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
