"""Every supported builtin operator against the reference kernels of LiteRT, over types, shapes and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.each import check_each
from tests.support.tflite.cases import Case, all_cases
from tests.support.tflite.cases.stablehlo import WITHOUT_KERNEL
from tests.support.tflite.models import run
from tests.support.tflite.reference import arrays_of, model_of, reference_outputs
from tpuconvert.frontends.registry import registry
from tpuconvert.frontends.tflite import load
from tpuconvert.frontends.tflite.file.reader import BUILTIN_NAMES
from tpuconvert.optimizer import optimize
from tpuconvert.schema.errors import UnsupportedError

pytest.importorskip("ai_edge_litert")

CASES = list(all_cases())

ELSEWHERE = {
    **dict.fromkeys(("RFFT2D", "REAL", "IMAG", "COMPLEX_ABS"), "complex numbers need several operators"),
    **dict.fromkeys(("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"), "state needs several operators"),
    **dict.fromkeys(("WHILE", "DENSIFY"), "needs others"),
    **dict.fromkeys(("CALL", "STABLEHLO_WHILE"), "LiteRT has no kernel: test_control.py"),
    **{f"STABLEHLO_{name}": "LiteRT has no kernel: test_operators.py" for name in WITHOUT_KERNEL},
}
"""Operators without a case here, and why: test_small_models.py has them where nothing else is said."""


@pytest.mark.parametrize("name", sorted({case.op for case in CASES}))
def test_same_as_the_reference_kernel(tmp_path: Path, name: str) -> None:
    check_each(lambda case: compare_with_kernel(tmp_path, case), [case for case in CASES if case.op == name])


def compare_with_kernel(tmp_path: Path, case: Case) -> None:
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


@pytest.mark.slow
def test_the_same_on_bm1686(tmp_path: Path) -> None:
    """Converted and executed; no chip has a cast of 32 bits without sign."""
    path, wrong = tmp_path / "model.tflite", {}
    for case in CASES:
        path.write_bytes(model_of(case))
        try:
            model = tc.convert(
                path, source_options=tc.SourceOptions(allow_non_finite=True)
            )  # 0 ** -2 of constants, for example
            with tc.Session(model, backend="reference") as session:
                names = [port.name for port in session.inputs]
                results = session.run(dict(zip(names, arrays_of(case), strict=True)))
            compare(case, list(results.values()), reference_outputs(case))
        except (UnsupportedError, AssertionError) as error:
            wrong[str(case)] = str(error)
    assert {name: text for name, text in wrong.items() if not (name.startswith("CAST") and "uint32" in name)} == {}


def test_every_builtin_has_a_case() -> None:
    entries = registry("tflite").all_entries()
    builtins = {entry.name for entry in entries if entry.name in BUILTIN_NAMES and not entry.domain}
    assert len(builtins) >= 110
    assert builtins - {case.op for case in CASES} == set(ELSEWHERE)


def test_cases_are_told_apart() -> None:
    names = [str(case) for case in CASES]
    assert sorted(names) == sorted(set(names))
