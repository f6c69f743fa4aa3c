"""Exports of INT8 recurrent layers: unrolled for the vendor's compiler, and as the operators of their steps in ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.recurrent_networks import GATES, INTEGER, network, operators, quantize, sample
from tests.support.sampled import sampled
from tpuconvert.exporters.tpu_mlir.package import lower_for_chip
from tpuconvert.schema.errors import UnsupportedError

onnxruntime = pytest.importorskip("onnxruntime")

STEPS = 4


def model_of(kind: str, **options: Any) -> tc.Model:
    proto = network(kind, layers=1, steps=STEPS)
    return quantize(proto, samples=[sample(proto, seed, STEPS) for seed in range(4)], **options)


@pytest.mark.parametrize("kind", sampled(GATES))
def test_the_vendor_export_unrolls_the_layer(kind: str, tmp_path: Path) -> None:
    """A layer has no operation in the dialect: its steps have."""
    model = model_of(kind)
    assert INTEGER[kind] in operators(model.graph)
    with pytest.raises(UnsupportedError) as caught:
        lower_for_chip(model)
    assert INTEGER[kind] in str(caught.value)
    assert "--strict-set or --exact-on bm1684x, which unrolls the steps" in str(caught.value)
    exported = tc.export(model, tmp_path / "whole", chip="bm1684x")
    assert exported.manifest["host_nodes"] == []
    for number, options in enumerate(({"strict_set": True}, {"exact_on": "bm1684x"})):
        unrolled = model_of(kind, **options)
        assert INTEGER[kind] not in operators(unrolled.graph)
        assert operators(unrolled.graph).count("matrix_mul_v2") > STEPS
        tc.export(unrolled, tmp_path / str(number), chip="bm1684x")
        assert list((tmp_path / str(number)).glob("*.mlir"))


@pytest.mark.parametrize("kind", GATES)
def test_onnx_runtime_computes_the_integers_of_the_layer(kind: str, tmp_path: Path) -> None:
    """ONNX has no such operator: the export has the operators of its steps."""
    model = model_of(kind)
    path = tmp_path / "layer.onnx"
    tc.export(model, path, to="onnx")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    with tc.Session(model) as ours:
        for seed in range(3):
            feeds = sample(network(kind, layers=1, steps=STEPS), seed, STEPS)
            for want, one in zip(ours.run(feeds).values(), session.run(None, feeds), strict=True):
                np.testing.assert_array_equal(one, want)
