"""Results of the pieces of a night: files, table and findings. Needs only the standard library."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PIECES = (
    "test-nightly",
    "sanitize",
    "mutations",
    "mutants",
    "fuzz-readers",
    "fuzz-kernels",
    "generators",
    "nnsmith",
    "zoo",
    "accuracy",
    "test-vendor",
)
"""Targets of the Makefile, in the order in which one machine runs them."""

FOLDER = Path("build/nightly")
MOST_FINDINGS = 20
_MAKE = re.compile(r"make(\[\d+\])?: ")
_FINDING = re.compile(r"(FAILED|ERROR|WRONG|SUMMARY:|error:)\s|E +\w*Error\b|.*\bfinding")


@dataclass(frozen=True)
class Result:
    """Result of a piece."""

    piece: str
    seed: int
    seconds: float
    exit_code: int
    findings: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command that repeats the piece."""
        return f"make {self.piece} SEED={self.seed}"

    def write(self, folder: Path) -> None:
        """Write ``PIECE.json``."""
        (folder / f"{self.piece}.json").write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


def read_results(folder: Path) -> list[Result]:
    """Read the results of a folder, in the order of ``PIECES``."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    results = [Result(**{**document, "findings": tuple(document["findings"])}) for document in documents]
    return sorted(results, key=lambda result: PIECES.index(result.piece))


def findings_of(lines: Iterable[str], exit_code: int) -> tuple[str, ...]:
    """Return the lines of a log that name a failure: of pytest, campaigns and sanitizers.

    A piece that failed without such a line has the last one that make did not print as its finding.
    """
    if exit_code == 0:
        return ()
    shown = [line.strip() for line in lines if line.strip() and not _MAKE.match(line)]
    findings = [line for line in shown if _FINDING.match(line)] or shown[-1:] or ["no output"]
    return tuple(line[:300] for line in findings[:MOST_FINDINGS])


def table(results: Iterable[Result]) -> str:
    """Return a Markdown table of durations and findings."""
    return "\n".join(["| piece | duration | result | findings |", "|---|---|---|---|", *_rows(results)])


def _rows(results: Iterable[Result]) -> Iterator[str]:
    for result in results:
        minutes, seconds = divmod(round(result.seconds), 60)
        outcome = "ok" if result.exit_code == 0 else f"failed ({result.exit_code})"
        first = result.findings[0].replace("|", "\\|")[:100] if result.findings else ""
        more = f" and {len(result.findings) - 1} more" if len(result.findings) > 1 else ""
        yield f"| {result.piece} | {minutes}:{seconds:02d} | {outcome} | {first}{more} |"
