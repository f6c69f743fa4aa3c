"""A sweep over attributes, ranks, opsets and symbolic axes of single operators, against onnxruntime."""

import warnings

import numpy as np
import pytest

from tests.support.fresh_seed import fresh_seed
from tests.support.onnx import attribute_cases as onnx_attribute_cases
from tests.support.onnx import attribute_sweep as sweep
from tpuconvert.schema.types import Array

pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")

NEEDS_A_NUMBER = "has to be a number"


def run(seed: int, count: int) -> None:
    """Run a sweep: no case is wrong, and cases without symbolic axes are refused for a reason of their own only."""
    warnings.simplefilter("ignore")
    wrong, unexpected = [], []
    with np.errstate(all="ignore"):
        for case, chip in onnx_attribute_cases.cases(seed, count):
            outcome = sweep.run_case(case, chip)
            if outcome.kind == "wrong":
                wrong.append(f"{chip} {case}: {outcome.text}")
            elif outcome.kind == "refused" and not is_expected(case, outcome.text):
                unexpected.append(f"{chip} {case}: {outcome.text}")
    assert wrong == [], f"seed {seed}"
    assert unexpected == [], f"seed {seed}"


def is_expected(case: onnx_attribute_cases.NodeCase, text: str) -> bool:
    """Return True for the known limits."""
    if case.axes and (NEEDS_A_NUMBER in text or "result is empty" in text):
        return True
    limits = ("auto_pad=SAME", "of which the standard and ONNX Runtime have different readings", "a window of")
    return any(limit in text for limit in limits)


def test_sample() -> None:
    run(20260, 240)


@pytest.mark.slow
def test_fresh_seed() -> None:
    run(fresh_seed(), 6000)


@pytest.mark.parametrize(
    ("got", "want", "text"),
    [
        (np.zeros(2, np.float32), np.zeros(3, np.float32), r"float32[2], expected float32[3]"),
        (np.zeros(2, np.int32), np.zeros(2, np.int64), r"int32[2], expected int64[2]"),
        (np.array([1, 2]), np.array([1, 3]), "1 of 2 integers differ"),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0]), "1 of 2 values differ"),
        (np.array([1.0, np.nan]), np.array([1.00001, np.nan]), ""),
    ],
)
def test_differences(got: Array, want: Array, text: str) -> None:
    assert sweep.difference(got, want) == text
