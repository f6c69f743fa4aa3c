"""A face detector that ends with NonMaxSuppression, and with a Loop over the boxes that are kept, in float and INT8."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, numpy_helper, version_converter

import tpuconvert as tc
from tests.support.onnx.graphs import FLOAT, info, loop_body, node
from tpuconvert.runtime.native.builder import loader
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.types import Array

CONSTANTS = {"face": [1], "box": [2], "most": [50], "zero": [0], "one": [1], "start": [0, 0], "middle": [0, 2],
             "four": [0, 4], "last": [1]}  # fmt: skip
THRESHOLDS = {"overlap": 0.4, "least": 0.6}
TAIL = (
    node("Gather", "scores face", "faces", axis=2),
    node("Transpose", "faces", "rows", perm=[0, 2, 1]),
    node("NonMaxSuppression", "boxes rows most overlap least", "kept"),
    node("Gather", "kept box", "column", axis=1),
    node("Squeeze", "column one", "index"),
    node("Squeeze", "boxes zero", "all"),
    node("Gather", "all index", "corners", axis=0),
    node("Squeeze", "rows start_axes", "confidences"),
    node("Gather", "confidences index", "c", axis=0),
    node("Unsqueeze", "c one", "confidence"),
    node("Concat", "corners confidence", "detections", axis=1),
)
"""Boxes of the network [1, P, 4] and scores [1, P, 2] -> rows (x1, y1, x2, y2, score) of the faces."""

AREAS = (
    node("Shape", "detections", "extents"),
    node("Gather", "extents first", "count"),
    node("Loop", "count always nothing", "total areas", body=loop_body(
        [node("Unsqueeze", "i zero", "position"), node("Gather", "detections position", "row"),
         node("Split", "row", "x1 y1 x2 y2 s", axis=1), node("Sub", "x2 x1", "w"), node("Sub", "y2 y1", "h"),
         node("Mul", "w h", "wh"), node("ReduceSum", "wh", "area", keepdims=0), node("Add", "sum area", "sum_out"),
         node("Identity", "area", "item"), node("Identity", "going", "go")],
        ["sum"], ["sum_out", "item"])),
)  # fmt: skip
"""The area of each face, and their sum, by a loop with one iteration per face."""


def detector(data_root: Path, folder: Path, nodes: Sequence[NodeProto], **outputs: tuple[int, list[int | str]]) -> Path:
    proto = onnx.load(data_root / "models" / "ultraface_rfb_320_onnx" / "model.onnx")
    initializers = {tensor.name for tensor in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name not in initializers]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    proto.ir_version = 8
    proto = version_converter.convert_version(proto, 13)
    proto.graph.node.extend(nodes)
    arrays = {name: np.array(numbers) for name, numbers in CONSTANTS.items()}
    arrays |= {name: np.array([number], np.float32) for name, number in THRESHOLDS.items()}
    arrays |= {"first": np.array(0), "nothing": np.float32(0), "always": np.array(True), "start_axes": np.array([0, 1])}
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items())
    del proto.graph.output[:]
    proto.graph.output.extend(info(name, kind, shape) for name, (kind, shape) in outputs.items())
    onnx.save(proto, folder / "detector.onnx")
    return folder / "detector.onnx"


@pytest.fixture(scope="module")
def images(data_root: Path) -> list[Array]:
    pytest.importorskip("PIL", reason="needs Pillow")
    rule = Preprocess.of("color=RGB,mean=127,scale=0.0078125").with_size_of((1, 3, 240, 320))
    paths = sorted((data_root / "images").rglob("*.jpg"))[:48]
    return [rule.load_any(path) for path in paths]


def oracle(path: Path) -> Any:
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    return runtime.InferenceSession(str(path), options)


def test_boxes_are_those_of_onnxruntime(data_root: Path, images: list[Array], tmp_path: Path) -> None:
    path = detector(
        data_root, tmp_path, (*TAIL, *AREAS), detections=(FLOAT, ["n", 5]), total=(FLOAT, []), areas=(FLOAT, ["n"])
    )
    reference = oracle(path)
    tc.convert(path).save(tmp_path / "m.tpum")
    found = 0
    with tc.Session(tmp_path / "m.tpum", threads=1) as session:
        for image in images:
            expected = reference.run(None, {"input": image})
            results = session.run({"input": image})
            for name, want in zip(("detections", "total", "areas"), expected, strict=True):
                assert results[name].shape == want.shape
                np.testing.assert_allclose(results[name], want, atol=1e-4)  # boxes are fractions of the image
            found += len(expected[0])
        if loader.extension() is not None:
            is_reference = set(session.reference_nodes)
            convs = [each.name for each in tc.load(tmp_path / "m.tpum").graph.nodes if each.op.name == "conv"]
            assert convs and not is_reference & set(convs)
    assert found > 10


@pytest.mark.slow
def test_int8_boxes_are_close(data_root: Path, images: list[Array], tmp_path: Path) -> None:
    """INT8 up to the scores; NMS and what follows is float. Most boxes are found, at nearly the same place."""
    path = detector(
        data_root, tmp_path, (*TAIL, *AREAS), detections=(FLOAT, ["n", 5]), total=(FLOAT, []), areas=(FLOAT, ["n"])
    )
    converted = tc.convert(
        path, quantize=tc.Quantization(effort="low"), calibration=[{"input": image} for image in images[24:]]
    )
    names = [each.op.name for each in converted.graph.nodes]
    assert names.count("conv_v2") == 52 and names.count("nms_v2") == 1 and names.count("host_loop") == 1
    converted.save(tmp_path / "int8.tpum")
    reference = oracle(path)
    expected_count, matched = 0, 0
    with (
        tc.Session(tmp_path / "int8.tpum", threads=1) as session,
        tc.Session(tmp_path / "int8.tpum", backend="reference") as plain,
    ):
        for number, image in enumerate(images[:24]):
            boxes = session.run({"input": image})["detections"]
            if number < 2:
                assert boxes.tobytes() == plain.run({"input": image})["detections"].tobytes()
            expected = reference.run(["detections"], {"input": image})[0]
            expected_count += len(expected)
            if len(boxes):
                distance = np.abs(expected[:, None, :4] - boxes[None, :, :4]).max(axis=2)
                matched += int((distance.min(axis=1, initial=np.inf) < 0.03).sum())
    assert expected_count > 5
    assert matched >= 0.8 * expected_count  # a score near the threshold may cross it
