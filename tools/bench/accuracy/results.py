"""Measurements as JSON lines, one per network, tool and setting, so that an interrupted call continues."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tools.accuracy.json_lines import append_line, read_lines

Key = tuple[str, str, str]
"""Network, tool and setting."""


@dataclass(frozen=True)
class Row:
    """One measurement, or the reason why there is none.

    Args:
        network: name of the network.
        tool: key of the tool.
        setting: name of the setting.
        numbers: counts by name; empty if the tool failed.
        error: reason of a failure.
        seconds: time of quantizing and measuring.
    """

    network: str
    tool: str
    setting: str
    numbers: dict[str, float] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> Key:
        """Network, tool and setting."""
        return self.network, self.tool, self.setting


def read_rows(path: Path) -> dict[Key, Row]:
    """Return the last row of each key."""
    rows = (Row(**fields) for fields in read_lines(path))
    return {row.key: row for row in rows}


def append_row(path: Path, row: Row) -> None:
    """Add one row."""
    append_line(path, dataclasses.asdict(row))


def remove_rows(path: Path, is_old: Callable[[Row], bool]) -> None:
    """Remove the rows that are to be measured again."""
    kept = [row for row in read_rows(path).values() if not is_old(row)]
    path.write_text("".join(json.dumps(dataclasses.asdict(row)) + "\n" for row in kept), encoding="utf-8")


def missing_keys(keys: Iterable[Key], rows: dict[Key, Row]) -> list[Key]:
    """Return the keys without a row."""
    return [key for key in keys if key not in rows]
