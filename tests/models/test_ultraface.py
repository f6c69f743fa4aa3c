"""One network in three formats: equal graphs, operator by operator, and equal results."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc

FILES = {
    "onnx": ("ultraface_rfb_320_onnx/model.onnx", None),
    "tflite": ("ultraface_rfb_320_tflite/model.tflite", None),
    "caffe": ("ultraface_rfb_320_caffe/deploy.prototxt", "ultraface_rfb_320_caffe/model.caffemodel"),
}
OPERATORS = {"active": 37, "add": 1, "concat": 3, "conv": 52, "permute": 8, "reshape": 8, "softmax": 1}
"""Operators of the network. Each of the 8 heads is flattened in NHWC order, which requires one transpose."""


@pytest.fixture(scope="module")
def models(data_root: Path) -> dict[str, tc.Model]:
    """The three conversions, all NCHW. The ONNX file alone decodes the boxes, so it ends before that."""
    found = {}
    for name, (source, weights) in FILES.items():
        folder = data_root / "models"
        found[name] = tc.convert(
            folder / source,
            None if weights is None else folder / weights,
            source_options=tc.SourceOptions(
                outputs=["460", "scores"] if name == "onnx" else None, keep_io_layout=name != "tflite"
            ),
        )
    return found


@pytest.mark.parametrize("name", FILES)
def test_no_trace_of_the_layout_is_left(models: dict[str, tc.Model], name: str) -> None:
    assert Counter(node.op.name for node in models[name].graph.nodes) == OPERATORS


def test_the_same_results(models: dict[str, tc.Model], data_root: Path) -> None:
    """Within 1e-4 of the range; Caffe and ONNX, which hold the same weights, within 1e-4.

    The normalizations of the TFLite file were folded with other roundings: its weights differ by up to 1e-3, and
    the results of LiteRT and of OpenCV on these files differ by 3.2e-4 in boxes of -5.7 to 5.7.
    """
    stored = np.load(data_root / "models" / "ultraface_rfb_320_onnx" / "reference.npz")
    image = stored["in0"].astype(np.float32)
    found = {}
    for name, model in models.items():
        with tc.Session(model) as session:
            (port,) = session.inputs
            results = session.run({port.name: image})
            found[name] = {array.shape[-1]: array for array in results.values()}
    assert [sorted(results) for results in found.values()] == [[2, 4]] * 3
    for name in ("tflite", "caffe"):
        for size, want in found["onnx"].items():
            tolerance = 1e-4 if name == "caffe" else 1e-4 * float(np.ptp(want))
            np.testing.assert_allclose(found[name][size], want, rtol=0, atol=tolerance, err_msg=f"{name} {size}")
