"""Rounding weights with compensation."""

import numpy as np
import pytest

from tpuconvert.optimizer.quantize.weights.weight_rounding import (
    InputSums,
    patches,
    round_with_compensation,
)
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv3d import Conv3d


def error(exact, rounded, covariance):
    """Mean squared error of the result."""
    difference = exact - rounded
    return float(np.einsum("goi,gij,goj->", difference, covariance, difference))


@pytest.mark.parametrize(("groups", "inputs"), [(1, 150), (5, 9)])
def test_correlated_inputs_gain(groups, inputs):
    rng = np.random.default_rng(inputs)
    mixing = rng.normal(size=(groups, inputs, inputs // 3))
    covariance = mixing @ mixing.swapaxes(1, 2) + 0.1 * np.eye(inputs)
    exact = rng.normal(size=(groups, 8, inputs)) * 20
    rounded = round_with_compensation(exact, covariance)
    assert (rounded == np.round(rounded)).all() and np.abs(rounded).max() <= 127
    assert error(exact, rounded, covariance) < 0.6 * error(exact, np.rint(exact), covariance)


def test_independent_inputs_are_rounded_to_nearest():
    exact = np.random.default_rng(0).normal(size=(1, 4, 20)) * 30
    assert (round_with_compensation(exact, np.eye(20)[None]) == np.rint(exact)).all()


def test_weights_stay_within_the_symmetric_range():
    exact = np.full((1, 1, 4), 127.0)
    assert np.abs(round_with_compensation(exact, np.ones((1, 4, 4)))).max() == 127


@pytest.mark.parametrize("count", [16000, 20000])
def test_merged_sums_are_exact(count):
    """The sums of 32768 observations fit INT32, the sums of 40000 do not."""
    rows = np.full((1, count, 2), 255, np.uint8)
    sums = InputSums.of(rows)
    sums.merge(InputSums.of(rows))
    assert (sums.products == 2 * count * 255 * 255).all()
    assert (sums.totals == 2 * count * 255).all() and sums.count == 2 * count


def test_covariance_is_that_of_numpy():
    rows = np.random.default_rng(1).normal(size=(2, 40, 5)) + 3
    found = InputSums.of(rows).covariance()
    for group in range(2):
        assert np.allclose(found[group], np.cov(rows[group].T, bias=True))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_covariance_of_bytes_is_exact(dtype):
    rows = np.random.default_rng(5).integers(0, 256, (3, 70_000, 4)).astype(np.uint8).view(dtype)
    rows[:, :, 3] = np.iinfo(dtype).max  # the sum of its squares exceeds 32 bits
    assert np.array_equal(InputSums.of(rows).covariance(), InputSums.of(rows.astype(np.float64)).covariance())


@pytest.mark.parametrize(
    "op",
    [
        Conv(pad_h_t=1, pad_h_b=1, pad_w_l=1, pad_w_r=1),
        Conv(groups=2, stride_h=2, stride_w=2, pad_h_t=1),
        Conv(groups=4, dh=2, dw=2),
    ],
    ids=str,
)
def test_patches_are_what_a_convolution_multiplies(op):
    rng = np.random.default_rng(2)
    x = rng.integers(-9, 9, (2, 4, 7, 7)).astype(np.float32)
    w = rng.integers(-9, 9, (8, 4 // op.groups, 3, 3)).astype(np.float32)
    (y,) = op.evaluate(x, w)
    rows = patches(x, op, (3, 3), limit=10_000)
    products = np.einsum("gpi,goi->gop", rows, w.reshape(op.groups, 8 // op.groups, -1))
    assert np.array_equal(products.reshape(8, 2, -1).transpose(1, 0, 2).reshape(y.shape), y)


@pytest.mark.parametrize(
    "op",
    [
        Conv3d(),
        Conv3d(2, (1, 2, 1), (1, 0, 2, 1, 0, 1), (1, 2, 1)),
        Conv3d(4, (2, 1, 1), (1, 1, 1, 1, 1, 1), (2, 1, 2)),
    ],
    ids=str,
)
def test_patches_are_what_a_volume_convolution_multiplies(op):
    rng = np.random.default_rng(2)
    x = rng.integers(-9, 9, (2, 4, 5, 6, 7)).astype(np.float32)
    w = rng.integers(-9, 9, (8, 4 // op.groups, 2, 3, 1)).astype(np.float32)
    (y,) = op.evaluate(x, w)
    rows = patches(x, op, (2, 3, 1), limit=10_000)
    products = np.einsum("gpi,goi->gop", rows, w.reshape(op.groups, 8 // op.groups, -1))
    assert np.array_equal(products.reshape(8, 2, -1).transpose(1, 0, 2).reshape(y.shape), y)


def test_few_positions_are_spread_evenly():
    x = np.arange(100, dtype=np.float32).reshape(1, 1, 10, 10)
    rows = patches(x, Conv(), (1, 1), limit=5)
    assert rows.reshape(-1).tolist() == [0, 24, 49, 74, 99]
