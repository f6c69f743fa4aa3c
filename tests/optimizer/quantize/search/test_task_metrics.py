"""Recognition of the tasks of outputs, and their scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx.parser
import pytest

import tpuconvert as tc
from tests.support.quantize import task_networks
from tests.support.quantize.onnx_builder import OnnxNet
from tests.support.quantize.task_networks import CLASSES, DETECTORS, Built, Head
from tpuconvert.optimizer.quantize.search.output_branches import OutputBranches
from tpuconvert.optimizer.quantize.search.task_metrics.decisions import Classes, Mask, Text
from tpuconvert.optimizer.quantize.search.task_metrics.detections import KEPT, BoxKind, Detections, ScoreKind
from tpuconvert.optimizer.quantize.search.task_metrics.recognition import describe_silent_outputs, find_tasks
from tpuconvert.optimizer.quantize.search.task_metrics.rows import Columns
from tpuconvert.optimizer.quantize.search.task_metrics.score import Task, TaskScore
from tpuconvert.schema.arithmetic.boxes import NMS_IOU, match_detections, suppress
from tpuconvert.schema.arithmetic.boxes import Detections as Found
from tpuconvert.schema.arithmetic.text_decoding import collapse
from tpuconvert.schema.types import Array

Runs = list[dict[str, Array]]


def tasks_of(built: Built, samples: int = 6, factor: float = 1.0) -> tuple[list[Task], Runs]:
    """Tasks of a network, and its outputs on samples, multiplied by a factor."""
    net, outputs = built
    graph = tc.convert(net.model(*outputs)).graph
    feeds = net.samples(samples)
    with tc.Session(tc.convert(net.model(*outputs)), threads=1) as session:
        runs = [{name: factor * array for name, array in session.run(feed).items()} for feed in feeds]
    return find_tasks(graph, OutputBranches(graph), runs, feeds[0], for_choice=True), runs


KINDS = {
    "yolov8": (ScoreKind.PROBABILITIES, BoxKind.CENTERS, None),
    "yolov5": (ScoreKind.PROBABILITIES, BoxKind.CENTERS, True),
    "yolox": (ScoreKind.PROBABILITIES, BoxKind.CELL, True),
    "nanodet": (ScoreKind.PROBABILITIES, BoxKind.DISTANCES, None),
    "picodet": (ScoreKind.PROBABILITIES, BoxKind.DISTANCES, None),
    "ssd": (ScoreKind.BACKGROUND_FIRST, BoxKind.CORNERS, None),
    "anchors": (ScoreKind.LOGITS, BoxKind.PIXELS, None),
    "yunet": (ScoreKind.PROBABILITIES, BoxKind.CELL, False),
    "fastestdet": (ScoreKind.PROBABILITIES, BoxKind.AROUND, False),
    "centernet": (ScoreKind.PROBABILITIES, BoxKind.AROUND, None),
    "detr": (ScoreKind.LOGITS_BACKGROUND_LAST, BoxKind.CENTERS, None),
}


@pytest.mark.parametrize("name", DETECTORS)
def test_detectors_are_recognized(name: str) -> None:
    built = DETECTORS[name]()
    (*_, task), runs = tasks_of(built)
    assert isinstance(task, Detections)
    scores, boxes, is_product = KINDS[name]
    for level in task.levels:
        assert (level.score_kind, level.box_kind) == (scores, boxes)
        assert (None if level.objectness is None else level.is_product) is is_product
    assert len(task.levels) == (2 if name in ("picodet", "yunet") else 1)
    assert set(task.outputs) <= set(built[1])
    score = task.compare(runs)
    assert score.share == 1.0 and score.decisions > 0
    # Without any response nothing is kept.
    silent = [{key: np.full_like(array, -20.0) for key, array in run.items()} for run in runs]
    assert task.compare(silent).share == 0.0


def test_positions_of_two_levels_and_anchors_are_those_of_the_image() -> None:
    (*_, task), _ = tasks_of(DETECTORS["ssd"]())
    assert isinstance(task, Detections)
    positions = task.levels[0].positions
    assert positions.anchors == 2
    np.testing.assert_allclose(positions.centers * task_networks.SIZE, Head().grid(2))
    assert set(positions.cells[:, 0]) == {4 / 64, 8 / 64}


def test_scores_are_those_of_the_columns() -> None:
    (task,), (run, *_) = tasks_of(DETECTORS["yolox"]())
    assert isinstance(task, Detections)
    (output,) = run.values()
    scores, classes = task.levels[0].read_scores(run)
    np.testing.assert_allclose(scores[0], (output[0, :, 4:5] * output[0, :, 5:]).max(axis=1), rtol=1e-6)
    assert classes[0].tolist() == output[0, :, 5 : 5 + CLASSES].argmax(axis=1).tolist()


@pytest.mark.parametrize(
    ("built", "kind"),
    [
        (lambda: task_networks.text(), Text),
        (lambda: task_networks.text(softmax=False), Text),
        (lambda: task_networks.text(steps_first=True, blank=39), Text),
        (lambda: task_networks.mask(), Mask),
        (lambda: task_networks.mask(last=True), Mask),
        (lambda: task_networks.mask(2, softmax=True), Mask),
        (lambda: task_networks.mask(5, softmax=True), Classes),
        (lambda: task_networks.segmentation(), Classes),
        (lambda: task_networks.classifier(), Classes),
    ],
)
def test_other_tasks_are_recognized(built, kind: type) -> None:
    (task,), runs = tasks_of(built())
    assert type(task) is kind
    score = task.compare(runs)
    assert score.share == 1.0 and score.decisions > 0


def dense_scores() -> Built:
    """Probabilities that are large at most positions, beside four values."""
    head = Head()
    return head.net, [
        head.list_of(head.net.add("Sigmoid", head.scores(0, bias=2.0)), CLASSES),
        head.list_of(head.conv(0, 4), 4),
    ]


def scores_alone() -> Built:
    head = Head()
    return head.net, [head.list_of(head.net.add("Sigmoid", head.scores(0)), CLASSES)]


def two_lists_of_values() -> Built:
    head = Head()
    return head.net, [head.list_of(head.conv(0, 8), 8), head.list_of(head.conv(0, 6), 6)]


def heatmaps() -> Built:
    head = Head()
    return head.net, [head.conv(0, 17)]


def depth() -> Built:
    net, (logits,) = task_networks.segmentation(1)
    return net, [net.add("Relu", logits)]


def scores_of_tokens() -> Built:
    """As of a language model: the first and the last token are as rare as others."""
    return task_networks.text(softmax=False, blank=7)


@pytest.mark.parametrize(
    "built",
    [
        dense_scores, scores_alone, two_lists_of_values, heatmaps, depth, scores_of_tokens,
        lambda: task_networks.segmentation(3), lambda: task_networks.classifier(softmax=False),
    ],
)  # fmt: skip
def test_look_alikes_have_no_task(built) -> None:
    tasks, _ = tasks_of(built())
    assert tasks == []


def boxes(*rows: Sequence[float], classes: Sequence[int] = ()) -> Found:
    scores = np.linspace(0.9, 0.5, len(rows))
    return Found(np.array(rows, np.float64).reshape(-1, 4), scores, np.array(classes or [0] * len(rows)))


def matches(reference: Found, found: Found) -> list[tuple[int, int]]:
    return match_detections(reference, found, KEPT)


def test_suppression_and_matching_by_hand() -> None:
    # The second box overlaps the first one by 8 / 12, the third by 5 / 15, the fourth is of another class.
    found = boxes((0, 0, 10, 1), (2, 0, 12, 1), (5, 0, 15, 1), (0, 0, 10, 1), classes=(0, 0, 0, 1))
    kept = suppress(found, NMS_IOU)
    assert kept.boxes[:, 0].tolist() == [0, 5, 0] and kept.classes.tolist() == [0, 0, 1]
    assert matches(boxes((0, 0, 10, 1)), boxes((2, 0, 12, 1))) == [(0, 0)]
    assert matches(boxes((0, 0, 10, 1)), boxes((5, 0, 15, 1))) == []
    assert matches(boxes((0, 0, 10, 1)), boxes((0, 0, 10, 1), classes=(1,))) == []
    # One detection does not keep two.
    assert matches(boxes((0, 0, 10, 1), (1, 0, 11, 1)), boxes((0, 0, 10, 1))) == [(0, 0)]
    assert matches(boxes((0, 0, 10, 1)), boxes()) == matches(boxes(), boxes((0, 0, 10, 1))) == []


def test_lost_and_new_detections_are_counted() -> None:
    (*_, task), runs = tasks_of(DETECTORS["yolov8"]())
    assert isinstance(task, Detections)
    task_runs = [{name: array.copy() for name, array in run.items()} for run in runs]
    (name,) = runs[0]
    rng = np.random.default_rng(0)
    lost = 0
    for run in task_runs:
        array = run[name]
        before = sum(len(found.classes) for found in task.read(run))
        array[0, 4:] = 0.0
        lost += before
        place = int(rng.integers(array.shape[2]))
        array[0, :, place] = [500.0, 500.0, 10.0, 10.0, 0.9, 0.0, 0.0]  # where there is nothing
    score = task.compare(task_runs)
    assert score.text == f"detections above {task.threshold:g}: 0 of {lost} kept, {len(runs)} extra"
    assert score.share == 0.0 and score.decisions == lost + len(runs)


def test_many_new_detections_miss_the_target_although_the_float_network_has_few() -> None:
    """Programs draw them: they are decisions of the quantized network."""
    tasks, runs = tasks_of(DETECTORS["yolov8"](), 4, 0.2)
    usual, low = tasks
    assert isinstance(usual, Detections) and isinstance(low, Detections)
    assert (usual.threshold, low.threshold) == (0.25, 0.05) and usual.count < 20
    assert not usual.compare(runs).is_missed
    (name,) = runs[0]
    noisy = [{name: run[name].copy()} for run in runs]
    for run in noisy:  # 12 boxes apart from each other
        run[name][0, :, :12] = np.array([[1e3 * k, 1e3 * k, 10.0, 10.0, 0.9, 0.0, 0.0] for k in range(1, 13)]).T
    found = usual.compare(noisy)
    assert found.decisions >= 20 and found.is_missed
    assert usual.compare(runs).exceeds(found) and not found.exceeds(usual.compare(runs))


def test_strings_merge_repeats_and_leave_blanks_out() -> None:
    labels = np.array([0, 5, 5, 0, 5, 3, 3, 0, 0])
    assert labels[collapse(labels, 0)].tolist() == [5, 5, 3]
    assert collapse(np.array([0, 0]), 0).tolist() == []
    columns = Columns("y", 2, 0, 3)

    def run(*labels: int) -> dict[str, Array]:
        return {"y": np.eye(3, dtype=np.float32)[list(labels)][np.newaxis]}

    task = Text(columns, 0, [run(0, 1, 1, 2), run(1, 0, 1, 0)])
    score = task.compare([run(1, 1, 2, 2), run(1, 1, 0, 0)])  # "12" is equal, "11" became "1"
    assert (score.share, score.decisions, score.text) == (0.5, 4, "strings: 1 of 2 equal")


def test_masks_by_intersection_over_union() -> None:
    columns = Columns("y", 1, 0, 1)
    first = {"y": np.array([[[0.9, 0.6, 0.4, 0.1]]])}
    second = {"y": np.array([[[0.9, 0.4, 0.6, 0.6]]])}
    score = Mask(columns, [first], 0.5).compare([second])
    assert (score.share, score.decisions) == (1 / 4, 2)


def test_classes_without_a_clear_margin_do_not_count() -> None:
    columns = Columns("y", 2, 0, 3)
    scores = np.array([[[0.5, 0.45, 0.05], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]])
    other = np.array([[[0.45, 0.5, 0.05], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]]])
    score = Classes(columns, [{"y": scores}], is_probability=True).compare([{"y": other}])
    assert (score.text, score.share, score.decisions) == ("classes: 1 of 2 equal", 0.5, 2)


def kept(*counts: int, of: int = 10, decisions: int | None = None, has_target: bool = True) -> TaskScore:
    total = np.full(len(counts), float(of))
    number = len(counts) * of if decisions is None else decisions
    return TaskScore(("y",), "strings", "", np.array(counts, np.float64), total, number, has_target)


def test_a_score_exceeds_another_one_beyond_the_standard_error_and_one_decision() -> None:
    # Differences 1, 1, 0, 2 of 10: mean 0.1, standard error 0.0816 / 2.
    assert kept(9, 9, 9, 10).exceeds(kept(8, 8, 9, 8))
    # Without target two standard errors of 0.0408 are needed, or a larger difference.
    assert kept(9, 9, 9, 10, has_target=False).exceeds(kept(8, 8, 9, 8, has_target=False))
    assert not kept(9, 9, 9, 9, has_target=False).exceeds(kept(8, 8, 9, 9, has_target=False))
    # Differences 3, -2, 0, 0 of 10: mean 0.025, standard error 0.1.
    assert not kept(9, 7, 9, 10).exceeds(kept(6, 9, 9, 10))
    assert not kept(9, 9, 9, 9).exceeds(kept(9, 9, 9, 8))  # one decision of 40
    assert not kept(9, 9, decisions=19).exceeds(kept(1, 1, decisions=19))
    assert not kept(9).exceeds(kept(1))  # one sample has no standard error


@pytest.mark.parametrize(
    ("score", "is_missed"),
    [
        (kept(9, 9), True), (kept(10, 9), False), (kept(9, 9, decisions=19), False),
        (kept(9, 9, has_target=False), False),
    ],
)  # fmt: skip
def test_the_target_needs_enough_decisions(score: TaskScore, is_missed: bool) -> None:
    assert score.is_missed is is_missed


def test_a_batch_has_the_samples_of_its_rows() -> None:
    """The same network with two samples per run gives the counts of both."""
    net = OnnxNet(5)
    x = net.add("Relu", net.conv(net.input("x", 2, 3, 32, 32), 8))
    output = net.add("Sigmoid", net.conv(x, 1))
    (task,), runs = tasks_of((net, [output]), 3)
    assert isinstance(task, Mask)
    assert len(task.compare(runs).numerators) == 6


def silent(built: Built, factor: float = 1.0) -> list[str]:
    net, outputs = built
    graph = tc.convert(net.model(*outputs)).graph
    feeds = [{name: factor * array for name, array in feed.items()} for feed in net.samples(6)]
    with tc.Session(tc.convert(net.model(*outputs)), threads=1) as session:
        runs = [session.run(feed) for feed in feeds]
    return describe_silent_outputs(graph, OutputBranches(graph), runs, feeds[0])


def test_outputs_that_decide_nothing_are_named() -> None:
    assert silent(task_networks.text()) == []
    (text,) = silent(task_networks.text(bias=30.0))
    assert "has no character for 6 samples" in text
    assert silent(task_networks.classifier()) == []
    (text,) = silent(task_networks.classifier(), factor=0.0)
    assert "is the same for 6 samples" in text


SELECTED = """
<ir_version: 8, opset_import: ["" : 17]>
selected (float[1, 64, 16, 40] x) => (float[n, 1, 16, 40] maps)
<float limit = {1.0}, int64[1] first = {0}, int64[4] places = {64, 1, 16, 40}>
{
  parts = Reshape(x, places)
  largest = ReduceMax <axes = [1, 2, 3], keepdims = 0> (parts)
  is_selected = Greater(largest, limit)
  numbers = NonZero(is_selected)
  rows = Squeeze(numbers, first)
  chosen = Gather <axis = 0> (parts, rows)
  maps = Add(chosen, limit)
}
"""


def test_selected_positions_serve_no_task() -> None:
    model = onnx.parser.parse_model(SELECTED)
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.normal(0, 0.3, (1, 64, 16, 40)).astype(np.float32)} for _ in range(6)]
    with tc.Session(tc.convert(model), threads=1) as session:
        runs = [session.run(feed) for feed in feeds]
    assert len({run["maps"].shape for run in runs}) > 1
    graph = tc.convert(model).graph
    branches = OutputBranches(graph)
    assert find_tasks(graph, branches, runs, feeds[0]) == []
    assert describe_silent_outputs(graph, branches, runs, feeds[0]) == []
