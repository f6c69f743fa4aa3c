"""Files of JSON lines that an interrupted program continues: what it did not complete is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file; none if it does not exist."""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        yield fields


def append_line(path: Path, fields: Mapping[str, Any]) -> None:
    """Add one object. It begins a new line if the last one is incomplete."""
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write((json.dumps(fields) + "\n").encode())
