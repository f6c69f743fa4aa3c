"""Operators of ONNX Runtime's own domain give what ONNX Runtime gives."""

from pathlib import Path

import numpy as np
import pytest
from microsoft_cases import CASES, RECORD, Case
from onnx_models import ours

from tpuconvert.frontends.onnx.microsoft import DOMAIN
from tpuconvert.frontends.registry import registry


@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_onnx_runtime(case: Case, tmp_path: Path) -> None:
    found = ours(case.model(), case.inputs, tmp_path)
    with np.load(RECORD) as recorded:
        for name in filter(None, case.outputs):
            want = recorded[f"{case}/{name}"]
            assert found[name].shape == want.shape, name
            assert found[name].dtype == want.dtype, name
            if want.dtype.kind in "iu":  # ONNX Runtime rounds sums of scaled products in another order
                assert np.abs(found[name].astype(int) - want.astype(int)).max() <= case.steps, name
            else:
                np.testing.assert_allclose(found[name], want, rtol=case.rtol, atol=case.rtol, err_msg=name)


def test_every_operator_of_the_domain_has_a_case() -> None:
    registry("onnx").discover()
    known = {entry.name for entry in registry("onnx").entries() if entry.domain == DOMAIN}
    covered = {case.op for case in CASES} | {
        "QuantizeLinear",
        "DequantizeLinear",
        "QLinearReduceMean",
        "TransposeMatMul",
        "GroupQueryAttention",  # test_cached_attention.py
    }
    assert known <= covered
