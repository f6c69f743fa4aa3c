"""The 124 single TFLite layers of the data set, converted for BM1686 and executed by both backends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.sampled import sampled

SIGNATURES = {"aeq_constant_tensor_and_buffer_only_sharing_weight_fcs": "sig1", "aeq_two_signatures_a8w8": "add"}
"""Use the signature of the first subgraph, for which the references were computed."""

NOT_FINITE = {"t2o_relu6-power_float32"}
"""Files that contain a constant NaN, as the exponent of a power."""


def difference(root: Path, case: dict[str, Any], backend: Literal["native", "reference"]) -> str:
    """Describe the failure of a case; empty if floats agree to 1e-4 of their range, and integers exactly."""
    path, signature = root / case["paths"]["model.tflite"], SIGNATURES.get(case["id"])
    model = tc.convert(
        path, source_options=tc.SourceOptions(signature=signature, allow_non_finite=case["id"] in NOT_FINITE)
    )
    stored = np.load(root / case["io"])
    with tc.Session(model, backend=backend) as session:
        for suffix in (key.removeprefix("in0") for key in stored.files if key.startswith("in0")):
            feeds = {port.name: stored[f"in{i}{suffix}"] for i, port in enumerate(session.inputs)}
            for i, result in enumerate(session.run(feeds).values()):
                want = stored[f"out{i}{suffix}"]
                if (result.dtype, result.shape) != (want.dtype, want.shape):
                    return f"{result.dtype}{result.shape} instead of {want.dtype}{want.shape}"
                apart = np.abs(result.astype(np.float64) - want.astype(np.float64)).max(initial=0.0)
                extent = float(np.ptp(want.astype(np.float64))) or float(np.abs(want).max())
                if apart > (1e-4 * extent if want.dtype.kind == "f" else 0):
                    return f"output {i}{suffix} differs by {apart:g} of {extent:g}"
    return ""


@pytest.mark.parametrize("backend", sampled(["native", "reference"], every=2))
def test_every_layer(backend: Literal["native", "reference"], data_root: Path) -> None:
    cases = json.loads((data_root / "layers" / "cases.json").read_text(encoding="utf-8"))
    found = {case["id"]: difference(data_root, case, backend) for case in cases if case["format"] == "tflite"}
    assert len(found) == 124
    assert {name: text for name, text in found.items() if text} == {}
