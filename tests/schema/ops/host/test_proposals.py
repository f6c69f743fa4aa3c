"""``proposals`` and ``roi_position_pool``, with values computed by hand."""

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f32
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.ops.host.position_pool import RoiPositionPool
from tpuconvert.schema.ops.host.proposals import Proposals
from tpuconvert.schema.types import F32, TensorType

PLANE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
PLANES = np.concatenate([PLANE + 100 * channel for channel in range(4)], axis=1)
POOL = RoiPositionPool(output_dim=1, group_size=2, spatial_scale=1.0)
ONE_ANCHOR = Proposals(
    feat_stride=4.0, base_size=4.0, min_size=2.0, ratios=(1.0,), scales=(1.0,), post_nms_topn=3, nms_threshold=0.5
)
SCORES = f32(0, 0, 0.2, 0.9).reshape(1, 2, 1, 2)
STILL = np.zeros((1, 4, 1, 2), np.float32)
MOVED = f32([0, -1], [0, 0], [0, 0], [0, 0]).reshape(1, 4, 1, 2)
IMAGE = f32([8, 8, 1])

CASES = [
    Case(
        POOL,
        [PLANES, f32([0, 0, 0, 3, 3])],
        [f32(2.5, 104.5, 210.5, 312.5).reshape(1, 1, 2, 2)],
        "every quarter from its own channel",
    ),
    Case(
        RoiPositionPool(output_dim=4, group_size=1, spatial_scale=0.5),
        [PLANES, f32([0, 2, 2, 3, 3])],
        [f32(5, 105, 205, 305).reshape(1, 4, 1, 1)],
        "rounded corners 2 and 4 are 1 and 2: one pixel",
    ),
    Case(
        POOL,
        [PLANES, f32([0, 40, 40, 50, 50])],
        [np.zeros((1, 1, 2, 2), np.float32)],
        "a region outside has no pixels",
    ),
    Case(
        ONE_ANCHOR,
        [SCORES, STILL, IMAGE],
        [f32([0, 4, 0, 7, 4], [0, 0, 0, 4, 4], [0] * 5), f32(0.9, 0.2, 0)],
        "anchors (0..3) and (4..7) grow by one pixel, as sides are counted; the second one ends with the image",
    ),
    Case(
        ONE_ANCHOR,
        [SCORES, MOVED, IMAGE],
        [f32([0, 0, 0, 4, 4], [0] * 5, [0] * 5), f32(0.9, 0, 0)],
        "the second anchor moves onto the first, which goes",
    ),
    Case(
        ONE_ANCHOR,
        [SCORES, STILL, f32([8, 8, 2.25])],
        [f32([0, 0, 0, 4, 4], [0, 4, 0, 7, 4], [0] * 5), f32(0.2, 0, 0)],
        "a side of 4 is below 2 * 2.25: the score counts as 0",
    ),
]


def test_what_does_not_fit() -> None:
    image = TensorType(F32, (1, 4, 4, 4))
    with pytest.raises(ShapeError, match=r"needs x \[N, 4, H, W\] and rois \[R, 5\]"):
        POOL.infer(image, TensorType(F32, (1, 4)))
    with pytest.raises(ShapeError, match=r"needs x \[N, 4, H, W\]"):
        POOL.infer(TensorType(F32, (1, 5, 4, 4)), TensorType(F32, (1, 5)))
    with pytest.raises(ShapeError, match=r"deltas \[1, 4, H, W\]"):
        ONE_ANCHOR.infer(TensorType(F32, (1, 2, 1, 2)), TensorType(F32, (1, 8, 1, 2)), TensorType(F32, (3,)))
    with pytest.raises(UsageError, match="image 1 of a batch of 1"):
        POOL.reference(PLANES, f32([1, 0, 0, 1, 1]))
    with pytest.raises(ValueError, match="a size below 1"):
        RoiPositionPool(output_dim=0, group_size=1, spatial_scale=1.0)
    with pytest.raises(ValueError, match="must be positive"):
        Proposals(ratios=())
    with pytest.raises(ValueError, match="post_nms_topn 0"):
        Proposals(post_nms_topn=0)
