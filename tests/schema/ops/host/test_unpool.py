"""host_max_positions and host_max_unpool by hand-worked values."""

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f32
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.ops.host.unpool import HostMaxPositions, HostMaxUnpool
from tpuconvert.schema.types import F32, I32, TensorType

PLANE = f32([1, 5, 2], [5, 0, 5], [3, 4, 6]).reshape(1, 1, 3, 3)
TWO = np.concatenate([PLANE, -PLANE], axis=1)
WINDOW = {"kernel": (2, 2), "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0)}
HALVES = {"kernel": (2,), "strides": (2,), "pads": (0,)}


def at(*positions: object) -> np.ndarray:
    """Positions [1, 1, ...]."""
    return np.array([[positions]], np.int32)


CASES = [
    Case(HostMaxPositions(**WINDOW), [PLANE, PLANE[..., :2, :2]], [at([1, 1], [3, 8])], "the first of equal maxima"),
    Case(
        HostMaxPositions(**WINDOW, is_column_major=True),
        [PLANE, PLANE[..., :2, :2]],
        [at([3, 3], [1, 8])],
        "the row is the fastest axis",
    ),
    Case(
        HostMaxPositions(kernel=(2, 2), strides=(2, 2), dilations=(2, 2), pads=(1, 1)),
        [PLANE, PLANE[..., :1, :1]],
        [at([4])],
        "padding is never a maximum, even of zeros",
    ),
    Case(
        HostMaxPositions(**WINDOW),
        [TWO, TWO[..., :1, :1]],
        [np.array([[[[1]], [[13]]]], np.int32)],
        "the second channel goes on counting",
    ),
    Case(HostMaxUnpool(**HALVES), [f32(7, 8).reshape(1, 1, 2), at(1, 2)], [f32(0, 7, 8, 0).reshape(1, 1, 4)], "a line"),
    Case(
        HostMaxUnpool(**HALVES, sizes=(5,)),
        [f32(7, 8).reshape(1, 1, 2), at(1, 4)],
        [f32(0, 7, 0, 0, 8).reshape(1, 1, 5)],
        "an odd line",
    ),
    Case(
        HostMaxUnpool(**HALVES),
        [f32(7, 8).reshape(1, 1, 2), at(3, 3)],
        [f32(0, 0, 0, 8).reshape(1, 1, 4)],
        "the last element of a position stays",
    ),
]


def test_positions_outside_of_the_result() -> None:
    for position in (-1, 4):
        with pytest.raises(UsageError, match=f"position {position} of 4 elements"):
            HostMaxUnpool(**HALVES).evaluate(f32(7, 8).reshape(1, 1, 2), at(0, position))


def test_symbolic_shapes() -> None:
    x, positions = TensorType(F32, ("N", 2, "H", 5)), TensorType(I32, ("N", 2, "H", 5))
    op = HostMaxUnpool(kernel=(3, 2), strides=(2, 2), pads=(0, 1))
    assert op.infer(x, positions)[0].shape == ("N", 2, "2*H+1", 9)
    like = TensorType(F32, ("M", 7, "V", 10))
    assert op.infer(x, positions, like)[0].shape == ("N", 2, "V", 10)
    with pytest.raises(ShapeError, match=r"extents \['V', 8\] are smaller than"):
        op.infer(x, positions, TensorType(F32, ("M", 7, "V", 8)))
    with pytest.raises(ShapeError, match="1 spatial axes for"):
        HostMaxUnpool(**HALVES).infer(x, positions)
    assert HostMaxPositions(**WINDOW).infer(x, TensorType(F32, ("N", 2, "H-1", 4)))[0] == TensorType(
        I32, ("N", 2, "H-1", 4)
    )
