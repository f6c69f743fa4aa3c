"""Trained models and single layers of the public data set, against the outputs that come with them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tpuconvert import SourceOptions
from tpuconvert.conversion.convert import convert
from tpuconvert.frontends.onnx import load
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import UnsupportedError, UsageError

MODELS = [
    "cifar10_resnet8_onnx", "fastestdet_coco_onnx", "imagenet_mobilenet_v1_0.25_onnx", "imagenet_squeezenet_v1.1_onnx",
    "mnist_keras_onnx", "plate_class_96_onnx", "silero_vad_16k_onnx",
    "text_det_en_ppocrv3_onnx", "ultraface_rfb_320_onnx", "vttrack_onnx",
    "yunet_n_320_onnx",
]  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_float_model(name: str, data_root: Path) -> None:
    """Within 1e-4 of each output's range, probabilities within 1e-5: float sums in another order."""
    folder = data_root / "models" / name
    reference = np.load(folder / "reference.npz")
    path = folder / "model.onnx"
    arrays = [reference[f"in{index}"] for index in range(sum(key in reference for key in ("in0", "in1", "in2")))]
    probe = json.loads((data_root / "manifest.json").read_text())["models"]
    names = [entry["name"] for entry in next(m for m in probe if m["id"] == name)["inputs"]]
    graph = load(path, input_shapes={key: array.shape for key, array in zip(names, arrays, strict=True)})
    with Session(graph) as session:
        found = session.run(dict(zip(names, arrays, strict=True)))
    for index, (key, value) in enumerate(found.items()):
        expected = reference[f"out{index}"]
        is_probability = expected.min() >= 0 and abs(expected.sum() - 1) < 1e-3
        tolerance = 1e-5 if is_probability else max(1e-4 * np.ptp(expected), 1e-6)
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=0, atol=tolerance, err_msg=f"{name} {key}")


# Models that are converted, but whose results differ from the published ones, with the reason.
DIFFERENT = {
    "cv_average_pooling": "published by a framework that counted the padding; opset 6 leaves it out",
    "cv_cumsum_1d_exclusive_1_reverse": "the given input does not have the shape that the model states",
    "cv_cumsum_1d_reverse": "the given input does not have the shape that the model states",
    "cv_cumsum_3d_dim_2_int64": "64-bit input values outside INT32",
    "cv_reduce_sum_int64": "64-bit input values outside INT32",
    "cv_tile_int64": "64-bit input values outside INT32",
    "op_attention_qk_output_2": "published with the lowest number where the standard has minus infinity",
}

ONE_STEP = {"cv_quantized_resize_bilinear_align": "ONNX Runtime interpolates the bytes and cuts fractions off"}
"""Quantized cases that may differ by one of their 137 steps, and why; all others are equal."""

MATCHED = 322


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_layers(every: int, data_root: Path) -> None:
    """At least the number of cases that matched when this was written, and no unexplained difference."""
    cases = json.loads((data_root / "layers" / "cases.json").read_text())[::every]
    matched, different = [], {}
    for case in cases:
        if case["format"] != "onnx":
            continue
        arrays = np.load(data_root / case["io"])
        feeds = {entry["name"]: arrays[f"in{index}"] for index, entry in enumerate(case["inputs"])}
        shapes = {name: array.shape for name, array in feeds.items() if array.ndim and array.size}
        try:
            model = convert(data_root / case["paths"]["model.onnx"], source_options=SourceOptions(input_shapes=shapes))
            with Session(model) as session:
                outputs = session.run(feeds)
        except UnsupportedError:
            continue
        except UsageError as error:
            different[case["id"]] = str(error)
            continue
        worst = max(
            (_difference(value, arrays[f"out{index}"]) for index, value in enumerate(outputs.values())), default=0.0
        )
        if worst <= (1 / 137 if case["id"] in ONE_STEP else 1e-4):
            matched.append(case["id"])
        else:
            different[case["id"]] = f"differs by {worst} of the range"
    assert {name: text for name, text in different.items() if name not in DIFFERENT} == {}
    assert len(matched) >= (MATCHED if every == 1 else MATCHED // (every + 1))


def _difference(value: Any, expected: Any) -> float:
    """Largest difference as a share of the range."""
    if value.shape != expected.shape or value.dtype != expected.dtype:
        return 9.0
    mine, theirs = value.astype(float), expected.astype(float)
    finite = np.isfinite(theirs)
    if not np.array_equal(np.isnan(mine), np.isnan(theirs)):
        return 9.0
    if not finite.any():
        return 0.0
    scale = max(np.ptp(theirs[finite]), 1e-3 * np.abs(theirs[finite]).max(), 1e-6)
    return float(np.abs(mine - theirs)[finite].max() / scale)
