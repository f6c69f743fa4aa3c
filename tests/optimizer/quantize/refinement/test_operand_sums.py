"""Means of accumulators from sums of operands equal the means of the operator itself."""

import numpy as np
import pytest

from tpuconvert.optimizer.quantize.refinement.operand_sums import accumulator_means
from tpuconvert.schema.ops.convolution.conv3d_v2 import Conv3dV2
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2

CONVOLUTIONS = [
    (ConvV2(has_bias=True), (3, 3)),
    (ConvV2(has_bias=True, pad_h_t=1, pad_h_b=2, pad_w_l=3, stride_h=2, stride_w=3), (3, 2)),
    (ConvV2(has_bias=True, groups=2, dh=2, dw=3, pad_h_t=4, pad_h_b=4, pad_w_l=2, pad_w_r=2), (3, 3)),
    (ConvV2(has_bias=True, groups=4, pad_h_t=5, stride_h=3, stride_w=2), (1, 1)),
    (ConvV2(has_bias=True, izp_val=7, pad_w_l=1, is_kzp_const=False, kzp_vec=tuple(range(8))), (2, 2)),
    (Conv3dV2(has_bias=True, groups=2, dh=2, pad_t_0=1, pad_h_1=2, pad_w_0=1, stride_t=2, stride_w=3), (2, 3, 1)),
]


@pytest.mark.parametrize(("op", "kernel"), CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("samples", [1, 2, 4])
def test_means_are_those_of_the_convolution(op, kernel, samples):
    rng = np.random.default_rng(3)
    x = rng.integers(-128, 128, (4, 4, *(7, 8, 6)[: len(kernel)])).astype(np.int8)
    w = rng.integers(-128, 128, (8, 4 // op.geometry.groups, *kernel)).astype(np.int8)
    bias = rng.integers(-(10**6), 10**6, (1, 8, *(1 for _ in kernel))).astype(np.int32)
    (y,) = op.evaluate(x, w, bias)
    wanted = y.reshape(samples, -1, 8, y[0, 0].size).astype(np.float64).sum(axis=(1, 3)) / (y.size // 8 // samples)
    assert np.array_equal(accumulator_means(op, [x], w, bias, [samples])[0], wanted)


@pytest.mark.parametrize("op", [MatrixMulV2(has_bias=True), MatrixMulV2(has_bias=True, lzp_val=9, rzp_val=-3)], ids=str)
def test_means_are_those_of_the_matmul(op):
    rng = np.random.default_rng(4)
    x, w = rng.integers(0, 128, (6, 5)).astype(np.uint8), rng.integers(-128, 128, (5, 3)).astype(np.int8)
    bias = np.array([1, -2, 3], np.int32)
    (y,) = op.evaluate(x, w.astype(np.int8), bias)
    assert np.array_equal(accumulator_means(op, [x], w, bias, [2])[0], y.reshape(2, 3, 3).sum(axis=1) / 3)


def test_no_means_of_accumulators_that_may_saturate():
    x, w = np.full((1, 1, 1, 1), 127, np.int8), np.full((1, 1, 1, 1), 127, np.int8)
    bias = np.full((1, 1, 1, 1), 2**31 - 10, np.int32)
    assert accumulator_means(ConvV2(has_bias=True), [x], w, bias, [1]) == [None]
