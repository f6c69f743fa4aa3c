"""Constants of the operator set have one definition with a name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tpuconvert.schema.arithmetic.fixed_point import high_product, power_of_two, rescale_two_roundings
from tpuconvert.schema.types import EXACT_FLOAT32

HOMES = {
    r"1 << 30, \w+": "the multiplier and shift of a power of two: power_of_two",
    r"rank\w* (<=?|>=?) 8\b|max_rank\b": "the largest rank: MAX_RANK",
    r"\+ \(1 << 30\)\) >> 31": "the rounded high product: high_product",
}
"""Expression of Python -> what it is and its name."""


@pytest.mark.parametrize("expression", HOMES)
def test_no_module_writes_the_number(repository: Path, expression: str) -> None:
    users = [
        str(path)
        for folder in ("converter", "frontends", "optimizer", "runtime", "schema")
        for path in (repository / folder).rglob("*.py")
        if re.search(expression, path.read_text(encoding="utf-8"))
    ]
    assert users == [], HOMES[expression]


def test_values() -> None:
    x = np.array([-(2**20), -3, 0, 1, 77], np.int64)
    for exponent in (0, 4):
        assert rescale_two_roundings(x, *power_of_two(exponent)).tolist() == (x << exponent).tolist()
    assert rescale_two_roundings(x, *power_of_two()).tolist() == x.tolist()
    assert high_product(-(1 << 30), 1) == 0 and high_product(1 << 30, 1) == 1  # ties round up
    assert float(np.float32(EXACT_FLOAT32)) == EXACT_FLOAT32 != float(np.float32(EXACT_FLOAT32 + 1)) - 1
