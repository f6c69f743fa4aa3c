"""INT8 models with an inaccurate output: the warning in every form, the strict option, and the samples that it uses."""

import json
import re
import shlex
import warnings

import numpy as np
import onnx
import pytest

import tpuconvert as tc
from tests.support.quantize.onnx_builder import OnnxNet
from tests.support.quantize.task_networks import DETECTORS
from tests.support.sampled import sampled
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import group_options
from tpuconvert.conversion.quantization import decisions, int16_nodes, quantization
from tpuconvert.conversion.quantization.accuracy_check import ModelAccuracy
from tpuconvert.conversion.quantization.sample_split import split_feeds
from tpuconvert.model.accuracy_notes import AccuracyWarning, worst_messages
from tpuconvert.model.description import describe_graph
from tpuconvert.optimizer.quantize.search import accuracy_floor
from tpuconvert.optimizer.quantize.search.output_accuracy import OutputAccuracy
from tpuconvert.optimizer.quantize.search.output_error import count_held_out
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.schema.errors import ThresholdError, UsageError
from tpuconvert.schema.file.file_model import Note
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Chip

CHIPS = ("bm1684", "bm1686")
WITHOUT = {"without": ["coarse-nodes", "int16-nodes"]}
"""The sine stays in 8 bits."""

WARNING = r"(?m)^warning: output '(.+?)': .*; next: (tpuconvert .*)$"


def network(folder, *, is_accurate=False, batch=1, samples=32):
    """A network with an accurate output ``good``, and ``wild``, which is a sine of large numbers unless accurate."""
    net = OnnxNet(0)
    x = net.input("x", batch, 8)
    hidden = net.dense(x, 8)
    wild = net.add("Sin", hidden if is_accurate else net.add("Mul", hidden, net.constant(np.float32(60))))
    good = net.dense(net.add("Relu", hidden), 4)
    proto = net.model(good, wild)
    for index, name in enumerate(("good", "wild")):
        proto.graph.node.append(onnx.helper.make_node("Identity", [proto.graph.output[index].name], [name]))
        proto.graph.output[index].name = name
    feeds = net.samples(samples)
    path, data = folder / "net.onnx", folder / "samples.npz"
    path.write_bytes(proto.SerializeToString())
    np.savez(data, x=np.concatenate([feed["x"] for feed in feeds]))
    return path, data


def cli(*arguments):
    return main([str(argument) for argument in arguments])


def convert(path, data, *options, command="convert", chip="bm1686"):
    mode = ["--quantize", "int8"] if command == "convert" else []
    out = path.parent / "net.tpum"
    options = (*options, "--without", "coarse-nodes", "--without", "int16-nodes")
    return cli(command, path, "-o", out, "--chip", chip, *mode, "--calibration", data, *options)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("command", sampled(["convert", "quantize"], every=2))
def test_a_line_names_the_output_and_a_command_that_runs(chip, command, tmp_path, capsys):
    path, data = network(tmp_path)
    assert convert(path, data, command=command, chip=chip) == 0
    text = capsys.readouterr().out
    assert [name for name, _ in re.findall(WARNING, text)] == ["wild"]
    (next_step,) = {remedy for _, remedy in re.findall(WARNING, text)}
    assert f"next: {next_step}\n" in text
    assert re.search(r"^    good: cosine 0\.99\d+, SQNR \d\d\.\d dB$", text, re.MULTILINE)
    assert main(shlex.split(next_step)[1:]) == 0
    capsys.readouterr()
    assert cli("inspect", tmp_path / "net.tpum", "--summary") == 0
    assert "warning: output 'wild': mean cosine 0." in capsys.readouterr().out


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("batch", [1, 4])
def test_an_accurate_model_has_no_warning(chip, batch, tmp_path, capsys):
    path, data = network(tmp_path, is_accurate=True, batch=batch)
    assert convert(path, data, "--strict-accuracy", chip=chip) == 0
    lines = capsys.readouterr().out.splitlines()
    named = [line for line in lines if "good" in line or "wild" in line]
    assert named and not any(re.search("warning|accuracy", line) for line in named)


