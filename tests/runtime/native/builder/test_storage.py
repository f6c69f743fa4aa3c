"""Memory orders: which reshapes and permutes are views, and that views have the elements of NumPy."""

from itertools import permutations

import numpy as np
import pytest

from tests.support.each import each
from tpuconvert.runtime.native.builder.storage import Buffer, Stored, channels_last, row_major
from tpuconvert.schema.types import F32, I8, U8


def stored(shape, order, dtype=F32):
    return Stored(Buffer(0, "arena", int(np.prod(shape)) * dtype.bits // 8), dtype, shape, order)


def memory_of(array, order):
    return np.ascontiguousarray(array.transpose(order)).reshape(-1).view(np.uint8)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_view_shows_the_array(order):
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert (stored((2, 3, 4), order).view(memory_of(array, order)) == array).all()


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("axes", list(permutations(range(3))))
def test_permutation_moves_nothing(order, axes):
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    moved = stored((2, 3, 4), order).permute(axes)
    assert (moved.view(memory_of(array, order)) == array.transpose(axes)).all()


SHAPES = [(2, 3, 4, 5), (2, 12, 5), (6, 20), (120,), (2, 3, 20), (1, 2, 3, 1, 4, 5), (3, 2, 4, 5), (8, 15)]


@pytest.mark.parametrize("shape", SHAPES)
@each("order", permutations(range(4)))
def test_reshape_stays_only_where_the_elements_are_right(shape, order):
    array = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    reshaped = stored((2, 3, 4, 5), order).reshape(shape)
    if reshaped is not None:
        assert (reshaped.view(memory_of(array, order)) == array.reshape(shape)).all()
    if order == row_major(4):
        assert reshaped is not None


def test_splitting_the_innermost_axis_of_an_image_moves_nothing():
    found = stored((1, 255, 4, 5), channels_last(4)).reshape((1, 3, 85, 4, 5))
    assert found is not None
    array = np.arange(255 * 20, dtype=np.float32).reshape(1, 255, 4, 5)
    assert (found.view(memory_of(array, (0, 2, 3, 1))) == array.reshape(1, 3, 85, 4, 5)).all()


def test_axes_of_extent_one_may_stand_anywhere():
    assert stored((1, 8, 1, 1), channels_last(4)).has_order(row_major(4))
    assert not stored((1, 8, 2, 1), channels_last(4)).has_order(row_major(4))


def test_a_pitched_slice_is_not_dense():
    memory = np.arange(2 * 6, dtype=np.uint8)
    part = Stored(Buffer(0, "arena", 12), U8, (2, 4), (0, 1), offset=1, pitch=6)
    assert not part.is_dense
    assert part.view(memory).tolist() == [[1, 2, 3, 4], [7, 8, 9, 10]]
    assert part.reshape((8,)) is None


def test_signed_bytes_are_seen_as_stored():
    assert stored((3,), (0,), I8).view(np.array([0, 128, 255], np.uint8)).dtype == np.uint8


def test_a_single_row_loses_its_pitch_when_it_becomes_rows():
    memory = np.arange(24, dtype=np.uint8)
    part = Stored(Buffer(0, "arena", 24), U8, (3,), (0,), offset=21, pitch=24)
    column = part.reshape((3, 1))
    assert column is not None
    assert column.view(memory).tolist() == [[21], [22], [23]]
    row = Stored(Buffer(0, "arena", 24), U8, (1, 3), (0, 1), offset=21, pitch=24)
    assert row.in_order((1, 0)).view(memory).tolist() == [[21, 22, 23]]
