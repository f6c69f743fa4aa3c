"""Pooling, compared with a loop over windows, with ONNX, and with values computed by hand."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.onnx.reference import run_node
from tests.support.operators import oracles
from tests.support.operators.op_cases import Case, f32, i8, i16, i32, u8
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.pool_int import OutCeilMode, PoolInt, PoolQuantMode
from tpuconvert.schema.types import F32, I8, I16, U8, DType, TensorType

MAX, AVE = PoolType.MAX, PoolType.AVE


def square(kernel, stride=1, **others):
    return Pool(kernel_h=kernel, kernel_w=kernel, stride_h=stride, stride_w=stride, **others)


def average(kernel, stride=1, **others):
    sizes = {"kernel_h": kernel, "kernel_w": kernel, "stride_h": stride, "stride_w": stride}
    return PoolInt(**sizes, is_avg_pooling=True, **others)


GLOBAL_AVERAGE = Pool(stride_h=1, stride_w=1, pooling_type=AVE, is_global_pooling=True)

CASES = [
    Case(GLOBAL_AVERAGE, [f32([[[1, 2], [3, 5]]])], [f32([[[2.75]]])], "the whole plane"),
    Case(GLOBAL_AVERAGE, [i8([[[1, 2], [3, 4]]])], [i8([[[3]]])], "2.5 rounds away from zero"),
    Case(GLOBAL_AVERAGE, [i8([[[-1, -2], [-3, -4]]])], [i8([[[-3]]])], "-2.5 rounds away from zero"),
    Case(GLOBAL_AVERAGE, [u8([[[255, 255, 254, 254]]])], [u8([[[255]]])], "254.5"),
    Case(square(2, pooling_type=AVE), [i8([[[-1, -1], [-1, 0]]])], [i8([[[-1]]])], "-3/4"),
    Case(square(2, pooling_type=AVE), [f32([[[1e8, 1], [-1e8, 0]]])], [f32([[[0.25]]])], "summed in binary64"),
    Case(
        square(2, 2, pad_h=1, pad_w=1, pooling_type=AVE),
        [f32([[[4, 8], [12, 16]]])],
        [f32([[[1, 2], [3, 4]]])],
        "padding counts by default",
    ),
    Case(
        square(2, 2, pad_h=1, pad_w=1, pooling_type=AVE, is_ave_count_zero_pad=False),
        [f32([[[4, 8], [12, 16]]])],
        [f32([[[4, 8], [12, 16]]])],
        "padding does not count",
    ),
    Case(
        square(2, 2, pooling_type=AVE, is_ceil_mode=True),
        [f32([[[1, 2, 4]]]).reshape(1, 1, 1, 3).repeat(2, axis=2)],
        [f32([[[1.5, 4]]])],
        "ceil mode: the last window is clipped to the image",
    ),
    Case(
        square(2, 2, pad_h_offset=1, pad_w_offset=1, pooling_type=AVE),
        [f32([[[4]]])],
        [f32([[[1]]])],
        "padding only below and on the right",
    ),
    Case(square(2, 2, pad_h=1, pad_w=1), [i8([[[-5]]])], [i8([[[-5]]])], "padding never wins"),
    Case(
        square(1, 2, is_ceil_mode=True, ensure_pool_image=True),
        [f32([[[1, 2]]])[:, :, :1]],
        [f32([[[1]]])],
        "the window beyond the image is dropped",
    ),
    Case(square(1, 2, is_ceil_mode=True), [i8([[[1, 2], [3, 4]]])], [i8([[[1, -128], [-128, -128]]])],
         "without it a window without elements gives the lowest value"),
    Case(square(1, 2, is_ceil_mode=True, pooling_type=AVE), [f32([[[1, 2], [3, 4]]])], [f32([[[1, 0], [0, 0]]])],
         "or 0 for averages"),
    Case(average(2), [i16([[[32767, 32767], [32767, 32766]]])], [i16([[[32767]]])], "INT16"),
    Case(
        average(2, quant_mode=2, scale=-3, rshift=2),
        [i8([[[1, 1], [1, 1]]])],
        [i8([[[-3]]])],
        "multiplier and shift",
    ),
    Case(
        average(2, quant_mode=2, scale=1, rshift=1), [i8([[[-1, 0], [0, 0]]])], [i8([[[0]]])], "-1/2 goes up",
    ),
    Case(average(2, quant_mode=2, scale=2**31 - 1, rshift=63), [i8([[[127, 127], [127, 127]]])], [i8([[[0]]])],
         "the largest shift"),
    Case(
        PoolInt(kernel_h=2, kernel_w=2, stride_h=1, stride_w=1, pad_h_t=1, is_avg_pooling=False),
        [i8([[[5, 5], [-9, 5]]])],
        [i8([[[5], [5]]]), i32([[[0], [0]]])],
        "the first of equal maxima, counted in the plane",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


def windows(extent, count, kernel, stride, before):
    for index in range(count):
        start = index * stride - before
        yield range(max(start, 0), min(start + kernel, extent)), range(start, start + kernel)


def window_count(axis, is_ceil):
    extent, kernel, stride, before, after = axis
    steps = extent + before + after - kernel
    return (-(-steps // stride) if is_ceil else steps // stride) + 1


@st.composite
def geometries(draw):
    kernel, stride = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    before, after = draw(st.integers(0, kernel - 1)), draw(st.integers(0, kernel - 1))
    extent = draw(st.integers(max(kernel - before - after, 1), 7))
    return extent, kernel, stride, before, after


@settings(max_examples=80)
@given(
    down=geometries(),
    along=geometries(),
    dtype=st.sampled_from([I8, U8]),
    seed=st.integers(0, 2**32),
    flags=st.tuples(*[st.booleans()] * 4),
)
def test_pool(down, along, dtype, seed, flags):
    is_max, is_ceil, counts_padding, ensures = flags
    op = Pool(
        kernel_h=down[1], stride_h=down[2], pad_h=down[3], pad_h_offset=down[4] - down[3],
        kernel_w=along[1], stride_w=along[2], pad_w=along[3], pad_w_offset=along[4] - along[3],
        pooling_type=MAX if is_max else AVE, is_ceil_mode=is_ceil, is_ave_count_zero_pad=counts_padding,
        ensure_pool_image=ensures,
    )  # fmt: skip
    x = oracles.random_integers(np.random.default_rng(seed), dtype, (2, 2, down[0], along[0]))
    (found,) = op.evaluate(x)
    counts = []
    for axis in (down, along):
        count = window_count(axis, is_ceil)
        counts.append(count - (ensures and (count - 1) * axis[2] >= axis[0] + axis[3]))
    assert found.shape == (2, 2, *counts) == op.infer(TensorType(dtype, x.shape))[0].shape
    for i, (rows, all_rows) in enumerate(windows(down[0], counts[0], *down[1:4])):
        for j, (columns, all_columns) in enumerate(windows(along[0], counts[1], *along[1:4])):
            valid = x[0, 1, rows.start : rows.stop, columns.start : columns.stop].astype(int)
            if is_max:
                expected = valid.max(initial=dtype.min)
            else:
                area = valid.size
                if counts_padding:
                    area = len(range(all_rows.start, min(all_rows.stop, down[0] + down[4])))
                    area *= len(range(all_columns.start, min(all_columns.stop, along[0] + along[4])))
                expected = oracles.half_away(Fraction(int(valid.sum()), area)) if area and valid.size else 0
            assert found[0, 1, i, j] == expected, (i, j)


@settings(max_examples=80)
@given(
    down=geometries(),
    along=geometries(),
    dtype=st.sampled_from([I8, U8, I16]),
    seed=st.integers(0, 2**32),
    is_ceil=st.booleans(),
    rescale=st.none() | st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 63)),
)
def test_pool_int(down, along, dtype, seed, is_ceil, rescale):
    parameters = {
        "kernel_h": down[1], "stride_h": down[2], "pad_h_t": down[3], "pad_h_b": down[4],
        "kernel_w": along[1], "stride_w": along[2], "pad_w_l": along[3], "pad_w_r": along[4],
        "out_ceil_mode": OutCeilMode.ceil if is_ceil else OutCeilMode.floor,
    }  # fmt: skip
    x = oracles.random_integers(np.random.default_rng(seed), dtype, (1, 2, down[0], along[0]))
    maximum = PoolInt(**parameters, is_avg_pooling=False)
    mean = PoolInt(**parameters, is_avg_pooling=True)
    scaled = PoolInt(
        **parameters, is_avg_pooling=True, quant_mode=PoolQuantMode.MULTIPLIER_SHIFT,
        scale=rescale[0] if rescale else 1, rshift=rescale[1] if rescale else 0,
    )  # fmt: skip
    rows_of = list(windows(down[0], window_count(down, is_ceil), *down[1:4]))
    columns_of = list(windows(along[0], window_count(along, is_ceil), *along[1:4]))
    if not all(len(inside) for inside, _ in rows_of + columns_of):
        with pytest.raises(ShapeError, match="holds no element"):
            maximum.evaluate(x)
        return
    (largest, indices), (quotients,), (products,) = (op.evaluate(x) for op in (maximum, mean, scaled))
    assert largest.shape == (1, 2, len(rows_of), len(columns_of))
    for (i, (rows, _)), (j, (columns, _)) in ((a, b) for a in enumerate(rows_of) for b in enumerate(columns_of)):
        valid = [(int(x[0, 1, r, c]), r * along[0] + c) for r in rows for c in columns]
        top = max(value for value, _ in valid)
        assert largest[0, 1, i, j] == top
        assert indices[0, 1, i, j] == next(index for value, index in valid if value == top)
        total = sum(value for value, _ in valid)
        assert quotients[0, 1, i, j] == oracles.half_away(Fraction(total, len(valid)))
        assert products[0, 1, i, j] == oracles.saturate(oracles.rrs(total * scaled.scale, scaled.rshift), dtype)


@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("include", [0, 1])
def test_agrees_with_onnx(ceil, include):
    x = np.random.default_rng(3).standard_normal((1, 3, 10, 9)).astype(np.float32)
    parameters = {
        "kernel_h": 3, "kernel_w": 2, "stride_h": 2, "stride_w": 2, "pad_h": 1, "pad_w": 0, "pad_h_offset": 0,
        "pad_w_offset": 1, "is_ceil_mode": bool(ceil), "ensure_pool_image": True,
    }  # fmt: skip
    attributes = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": ceil}
    np.testing.assert_array_equal(Pool(**parameters).evaluate(x)[0], run_node("MaxPool", [x], **attributes))
    ours = Pool(**parameters, pooling_type=AVE, is_ave_count_zero_pad=bool(include)).evaluate(x)[0]
    theirs = run_node("AveragePool", [x], **attributes, count_include_pad=include)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)  # the reference sums in float32


def test_nan_wins_and_infinity_stays():
    x = np.array([np.nan, 1, -np.inf, -np.inf], np.float32).reshape(1, 1, 1, 4)
    op = Pool(kernel_h=1, kernel_w=2, stride_h=1, stride_w=2)
    np.testing.assert_array_equal(op.evaluate(x)[0].reshape(-1), [np.nan, -np.inf])


def test_symbolic_extents_pass_through():
    x = TensorType(F32, ("N", 3, "H", 8))
    assert square(3, 1, pad_h=1, pad_w=1).infer(x)[0].shape == ("N", 3, "H", 8)
    assert square(2, 2).infer(x)[0].shape == ("N", 3, "ceil((H-1)/2)", 4)
    assert GLOBAL_AVERAGE.infer(x)[0].shape == ("N", 3, 1, 1)
    assert square(2, 2, is_ceil_mode=True, ensure_pool_image=True).infer(x)[0].shape[2] == "ceil((H-2)/2)+1"


def test_what_is_refused():
    with pytest.raises(ShapeError, match="does not fit"):
        square(9).infer(TensorType(F32, (1, 1, 8, 8)))
    with pytest.raises(ShapeError, match="window 1 holds no element"):
        average(1, 2, out_ceil_mode=1).infer(TensorType(I8, (1, 1, 2, 2)))
    for wrong in ({"pooling_type": PoolType.UNKNOWN}, {"pad_h": -1}, {"pad_h_offset": -1}):
        with pytest.raises(ValueError, match="pool"):
            square(2, **wrong)
    with pytest.raises(ValueError, match="at least 1"):
        Pool(stride_h=1, stride_w=1)
    for wrong in ({"rshift": 64}, {"rshift": -1}, {"scale": 2**31}, {"pad_h_t": -1}):
        with pytest.raises(ValueError, match="pool_int"):
            average(2, **wrong)
    assert DType.of(average(2).evaluate(np.zeros((1, 1, 2, 2), np.uint8))[0].dtype) is U8
