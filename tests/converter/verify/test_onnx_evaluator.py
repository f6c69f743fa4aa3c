"""The evaluator of the onnx package with its corrections, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from tests.support.onnx.cases import elements, further, operators, tensors, versions, windows
from tests.support.onnx.cases.case import Case
from tests.support.onnx.oracles import NEWEST_OPSET
from tests.support.onnx.reference import NEEDS_NEWEST
from tests.support.sampled import sampled
from tpuconvert.schema.types import Array
from tpuconvert.verify.onnx_evaluator import make_evaluator

TABLES = (elements, further, operators, tensors, versions, windows)
FEW = ("BatchNormalization", "Softmax", "LogSoftmax", "Hardmax", "GRU", "LSTM", "Resize", "MaxPool")
"""Operators that are corrected, or refused."""

CASES = [
    each for table in TABLES for case in table.CASES if not case.differs for each in case.in_all_versions(NEWEST_OPSET)
]


def onnxruntime_results(model: ModelProto, case: Case) -> list[Array] | None:
    from tests.support.onnx.oracles import _by_onnxruntime

    return _by_onnxruntime(model, case.feeds, [item.name for item in model.graph.output])


def check(case: Case) -> bool:
    """Compare one case; False if the evaluator refuses it, or fails."""
    model = case.model()
    expected = onnxruntime_results(model, case)
    if expected is None:
        return True
    try:
        found = make_evaluator(model).run(None, case.feeds)
    except Exception:  # refused, or one of many classes by operator: the source is then not compared
        return False
    for got, want in zip(found, expected, strict=True):
        got, want = np.asarray(got), np.asarray(want)
        assert got.shape == want.shape, case
        if want.dtype.kind in "fiub":
            np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=1e-3, atol=1e-4, err_msg=str(case))
    return True


@NEEDS_NEWEST
@pytest.mark.parametrize("op", sampled(FEW, every=2))
def test_an_operator_is_evaluated_as_the_standard_says_or_refused(op: str) -> None:
    pytest.importorskip("onnxruntime")
    results = [check(case) for case in CASES if case.op == op]
    assert any(results), "not all cases are refused"


@NEEDS_NEWEST
@pytest.mark.slow
@pytest.mark.parametrize("op", sorted({case.op for case in CASES} - set(FEW)))
def test_every_operator_is_evaluated_as_the_standard_says_or_refused(op: str) -> None:
    pytest.importorskip("onnxruntime")
    for case in CASES:
        if case.op == op:
            check(case)
