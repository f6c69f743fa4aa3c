"""Task notes of a conversion and of ``verify``: detections of heads, and warnings below the limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.planted_images import planted
from tests.support.quantize import task_networks
from tests.support.quantize.task_networks import Built
from tpuconvert.__main__ import main
from tpuconvert.optimizer.quantize.search.output_branches import OutputBranches
from tpuconvert.optimizer.quantize.search.task_metrics.detections import Detections
from tpuconvert.outputs.tasks import HeadDetections, find_output_tasks
from tpuconvert.schema.types import Array
from tpuconvert.verify.output_tasks import OutputRuns

Runs = list[dict[str, Array]]


def run(built: Built, samples: int = 6) -> tuple[tc.Model, Runs, Runs]:
    """The float model, its feeds and its outputs."""
    net, outputs = built
    model = tc.convert(net.model(*outputs))
    feeds = net.samples(samples)
    with tc.Session(model, threads=1) as session:
        return model, feeds, [session.run(feed) for feed in feeds]


@pytest.mark.parametrize("network", ["yolov6", "selected"])
def test_detections_of_a_head_are_counted(network: str) -> None:
    model, feeds, runs = run(getattr(task_networks, network)())
    (task,) = find_output_tasks(model.graph, OutputBranches(model.graph), runs, feeds[0])
    assert isinstance(task, HeadDetections)
    score = task.compare(runs)
    assert (score.share, score.unit) == (1.0, "detections") and task.count >= 20
    other = [{name: array.copy() for name, array in item.items()} for item in runs]
    for item in other:
        for array in item.values():
            array[..., :4] += 1000  # every box is elsewhere
    moved = task.compare(other)
    assert moved.share == 0.0 and moved.is_missed
    assert moved.text.startswith(f"detections above {task.threshold:g}: 0 of {task.count} kept, ")


def test_operators_before_the_outputs_precede_heads() -> None:
    model, feeds, runs = run(task_networks.yolov8())
    (task,) = find_output_tasks(model.graph, OutputBranches(model.graph), runs, feeds[0])
    assert isinstance(task, Detections)


def test_outputs_of_no_detector_have_no_detections() -> None:
    model, feeds, runs = run(task_networks.classifier(softmax=False))
    assert find_output_tasks(model.graph, OutputBranches(model.graph), runs, feeds[0]) == []


def test_logits_with_the_shapes_of_a_detector_have_no_detections() -> None:
    shapes = {"boxes": (1, 30, 4), "logits": (1, 30, 3)}
    floats = [{name: np.full(shape, 2.0, np.float32) for name, shape in shapes.items()}]
    model = planted(floats[0])
    feed = {"x": np.zeros((1, 3, 40, 80), np.float32)}
    assert find_output_tasks(model.graph, OutputBranches(model.graph), floats, feed) == []
    floats[0]["logits"] *= 0.3
    (task,) = find_output_tasks(model.graph, OutputBranches(model.graph), floats, feed)
    assert isinstance(task, HeadDetections)


def test_every_sample_of_a_batch_is_decoded() -> None:
    rows = np.zeros((2, 20, 6), np.float32)
    rows[:, 0] = 4, 4, 20, 30, 0.9, 1
    rows[1, 1] = 40, 4, 60, 30, 0.8, 0
    model = planted({"y": rows}, batch=2)
    feed = {"x": np.zeros((2, 3, 40, 80), np.float32)}
    (task,) = find_output_tasks(model.graph, OutputBranches(model.graph), [{"y": rows}], feed)
    assert isinstance(task, HeadDetections)
    assert [len(found.scores) for found in task.read({"y": rows})] == [1, 2]


def test_conversion_and_verification_state_the_detections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    net, outputs = task_networks.yolov6()
    Path("net.onnx").write_bytes(net.model(*outputs).SerializeToString())
    np.savez("samples.npz", x=np.concatenate([feed["x"] for feed in net.samples(12)]))
    options = ("--quantize", "int8", "--calibration", "samples.npz")
    assert main(["convert", "net.onnx", "-o", "net.tpum", *options]) == 0
    assert "task of the outputs" in capsys.readouterr().out
    (note,) = [note.message for note in tc.load("net.tpum").notes if note.kind == "task"]
    assert f"output '{outputs[0]}': detections above" in note
    arguments = ["verify", "net.onnx", "net.tpum", "--oracle", "none"]
    main([*arguments, "--data", "samples.npz", "--samples", "12"])
    shown = capsys.readouterr().out
    assert f"output '{outputs[0]}': detections above" in shown and "kept" in shown
    main(arguments)
    assert "detections above" not in capsys.readouterr().out  # random numbers have no objects


def test_summary_counts_the_detections_that_the_network_selects() -> None:
    net, outputs = task_networks.selected()
    model = tc.convert(net.model(*outputs), quantize="int8", calibration=net.samples(12))
    (note,) = [note.message for note in model.notes if note.kind == "task"]
    assert note.startswith(f"output '{outputs[0]}': detections above 0.4: ")


def test_verification_has_the_counts() -> None:
    net, outputs = task_networks.yolov8()
    source, samples = net.model(*outputs), net.samples(12)
    model = tc.convert(source, quantize="int8", calibration=samples)
    verification = tc.verify(model, source, data=samples, samples=12, oracle="none")
    (task,) = verification.tasks
    assert task.outputs == tuple(outputs) and task.counts.startswith("detections above") and 0.5 < task.share <= 1.0
    assert verification.to_dict()["tasks"][0]["share"] == task.share
    assert tc.verify(tc.convert(source), source, data=samples, oracle="none").tasks == ()


def test_a_lost_task_is_a_warning_that_names_the_output() -> None:
    model, feeds, runs = run(task_networks.yolov8(), 12)
    collected = OutputRuns(model.graph, model.graph)
    for feed, expected in zip(feeds, runs, strict=True):
        collected.add(feed, expected, {name: np.zeros_like(array) for name, array in expected.items()})
    (task,) = collected.compare()
    assert task.share == 0.0
    assert task.warning.startswith(f"output '{task.outputs[0]}': detections above")
    assert task.warning.endswith("expected at least 95% of the detections")


def test_outputs_of_other_shapes_have_no_tasks() -> None:
    model, feeds, runs = run(task_networks.yolov8())
    collected = OutputRuns(model.graph, model.graph)
    assert collected.compare() == ()
    collected.add(feeds[0], runs[0], {name: array[:, :, :9] for name, array in runs[0].items()})
    assert collected.compare() == ()
