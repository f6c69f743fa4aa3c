"""Integer weights and biases."""

import numpy as np
import pytest

from tpuconvert.optimizer.quantize.weights.weights import quantize_bias, quantize_weights, weight_params
from tpuconvert.schema.types import I8, U8, QuantParams


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


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_tensors_of_several_blocks_are_quantized_like_small_ones(axis):
    random = np.random.default_rng(0)
    values = random.normal(0, 60, (90, 1000)).astype(np.float32)
    values[3, :4] = [np.nan, np.inf, -np.inf, 0.25]
    count = 1 if axis is None else values.shape[axis]
    scales, zeros = random.uniform(0.5, 1.5, count), random.integers(100, 150, count)
    params = QuantParams(tuple(map(float, scales)), tuple(map(int, zeros)), U8, axis)
    along = [-1 if index == axis else 1 for index in range(2)]
    real = np.nan_to_num(values.astype(np.float64), posinf=np.inf, neginf=-np.inf) / scales.reshape(along)
    rounded = np.trunc(real + np.copysign(0.5, real)) + zeros.reshape(along)
    assert np.array_equal(params.quantize(values), np.clip(rounded, 0, 255).astype(np.uint8))
    # A view of another layout, and one element.
    assert np.array_equal(params.quantize(values.T.copy().T), params.quantize(values))
    if axis is None:
        assert params.quantize(values[0, 0]) == params.quantize(values)[0, 0]


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
