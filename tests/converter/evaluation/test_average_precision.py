"""Average precision: a case computed by hand, and random detections compared with pycocotools."""

import contextlib
import io
from typing import Any

import numpy as np
import pytest

from tests.support.sampled import sampled
from tpuconvert.evaluation.average_precision import average_precisions
from tpuconvert.evaluation.objects import Objects
from tpuconvert.schema.arithmetic.boxes import Detections, match_detections, overlaps, suppress


def detections(*rows: tuple[list[float], float, int]) -> Detections:
    """Return detections from tuples (box, score, class)."""
    boxes, scores, classes = zip(*rows, strict=True) if rows else ((), (), ())
    return Detections(np.array(boxes, float).reshape(-1, 4), np.array(scores, float), np.array(classes, int))


def objects(*rows: tuple[list[float], int]) -> Objects:
    boxes, classes = zip(*rows, strict=True) if rows else ((), ())
    return Objects(np.array(boxes, float).reshape(-1, 4), np.array(classes, int), np.zeros(len(classes), bool))


def test_a_case_by_hand() -> None:
    """Of two objects, the best detection finds one, the second is wrong, the third has an IoU of 0.6 with the other.

    Up to an IoU limit of 0.6, precision is 1 for recalls up to 0.5 (51 of 101 values) and 2/3 above; beyond, 1 and 0.
    """
    labeled = [objects(([0, 0, 10, 10], 3), ([20, 20, 30, 30], 3))]
    found = [
        detections(
            ([0, 0, 10, 10], 0.9, 3), ([50, 50, 60, 60], 0.8, 3), ([20, 20, 30, 26], 0.7, 3), ([0, 0, 9, 9], 1, 2)
        )
    ]
    result = average_precisions(found, labeled)
    assert list(result) == [3]
    assert result[3] == pytest.approx([(51 + 50 * 2 / 3) / 101] * 3 + [51 / 101] * 7)


def test_nothing_is_found() -> None:
    assert average_precisions([detections()], [objects(([0, 0, 1, 1], 0))])[0].tolist() == [0.0] * 10
    assert average_precisions([detections(([0, 0, 1, 1], 0.5, 0))], [objects()]) == {}


def random_case(seed: int) -> tuple[list[Detections], list[Objects]]:
    """Return detections near labeled boxes and elsewhere, with equal scores, crowds, and images without objects."""
    rng = np.random.default_rng(seed)
    found, labeled = [], []
    for _ in range(25):
        count = int(rng.integers(0, 9))
        low, size = rng.uniform(0, 80, (count, 2)), rng.uniform(3, 40, (count, 2))
        boxes = np.concatenate([low, low + size], axis=1)
        classes = rng.integers(0, 4, count)
        labeled.append(Objects(boxes, classes, rng.random(count) < 0.15))
        near = np.repeat(boxes, 2, axis=0) + rng.normal(0, 2, (2 * count, 4))
        far = rng.uniform(0, 60, (5, 2))
        proposals = np.concatenate([near, np.concatenate([far, far + rng.uniform(3, 40, (5, 2))], axis=1)])
        proposals[:, 2:] = np.maximum(proposals[:, 2:], proposals[:, :2] + 0.5)
        scores = rng.integers(1, 12, len(proposals)) / 12  # some are equal
        kinds = np.concatenate([np.repeat(classes, 2), rng.integers(0, 4, 5)])
        found.append(Detections(proposals, scores, kinds))
    return found, labeled


def as_rows(boxes: np.ndarray) -> list[list[float]]:
    return [[left, top, right - left, bottom - top] for left, top, right, bottom in boxes.tolist()]


@pytest.mark.parametrize("seed", sampled(range(8), every=4))
def test_equals_pycocotools(seed: int) -> None:
    pytest.importorskip("pycocotools", reason="pycocotools is not installed")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    found, labeled = random_case(seed)
    annotations: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for image, (detected, known) in enumerate(zip(found, labeled, strict=True)):
        for row, kind, crowd in zip(as_rows(known.boxes), known.classes, known.crowd, strict=True):
            annotation = {"id": len(annotations) + 1, "image_id": image, "category_id": int(kind), "bbox": row}
            annotations.append({**annotation, "area": row[2] * row[3], "iscrowd": int(crowd)})
        for row, score, kind in zip(as_rows(detected.boxes), detected.scores, detected.classes, strict=True):
            results.append({"image_id": image, "category_id": int(kind), "bbox": row, "score": float(score)})
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        images = [{"id": image} for image in range(len(found))]
        truth.dataset = {
            "images": images,
            "categories": [{"id": kind} for kind in range(4)],
            "annotations": annotations,
        }
        truth.createIndex()
        coco = COCOeval(truth, truth.loadRes(results), "bbox")
        coco.evaluate()
        coco.accumulate()
    mine = average_precisions(found, labeled)
    precision = coco.eval["precision"][:, :, :, 0, -1].mean(axis=1)  # [IoU limits, classes], all sizes, 100 detections
    assert mine.keys() == set(range(4))
    np.testing.assert_allclose(np.stack(list(mine.values())), precision.T, rtol=0, atol=1e-12)


def test_overlaps_of_boxes_without_area() -> None:
    boxes = np.array([[0.0, 0, 2, 2], [1, 1, 1, 5], [3, 3, 2, 2]])
    assert overlaps(boxes, boxes).tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert overlaps(boxes[:1], np.array([[1.0, 0, 3, 2]]))[0, 0] == pytest.approx(2 / 6)


def test_suppression_is_per_class_and_keeps_the_best() -> None:
    found = suppress(
        detections(
            ([0, 0, 10, 10], 0.5, 1), ([0, 0, 10, 9], 0.9, 1), ([0, 0, 10, 10], 0.4, 2), ([0, 0, 4, 10], 0.3, 1)
        ),
        0.45,
    )
    assert found.scores.tolist() == [0.9, 0.4, 0.3]
    assert found.classes.tolist() == [1, 2, 1]


def test_each_detection_is_the_counterpart_of_one() -> None:
    box, near = [0.0, 0, 10, 10], [0.0, 0, 10, 9.5]
    reference = detections((box, 0.9, 1), (near, 0.8, 1), (box, 0.7, 2))
    assert len(match_detections(reference, detections((box, 0.5, 1)), 0.9)) == 1
    assert len(match_detections(reference, detections((box, 0.5, 1), (near, 0.5, 1)), 0.9)) == 2
    assert len(match_detections(reference, detections((box, 0.5, 2), (box, 0.5, 3)), 0.9)) == 1
    assert len(match_detections(reference, detections(([0, 0, 10, 8], 0.5, 1)), 0.9)) == 0
