"""Custom operators that we know: detection post-processing against LiteRT, a transposed convolution by hand."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from tests.support.tflite.cases import numbers
from tests.support.tflite.models import O, S, T, graph_of, run, serialize
from tests.support.tflite.reference import reference_runner, run_interpreter
from tpuconvert.frontends.tflite.file.flexbuffer import read_numbers
from tpuconvert.schema.errors import UnsupportedError

SETTINGS = {
    **{"max_detections": 6, "max_classes_per_detection": 1, "nms_score_threshold": 0.3, "nms_iou_threshold": 0.5},
    **{"num_classes": 3, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0},
}
ANCHORS = 40


def detection(**changed: Any) -> S:
    settings = {**SETTINGS, **changed}
    anchors = np.concatenate((numbers("centres", (ANCHORS, 2), 0.1, 0.9), numbers("sizes", (ANCHORS, 2), 0.1, 0.4)), 1)
    results = [T(f"y{i}", (1,)) for i in range(4)]
    tensors = [T("boxes", (1, ANCHORS, 4)), T("scores", (1, ANCHORS, 4)), T("anchors", data=anchors), *results]
    operator = O(
        "CUSTOM:TFLite_Detection_PostProcess", [0, 1, 2], [3, 4, 5, 6], custom=bytes(flexbuffers.Dumps(settings))
    )
    return S(tensors, [operator], [0, 1], [3, 4, 5, 6])


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"max_classes_per_detection": 2},
        {"nms_iou_threshold": 0.1, "nms_score_threshold": 0.0},
        {"max_detections": 60},
        {"nms_score_threshold": 2.0},
    ],
    ids=str,
)
def test_detection(tmp_path: Path, changed: dict[str, Any]) -> None:
    pytest.importorskip("ai_edge_litert")
    subgraph = detection(**changed)
    boxes, scores = numbers("boxes", (1, ANCHORS, 4), -4, 4), numbers("scores", (1, ANCHORS, 4), 0, 1)
    expected = run_interpreter(reference_runner(serialize(subgraph)), [boxes, scores])
    found = run(graph_of(tmp_path, subgraph), boxes, scores)
    assert found[3].tolist() == expected[3].tolist()
    count = int(expected[3][0]) * changed.get("max_classes_per_detection", 1)
    for result, want in zip(found[:3], expected[:3], strict=True):
        assert result.shape == want.shape
        np.testing.assert_allclose(result[:, :count], want[:, :count], atol=1e-6)
        assert not result[:, count:].any()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"use_regular_nms": True}, "use_regular_nms=1"),
        ({"num_classes": 9}, "scores"),
        ({"y_scale": 0.0}, "its options are"),
        ({"max_detections": 0}, "max_detections 0"),
    ],
)
def test_detection_refused(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedError, match=says):
        graph_of(tmp_path, detection(**changed))


def test_options_of_any_width() -> None:
    for value in (1, -7, 300, 70_000, 1 << 40, 0.5, 0.1, True):
        data = bytes(flexbuffers.Dumps({"a": value, "word": "text", "b": 2}))
        assert read_numbers(data) == {"a": value, "b": 2}


def test_damaged_options() -> None:
    """Only ValueError is raised."""
    generator, whole = random.Random(1), bytes(flexbuffers.Dumps(SETTINGS))
    for _ in range(5000):
        data = bytearray(whole[: generator.randrange(len(whole) + 1)] if generator.random() < 0.3 else whole)
        for _ in range(generator.choice((1, 2, 4)) if data else 0):
            data[generator.randrange(len(data))] = generator.randrange(256)
        try:
            read_numbers(bytes(data))
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("padding", "shape", "expected"),
    [
        (2, (1, 1, 5, 1), [[101, 102, 113, 120, 130]]),  # 1 * (1, 2, 3) and, two further, 10 * (1, 2, 3)
        (1, (1, 1, 4, 1), [[101, 102, 113, 120]]),
    ],
)
def test_transposed_convolution(tmp_path: Path, padding: int, shape: tuple[int, ...], expected: Any) -> None:
    weights, bias = np.asarray([1, 2, 3], np.float32).reshape(1, 1, 3, 1), np.asarray([100], np.float32)
    tensors = [T("x", (1, 1, 2, 1)), T("w", data=weights), T("b", data=bias), T("y", shape)]
    options = struct.pack("<3i", padding, 2, 1)
    operator = O("CUSTOM:Convolution2DTransposeBias", [0, 1, 2], [3], custom=options)
    graph = graph_of(tmp_path, S(tensors, [operator], [0], [3]))
    np.testing.assert_allclose(run(graph, np.asarray([1, 10], np.float32).reshape(1, 1, 2, 1))[0][0, :, :, 0], expected)
