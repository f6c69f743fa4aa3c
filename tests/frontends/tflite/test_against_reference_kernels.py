"""Every supported builtin operator against the reference kernels of LiteRT, over types, shapes and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import Case, all_cases
from tflite_models import run
from tflite_reference import arrays_of, model_of, reference_outputs

from tpuconvert.frontends.registry import registry
from tpuconvert.frontends.tflite import load
from tpuconvert.optimizer import optimize

pytest.importorskip("ai_edge_litert")

CASES = list(all_cases())

ELSEWHERE = {}  # type: ignore[var-annotated]


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * case.slow) for case in CASES], ids=lambda case: str(case)
)
def test_same_as_the_reference_kernel(tmp_path: Path, case: Case) -> None:
    model, inputs = model_of(case), arrays_of(case)
    expected = reference_outputs(case)
    path = tmp_path / "model.tflite"
    path.write_bytes(model)
    graph = load(path)
    graph.validate()
    compare(case, run(graph, *inputs, simulate=True), expected)
    if any(not value.is_constant for value in graph.outputs):
        optimize(graph)
        compare(case, run(graph, *inputs, simulate=True), expected)


def compare(case: Case, results: list[Any], expected: list[Any]) -> None:
    for result, want in zip(results, expected, strict=True):
        assert (result.dtype, result.shape) == (want.dtype, want.shape)
        if want.dtype.kind == "f":
            finite = np.abs(want[np.isfinite(want)])
            largest = max(float(finite.max(initial=0.0)), 1.0)
            np.testing.assert_allclose(result, want, rtol=0, atol=case.atol * largest)
        else:
            np.testing.assert_array_equal(result, want)


def test_every_builtin_has_a_case() -> None:
    supported = {entry.name for entry in registry("tflite").known() if not entry.domain}
    assert supported - {case.op for case in CASES} == set(ELSEWHERE)


def test_cases_are_told_apart() -> None:
    names = [str(case) for case in CASES]
    assert sorted(names) == sorted(set(names))
