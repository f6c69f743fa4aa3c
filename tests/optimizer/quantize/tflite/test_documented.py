"""docs/tflite-exactness.md agrees with the tests: the exceptions, and results of measurements."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tflite_integer_cases import CASES, EXCEPTIONS

PAGE = "docs/tflite-exactness.md"


def rows(repository: Path, pattern: str) -> list[tuple[str, ...]]:
    """Return the rows of the page's tables that match an expression."""
    text = (repository / PAGE).read_text(encoding="utf-8")
    return re.findall(pattern, text, re.MULTILINE)


def test_every_exception_is_told(repository: Path) -> None:
    told = rows(repository, r"^\| `(\w+)` \| (U?INT\d+) \| (\d+) steps? \| (.*) \|$")
    known = [(name.upper(), dtype, str(item.steps), item.reason) for (name, dtype), item in EXCEPTIONS.items()]
    assert told == known


def test_every_operator_is_documented(repository: Path) -> None:
    text = (repository / PAGE).read_text(encoding="utf-8")
    names = {"add_powers_of_two": "ADD", "quantize_reals": "QUANTIZE", "max_pool_2d": "pooling"}
    names |= {
        "conv_with_32_bit_sums": "CONV_2D",
        "average_pool_2d": "pooling",
        "relu6": "RELU",
        "relu_n1_to_1": "RELU",
        "relu_0_to_1": "RELU",
    }
    missing = [name for name in CASES if names.get(name, name.strip("_").upper()) not in text]
    assert missing == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [[], ["--chip", "bm1684"], ["--rounding", "single"]], ids=["1686", "1684", "single"]
)
def test_numbers_are_those_of_the_tool(arguments: list[str], repository: Path, data_root: Path) -> None:
    """The numbers of the page are those that the tool prints."""
    pytest.importorskip("ai_edge_litert.interpreter")
    command = [sys.executable, str(repository / "tools" / "tflite_exactness.py"), "--markdown", *arguments]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
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
