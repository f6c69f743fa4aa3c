"""Trained TFLite models in float against the published results of the reference kernels.

Tolerance: 1e-4 of the output's range, binary32 sums in another order.
"""

import numpy as np
import pytest

from tests.support.sampled import sampled
from tests.support.tflite.runs import runs
from tools.accuracy.datasets import entries

MODELS = (
    "anomaly_autoencoder_tflite",
    "cifar10_resnet8_tflite",
    "deeplabv3_257_tflite",
    "face_landmark_tflite",
    "face_short_range_tflite",
    "kws_dscnn_tflite",  # 8-bit weights: the kernels round activations as they run
    "mnist_conv_tflite",
    "mnist_lstm_tflite",
    "sine_float_tflite",
    "ultraface_rfb_320_tflite",
    "vww_mobilenet_tflite",
)


@pytest.mark.parametrize("name", sampled(MODELS, every=2))
def test_matches_the_reference_kernels(name, data_root):
    for found, want in runs(data_root, entries(data_root)[name]):
        assert (found.shape, found.dtype) == (want.shape, want.dtype)
        span = float(np.ptp(want)) or 1.0
        assert np.abs(found.astype(np.float64) - want).max() <= 1e-4 * span
