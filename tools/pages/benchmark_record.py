"""Measurements of benchmarks in docs/inside/benchmarks.json: the sections of each run with their tables."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

RECORD = Path(__file__).resolve().parents[2] / "docs" / "inside" / "benchmarks.json"
Row = dict[str, str]


@dataclass(frozen=True)
class Section:
    """Part of a run below one heading.

    Attributes:
        heading: the heading, without its marks.
        text: paragraphs and commands.
        items: entries of lists, such as versions, or engines that are missing and why.
        columns: heading of the table, or nothing.
        rows: cells of the table.
    """

    heading: str
    text: str
    items: list[str]
    columns: list[str]
    rows: list[list[str]]

    def by_column(self) -> list[Row]:
        """Return one dictionary per row, from the name of a column to the cell."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def parse(document: str) -> list[Section]:
    """Return the sections of a Markdown document, as the programs of ``tools/bench`` write it.

    Raises:
        SystemExit: there are two tables below one heading.
    """
    sections = []
    for part in re.split(r"^(?=#+ )", document, flags=re.MULTILINE):
        lines = part.strip().split("\n")
        if not lines[0].startswith("#"):
            continue
        table = [_cells(line) for line in lines if line.startswith("|")]
        items = [line[2:] for line in lines if line.startswith("- ")]
        text = "\n".join(line for line in lines[1:] if not line.startswith(("|", "- "))).strip()
        heading = lines[0].lstrip("#").strip()
        if sum(set("".join(row)) <= set(":-") for row in table) > 1:
            sys.exit(f"two tables below '{heading}': give each one a heading")
        sections.append(
            Section(heading, re.sub(r"\n{3,}", "\n\n", text), items, *((table[0], table[2:]) if table else ([], [])))
        )
    return sections


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


@dataclass(frozen=True)
class Place:
    """A table: the one below a heading of a run."""

    run: str
    heading: str

    def rows(self) -> list[Row]:
        """Return one dictionary per row, from the name of a column to the cell."""
        tables = [each for each in read(self.run) if each.heading == self.heading and each.rows]
        if not tables:
            sys.exit(
                f"{RECORD.name}: the run '{self.run}' has no table below '{self.heading}'; name its heading in Place"
            )
        return tables[0].by_column()


def read(run: str) -> list[Section]:
    """Return the sections of a run."""
    return [Section(**section) for section in json.loads(RECORD.read_text(encoding="utf-8"))[run]]


def facts(run: str) -> dict[str, str]:
    """Return date, processor, instructions and versions of a run."""
    lines = [item for section in read(run) for item in section.items]
    pairs = [line.partition(": ") for line in lines if re.match(r"[\w-]+: ", line)]
    return {name: value for name, _, value in pairs}


def store(run: str, document: str) -> None:
    """Replace the sections of a run by the ones of a document."""
    runs = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    runs[run] = [asdict(section) for section in parse(document)]
    RECORD.write_text("{\n" + ",\n".join(_run_lines(runs)) + "\n}\n", encoding="utf-8")


def _run_lines(runs: dict[str, list[dict[str, object]]]) -> Iterator[str]:
    """Yield the text of each run: one line per row of a table."""
    for name, sections in runs.items():
        texts = []
        for section in sections:
            rows = section["rows"]
            assert isinstance(rows, list)
            head = json.dumps({key: value for key, value in section.items() if key != "rows"}, ensure_ascii=False)
            body = ",\n".join("   " + json.dumps(row, ensure_ascii=False) for row in rows)
            texts.append(f'  {head[:-1]}, "rows": [' + (f"\n{body}\n  ]}}" if rows else "]}"))
        yield f" {json.dumps(name)}: [\n" + ",\n".join(texts) + "\n ]"
