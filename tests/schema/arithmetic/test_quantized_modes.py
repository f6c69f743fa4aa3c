"""The three calculation modes of docs/inside/semantics.md, section 7, one element at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.operators import oracles
from tpuconvert.schema.arithmetic.quantized_sums import ceil_shift, floor_shift
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, Chip, DType

SCALES = st.one_of(
    st.floats(2.0**-20, 8.0, width=32),
    st.integers(-20, 3).map(lambda power: 2.0**power),
    st.sampled_from([1e-44, 1e-38, 3e38, 0.1, 2.5, 0.999999]),
)
BIASES = {0: [None, I16, U16], 1: [None, I16, U16, I32, F32], 2: [None, I16, U16, I32, F32]}
RESULTS = {0: [I8, U8], 1: [I8, U8, I16, U16], 2: [I8, U8, I16, U16]}


@st.composite
def uses(draw, modes=(0, 1, 2), floats=True):
    mode = draw(st.sampled_from(modes))
    x_dtype, w_dtype = draw(st.sampled_from([I8, U8])), draw(st.sampled_from([I8, U8]))
    bias = draw(st.sampled_from([b for b in BIASES[mode] if floats or b is not F32]))
    out = draw(st.sampled_from(RESULTS[mode]))
    zeros = [draw(st.integers(d.min, d.max)) for d in (x_dtype, w_dtype, out)] if mode == 2 else [0, 0, 0]
    return mode, x_dtype, w_dtype, bias, out, zeros, draw(SCALES), draw(st.integers(0, 2**32)), draw(st.booleans())


def bias_array(rng, dtype, count):
    if dtype is None:
        return None
    if dtype is F32:
        return (rng.standard_normal(count) * 1000).astype(np.float32)
    if dtype is I32:
        return rng.integers(-(2**28), 2**28, count).astype(np.int32)
    return oracles.random_integers(rng, dtype, count)


def expected_result(mode, total, bias, scale, out, *, zero_total, zero_products, offset, shift):
    """``bias`` as the element of its array."""
    if mode == 2:
        if isinstance(bias, np.float32):
            bias = np.float32(bias - np.float32(zero_products))
        else:
            bias = oracles.saturate((0 if bias is None else int(bias)) - zero_products, I32)
    elif (bias is not None and not isinstance(bias, (np.float32, np.int32))) or (bias is not None and mode == 0):
        bias = int(bias)
    with np.errstate(all="ignore"):
        return oracles.quantized_mode(mode, total, bias, scale, out, zero_total=zero_total, offset=offset, n=shift)


@settings(max_examples=150)
@given(use=uses(), groups=st.integers(1, 2))
def test_conv(use, groups):
    mode, x_dtype, w_dtype, bias_dtype, out, (zp_l, zp_r, zp_o), scale, seed, extreme = use
    rng = np.random.default_rng(seed)
    x = oracles.random_integers(rng, x_dtype, (1, 2 * groups, 3, 3), extreme)
    w = oracles.random_integers(rng, w_dtype, (2 * groups, 2, 2, 2), extreme)
    bias = bias_array(rng, bias_dtype, len(w))
    op = Conv(
        pad_h_t=1, pad_w_r=1, stride_w=2, groups=groups, scale=scale, mode=mode,
        left_zero_point=zp_l, right_zero_point=zp_r, output_zero_point=zp_o, out_dtype=out,
    )  # fmt: skip
    (found,) = op.evaluate(x, w, None if bias is None else bias.reshape(1, -1, 1, 1))
    geometry = {"strides": (1, 2), "dilations": (1, 1), "pads": (1, 0, 0, 1), "groups": groups}
    sums = oracles.convolution(x, w, **geometry, pad_value=lambda _: zp_l)
    ones = oracles.convolution(x, np.ones_like(w), **geometry, pad_value=lambda _: zp_l)
    assert found.dtype == out.numpy
    for (place, total), (_, window_sum) in zip(sums, ones, strict=True):
        expected = expected_result(
            mode, total, None if bias is None else bias[place[1]], scale, out,
            zero_total=window_sum * zp_r,
            zero_products=zp_l * sum(int(v) - zp_r for v in w[place[1]].flat),
            offset=zp_o, shift=floor_shift(np.float32(scale)),
        )  # fmt: skip
        assert int(found[place]) == expected, (place, total)


@settings(max_examples=100)
@given(use=uses(floats=False))
def test_matrix_mul(use):
    mode, left_dtype, right_dtype, bias_dtype, out, (zp_l, zp_r, zp_o), scale, seed, extreme = use
    rng = np.random.default_rng(seed)
    left = oracles.random_integers(rng, left_dtype, (3, 5), extreme)
    right = oracles.random_integers(rng, right_dtype, (5, 4), extreme)
    bias = bias_array(rng, bias_dtype, 4)
    op = MatrixMul(scale, mode, zp_l, zp_r, zp_o, out)
    (found,) = op.evaluate(left, right, None if bias is None else bias.reshape(1, -1))
    for i, j in np.ndindex(3, 4):
        expected = expected_result(
            mode, sum(int(a) * int(b) for a, b in zip(left[i], right[:, j], strict=True)),
            None if bias is None else bias[j], scale, out,
            zero_total=sum(int(a) for a in left[i]) * zp_r,
            zero_products=zp_l * sum(int(b) - zp_r for b in right[:, j]),
            offset=zp_o, shift=ceil_shift(np.float32(scale)),
        )  # fmt: skip
        assert int(found[i, j]) == expected, (i, j)


@settings(max_examples=50)
@given(use=uses(modes=(0,)))
def test_deconv(use):
    mode, x_dtype, w_dtype, bias_dtype, out, _, scale, seed, extreme = use
    rng = np.random.default_rng(seed)
    x = oracles.random_integers(rng, x_dtype, (1, 2, 3, 2), extreme)
    w = oracles.random_integers(rng, w_dtype, (2, 2, 3, 3), extreme)
    bias = bias_array(rng, bias_dtype, 2)
    op = Deconv(stride_h=2, pad_h_t=1, pad_h_b=-1, scale=scale, out_dtype=out)
    (found,) = op.evaluate(x, w, None if bias is None else bias.reshape(1, -1, 1, 1))
    sums = oracles.transposed_convolution(x, w, strides=(2, 1), dilations=(1, 1), pads=(1, 0, -1, 0), groups=1)
    for place, total in sums.items():
        added = None if bias is None else int(bias[place[1]])
        assert int(found[place]) == oracles.quantized_mode(mode, total, added, scale, out), place


@settings(max_examples=100)
@given(use=uses(modes=(1, 2)))
def test_depthwise_on_bm1684_is_evaluated_in_float(use):
    mode, x_dtype, w_dtype, bias_dtype, out, (zp_l, zp_r, zp_o), scale, seed, extreme = use
    rng = np.random.default_rng(seed)
    x = oracles.random_integers(rng, x_dtype, (1, 3, 4, 3), extreme)
    w = oracles.random_integers(rng, w_dtype, (3, 1, 2, 2), extreme)
    bias = bias_array(rng, bias_dtype, 3)
    op = Conv(
        pad_h_b=1, groups=3, scale=scale, mode=mode,
        left_zero_point=zp_l, right_zero_point=zp_r, output_zero_point=zp_o, out_dtype=out,
    )  # fmt: skip
    (found,) = op.evaluate(x, w, None if bias is None else bias.reshape(1, -1, 1, 1), chip=Chip.BM1684)
    sums = oracles.convolution(
        x, w, strides=(1, 1), dilations=(1, 1), pads=(0, 0, 1, 0), groups=3,
        x_zero=lambda _: zp_l, w_zero=lambda _: zp_r,
    )  # fmt: skip
    s = np.float32(scale)
    for place, total in sums:
        with np.errstate(over="ignore"):
            if isinstance(added := None if bias is None else bias[place[1]], np.float32):
                t = np.float32(np.float32(total) + added)
            else:
                t = np.float32(total + (0 if added is None else int(added)))
            v = np.float32(t * s)
        assert int(found[place]) == oracles.saturate(oracles.nearest_int32(float(v)) + zp_o, out), place


def test_depthwise_depends_on_the_chip_in_modes_1_and_2_only():
    x, w = np.full((1, 1, 1, 1), 100, np.int8), np.full((1, 1, 1, 1), 3, np.int8)
    # 300 * 0.3: through 16 bits, 300 / 4 = 75, then 75 * 0.3 * 4; in float 300 * 0.3. Both give 90.
    # 301 shows the difference: 301 / 4 rounds to 75, while 301 * 0.3 = 90.3.
    op = Conv(scale=0.3, mode=1, out_dtype=I16)
    assert [op.evaluate(x, w, chip=chip)[0].item() for chip in (Chip.BM1684, Chip.BM1686)] == [90, 90]
    x[0] = 101  # 303 / 4 rounds to 76: 76 * 1.2 = 91.2; in float 90.9
    op = Conv(scale=0.35, mode=1, out_dtype=I16)  # 303 / 4 = 76: 106.4; in float 106.05
    assert [op.evaluate(x, w, chip=chip)[0].item() for chip in (Chip.BM1684, Chip.BM1686)] == [106, 106]
    op = Conv(scale=0.45, mode=1, out_dtype=I16)  # 303 / 4 = 76: 136.8; in float 136.35
    assert [op.evaluate(x, w, chip=chip)[0].item() for chip in (Chip.BM1684, Chip.BM1686)] == [136, 137]
    low = Conv(scale=0.25)
    assert [low.evaluate(x, w, chip=chip)[0].item() for chip in (Chip.BM1684, Chip.BM1686)] == [76, 76]


@pytest.mark.parametrize(
    ("s", "ceil", "floor"),
    [(1.0, 0, 0), (0.5, 1, 1), (0.25, 2, 2), (0.3, 2, 1), (0.75, 1, 0), (2.5, 0, 0), (2.0**-149, 149, 149)],
)
def test_shifts_of_a_scale(s, ceil, floor):
    assert (ceil_shift(np.float32(s)), floor_shift(np.float32(s))) == (ceil, floor)


def test_a_huge_scale_saturates_in_mode_0():
    x, w = np.array([[1, 0]], np.int8), np.eye(2, dtype=np.int8)
    assert MatrixMul(scale=3e38).evaluate(x, w)[0].tolist() == [[127, 0]]
    assert MatrixMul(scale=3e38).evaluate(-x, w)[0].tolist() == [[-128, 0]]


def test_accumulator_saturates_before_the_shift():
    depth = 140000
    left, right = np.full((1, depth), -128, np.int8), np.full((depth, 1), 127, np.int8)
    exact = -128 * 127 * depth
    assert exact < -(2**31)
    # Saturated to -2^31, then / 2^25 is -64 exactly; unsaturated it would be -67.8.
    assert MatrixMul(scale=2.0**-25).evaluate(left, right)[0].item() == -64
    assert DType.of(MatrixMul(scale=2.0**-25).evaluate(left, right)[0].dtype) is I8
