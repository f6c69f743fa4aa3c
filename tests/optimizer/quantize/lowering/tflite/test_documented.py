"""docs/reference/tflite.md agrees with the tests: the exceptions, and results of measurements."""

from __future__ import annotations

import importlib
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.support import programs
from tests.support.tflite.integer_cases import CASES, EXCEPTIONS
from tests.support.tflite.sweep import EXTRA, REASONS, Sample, samples, source_name

PAGE = "docs/reference/tflite.md"


def rows(repository: Path, pattern: str) -> list[tuple[str, ...]]:
    """Return the rows of the page's tables that match an expression."""
    text = (repository / PAGE).read_text(encoding="utf-8")
    return re.findall(pattern, text, re.MULTILINE)


def test_every_inexact_operator_has_the_reason_of_the_tests(repository: Path) -> None:
    """The differences that the tests allow are at least as large as the differences of the page."""
    told = rows(repository, r"^\| `(\w+)` \| (U?INT\d+) \| (\d+) steps? \| [\d,]+ of [\d,]+ \| (.*) \|$")
    known = {(name.upper(), dtype): (item.steps, item.reason) for (name, dtype), item in EXCEPTIONS.items()}
    known |= {key: (2**16, reason) for key, reason in REASONS.items()}
    assert told
    for name, dtype, steps, reason in told:
        most, wanted = known[name, dtype]
        assert reason == wanted
        assert int(steps) <= most


def test_every_operator_is_documented(repository: Path) -> None:
    text = (repository / PAGE).read_text(encoding="utf-8")
    missing = [name for name in (*CASES, *EXTRA) if f"`{source_name(name)}`" not in text]
    assert missing == []


def test_page_promises_no_more_than_a_short_run_shows(repository: Path) -> None:
    """A few samples of every operator; the whole run is ``tools/exactness/tflite_operator_table.py --check``."""
    pytest.importorskip("ai_edge_litert.interpreter")
    tool = importlib.import_module("tools.exactness.tflite_operator_table")
    text = (repository / PAGE).read_text(encoding="utf-8")
    assert tool.broken_promises(tool.run(first_of_each(samples(1))), text) == []


def first_of_each(items: Iterable[Sample]) -> Iterator[Sample]:
    """Yield the first sample of each operator and type; for sums and products also one with equal operands."""
    seen: Counter[tuple[str, str]] = Counter()
    for item in items:
        seen[item.op, item.dtype] += 1
        if seen[item.op, item.dtype] <= (2 if item.op in ("ADD", "MUL") else 1):
            yield item


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [[], ["--chip", "bm1684"], ["--rounding", "single"]], ids=["1686", "1684", "single"]
)
def test_numbers_are_those_of_the_tool(arguments: list[str], repository: Path, data_root: Path) -> None:
    """The numbers of the page are those that the tool prints."""
    pytest.importorskip("ai_edge_litert.interpreter")
    command = programs.command("tools.exactness.tflite_exactness", "--markdown", *arguments)
    printed = subprocess.run(command, env=programs.environment(), capture_output=True, text=True, check=False).stdout
    measured = re.findall(r"^\| (\w[\w.]*) \| ([\d,]+) \| ([\d.]+) % \| (\d+) \|$", printed, re.MULTILINE)
    assert len(measured) == 11
    if "bm1684" in arguments:
        names = rows(repository, r"^\| (\w[\w.]*) \| ([\d.]+) % \| (\d+) \|$")
        assert names == [(name, share, steps) for name, _, share, steps in measured]
        return
    both = rows(repository, r"^\| (\w[\w.]*) \| ([\d,]+) \| ([\d.]+) % \| ([\d.]+) % \| (\d+) \|$")
    if arguments:
        assert [(name, count, share, steps) for name, count, _, share, steps in both] == measured
    else:
        assert [(name, count, share, "0") for name, count, share, _, _ in both] == measured
