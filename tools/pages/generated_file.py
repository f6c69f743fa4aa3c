"""Shared parts of the tools that generate files: a command line for one file, and marked sections of a page."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path


def section(page: Path, text: str, name: str, tool: str) -> str:
    """Return the lines between the markers of a generated section of a page.

    Args:
        page: the file, for the error.
        text: its content.
        name: name of the section.
        tool: name of the module that makes it, such as ``tools.pages.option_tables``.
    """
    return _split(page, text, name, tool)[1]


def replace_section(page: Path, text: str, name: str, tool: str, lines: Iterable[str]) -> str:
    """Return the text of a page with other lines in a generated section. Arguments as in ``section``."""
    before, _, after = _split(page, text, name, tool)
    return "".join([before, *(f"{line}\n" for line in lines), after])


def replace_part(page: Path, name: str, tool: str, text: str) -> str:
    """Return the text of a page in which a generated section is a document with headings of its own.

    Args:
        page: the file.
        name: name of the section.
        tool: name of the module that makes it, with its arguments.
        text: the document. Its headings become one level deeper.
    """
    lines = re.sub(r"^(?=#+ )", "#", text, flags=re.MULTILINE).splitlines()
    return replace_section(page, page.read_text(encoding="utf-8"), name, tool, lines)


def _split(page: Path, text: str, name: str, tool: str) -> tuple[str, str, str]:
    begin, end = f"<!-- {name}: made by python -m {tool} -->\n", f"<!-- end of {name} -->"
    start, stop = text.find(begin) + len(begin), text.find(end)
    if text.count(begin) != 1 or text.count(end) != 1 or stop < start:
        sys.exit(f"{page.name}: expected one place for '{name}' between '{begin.strip()}' and '{end}'")
    return text[:start], text[start:stop], text[stop:]


def write_or_check(path: Path, make: Callable[[], bytes], *, tool: str, description: str) -> int:
    """Run a generator with the command-line arguments of the process.

    Args:
        path: the file.
        make: returns its content.
        tool: name of the module, for the message about a stale file.
        description: help text of the program.

    Returns:
        The exit code: 1 when ``--check`` was given and the file is out of date.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when the file is out of date")
    check = parser.parse_args().check
    content = make()
    if path.is_file() and path.read_bytes() == content:
        return 0
    if check:
        print(f"{path.name} is out of date: run python -m {tool}", file=sys.stderr)
        return 1
    path.write_bytes(content)
    return 0
