"""Arithmetic of exported forms, without the vendor's compiler."""

import numpy as np
import pytest

from tpuconvert.exporters.tpu_mlir.forms.linear import dense_deconv_weights
from tpuconvert.exporters.tpu_mlir.forms.pooling import exact_quotient, quotient_multipliers
from tpuconvert.schema.arithmetic.pooling import divide_half_away
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2


def rounded_half_away(product, shift):
    return np.sign(product) * ((np.abs(product) + (1 << shift - 1)) >> shift)


@pytest.mark.parametrize("largest", [2, 9, 25, 90])
def test_quotients_of_uneven_windows_are_exact(largest):
    """For every sum of 8-bit integers and every divisor, with products below 2^31."""
    counts = np.array(sorted({1, 2, largest // 2, largest - 1, largest}))
    multipliers, shift = quotient_multipliers(counts)
    for count, multiplier in zip(counts, multipliers, strict=True):
        sums = np.arange(-128 * count, 255 * count + 1)
        assert abs(sums * multiplier).max() < 2**31
        assert np.array_equal(rounded_half_away(sums * multiplier, shift), divide_half_away(sums, np.array(count)))


@pytest.mark.parametrize("count", [3, 7, 49, 196, 1000])
def test_quotients_of_equal_windows_are_exact(count):
    rescale = exact_quotient(count, 1)
    sums = np.arange(-128 * count, 255 * count + 1)
    found = rounded_half_away(sums * rescale.multipliers[0], -rescale.shifts[0])
    assert np.array_equal(found, divide_half_away(sums, np.array(count)))


@pytest.mark.parametrize(("groups", "columns"), [(1, 3), (2, 3), (4, 1)])
def test_dense_weights_of_grouped_deconvolutions(groups, columns):
    rng = np.random.default_rng(groups)
    x = rng.integers(-128, 128, (1, 4, 5, 3)).astype(np.int8)
    weights = rng.integers(-128, 128, (4, columns, 3, 2)).astype(np.int8)
    window = {"stride_h": 2, "stride_w": 1, "pad_h_t": 1}
    (grouped,) = DeconvV2(groups=groups, **window).reference(x, weights)
    (dense,) = DeconvV2(**window).reference(x, dense_deconv_weights(weights, groups))
    assert np.array_equal(grouped, dense)
