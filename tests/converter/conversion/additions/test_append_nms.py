"""``--append-nms``: the boxes of ONNX NonMaxSuppression and gathers, in float and INT8."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.sampled import sampled
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.nms_options import NmsTail
from tpuconvert.schema.types import Array

NAMES = ("nms_boxes", "nms_scores", "nms_classes", "nms_images")


def info(name: str, shape: list[Any], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def detector(images: int, boxes: int, classes: int) -> onnx.ModelProto:
    """A model whose outputs are boxes [N, B, 4] and scores [N, C, B]: its inputs, moved a little."""
    nodes = [helper.make_node("Add", ["b", "zero"], ["boxes"]), helper.make_node("Sigmoid", ["s"], ["scores"])]
    inputs = [info("b", [images, boxes, 4]), info("s", [images, classes, boxes])]
    outputs = [info("boxes", [images, boxes, 4]), info("scores", [images, classes, boxes])]
    zero = numpy_helper.from_array(np.full((1, 1, 4), 0.25, np.float32), "zero")
    graph = helper.make_graph(nodes, "detector", inputs, outputs, [zero])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def with_onnx_tail(model: onnx.ModelProto, iou: float, score: float, most: int, centered: bool) -> onnx.ModelProto:
    """The model with NonMaxSuppression and gathers, as the oracle runs it."""
    tail = onnx.ModelProto()
    tail.CopyFrom(model)
    graph = tail.graph
    constants = {
        "most": np.array([most]),
        "iou": np.array([iou], np.float32),
        "least": np.array([score], np.float32),
        "box_columns": np.array([0, 2]),
        "axis": np.array([1]),
        "zero_column": np.array(0),
        "one_column": np.array(1),
    }
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    node = helper.make_node
    graph.node.extend(
        [
            node(
                "NonMaxSuppression",
                ["boxes", "scores", "most", "iou", "least"],
                ["kept"],
                center_point_box=int(centered),
            ),
            node("Gather", ["kept", "box_columns"], ["places"], axis=1),
            node("GatherND", ["boxes", "places"], ["nms_boxes"]),
            node("GatherND", ["scores", "kept"], ["nms_scores"]),
            node("Gather", ["kept", "one_column"], ["nms_classes"], axis=1),
            node("Gather", ["kept", "zero_column"], ["nms_images"], axis=1),
        ]
    )
    del graph.output[:]
    graph.output.extend([info("nms_boxes", ["k", 4]), info("nms_scores", ["k"])])
    graph.output.extend(info(name, ["k"], TensorProto.INT64) for name in NAMES[2:])
    return tail


def random_feed(seed: int, images: int, boxes: int, classes: int, centered: bool) -> dict[str, Array]:
    draw = np.random.default_rng(seed)
    centers, sizes = draw.uniform(0, 100, (images, boxes, 2)), draw.uniform(1, 40, (images, boxes, 2))
    parts = (centers, sizes) if centered else (centers - sizes / 2, centers + sizes / 2)
    scores = draw.normal(-0.5, 1.5, (images, classes, boxes)).round(1)  # equal scores too
    return {"b": np.concatenate(parts, -1).astype(np.float32), "s": scores.astype(np.float32)}


@pytest.mark.parametrize(("seed", "centered"), sampled(itertools.product(range(25), [False, True]), every=5))
def test_boxes_are_those_of_onnxruntime(seed: int, centered: bool) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    draw = np.random.default_rng(seed)
    images, boxes, classes = (int(value) for value in draw.integers((1, 1, 1), (3, 60, 5)))
    iou, score, most = (
        round(float(draw.uniform(0.1, 0.9)), 2),
        round(float(draw.uniform(0, 0.6)), 2),
        int(draw.integers(1, 20)),
    )
    model = detector(images, boxes, classes)
    tail = f"boxes=boxes,scores=scores,iou={iou},score={score},max={most}" + ",format=cxcywh" * centered
    feed = random_feed(seed, images, boxes, classes, centered)
    oracle = runtime.InferenceSession(with_onnx_tail(model, iou, score, most, centered).SerializeToString())
    wanted = dict(zip(NAMES, oracle.run(list(NAMES), feed), strict=True))
    if centered:  # ONNX gathers centers and sizes; the appended node returns corners
        center, half = wanted["nms_boxes"][:, :2], wanted["nms_boxes"][:, 2:] * np.float32(0.5)
        wanted["nms_boxes"] = np.concatenate([center - half, center + half], -1)
    converted = tc.convert(model, source_options=tc.SourceOptions(append_nms=tail))
    assert [output.name for output in converted.outputs] == list(NAMES)
    for backend in ("native", "reference"):
        with tc.Session(converted, backend=backend) as session:  # type: ignore[arg-type]
            found = session.run(feed)
        for name in NAMES:
            assert found[name].shape == wanted[name].shape and found[name].dtype == wanted[name].dtype, name
            if name == "nms_scores":
                np.testing.assert_allclose(found[name], wanted[name], atol=1e-6)  # the sigmoids of two engines
            else:
                assert np.array_equal(found[name], wanted[name]), name


def yolo(shape: list[int]) -> onnx.ModelProto:
    """A model with one output, its input: rows of a box and scores."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "one"], ["output0"])],
        "yolo",
        [info("x", shape)],
        [info("output0", shape)],
        [numpy_helper.from_array(np.float32([1.0]), "one")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("objectness", [False, True])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_one_output_with_boxes_and_scores(objectness: bool, is_transposed: bool) -> None:
    """YOLOv8 has [N, 4 + classes, B]; YOLOv5 has [N, B, 5 + classes] with objectness."""
    feed = random_feed(3, 1, 40, 3, True)
    scores = np.abs(feed["s"]) / 5
    rows = np.concatenate([feed["b"].transpose(0, 2, 1), scores], 1)
    x = np.ascontiguousarray(rows.transpose(0, 2, 1) if is_transposed else rows)
    used = scores[:, 1:] * scores[:, :1] if objectness else scores
    settings = "iou=0.5,score=0.1,max=9,format=cxcywh"
    one = tc.convert(
        yolo(list(x.shape)),
        source_options=tc.SourceOptions(
            append_nms=f"boxes=output0,scores=output0,{settings},objectness={str(objectness).lower()}"
        ),
    )
    with tc.Session(one) as session:
        found = session.run({"x": x})
    two = detector(1, 40, used.shape[1])
    two.graph.node[1].op_type = "Identity"
    del two.graph.node[0], two.graph.initializer[:]
    two.graph.node.insert(0, helper.make_node("Identity", ["b"], ["boxes"]))
    with tc.Session(
        tc.convert(two, source_options=tc.SourceOptions(append_nms=f"boxes=boxes,scores=scores,{settings}"))
    ) as session:
        wanted = session.run({"b": feed["b"], "s": used})
    assert len(wanted["nms_scores"])
    for name in NAMES:
        assert np.array_equal(found[name], wanted[name]), name


def test_int8_models_suppress_in_float(tmp_path: Path) -> None:
    """The first layers become integers; other outputs stay, and the file is complete."""
    draw = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["first_map"]),
        helper.make_node("Relu", ["first_map"], ["middle"]),
        helper.make_node("Conv", ["middle", "w"], ["maps"]),
        helper.make_node("Relu", ["maps"], ["features"]),
        helper.make_node("Reshape", ["features", "rows"], ["all"]),
        helper.make_node("Split", ["all", "parts"], ["boxes", "scores"], axis=1),
    ]
    constants = {
        "first": draw.normal(size=(8, 3, 1, 1)).astype(np.float32),
        "w": draw.normal(size=(7, 8, 1, 1)).astype(np.float32),
        "rows": np.array([1, 7, 64]),
        "parts": np.array([4, 3]),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", [1, 3, 8, 8])],
        [info("features", [1, 7, 8, 8]), info("boxes", [1, 4, 64]), info("scores", [1, 3, 64])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    samples = [{"x": draw.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]
    tail = "boxes=boxes,scores=scores,score=0.5,format=cxcywh"
    model = tc.convert(
        tmp_path / "m.onnx",
        source_options=tc.SourceOptions(append_nms=tail),
        quantize=tc.Quantization(effort="low"),
        calibration=samples,
    )
    names = [node.op.name for node in model.graph.nodes]
    assert "conv_v2" in names and names.count("host_multiclass_nms") == 1
    model.save(tmp_path / "m.tpum")
    with tc.Session(tmp_path / "m.tpum") as session, tc.Session(model, backend="reference") as plain:
        found, wanted = session.run(samples[0]), plain.run(samples[0])
    assert list(found) == ["features", *NAMES]
    for name in found:
        assert np.array_equal(found[name], wanted[name]), name
    assert len(found["nms_scores"]) > 0
    assert tc.reproduce(tmp_path / "m.tpum", tmp_path / "m.onnx", calibration=samples).is_same


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("boxes=boxes", "no scores"),
        ("boxes=boxes,scores=absent", "has no output 'absent'"),
        ("boxes=scores,scores=boxes", "boxes have the shape"),
        ("boxes=boxes,scores=scores,iou=2", "expected iou from 0 to 1"),
        ("boxes=boxes,scores=scores,iou=x", "iou is 'x'"),
        ("boxes=boxes,scores=scores,iou=0.5,iou=0.5", "iou is given twice"),
        ("boxes=boxes,scores=scores,max=0", "expected at least 1"),
        ("boxes=boxes,scores=scores,format=yolo", "format is 'yolo'"),
        ("score=0.5,boxes=,scores=s", "have to name outputs"),
        ("least=3,boxes=boxes,scores=scores", "'least' is not a key"),
    ],
)
def test_wrong_values_are_named(text: str, complaint: str) -> None:
    with pytest.raises(tc.UsageError, match=complaint):
        tc.convert(detector(1, 10, 3), source_options=tc.SourceOptions(append_nms=text))


def test_names_may_have_commas_and_equals_signs() -> None:
    found = NmsTail.parse("boxes=a,b=c,scores=d:0,score=0.1")
    assert (found.boxes, found.scores, found.score) == ("a,b=c", "d:0", 0.1)


def test_command_and_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(detector(1, 10, 3), "m.onnx")
    tail = ["--append-nms", "boxes=boxes,scores=scores"]
    assert main(["convert", "m.onnx", "-o", "m.tpum", *tail]) == 0
    assert main(["verify", "m.onnx", "m.tpum", *tail]) == 0
    assert "nms_boxes" in capsys.readouterr().out
