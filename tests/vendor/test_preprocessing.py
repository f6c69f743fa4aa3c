"""Fused preprocessing in the vendor's simulator: images and camera planes are the input of the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.converter.exporters.test_fitted_images import FITS
from tests.support.onnx.models import model as onnx_model
from tests.support.onnx.models import one, ramp, save_model
from tests.support.vendor.vendor_tools import Vendor, model_of
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.host.fit_image import METHODS, HostFitImage
from tpuconvert.schema.ops.host.yuv import HostYuv420ToRgb
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import DType, TensorType

pytestmark = [pytest.mark.vendor, pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])]

SIZE = (16, 24)
PER_CHANNEL = "mean=123.6,116,104,scale=0.0171,0.0175,0.0174"


def convert(folder: Path, chip: str, order: str, preprocess: str, layout: str, **options: Any) -> tc.Model:
    """Convert a network whose first layer has padding, for which the mean is not folded."""
    channels = 1 if order == "gray" else 3
    shape = (1, channels, *SIZE) if layout == "NCHW" else (1, *SIZE, channels)
    weights = {"a": ramp(8, channels, 3, 3, seed=1), "b": ramp(4, 8, 1, 1, seed=2)}
    first = "image" if layout == "NCHW" else "channels_first"
    nodes = [one("Transpose", "image", outputs=[first], perm=[0, 3, 1, 2])] if layout == "NHWC" else []
    nodes += [
        one("Conv", first, "a", outputs=["conv"], pads=[1, 1, 1, 1]),
        one("Relu", "conv", outputs=["relu"]),
        one("Conv", "relu", "b"),
    ]
    path = save_model(onnx_model(nodes, {"image": ramp(*shape)}, ["y"], weights), folder)
    color = "GRAY" if channels == 1 else "RGB"
    return tc.convert(
        path,
        chip=chip,
        preprocess=f"color={color},layout={layout},{preprocess}",
        source_options=tc.SourceOptions(fuse_preprocess=order),
        **options,
    )


@pytest.mark.parametrize("quantize", ["int8", None])
@pytest.mark.parametrize(
    ("order", "preprocess", "layout", "integer_io"),
    [
        ("rgb", PER_CHANNEL, "NCHW", False),
        ("bgr", "mean=100,scale=0.0039", "NHWC", True),
        ("gray", "scale=0.0039", "NCHW", False),
        ("nv12", PER_CHANNEL, "NCHW", False),
        ("i420", "mean=100,scale=0.0039", "NHWC", True),
    ],
)
def test_models_take_pixels_and_planes(
    order: str,
    preprocess: str,
    layout: str,
    integer_io: bool,
    quantize: str | None,
    chip: str,
    vendor: Vendor,
    tmp_path: Path,
) -> None:
    images = np.random.default_rng(2).integers(0, 256, (8, *SIZE, 1 if order == "gray" else 3), np.uint8)
    options = {"quantize": quantize, "calibration": images} if quantize else {}
    model = convert(tmp_path, chip, order, preprocess, layout, **options)
    result = tc.export(model, tmp_path / "out", chip=chip, compile=True, with_checks=True, integer_io=integer_io)
    result.check()
    (item,) = result.manifest["inputs"]
    assert item["device_name"] == "image_pixels" and item["device_dtype"] == "uint8"
    assert not result.manifest["host_nodes"]
    kinds = {kind["kind"]: kind for kind in result.proofs["out"]["tensors"]}
    assert quantize is None or kinds["integers"]["equal"] == kinds["integers"]["tensors"] > 3
    assert "integers after floats" not in kinds


@pytest.mark.parametrize(
    ("method", "fit"),
    [
        ("opencv-linear", "letterbox"),
        ("opencv-linear", "crop"),
        ("opencv-linear", "stretch"),
        ("opencv-nearest", "letterbox-top-left"),
    ],
)
def test_images_of_a_camera_are_fitted_by_the_program(
    method: str, fit: str, chip: str, vendor: Vendor, tmp_path: Path
) -> None:
    images = np.random.default_rng(2).integers(0, 256, (8, 40, 50, 3), np.uint8)
    rule = f"{PER_CHANNEL},size=16x24,fit={fit},resize={method},camera=40x50"
    model = convert(tmp_path, chip, "nv12", rule, "NCHW", quantize="int8", calibration=images)
    result = tc.export(model, tmp_path / "out", chip=chip, compile=True, with_checks=True)
    result.check()
    assert not result.manifest["host_nodes"]
    (kind, _) = result.proofs["out"]["tensors"]
    assert kind["kind"] == "integers" and kind["equal"] == kind["tensors"] > 3


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("method", ["opencv-linear", "opencv-nearest"])
def test_fitted_images_have_the_pixels_of_the_operator(
    method: str, fit: dict[str, Any], chip: str, vendor: Vendor, tmp_path: Path
) -> None:
    shape = (2, 36, 50, 3)
    graph = Graph("fit")
    x = graph.input("image", TensorType(DType.UINT8, shape))
    graph.output(graph.add(HostFitImage(pad=114, method=METHODS.index(method), **fit), x))
    feeds = [{"image": np.random.default_rng(seed).integers(0, 256, shape, np.uint8)} for seed in range(3)]
    assert vendor.differences(model_of(graph), feeds, chip, tmp_path / "out") == []


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("shape", [(1, 96, 64), (3, 9, 10)])
def test_planes_become_the_pixels_of_the_operator(
    shape: tuple[int, ...], interleaved: bool, chip: str, vendor: Vendor, tmp_path: Path
) -> None:
    graph = Graph("planes")
    x = graph.input("planes", TensorType(DType.UINT8, shape))
    pixels = [graph.add(HostYuv420ToRgb(interleaved, blue), x) for blue in (False, True)]
    graph.output(pixels[0])
    graph.output(graph.add(Permute((0, 3, 1, 2)), pixels[1]))
    feeds = [{"planes": np.random.default_rng(seed).integers(0, 256, shape, np.uint8)} for seed in range(4)]
    assert vendor.differences(model_of(graph), feeds, chip, tmp_path / "out") == []
