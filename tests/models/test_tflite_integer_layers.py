"""Single quantized TFLite layers of public collections: the integers of the reference kernels, on both backends."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc

SIGNATURES = {"aeq_two_signatures_a8w8": "add"}  # the outputs were computed with the first one


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_integer_layers(backend, data_root: Path):
    cases = [
        case
        for case in json.loads((data_root / "layers" / "cases.json").read_text(encoding="utf-8"))
        if case["format"] == "tflite"
        and any(quant["scale"] for quant in (*case.get("in_quant", ()), *case.get("out_quant", ())))
    ]
    assert len(cases) == 61
    different = []
    for case in cases:
        model = tc.convert(data_root / case["paths"]["model.tflite"], signature=SIGNATURES.get(case["id"]))
        arrays = np.load(data_root / case["io"])
        with tc.Session(model, backend=backend) as session:
            feeds = {port.name: arrays[f"in{number}"] for number, port in enumerate(session.inputs)}
            for number, found in enumerate(session.run(feeds).values()):
                want = arrays[f"out{number}"]
                assert (found.shape, found.dtype) == (want.shape, want.dtype), case["id"]
                if not np.array_equal(found, want):
                    different.append(case["id"])
    assert different == []
