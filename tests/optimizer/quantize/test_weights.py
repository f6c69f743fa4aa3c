"""Integer weights and biases."""

import numpy as np

from tpuconvert.optimizer.quantize.weights import quantize_bias, quantize_weights, weight_params
from tpuconvert.schema.types import I8


def test_one_scale_per_channel_or_one():
    w = np.array([[1.27, -0.5], [0.0127, 0.001]], np.float32)
    params = weight_params(w, 0, None, 1.0)
    assert np.allclose(params.scale, [0.01, 0.0001])
    assert (params.axis, params.dtype, params.zero_point) == (0, I8, (0, 0))
    assert quantize_weights(w, params).tolist() == [[127, -50], [127, 10]]
    assert np.allclose(weight_params(w, None, None, 1.0).scale, [0.01])


def test_the_range_is_symmetric():
    w = np.array([[-1.0, 1.0]], np.float32)
    assert quantize_weights(w, weight_params(w, 0, None, 1.0)).tolist() == [[-127, 127]]


def test_channels_of_zeros_have_scale_one():
    w = np.zeros((2, 3), np.float32)
    params = weight_params(w, 0, None, 1.0)
    assert params.scale == (1.0, 1.0)
    assert not quantize_weights(w, params).any()


def test_a_bias_on_dead_weights_still_fits():
    w = np.array([[1e-12], [1.0]], np.float32)
    bias = np.array([3.0, 3.0], np.float32)
    params = weight_params(w, 0, bias, 0.01)
    stored = quantize_bias(bias, tuple(0.01 * scale for scale in params.scale))
    real = stored * np.asarray(params.scale) * 0.01
    assert np.abs(stored).max() <= 2**30 + 2**8  # binary32 rounding of the scale
    assert np.allclose(real, bias, rtol=1e-4)


def test_bias_rounds_halves_away_and_keeps_its_shape():
    bias = np.array([[0.5, -0.5, 1.49]], np.float32)
    stored = quantize_bias(bias, (1.0,))
    assert stored.tolist() == [[1, -1, 1]]
    assert stored.dtype == np.int32
