"""host_scatter_nd, host_scatter_elements and host_slice by hand-worked values."""

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f32, i32
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.ops.host.scatter import HostScatterElements, HostScatterNd, Reduction
from tpuconvert.schema.ops.host.slice import HostSlice
from tpuconvert.schema.types import F32, I32, TensorType

CASES = [
    Case(HostScatterNd(), [f32(0, 1, 2), i32([2], [-3]), f32(7, 8)], [f32(8, 1, 7)], "a negative index"),
    Case(HostScatterNd(), [f32(0, 1, 2), i32([1], [1]), f32(7, 8)], [f32(0, 8, 2)], "the last update wins"),
    Case(HostScatterNd(Reduction.ADD), [f32(0, 1, 2), i32([1], [1]), f32(7, 8)], [f32(0, 16, 2)], "a sum of both"),
    Case(HostScatterNd(), [f32([0, 1], [2, 3]), i32([1]), f32([8, 9])], [f32([0, 1], [8, 9])], "a row"),
    Case(
        HostScatterElements(axis=1),
        [f32([0, 1], [2, 3]), i32([1], [0]), f32([8], [9])],
        [f32([0, 8], [9, 3])],
        "columns",
    ),
    Case(HostScatterElements(Reduction.MAX), [f32(0, 1, 2), i32(0, 0), f32(5, 4)], [f32(5, 1, 2)], "maximum"),
    Case(HostSlice(0), [f32(0, 1, 2, 3), i32(-3), i32(9)], [f32(1, 2, 3)], "bounds from the end and past it"),
    Case(HostSlice(0, step=-1), [f32(0, 1, 2, 3), i32(2), i32(-9)], [f32(2, 1, 0)], "backwards to the beginning"),
    Case(HostSlice(0, step=-1), [f32(0, 1, 2, 3), i32(-9), i32(-99)], [f32(0)], "a start before the first element"),
    Case(HostSlice(0), [f32(0, 1, 2, 3), i32(3), i32(1)], [np.zeros(0, np.float32)], "no elements"),
]


def test_exact_bounds() -> None:
    with pytest.raises(UsageError, match="elements 0 to 5 of axis 0 with 2 elements"):
        HostSlice(0, is_exact=True).evaluate(f32(0, 1), i32(0), i32(5))


def test_shapes() -> None:
    data, index = TensorType(F32, (2, 3)), TensorType(I32, ("n", 1))
    assert HostScatterNd().infer(data, index, TensorType(F32, ("m", 3))) == (data,)
    with pytest.raises(ShapeError, match=r"updates \[2, 4\], expected \[n, 3\]"):
        HostScatterNd().infer(data, index, TensorType(F32, (2, 4)))
    with pytest.raises(ShapeError, match="data are FLOAT32, but updates INT32"):
        HostScatterNd().infer(data, index, TensorType(I32, (2, 3)))
    assert HostSlice(1).infer(data, TensorType(I32, (1,)), TensorType(I32, (1,)))[0].shape == (2, "?host_slice1")
