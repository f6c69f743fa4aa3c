"""The command line of tools that make one file: write it, or only say whether it is up to date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path


def write_or_check(path: Path, make: Callable[[], bytes], *, tool: str, description: str) -> int:
    """Run such a tool with the words that the process was started with.

    Args:
        path: the file.
        make: makes its content.
        tool: the name of the program in ``tools``, to be told when the file is out of date.
        description: what the program says of itself.

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
