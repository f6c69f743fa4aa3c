"""``roi_align``, ``roi_max_pool`` and ``inverse_trigonometry``, with values computed by hand."""

import math

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f32, i32
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.ops.host.regions import RegionMode, RoiAlign, RoiMaxPool
from tpuconvert.schema.ops.host.trigonometry import InverseFunction, InverseTrigonometry
from tpuconvert.schema.types import F32, I32, TensorType

PLANE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)

CASES = [
    Case(
        RoiAlign(output_height=1, output_width=2, sampling_ratio=1, half_pixel=False),
        [PLANE, f32([0, 0, 2, 2]), i32(0)],
        [f32(4.5, 5.5).reshape(1, 1, 1, 2)],
        "one sample in the middle of each cell: (1, 0.5) and (1, 1.5)",
    ),
    Case(
        RoiAlign(sampling_ratio=2, half_pixel=True),
        [PLANE, f32([0.5, 0.5, 2.5, 2.5]), i32(0)],
        [f32(5).reshape(1, 1, 1, 1)],
        "the mean of four samples of a plane is its value in the middle, (1, 1)",
    ),
    Case(
        RoiAlign(mode=RegionMode.MAXIMUM, sampling_ratio=1, half_pixel=False),
        [PLANE, f32([0, 0, 2, 2], [1, 1, 3, 3]), i32(0, 0)],
        [f32(5, 10).reshape(2, 1, 1, 1)],
        "a sample on a pixel has that one alone",
    ),
    Case(
        RoiAlign(sampling_ratio=1, half_pixel=False),
        [PLANE, f32([-9, -9, -5, -5]), i32(0)],
        [f32(0).reshape(1, 1, 1, 1)],
        "nothing is sampled outside of the image",
    ),
    Case(
        RoiMaxPool(output_height=2, output_width=2),
        [PLANE, f32([0, 0, 0, 3, 3])],
        [f32(5, 7, 13, 15).reshape(1, 1, 2, 2)],
        "four cells of four pixels",
    ),
    Case(
        RoiMaxPool(output_height=1, output_width=2, spatial_scale=0.5),
        [PLANE, f32([0, 3, 1, 3, 1])],
        [f32(6, 6).reshape(1, 1, 1, 2)],
        "1.5 is rounded to 2, 0.5 to 1: one pixel, in both cells",
    ),
    Case(
        RoiMaxPool(),
        [PLANE, f32([0, 8, 8, 9, 9])],
        [f32(0).reshape(1, 1, 1, 1)],
        "a region outside has no pixels",
    ),
    Case(
        InverseTrigonometry(InverseFunction.ACOS),
        [f32(-1, 0, 1, 2)],
        [f32(math.pi, math.pi / 2, 0, math.nan)],
        "angles from 0 to pi, none beyond 1",
    ),
    Case(InverseTrigonometry(InverseFunction.ASIN), [f32(-1, 0.5)], [f32(-math.pi / 2, math.pi / 6)], "by hand"),
    Case(InverseTrigonometry(InverseFunction.ATAN), [f32(1, -math.inf)], [f32(math.pi / 4, -math.pi / 2)], "by hand"),
]


def test_what_does_not_fit() -> None:
    x = TensorType(F32, (1, 1, 4, 4))
    with pytest.raises(ShapeError, match=r"rois \[R, 4\]"):
        RoiAlign().infer(x, TensorType(F32, (2, 5)), TensorType(I32, (2,)))
    with pytest.raises(ShapeError, match=r"rois \[R, 5\]"):
        RoiMaxPool().infer(x, TensorType(F32, (2, 4)))
    for make in (RoiAlign, RoiMaxPool):
        with pytest.raises(ValueError, match="output 0 x 1"):
            make(output_height=0)
    with pytest.raises(UsageError, match="image 1 of a batch of 1"):
        RoiAlign().evaluate(PLANE, f32([0, 0, 1, 1]), i32(1))
