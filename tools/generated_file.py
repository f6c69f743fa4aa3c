"""Command line of the tools that generate one file: write it, or check that it is up to date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path


def write_or_check(path: Path, make: Callable[[], bytes], *, tool: str, description: str) -> int:
    """Run a generator with the command-line arguments of the process.

    Args:
        path: the file.
        make: returns its content.
        tool: name of the program in ``tools``, for the message about a stale file.
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
        print(f"{path.name} is out of date: run python tools/{tool}", file=sys.stderr)
        return 1
    path.write_bytes(content)
    return 0
