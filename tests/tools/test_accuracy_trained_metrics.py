"""Decoders and metrics of the trained models, against small cases computed by hand."""

import numpy as np
import pytest

from tools.accuracy.trained.decoders import anchors, centers, picodet, yolov8, yolox
from tools.accuracy.trained.metrics import (
    CellMetric,
    ClassMetric,
    DecisionMetric,
    DetectorMetric,
    DownstreamMetric,
    LandmarkMetric,
    MaskMetric,
    Metric,
    PitchMetric,
    TextMetric,
    ValueMetric,
    no_helper,
)


def f32(*values: object) -> np.ndarray:
    return np.array(values, np.float32)


def score(metric: Metric, *pairs: tuple[dict, dict], run=no_helper) -> float:
    return metric.score(metric.contributions(pairs, run).sum(axis=0))


def boxes_of(rows: list[list[float]]) -> dict:
    """Outputs of a YOLOv8 with two classes, one row per box: center x, center y, width, height, scores."""
    return {"y": f32(np.array(rows).T)}


# ---------------------------------------------------------------- decoders


def test_yolov8_boxes_have_their_best_class() -> None:
    found = yolov8(boxes_of([[10, 20, 4, 6, 0.2, 0.7], [10, 20, 4, 6, 0.3, 0.1]]), 0.4, "y")
    assert found.boxes.tolist() == [[8, 17, 12, 23]]
    assert found.classes.tolist() == [1] and found.scores == pytest.approx([0.7])


def test_yolox_boxes_are_relative_to_cells() -> None:
    """An input of 32 x 32 has 16 cells of 8, 4 of 16 and 1 of 32 pixels. Cell 5 is in row 1, column 1."""
    rows = np.zeros((1, 21, 6), np.float32)
    rows[0, 5] = [0.5, 0.25, np.log(2), 0, 0.8, 0.75]
    rows[0, 20] = [0.5, 0.5, 0, 0, 1, 0.5]
    found = yolox({"y": rows}, 0.4, "y", [32, 32])
    assert found.boxes == pytest.approx(np.array([[4, 6, 20, 14], [0, 0, 32, 32]]))
    assert found.scores == pytest.approx([0.6, 0.5])


def test_picodet_distances_are_means_of_distributions() -> None:
    """An input of 8 x 8 has one cell of each stride; the mean of 0, 1, 2 with equal weights is 1."""
    names = [f"s{stride}" for stride in (8, 16, 32, 64)], [f"b{stride}" for stride in (8, 16, 32, 64)]
    outputs = {name: np.full((1, 1, 2), 0.1, np.float32) for name in names[0]}
    outputs |= {name: np.zeros((1, 1, 12), np.float32) for name in names[1]}
    outputs["s16"][0, 0, 1] = 0.9
    outputs["b16"][0, 0, :3] = [-100, -100, 0]  # the left side is 2 cells away
    found = picodet(outputs, 0.4, *names, [8, 8])
    assert found.boxes == pytest.approx(np.array([[8 - 32, 8 - 16, 8 + 16, 8 + 16]]))
    assert found.classes.tolist() == [1]


def test_center_boxes_have_exponential_extents() -> None:
    heat = np.zeros((1, 1, 4, 4), np.float32)
    heat[0, 0, 1, 2] = 0.9
    sizes = np.full((1, 2, 4, 4), np.log(2), np.float32)
    offsets = np.full((1, 2, 4, 4), 0.25, np.float32)
    sizes[0, 1] = 0
    found = centers({"h": heat, "s": sizes, "o": offsets}, 0.4, "h", "s", "o", 4)
    # center x (2 + 0.25 + 0.5) * 4 = 11, y 7; height 8, width 4
    assert found.boxes == pytest.approx(np.array([[9, 3, 13, 11]]))


def test_anchor_boxes_and_points_are_relative_to_cell_centers() -> None:
    """An input of 16 x 16 has 4 cells of 8 with two anchors each, and 1 cell of 16."""
    rows, logits = np.zeros((1, 9, 6), np.float32), np.full((1, 9, 1), -5, np.float32)
    rows[0, 7], logits[0, 7] = [1, 2, 4, 6, -1, 3], 2
    found = anchors({"b": rows, "s": logits}, 0.5, "b", "s", [16, 16], [[8, 2], [16, 1]])
    assert found.boxes == pytest.approx(np.array([[11, 11, 15, 17]]))  # center (12 + 1, 12 + 2)
    assert found.points is not None and found.points.tolist() == [[[11, 15]]]
    assert found.scores == pytest.approx([1 / (1 + np.exp(-2))])


# ---------------------------------------------------------------- metrics


def test_f1_counts_kept_and_extra_detections() -> None:
    metric = DetectorMetric({"name": "yolov8", "output": "y"}, 0.4)
    before = boxes_of([[10, 10, 8, 8, 0.9, 0], [50, 50, 8, 8, 0, 0.8]])
    after = boxes_of([[10, 11, 8, 8, 0.9, 0], [50, 50, 8, 8, 0.8, 0], [90, 90, 8, 8, 0, 0.8]])
    # The first box overlaps by 56 / 72, the second one has a different class, the third one is new.
    assert metric.contributions([(before, after)]).tolist() == [[1, 2, 2]]
    assert score(metric, (before, after)) == pytest.approx(100 * 2 * 1 / (2 + 3))
    assert score(metric, (before, before)) == 100


