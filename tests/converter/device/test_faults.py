"""Comparison with dumps of faulty devices: the first tensor that is wrong, and the class of the fault."""

import numpy as np
import pytest

from tests.support.damage.fault_injection import Execution, inject
from tests.support.networks.data_models import convert_model, is_quantized
from tools.accuracy.datasets import entries
from tpuconvert.device import faults
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