def test_plain_values_have_every_output(tmp_path, capsys):
    path, data = network(tmp_path)
    assert convert(path, data, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    by_name = {item["name"]: item for item in found["accuracy"]["outputs"]}
    assert by_name["good"]["is_accurate"] and not by_name["wild"]["is_accurate"]
    assert by_name["good"]["cosine"] > 0.99 > by_name["wild"]["cosine"]
    assert len(found["warnings"]) == 1 and found["warnings"][0].startswith("output 'wild': ")
    assert found["accuracy"]["samples"] == 32 and not found["accuracy"]["held_out"]


def test_strict_accuracy_writes_nothing(tmp_path, capsys):
    path, data = network(tmp_path)
    for command in ("convert", "quantize"):
        assert convert(path, data, "--strict-accuracy", command=command) == 5
        assert "output 'wild': mean cosine" in capsys.readouterr().err
        assert not (tmp_path / "net.tpum").exists()
    given = {"calibration": data, "strict_accuracy": True, **WITHOUT}
    for function, options in ((tc.convert, {"quantize": "int8"}), (tc.quantize, {})):
        with pytest.raises(ThresholdError, match="output 'wild'"):
            function(path, **group_options(**given, **options))


def test_python_issues_a_warning_at_the_call(tmp_path):
    path, data = network(tmp_path)
    for function, options in ((tc.convert, {"quantize": "int8"}), (tc.quantize, {})):
        with pytest.warns(AccuracyWarning, match="output 'wild'") as found:
            model = function(path, calibration=data, **group_options(**options, **WITHOUT))
        assert [item.filename for item in found] == [__file__]
        assert [note.kind for note in model.notes].count("accuracy") == 1
    path, data = network(tmp_path, is_accurate=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tc.convert(path, quantize="int8", calibration=data)


def test_strict_accuracy_needs_something_to_measure(tmp_path):
    path, data = network(tmp_path)
    with pytest.raises(UsageError, match="without quantization"):
        tc.convert(path, strict_accuracy=True)
    ranges = tc.calibrate(path, calibration=data)
    assert "accuracy" not in tc.quantize(path, ranges=ranges).metadata
    with pytest.raises(UsageError, match="without calibration samples"):
        tc.quantize(path, ranges=ranges, strict_accuracy=True)


def test_ranges_with_samples_are_measured(tmp_path):
    path, data = network(tmp_path)
    ranges = tc.calibrate(path, calibration=data)
    with pytest.warns(AccuracyWarning, match="output 'wild'"):
        tc.quantize(path, ranges=ranges, calibration=data, **group_options(**WITHOUT))


@pytest.mark.parametrize("effort", ["low", "high"])
def test_every_effort_is_measured(effort, tmp_path):
    path, data = network(tmp_path)
    with pytest.warns(AccuracyWarning, match="output 'wild'"):
        tc.convert(path, calibration=data, **group_options(quantize="int8", effort=effort, **WITHOUT))


@pytest.mark.parametrize(("weight_type", "is_accurate"), [("int4", False), ("int8", True)])
def test_packed_weights_are_measured(weight_type, is_accurate, tmp_path, capsys):
    net = OnnxNet(1)
    hidden = net.input("x", 4, 128)
    for _ in range(3):
        hidden = net.dense(hidden, 128)
    if not is_accurate:
        hidden = net.add("Sin", net.add("Mul", hidden, net.constant(np.float32(20))))
    path, data = tmp_path / "net.onnx", tmp_path / "samples.npz"
    path.write_bytes(net.model(hidden).SerializeToString())
    np.savez(data, x=np.concatenate([feed["x"] for feed in net.samples(8)]))
    given = ["convert", path, "-o", tmp_path / "net.tpum", "--weight-type", weight_type, "--weight-group", "128"]
    assert cli(*given, "--calibration", data) == 0
    text = capsys.readouterr().out
    found = re.findall(WARNING, text)
    assert bool(found) is not is_accurate
    for _, next_step in found:
        assert main(shlex.split(next_step)[1:]) == 0
    assert cli(*given, "--calibration", data, "--strict-accuracy") == (0 if is_accurate else 5)


@pytest.mark.filterwarnings("ignore::tpuconvert.model.accuracy_notes.AccuracyWarning")
def test_the_numbers_are_those_of_the_written_model(tmp_path):
    """The stated error is measured with the file, run by a session, against the float model."""
    path, data = network(tmp_path, samples=16)
    model = tc.convert(path, calibration=data, **group_options(quantize="int8", **WITHOUT))
    model.save(tmp_path / "net.tpum")
    feeds = np.load(data)["x"][:, np.newaxis]
    with tc.Session(tmp_path / "net.tpum") as integer, tc.Session(tc.convert(path)) as real:
        pairs = [(real.run({"x": x})["wild"], integer.run({"x": x})["wild"]) for x in feeds]
    cosines = [float((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in pairs]
    stated = next(item for item in model.metadata["accuracy"]["outputs"] if item["name"] == "wild")
    assert stated["cosine"] == pytest.approx(np.mean(cosines), abs=1e-5)


@pytest.mark.parametrize(("count", "batch"), [(4, 1), (64, 1), (83, 1), (84, 1), (100, 1), (300, 1), (40, 4), (200, 4)])
def test_held_out_samples_are_not_those_of_the_refinement_or_the_search(count, batch):
    graph = Graph("empty")
    net = OnnxNet(0)
    net.input("x", batch, 8)
    feeds = load_feeds(net.samples(count), [tc.convert(net.model(net.add("Relu", "x"))).graph.input_ports[0]])
    split = split_feeds(graph, Chip.BM1686, feeds, 64)
    last = count - count_held_out(count)
    assert split.are_held_out is (last - max(8, 64 // batch) >= 4)
    if split.are_held_out:
        assert split.measured.start >= max(8, 64 // batch)
        assert split.measured.stop <= min(last, split.judged.start)
    assert 1 <= len(split.measured) <= 64 and 1 <= len(split.judged) <= 64
    assert split.judged.stop == count
    searched = split.searched(feeds).contents
    assert len(searched) == count - (len(split.measured) if split.are_held_out else 0)
    if split.are_held_out:
        assert set(searched).isdisjoint(feeds.part(split.measured.start, split.measured.stop).contents)


def test_held_out_samples_choose_no_nodes_with_16_bits(monkeypatch):
    measured, used = [], []

    def split(graph, chip, feeds, count):
        result = split_feeds(graph, chip, feeds, count)
        assert result.are_held_out
        measured.extend(feed["x"].tobytes() for feed in feeds.part(result.measured.start, result.measured.stop))
        return result

    def choose(graph, shares, simulate, isolate, feeds, *others, **options):
        used.extend(feed["x"].tobytes() for feed in feeds)

    monkeypatch.setattr(quantization, "split_feeds", split)
    monkeypatch.setattr(int16_nodes, "choose_int16_nodes", choose)
    net = OnnxNet(0)
    net.input("x", 1, 8)
    samples = net.samples(100)
    proto = net.model(net.dense(net.add("Relu", net.dense("x", 8)), 4))
    tc.convert(proto, quantize=tc.Quantization(max_int16_share=1.0), calibration=samples)
    assert measured and used
    assert not set(measured) & set(used)


def test_samples_on_which_the_float_model_decides_nothing_are_a_note(capsys):
    net = OnnxNet(0)
    logits = net.dense(net.input("x", 1, 8), 4)
    proto = net.model(net.add("Softmax", net.add("Mul", logits, net.constant(np.float32(0)))))
    model = tc.convert(proto, quantize="int8", calibration=net.samples(8))
    (text,) = [note.message for note in model.notes if note.kind == "preprocessing"]
    assert "is the same for 8 samples: are they preprocessed as the model expects?" in text
    assert text in model.summary()


def test_a_warning_of_a_search_is_dropped_if_the_finished_model_meets_the_task(monkeypatch):
    net, outputs = DETECTORS["yolov8"]()
    warning = Note("accuracy", "", "the error of 'x' at the outputs")
    graph = tc.convert(net.model(*outputs)).graph
    name = graph.output_ports[0].name
    earlier = [Note("accuracy", name, "detections are lost"), warning]
    monkeypatch.setattr(decisions.Regions, "notes", lambda _: earlier)
    monkeypatch.setattr(accuracy_floor, "TARGET", 0.0)  # a choice is always made
    model = tc.convert(net.model(*outputs), quantize="int8", calibration=net.samples(16))
    notes = [note for note in model.notes if note.kind in ("accuracy", "task")]
    assert any(note.kind == "task" for note in notes)
    assert warning in notes and earlier[0] not in notes


def test_the_size_of_constants_counts_shared_arrays_once():
    net = OnnxNet(0)
    weights = net.normal(8, 8)
    hidden = net.add("Relu", net.add("MatMul", net.input("x", 1, 8), weights))
    model = tc.convert(net.model(net.add("MatMul", hidden, weights)))
    assert [node.op.name for node in model.graph.nodes].count("matrix_mul") == 2
    assert describe_graph(model.graph)["constant_bytes"] == 4 * 8 * 8


def test_the_worst_outputs_have_messages_of_their_own():
    accuracy = ModelAccuracy([OutputAccuracy(f"y{index}", 0.9 - index / 10, 0.5) for index in range(5)], 4, True, 4)
    messages = [note.message for note in accuracy.notes()]
    assert [text.split("'")[1] for text in messages] == ["y4", "y3", "y2", "y1", "y0"]
    assert worst_messages(messages) == [*messages[:3], "2 more outputs below the limits"]
    assert worst_messages(messages[:3]) == messages[:3]
