"""Sums over integer operands: the native engine and NumPy give the same integers."""

import numpy as np
import pytest

from tpuconvert.runtime.native.builder.loader import ISA_VARIABLE, available_isas
from tpuconvert.runtime.native.statistics import byte_statistics
from tpuconvert.runtime.native.statistics.byte_statistics import (
    can_copy_windows,
    copy_windows,
    multiply_inputs,
    window_sums,
)
from tpuconvert.runtime.threads import limited_threads
from tpuconvert.schema.ops.convolution.conv import Conv

GEOMETRIES = [
    (Conv(), (1, 1)),
    (Conv(pad_h_t=1, pad_h_b=1, pad_w_l=1, pad_w_r=1), (3, 3)),
    (Conv(stride_h=2, stride_w=2), (1, 1)),
    (Conv(stride_h=3, stride_w=2, pad_h_t=4, pad_w_r=3, dh=2, dw=3), (3, 2)),
    (Conv(pad_h_t=9, pad_h_b=8, pad_w_l=7, stride_h=4), (2, 3)),  # some elements of the kernel meet padding only
]


@pytest.fixture
def by_numpy(monkeypatch):
    """Return a function that calls another one without the extension."""

    def call(function, *arguments):
        with monkeypatch.context() as context:
            context.setattr(byte_statistics, "extension", lambda: None)
            return function(*arguments)

    return call


def drawn(shape, dtype) -> np.ndarray:
    """All bytes, with many extreme values."""
    rng = np.random.default_rng(sum(shape))
    x = rng.integers(0, 256, shape).astype(np.uint8)
    x[rng.random(shape) < 0.2] = 255
    x[rng.random(shape) < 0.2] = 0
    return x.view(dtype)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 3, 200), (1, 513, 97), (2, 1030, 48), (300, 70, 9)], ids=str)
def test_products_are_those_of_numpy(shape, dtype, isa, by_numpy, monkeypatch):
    monkeypatch.setenv(ISA_VARIABLE, isa)
    groups, count, inputs = shape
    for rows in (drawn(shape, dtype), drawn((groups, inputs, count), dtype).swapaxes(1, 2)):
        wanted = by_numpy(multiply_inputs, rows)
        for threads in (1, 3):
            with limited_threads(threads):
                for found, expected in zip(multiply_inputs(rows), wanted, strict=True):
                    assert found.dtype == expected.dtype and np.array_equal(found, expected)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize(("dtype", "value"), [(np.uint8, 255), (np.int8, -128)])
def test_largest_products_fit(dtype, value, isa, monkeypatch):
    monkeypatch.setenv(ISA_VARIABLE, isa)
    products, totals = multiply_inputs(np.full((1, byte_statistics.MOST_OBSERVATIONS, 2), value, dtype))
    assert (products == value * value * byte_statistics.MOST_OBSERVATIONS).all()
    assert (totals == value * byte_statistics.MOST_OBSERVATIONS).all()


@pytest.mark.parametrize(("op", "kernel"), GEOMETRIES, ids=str)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_window_sums_are_those_of_numpy(op, kernel, dtype, by_numpy):
    for x in (drawn((2, 5, 9, 13), dtype), drawn((2, 9, 13, 5), dtype).transpose(0, 3, 1, 2)):
        found = window_sums(x, op.geometry, kernel)
        assert found.dtype == np.int64 and np.array_equal(found, by_numpy(window_sums, x, op.geometry, kernel))


@pytest.mark.skipif(not available_isas(), reason="without the native engine, the windows come from patches()")
def test_positions_and_extents_are_checked():
    image, windows = np.zeros((2, 4, 4), np.uint8), np.zeros((8, 3), np.uint8)
    assert can_copy_windows(image)
    with pytest.raises(ValueError, match="outside of the result"):
        copy_windows(image, Conv().geometry, (2, 2), np.array([9]), windows, 0)
    with pytest.raises(ValueError, match="copy_windows"):
        copy_windows(image, Conv().geometry, (2, 2), np.array([0, 1]), windows, 2)
    with pytest.raises(ValueError, match="larger than the image"):
        copy_windows(image, Conv().geometry, (5, 1), np.array([0]), np.zeros((10, 3), np.uint8), 0)
