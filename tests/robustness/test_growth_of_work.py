"""The work of converting, opening and running a model grows linearly with everything that a file can have many of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.networks.growth_models import MODELS
from tests.support.networks.growth_sweep import calls, exponents

SAMPLE = (
    "nested concats",
    "slices of one tensor",
    "branches",
    "inputs",
    "outputs that are one value",
)
FEWEST_CALLS = 20_000
"""A step with fewer calls is not judged: its fixed part hides the growth."""
LARGEST_EXPONENT = 1.25
"""Between linear, with caches and sorting, and quadratic, of which a small part is enough to exceed it."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow) for name in MODELS]
)
def test_work_is_linear(name: str, tmp_path: Path) -> None:
    found = exponents(name, 100, tmp_path, calls)
    steep = {step: item for step, item in found.items() if item[0] > FEWEST_CALLS and item[1] > LARGEST_EXPONENT}
    assert not steep, f"calls and exponent by step: {steep}"


def test_sample_is_known() -> None:
    assert set(SAMPLE) <= set(MODELS)