def test_two_overlapping_detections_of_a_class_are_one() -> None:
    metric = DetectorMetric({"name": "yolov8", "output": "y"}, 0.4)
    both = boxes_of([[10, 10, 8, 8, 0.9, 0], [10, 11, 8, 8, 0.8, 0]])
    assert metric.contributions([(both, both)]).tolist() == [[1, 0, 1]]


def test_masks_below_the_smallest_do_not_count() -> None:
    metric = MaskMetric("m", 0.5, smallest=2)
    large = {"m": f32(1, 1, 0, 0)}, {"m": f32(0, 1, 1, 0)}
    small = {"m": f32(1, 0, 0, 0)}, {"m": f32(0, 0, 0, 0)}
    assert score(metric, large, small) == pytest.approx(100 / 3)


def test_strings_are_collapsed() -> None:
    def text(*classes: int) -> dict:
        return {"t": np.eye(4, dtype=np.float32)[list(classes)][np.newaxis]}

    metric = TextMetric("t")
    assert metric.string(text(0, 1, 1, 0, 1, 3, 3)) == (1, 1, 3)
    pairs = [(text(1, 0, 2), text(1, 1, 2)), (text(1, 2), text(1, 0)), (text(0, 0), text(0, 0))]
    assert metric.contributions(pairs).tolist() == [[1, 1], [0, 1], [0, 0]]
    assert score(metric, *pairs) == 50


def test_best_classes_are_compared() -> None:
    pairs = [({"c": f32(0.1, 0.9)}, {"c": f32(0.4, 0.6)}), ({"c": f32(0.4, 0.6)}, {"c": f32(0.6, 0.4)})]
    assert score(ClassMetric("c"), *pairs) == 50


def test_decisions_are_compared() -> None:
    pairs = [({"d": f32(0.4, 0.9)}, {"d": f32(0.45, 0.8)}), ({"d": f32(0.4, 0.9)}, {"d": f32(0.6, 0.9)})]
    assert score(DecisionMetric("d", 0.5), *pairs) == 50


def test_values_differ_relative_to_their_span() -> None:
    pairs = [({"v": f32(1, 5)}, {"v": f32(1.5, 4.5)}), ({"v": f32(2, 2)}, {"v": f32(2, 3)})]
    assert score(ValueMetric("v", 4), *pairs) == pytest.approx(100 * 0.5 / 4)


def test_features_are_judged_by_the_next_model() -> None:
    """The next model returns the mean of two features of two numbers."""

    def run(name: str, x: np.ndarray) -> dict:
        assert name == "next" and x.shape == (1, 2, 2)
        return {"p": x.mean(keepdims=True)}

    pairs = [({"f": f32(a, a)}, {"f": f32(b, b)}) for a, b in [(0, 0.1), (0.9, 0.5), (1, 1), (1, 0), (5, 5)]]
    metric = DownstreamMetric("f", "next", 2, 0.4)
    # Means of the groups: 0.45 and 0.3, 1 and 0.5; the fifth feature has no partner.
    assert metric.contributions(pairs, run).tolist() == [[0, 1], [1, 1]]


def test_landmarks_are_distances_in_the_plane() -> None:
    metric = LandmarkMetric({"p": 3}, 200, "g", 0.5)
    near = {"p": f32(0, 0, 9, 10, 10, 9), "g": f32(0.9)}, {"p": f32(3, 4, 0, 10, 10, 0), "g": f32(0.9)}
    absent = {"p": f32(0, 0, 0, 0, 0, 0), "g": f32(0.4)}, {"p": f32(9, 9, 9, 9, 9, 9), "g": f32(0.9)}
    assert score(metric, near, absent) == pytest.approx(100 * 2.5 / 200)


def test_cells_are_the_mean_over_outputs() -> None:
    metric = CellMetric({"a": 0.5, "b": 0.5})
    pair = {"a": f32(1, 1, 0), "b": f32(1, 0, 0)}, {"a": f32(1, 0, 0), "b": f32(1, 0, 0)}
    assert score(metric, pair) == pytest.approx(75)
    assert score(metric, pair, pair) == pytest.approx(75)


def test_pitches_are_equal_within_cents() -> None:
    metric = PitchMetric("f", "c", 0.5, 50)
    before = {"f": f32(100, 100, 100, 100), "c": f32(1, 1, 1, 0)}
    after = {"f": f32(102, 104, 100, 300), "c": f32(1, 1, 0, 0)}  # 34 cents, 68 cents, unvoiced, unvoiced in both
    assert metric.contributions([(before, after)]).tolist() == [[1, 3]]


def test_standard_error_is_the_binomial_one_of_shares() -> None:
    """Half of 100 samples: sqrt(0.5 * 0.5 / 100) = 5 %. A bootstrap of 1000 has a relative error of about 2 %."""
    contributions = np.array([[index % 2, 1] for index in range(100)], np.float64)
    assert TextMetric("t").standard_error(contributions) == pytest.approx(5, rel=0.08)
    assert TextMetric("t").standard_error(np.ones((10, 2))) == 0
