"""Choices of a quantization by the scores of tasks: what loses detections or strings is not chosen."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.quantize.onnx_builder import OnnxNet
from tests.support.quantize.task_networks import DETECTORS
from tpuconvert.conversion.options.options import group_options
from tpuconvert.conversion.quantization.coarse_nodes import Attempts, WorstError, choose_coarse_nodes
from tpuconvert.conversion.quantization.decisions import Regions
from tpuconvert.conversion.quantization.gates import gate_algorithms
from tpuconvert.model.accuracy_notes import AccuracyWarning
from tpuconvert.optimizer.quantize.legalize import Legalized
from tpuconvert.optimizer.quantize.search.accuracy_floor import TARGET, Floor, FloorCandidates, raise_to_floor
from tpuconvert.optimizer.quantize.search.balancing import choose_balancing
from tpuconvert.optimizer.quantize.search.coarse_nodes import Coarse
from tpuconvert.optimizer.quantize.search.method_search import is_better
from tpuconvert.optimizer.quantize.search.output_error import Errors, OutputError
from tpuconvert.optimizer.quantize.search.task_metrics.score import TaskScore
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array, Chip

OBJECT = 3.0
"""Value of the pixels with an object."""


def planted(shift: float, error: float = 0.0) -> Graph:
    """Scores just above the threshold of detections where there is an object, with errors.

    The background has a logit of -7, objects of -0.3: a probability of 0.43. Boxes are 8 pixels high and wide.

    Args:
        shift: error of the logits.
        error: error of the boxes, in pixels, where there is no object.
    """
    net = OnnxNet(0)
    x = net.input("x", 1, 1, 16, 16)
    weight = net.constant(np.full((1, 1, 1, 1), 6.7 / OBJECT, np.float32))
    logits = net.add("Conv", x, weight, net.constant(np.float32([-7.0 + shift])))
    scores = net.reshape(net.add("Sigmoid", logits), 1, 1, 256)
    boxes = np.concatenate([np.arange(512).reshape(1, 2, 256) * 20.0, np.full((1, 2, 256), 8.0)], axis=1)
    slope = 1e-3 if error == 0.0 else -error / OBJECT
    weight, bias = np.full((4, 1, 1, 1), slope, np.float32), np.full(4, error, np.float32)
    offsets = net.reshape(net.add("Conv", x, net.constant(weight), net.constant(bias)), 1, 4, 256)
    moved = net.add("Add", offsets, net.constant(boxes.astype(np.float32)))
    return tc.convert(net.model(net.add("Concat", moved, scores, axis=1))).graph


def pictures(count: int, value: float = OBJECT) -> list[dict[str, Array]]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        x = rng.normal(scale=1e-4, size=(1, 1, 256))
        x[0, 0, rng.choice(256, 12, replace=False)] += value
        found.append({"x": x.reshape(1, 1, 16, 16).astype(np.float32)})
    return found


def test_lost_detections_start_the_floor_although_the_error_is_small() -> None:
    graph = planted(0.0)

    def simulate(names: Collection[str]) -> Graph:
        return planted(0.0 if "b" in names else -0.25)

    def isolate(names: Collection[str]) -> Iterable[Graph]:
        return [planted(-0.25 if name == "b" else 0.0) for name in names]

    feeds = pictures(12)
    measured = OutputError(graph, Chip.BM1686, feeds).measure(simulate(()))
    assert measured.branches.mean(axis=1).max() < TARGET  # more than 20 dB
    (score,) = measured.tasks
    assert score.text == "detections above 0.4: 0 of 144 kept, 0 extra"
    candidates = FloorCandidates({"a": 0.02, "b": 0.02, "c": 0.9}, {}, ["a", "b", "c"])
    floor = raise_to_floor(graph, candidates, simulate, isolate, feeds, 0.05)
    assert floor is not None and floor.names == ("b",)
    assert [(before.share, after.share) for before, after in floor.tasks] == [(0.0, 1.0)]
    (note,) = Regions(floor, 0.05).notes()
    assert "detections above 0.4: 0 of 72 kept, 0 extra -> 72 of 72 kept, 0 extra" in note.message


def test_a_task_that_16_bits_do_not_mend_is_a_warning() -> None:
    def simulate(names: Collection[str]) -> Graph:
        return planted(-0.25)

    candidates = FloorCandidates({"a": 0.02}, {}, ["a"])
    floor = raise_to_floor(planted(0.0), candidates, simulate, lambda _: [planted(0.0)], pictures(12), 0.05)
    assert floor is not None and floor.names == ()
    (text,) = accuracy_warnings(floor)
    assert "detections above 0.4: 0 of 72 kept" in text and "95% are the target" in text
    level = floor.levels[0]
    same, other = (replace(level, output=name, after=12.0) for name in (level.output, "other"))
    assert accuracy_warnings(replace(floor, levels=(same,))) == [text]  # one warning for one output
    assert "only 12.0 dB" in accuracy_warnings(replace(floor, levels=(same, other)))[1]


def test_a_larger_region_is_taken_if_other_samples_need_it() -> None:
    """The share of a warning, ``--max-int16-share X meets it``, holds for a conversion with it."""
    shifts = {frozenset("ab"): 0.0, frozenset("b"): -0.25}

    def simulate(names: Collection[str]) -> Graph:
        return planted(shifts.get(frozenset(names), -1.5))

    candidates = FloorCandidates({"a": 0.02, "b": 0.02, "c": 0.9}, {}, ["a", "b", "c"])
    clear, faint = pictures(6, 1.1 * OBJECT), pictures(6)  # the search sees the clear ones
    arguments = (candidates, simulate, lambda names: [planted(-0.25) for _ in names])
    floor = raise_to_floor(planted(0.0), *arguments, [*clear, *clear], 0.05)
    assert floor is not None and floor.names == ("b",)
    floor = raise_to_floor(planted(0.0), *arguments, [*clear, *faint], 0.05)
    assert floor is not None and floor.names == ("a", "b") and not floor.is_missed


def accuracy_warnings(floor: Floor) -> list[str]:
    return [note.message for note in Regions(floor, 0.05).notes() if note.kind == "accuracy"]


def errors(level: float, kept: int, count: int = 8, *, has_target: bool = True) -> Errors:
    """Errors of one branch, and a task with ``kept`` of 10 decisions of each sample."""
    values = level * np.linspace(0.9, 1.1, count)[np.newaxis]
    numerators = np.full(count, float(kept)) + np.arange(count) % 2 * 0.1
    totals = np.full(count, 10.0)
    score = TaskScore(("y",), "detections", "", numerators, totals, 10 * count, has_target=has_target)
    return Errors(values, values, (score,))


@pytest.mark.parametrize("clips", [False, True])
def test_methods_that_lose_detections_are_not_better(clips: bool) -> None:
    current = errors(0.01, 9)
    assert is_better(errors(0.005, 9), current, clips=clips)
    assert not is_better(errors(0.005, 7), current, clips=clips)
    # A slightly smaller error is enough with more detections if nothing is clipped, a larger one is not.
    assert not is_better(errors(0.00999, 9), current, clips=clips)
    assert is_better(errors(0.00999, 10), current, clips=clips) is not clips
    assert not is_better(errors(0.0101, 10), current, clips=clips)


@pytest.mark.parametrize(
    ("after", "names"),
    [(errors(0.005, 9), ("a",)), (errors(0.005, 7), ()), (errors(0.0101, 9), ()), (errors(0.0101, 10), ("a",))],
)
def test_balancing_that_loses_detections_is_not_chosen(after: Errors, names: tuple[str, ...]) -> None:
    graphs = {(): Graph("without", ""), ("a",): Graph("with", "")}

    class Measurement:
        def measure(self, graph: Graph) -> Errors:
            return after if graph.name == "with" else errors(0.01, 9)

    found = choose_balancing(("a",), lambda chosen: Legalized(graphs[tuple(chosen)]), Measurement())
    assert found.names == names


@pytest.mark.parametrize(("whole", "half", "share"), [(9, 9, 1.0), (6, 9, 0.5), (6, 6, 1.0)])
def test_the_share_of_a_correction_that_keeps_more_detections_is_chosen(whole: int, half: int, share: float) -> None:
    """The error is smaller with all of the correction, which is tried first."""

    class Target:
        graph = "unrefined"

    def refine(target: Target, left_out: Collection[str], part: float) -> None:
        target.graph = "whole" if part == 1.0 else "half"

    class Measurement:
        def measure(self, graph: str) -> Errors:
            return {"unrefined": errors(0.1, 6), "whole": errors(0.01, whole), "half": errors(0.02, half)}[graph]

    found = gate_algorithms(Target(), lambda _: Target(), refine, Measurement(), ["bias-correction"])
    assert found.bias_share == share


@pytest.mark.parametrize("has_target", [True, False])
def test_refinements_that_all_lose_detections_are_left_out(has_target: bool) -> None:
    """The error is smaller with any of them. Without a target, scores of small responses only show losses."""

    class Target:
        graph = "unrefined"

    def refine(target: Target, left_out: Collection[str], part: float) -> None:
        names = {"bias-correction", "weight-rounding"}.difference(left_out)
        target.graph = f"{sorted(names)} {part}" if names else "unrefined"

    class Measurement:
        def measure(self, graph: str) -> Errors:
            kept, level = (8, 0.1) if graph == "unrefined" else (2, 0.01)
            return errors(level, kept, has_target=has_target)

    found = gate_algorithms(Target(), lambda _: Target(), refine, Measurement(), ["weight-rounding", "bias-correction"])
    assert found.legalized.graph == "unrefined"


def test_nodes_in_float_that_lose_detections_are_not_chosen() -> None:
    """Floats remove the error of the boxes of the background. They are chosen unless detections are lost with them."""
    graph = planted(0.0)
    node = next(node for node in graph.nodes if node.op.name == "conv")
    coarse = [Coarse(node, 0.5, (node.name,))]
    for lost in (False, True):

        def legalize(floats, _balanced, *, shift: float = -0.25 if lost else 0.0) -> Legalized:
            return Legalized(planted(shift, 0.0) if floats else planted(0.0, 3000.0))

        attempts = Attempts(lambda floats, _balanced, _least: ([] if floats else coarse, ()), legalize)
        error = OutputError(graph, Chip.BM1686, pictures(8))
        found = choose_coarse_nodes(graph, WorstError(graph, Chip.BM1686, error), {}, (), attempts, 1.0)
        assert bool(found.floats) is not lost


@pytest.mark.parametrize("mends", [False, True])
def test_nodes_stay_in_integers_if_refinement_makes_the_outputs_accurate(mends: bool) -> None:
    graph = planted(0.0)
    node = next(node for node in graph.nodes if node.op.name == "conv")
    coarse = [Coarse(node, 0.5, (node.name,))]
    attempts = Attempts(
        lambda floats, _balanced, _least: ([] if floats else coarse, ()),
        lambda floats, _balanced: SimpleNamespace(graph=planted(0.0) if floats else planted(0.0, 3000.0)),
    )

    def refine(target: SimpleNamespace) -> None:
        if mends:
            target.graph = planted(0.0)

    error = OutputError(graph, Chip.BM1686, pictures(8))
    found = choose_coarse_nodes(graph, WorstError(graph, Chip.BM1686, error), {}, (), attempts, 1.0, refine)
    assert bool(found.floats) is not mends


def convert(path: Path | None = None, **options: object) -> tc.Model:
    net, outputs = DETECTORS["yolov8"]()
    options = {"quantize": "int8", "calibration": net.samples(16), **options}
    return tc.convert(net.model(*outputs), **group_options(**options))


def test_the_summary_states_the_detections() -> None:
    model = convert(effort="low", calibration_method="minmax")
    (output,) = model.metadata["accuracy"]["outputs"]
    assert output["task"].startswith("detections above ") and output["task"].endswith("extra")
    assert 0 <= output["task_score"] <= 1
    assert f"task of the outputs: output '{output['name']}': {output['task']}, on " in model.summary()


def test_lost_detections_are_a_warning_that_names_the_output() -> None:
    with pytest.warns(AccuracyWarning, match="detections above"):
        model = convert(effort="low", calibration_method="percentile:97")
    (output,) = model.metadata["accuracy"]["outputs"]
    assert output["task_score"] < 0.95 and not output["is_accurate"]
    (text,) = [note.message for note in model.notes if note.kind == "accuracy"]
    assert f"output '{output['name']}'" in text and output["task"] in text and "95% of the detections" in text


@pytest.mark.slow  # test_order_of_samples.py, test_workers.py
def test_the_order_of_samples_and_the_number_of_workers_do_not_matter(tmp_path: Path) -> None:
    net, _ = DETECTORS["yolov8"]()
    samples = net.samples(16)
    for name, feeds, workers in (("a", samples, 1), ("b", samples[::-1], 2)):
        convert(calibration=feeds, workers=workers).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_small_responses_only_show_losses() -> None:
    first, second = (errors(0.01, kept, has_target=False) for kept in (9, 7))
    assert second.loses(first) and not first.gains(second)


def test_tasks_of_other_graphs_are_compared_one_by_one() -> None:
    first, second = errors(0.01, 9), errors(0.01, 7)
    assert first.gains(second) and second.loses(first) and not first.loses(second)
    mixed = replace(first, tasks=(*first.tasks, *second.tasks))
    other = replace(first, tasks=(*second.tasks, *first.tasks))
    assert not mixed.gains(other) and mixed.loses(other)
    assert mixed.is_preferred_to(other) is other.is_preferred_to(mixed) is False


def test_small_responses_do_not_reject_a_region() -> None:
    """Their score has no target: the mean error of later layers shifts them, and the refinement corrects it."""
    before, after = errors(0.1, 9, has_target=False), errors(0.001, 2, has_target=False)
    assert after.harms(before) and not after.harms(before, targets_only=True)
    before, after = errors(0.1, 9), errors(0.001, 2)
    assert after.harms(before, targets_only=True)
