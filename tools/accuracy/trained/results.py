"""Measurements: one row per network, quantizer, setting and draw, in a file that an interrupted call continues."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tools.accuracy.json_lines import append_line, read_lines

Key = tuple[str, str, str, int]
"""Network, quantizer, setting and draw."""


@dataclass(frozen=True)
class Row:
    """One measurement, or the reason why there is none.

    Args:
        network: name of the model in the catalog.
        quantizer: key of the quantizer.
        setting: its setting.
        draw: number of the draw of calibration samples.
        score: in percent.
        error: standard error of the score.
        counts: sums of the contributions, by their names.
        seconds: time of the conversion.
        milliseconds: median processor time of one sample in the engine of the quantizer, with one thread; 0 if it was
            not measured.
        failure: why there is no score.
        measured: date, version and commit.
    """

    network: str
    quantizer: str
    setting: str
    draw: int
    score: float | None = None
    error: float = 0.0
    counts: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    milliseconds: float = 0.0
    failure: str = ""
    measured: str = ""

    @property
    def key(self) -> Key:
        """Network, quantizer, setting and draw."""
        return self.network, self.quantizer, self.setting, self.draw


def read_rows(path: Path) -> dict[Key, Row]:
    """Return the last row of each key of a file of JSON lines."""
    rows = (Row(**fields) for fields in read_lines(path))
    return {row.key: row for row in rows}


def append_row(path: Path, row: Row) -> None:
    """Add a row to a file of JSON lines."""
    append_line(path, dataclasses.asdict(row))


@dataclass(frozen=True)
class Record:
    """Record in the repository: facts about the machine, and the rows."""

    facts: dict[str, str]
    rows: dict[Key, Row]

    @staticmethod
    def read(path: Path) -> Record:
        """Read the file; an absent one is empty."""
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"facts": {}, "rows": []}
        rows = [Row(**fields) for fields in content["rows"]]
        return Record(content["facts"], {row.key: row for row in rows})

    def write(self, path: Path, order: Iterable[str]) -> None:
        """Write the file, one line per row, in the order of the networks."""
        rank = {name: index for index, name in enumerate(order)}
        rows = sorted(self.rows.values(), key=lambda row: (rank[row.network], row.quantizer, row.setting, row.draw))
        lines = ",\n".join(f"  {json.dumps(dataclasses.asdict(row))}" for row in rows)
        facts = json.dumps(self.facts, indent=1).replace("\n", "\n ")
        path.write_text(f'{{\n "facts": {facts},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")
