"""Integer rescales against the formula of the ONNX standard, evaluated in binary32."""

import numpy as np
import pytest

from tpuconvert.optimizer.quantize.lowering.binary32_rescale import find_rescale
from tpuconvert.optimizer.quantize.lowering.binary32_sum import find_sum
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import I8, I16, U8, QuantParams


def standard(sums, factor, zero_point, dtype):
    rounded = np.rint(sums.astype(np.float32) * np.float32(factor)).astype(np.int64)
    return np.clip(rounded + zero_point, dtype.min, dtype.max)


def rescale(sums, found, zero_point, dtype):
    ((multiplier, shift),) = found.pairs
    op = RequantInt32(
        multiplier_val=multiplier,
        shift_val=shift,
        offset_val=zero_point,
        mode=RequantMode.MULTIPLIER_SHIFT,
        round_mode=found.rounding,
        out_dtype=dtype,
    )
    return op.evaluate(sums.astype(np.int32))[0].astype(np.int64)


def all_steps(factor):
    """Sums around every tie of an 8-bit result, and the ends."""
    ties = (np.arange(-256, 256) + 0.5) / factor
    near = (np.rint(ties)[:, None] + np.arange(-3, 4)).ravel()
    sums = np.concatenate([near, np.linspace(-256 / factor, 256 / factor, 20001), [-(2.0**31), 2.0**31 - 1]])
    return np.clip(sums, -(2.0**31), 2.0**31 - 1).astype(np.int64)


@pytest.mark.parametrize(("dtype", "zero_point"), [(U8, 0), (U8, 131), (I8, 0), (I8, -128)])
def test_equal_for_every_sum(dtype, zero_point):
    factors = np.exp(np.random.default_rng(0).uniform(np.log(2**-12), np.log(4), 300)).astype(np.float32).tolist()
    equal = 0
    for factor in factors:
        found = find_rescale([factor], zero_point, dtype)
        sums = all_steps(factor)
        different = rescale(sums, found, zero_point, dtype) - standard(sums, factor, zero_point, dtype)
        assert np.abs(different).max() <= 1, factor
        if found.equals:
            assert not different.any(), factor
        equal += found.equals
    assert equal > 250


@pytest.mark.parametrize("factor", [1.0, 0.5, 0.75, 2.0, 2.0**-7, 2.0**-14, 100.0])
def test_ties_go_to_even_numbers(factor):
    found = find_rescale([factor], 3, I8)
    sums = all_steps(factor)
    np.testing.assert_array_equal(rescale(sums, found, 3, I8), standard(sums, factor, 3, I8))


@pytest.mark.parametrize("factor", [2.0**-33, 2.0**-40, 3.0e8, 0.0])
def test_factors_at_the_ends_of_the_range(factor):
    """Multipliers, from one with results of at most 1 to one whose results saturate."""
    found = find_rescale([factor], 3, I8)
    sums = np.array([-(2**31), -1, 0, 1, 2**31 - 1])
    different = rescale(sums, found, 3, I8) - standard(sums, factor, 3, I8)
    assert np.abs(different).max() <= 1


def test_wide_results_take_the_nearest_factor():
    assert find_rescale([0.3], 0, I16).rounding is RoundingMode.HALF_TO_EVEN
    assert not find_rescale([0.3], 0, I16).equals


def test_one_parameter_for_equal_factors():
    found = find_rescale([0.01, 0.02, 0.01], 0, I8)
    assert len(found.pairs) == 3
    assert found.pairs[0] == found.pairs[2]


def test_sums_differ_in_hardly_any_pair():
    """Exceptions among 2^16 pairs, for 30 arbitrary sets of scales."""
    rng = np.random.default_rng(0)
    different = []
    for _ in range(30):
        scales, zeros = np.exp(rng.uniform(-5, -2, 3)).astype(np.float32).tolist(), rng.integers(0, 256, 3).tolist()
        found = find_sum(*(QuantParams.per_tensor(s, z, U8) for s, z in zip(scales, zeros, strict=True)))
        assert found is not None
        different.append(found.different)
    assert max(different) <= 2
    assert sum(count > 0 for count in different) <= 3


def test_sum_of_scales_too_far_apart():
    far, near = QuantParams.per_tensor(1e-9, 0, U8), QuantParams.per_tensor(1.0, 0, U8)
    assert find_sum(far, near, near) is None
