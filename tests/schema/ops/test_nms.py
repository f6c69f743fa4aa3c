"""Non-maximum suppression."""

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f32, i32
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.nms import Nms, NmsV2
from tpuconvert.schema.types import F32, Scalar, TensorType

NAN = np.nan
HALF, NONE = Scalar.f32(0.5), Scalar.f32(0)
LEFT, RIGHT, FAR = [0, 0, 2, 2], [0, 1, 2, 3], [10, 10, 11, 11]  # LEFT and RIGHT share 2 of 6: IoU 1/3
EMPTY = np.zeros((0, 4), np.float32)

CASES = [
    Case(Nms(HALF), [f32(LEFT, RIGHT, FAR), f32(1, 3, 2)], [i32(1, 2, 0)], "falling scores, IoU 1/3 is allowed"),
    Case(Nms(Scalar.f32(0.3)), [f32(LEFT, RIGHT, FAR), f32(1, 3, 2)], [i32(1, 2)], "IoU 1/3 is too much"),
    Case(Nms(HALF), [f32(LEFT, [2, 2, 0, 0]), f32(1, 2)], [i32(1)], "corners in any order"),
    Case(Nms(NONE), [f32(LEFT, [0, 2, 2, 4]), f32(1, 1)], [i32(0, 1)], "touching boxes share nothing"),
    Case(Nms(NONE), [f32([0, 0, 0, 5], [0, 0, 0, 5]), f32(1, 2)], [i32(1, 0)], "no area, no overlap"),
    Case(Nms(HALF), [f32(FAR, LEFT, LEFT), f32(1, 1, 1)], [i32(0, 1)], "equal scores by rising index"),
    Case(Nms(HALF), [EMPTY, f32()], [i32()], "no boxes"),
    Case(Nms(HALF), [f32(LEFT, FAR), f32(1, NAN)], [i32(1, 0)], "a NaN score is the largest"),
    Case(
        Nms(Scalar.f32(0.3)),
        [f32([0, 0, 4, 2], [0, 1, 4, 3], [0, 2, 4, 4]), f32(3, 2, 1)],
        [i32(0, 2)],
        "the middle one is dropped, and drops no other",
    ),
    Case(NmsV2(HALF, HALF, 9), [f32(LEFT, FAR), f32(0.5, 0.6)], [i32(1)], "a score at the limit is not above it"),
    Case(NmsV2(HALF, NONE, 1), [f32(LEFT, FAR), f32(0.5, 0.6)], [i32(1)], "at most one"),
    Case(NmsV2(HALF, NONE, 0), [f32(LEFT, FAR), f32(0.5, 0.6)], [i32()], "none at all"),
    Case(NmsV2(HALF, NONE, 9), [f32(LEFT, FAR), f32(NAN, 0.6)], [i32(1)], "NaN is not above the limit"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


@pytest.mark.parametrize(("boxes", "scores"), [((3, 4), (2,)), ((3, 5), (3,))])
def test_shape_errors(boxes, scores):
    with pytest.raises(ShapeError, match=rf"\[3, .\] and \[{scores[0]}\]"):
        Nms(HALF).infer(TensorType(F32, boxes), TensorType(F32, scores))


def test_negative_limit_is_rejected():
    with pytest.raises(ValueError, match="max_output_size"):
        NmsV2(HALF, NONE, -1)


def test_random_boxes_against_the_definition():
    random = np.random.default_rng(11)
    boxes = random.random((60, 4), dtype=np.float32)
    scores = random.random(60, dtype=np.float32)

    def overlap(a, b):
        low = np.maximum(np.minimum(a[:2], a[2:]), np.minimum(b[:2], b[2:]))
        high = np.minimum(np.maximum(a[:2], a[2:]), np.maximum(b[:2], b[2:]))
        shared = np.prod(np.maximum(high - low, 0), dtype=np.float64)
        return shared / (abs(np.prod(a[2:] - a[:2])) + abs(np.prod(b[2:] - b[:2])) - shared)

    taken: list[int] = []
    for candidate in sorted(range(60), key=lambda index: -scores[index]):
        if all(overlap(boxes[candidate], boxes[index]) <= 0.25 for index in taken):
            taken.append(candidate)
    assert Nms(Scalar.f32(0.25)).evaluate(boxes, scores)[0].tolist() == taken
