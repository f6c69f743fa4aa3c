"""Comparison with dumps of faulty devices: the first tensor that is wrong, and the class of the fault."""

import numpy as np
import pytest

from tests.support.damage.fault_injection import Execution, inject
from tests.support.networks.data_models import convert_model, is_quantized
from tools.accuracy.datasets import entries
from tpuconvert.device import compare, faults
from tpuconvert.device.compare import compare_dumps

MODELS = (
    "cifar10_resnet8_onnx",
    "imagenet_mobilenet_v1_0.25_128_uint8_tflite",
    "kws_dscnn_int8_tflite",
    "lenet_mnist_caffe",
    "vww_mobilenet_int8_tflite",
)
KINDS = (
    faults.LAYOUT,
    faults.SCALE,
    faults.ZERO_POINT,
    faults.ROUNDING,
    faults.SATURATION,
    faults.STALE_WEIGHTS,
    faults.RESIZE,
    faults.PREPROCESSING,
)
PER_KIND = 6
"""Faults per class and model. A model without a place for one, such as an image input, has fewer."""
FAST = ("lenet_mnist_caffe",)


RANGES = {
    "LEAST_ELEMENTS": (2, 32),
    "LEAST_VALUES": (2, 16),
    "LEAST_PER_CHANNEL": (1, 16),
    "ROUNDING_ERROR": (0.6, 1.1),
    "LEAST_ON_LINE": (0.97, 0.999),
    "LEAST_FITTED": (0.3, 0.999),
    "LEAST_SCALE": (0.007, 0.06),
    "LEAST_SHIFT": (0.4, 2.2),
    "LEAST_CORRELATION": (0.13, 0.37),
}
"""Threshold -> values between which no fault of the corpus has another class. Their comments state them."""


@pytest.mark.slow
def test_thresholds_are_far_from_the_faults(data_root, monkeypatch):
    """Every threshold has a range without wrong classes, over the faults of all models."""
    corpus = []
    monkeypatch.setattr(
        compare, "classify", lambda evidence: corpus.append((kind, evidence)) or faults.classify(evidence)
    )
    for name in MODELS:
        how = "source" if is_quantized(entries(data_root)[name]) else "int8"
        model, feeds = convert_model(data_root, name, "BM1686", how)
        execution = Execution(model, feeds[0])
        for kind in KINDS:
            for seed in range(PER_KIND):
                found = inject(kind, execution, np.random.default_rng(seed))
                if found is not None:
                    compare_dumps(model, found[0], feeds[:1])
    assert len(corpus) >= 200
    wrong = {}
    for name, ends in RANGES.items():
        for end in (getattr(faults, name), *ends):
            with monkeypatch.context() as context:
                context.setattr(faults, name, end)
                wrong[name, end] = sum(faults.classify(evidence).kind != kind for kind, evidence in corpus)
    assert {key: count for key, count in wrong.items() if count} == {}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in MODELS]
)
def test_injected_faults(name, data_root):
    """The first wrong tensor is right in 98 %, the class in 90 % of the faults; correct dumps are equal."""
    how = "source" if is_quantized(entries(data_root)[name]) else "int8"
    model, feeds = convert_model(data_root, name, "BM1686", how)
    execution = Execution(model, feeds[0])
    assert compare_dumps(model, execution.run(), feeds[:1]).is_equal
    outcomes = []
    for kind in KINDS:
        for seed in range(PER_KIND):
            found = inject(kind, execution, np.random.default_rng(seed))
            if found is None:
                continue
            dumps, first = found
            result = compare_dumps(model, dumps, feeds[:1])
            outcomes.append((kind, seed, first, result.differing[0].name, result.fault))
    wrong_tensor = [item for item in outcomes if item[2] != item[3]]
    wrong_class = [item for item in outcomes if item[0] != item[4].kind]
    print(f"{name}: {len(outcomes)} faults, {len(wrong_tensor)} wrong tensors, {len(wrong_class)} wrong classes")
    assert len(outcomes) >= 30
    assert len(wrong_tensor) <= 0.02 * len(outcomes)
    assert len(wrong_class) <= 0.1 * len(outcomes)
