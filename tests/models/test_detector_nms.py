"""``--append-nms`` on a face detector: the boxes of ONNX Runtime with NonMaxSuppression, in float and INT8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.ops.host.multiclass_nms import HostMulticlassNms
from tpuconvert.schema.types import Array, Scalar

TAIL = "boxes=boxes,scores=scores,iou=0.4,score=0.6,max=50"


@pytest.fixture(scope="module")
def images(data_root: Path) -> list[Array]:
    pytest.importorskip("PIL", reason="needs Pillow")
    rule = Preprocess.of("color=RGB,mean=127,scale=0.0078125").with_size_of((1, 3, 240, 320))
    paths = sorted((data_root / "images").rglob("*.jpg"))[:32]
    return [rule.load_any(path) for path in paths]


@pytest.mark.slow
def test_boxes_of_a_face_detector(data_root: Path, images: list[Array], tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")
    path = data_root / "models" / "ultraface_rfb_320_onnx" / "model.onnx"
    options: Any = runtime.SessionOptions()
    options.log_severity_level = 4
    oracle = runtime.InferenceSession(str(path), options)
    op = HostMulticlassNms(Scalar.f32(0.4), Scalar.f32(0.6), 50)  # compared with ONNX Runtime in test_append_nms.py
    tc.convert(path, source_options=tc.SourceOptions(append_nms=TAIL)).save(tmp_path / "float.tpum")
    samples = [{"input": image} for image in images[16:]]
    tc.convert(
        path,
        source_options=tc.SourceOptions(append_nms=TAIL),
        quantize=tc.Quantization(effort="low"),
        calibration=samples,
    ).save(tmp_path / "int8.tpum")
    integers = [node.op.name for node in tc.load(tmp_path / "int8.tpum").graph.nodes].count("conv_v2")
    assert integers > 40, "most of the network is INT8"
    faces = matched = 0
    with tc.Session(tmp_path / "float.tpum") as exact, tc.Session(tmp_path / "int8.tpum") as int8:
        for image in images[:16]:
            scores, boxes = oracle.run(["scores", "boxes"], {"input": image})
            corners, _, classes, _ = op.reference(boxes, np.ascontiguousarray(scores.transpose(0, 2, 1)))
            found = exact.run({"input": image})
            assert np.array_equal(found["nms_classes"], classes)
            np.testing.assert_allclose(found["nms_boxes"], corners, atol=1e-4)  # boxes are fractions of the image
            wanted = corners[classes == 1]
            rounded = int8.run({"input": image})
            others = rounded["nms_boxes"][rounded["nms_classes"] == 1]
            faces += len(wanted)
            matched += sum(bool(len(others)) and np.abs(others - box).max(axis=1).min() < 0.03 for box in wanted)
    assert faces > 3
    assert matched >= 0.8 * faces, (matched, faces)
