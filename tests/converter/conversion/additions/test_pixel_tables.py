"""Tables of pixels in INT8 models with fused preprocessing: equal integers, and exports for a device."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support import programs
from tests.support.paired import paired
from tpuconvert.conversion import conversion
from tpuconvert.conversion.options.options import group_options
from tpuconvert.schema.types import Array

PER_CHANNEL = "mean=104,117,123,scale=0.017,0.0175,0.0171"


def network(path: Path, layout: str, channels: int = 3) -> Path:
    """A padded 3x3 convolution, into which a mean cannot be folded, ReLU and a 1x1 convolution."""
    draw = np.random.default_rng(1)
    shape = [1, channels, 8, 8] if layout == "NCHW" else [1, 8, 8, channels]
    nodes = [
        helper.make_node("Transpose", ["image"], ["planes"], perm=[0, 3, 1, 2])
        if layout == "NHWC"
        else helper.make_node("Identity", ["image"], ["planes"]),
        helper.make_node("Conv", ["planes", "w"], ["map"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["map"], ["features"]),
        helper.make_node("Conv", ["features", "v"], ["y"]),
    ]
    weights = {"w": draw.normal(size=(6, channels, 3, 3)), "v": draw.normal(size=(4, 6, 1, 1))}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 8, 8])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def convert(path: Path, rule: str, order: str, images: Array, **options: Any) -> tc.Model:
    return tc.convert(
        path,
        preprocess=rule,
        calibration=images,
        **group_options(fuse_preprocess=order, quantize="int8", effort="low", **options),
    )


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("chip", "order", "values"),
    paired(
        ["bm1684", "bm1686"],
        ["rgb", "bgr", "nv12"],
        ["mean=0,scale=0.0039", "mean=100,scale=0.0039", PER_CHANNEL],
    ),
)
def test_tables_give_the_integers_of_the_nodes(
    values: str, order: str, layout: str, chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = np.random.default_rng(2).integers(0, 256, (8, 8, 8, 3), np.uint8)
    path, rule = network(tmp_path / "net.onnx", layout), f"color=BGR,layout={layout},{values}"
    found = convert(path, rule, order, images, chip=chip)
    with monkeypatch.context() as patch:
        patch.setattr(conversion, "tabulate_pixels", lambda graph, chip: None)
        plain = convert(path, rule, order, images, chip=chip)
    names = [node.op.name for node in found.graph.nodes]
    first = next(index for index, name in enumerate(names) if name.startswith("conv"))
    known = {"host_yuv420_to_rgb", "permute", "reshape", "extract", "lut", "concat"}
    assert "lut" in names and set(names[:first]) <= known, names
    assert "lut" not in [node.op.name for node in plain.graph.nodes]
    found.save(tmp_path / "net.tpum")
    with tc.Session(plain) as wanted, tc.Session(tmp_path / "net.tpum") as native:
        result = wanted.run_images(images)["y"]
        assert np.array_equal(native.run_images(images)["y"], result)
    with tc.Session(found, backend="reference") as reference:
        assert np.array_equal(reference.run_images(images)["y"], result)
    assert tc.reproduce(tmp_path / "net.tpum", path, calibration=images).is_same


def test_bm1682_has_no_tables(tmp_path: Path) -> None:
    images = np.zeros((2, 8, 8, 3), np.uint8)
    path = network(tmp_path / "net.onnx", "NCHW")
    model = tc.convert(
        path, preprocess="color=RGB", source_options=tc.SourceOptions(fuse_preprocess="rgb"), chip="bm1682"
    )
    assert "lut" not in [node.op.name for node in model.graph.nodes]
    with tc.Session(model) as session:
        assert session.run_images(images)["y"].shape == (2, 4, 8, 8)


@pytest.mark.parametrize("form", ["tpu-mlir", "tpulang", "onnx"])
@pytest.mark.parametrize("order", ["rgb", "bgr"])
@pytest.mark.parametrize("chip", ["bm1684x", "bm1684"])
def test_models_with_fused_preprocessing_are_exported(chip: str, order: str, form: str, tmp_path: Path) -> None:
    images = np.random.default_rng(2).integers(0, 256, (8, 8, 8, 3), np.uint8)
    path = network(tmp_path / "net.onnx", "NCHW")
    if chip == "bm1684" and form != "tpu-mlir":
        pytest.skip("no such form for this chip")
    exact = {"exact_on": "bm1684"} if chip == "bm1684" else {}
    model = convert(path, f"color=RGB,{PER_CHANNEL}", order, images, chip=chip, **exact)
    if form == "onnx":
        runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
        tc.export(model, tmp_path / "out.onnx", to="onnx")
        engine = runtime.InferenceSession(str(tmp_path / "out.onnx"))
        (port,) = engine.get_inputs()
        pixels = images[:1] if order == "rgb" else np.ascontiguousarray(images[:1, ..., ::-1])
        (found,) = engine.run(None, {port.name: pixels})
        with tc.Session(model) as session:
            assert np.array_equal(found, session.run(pixels)["y"])
        return
    manifest = tc.export(model, tmp_path / "out", to=form, chip=chip).manifest
    assert [item["name"] for item in manifest["inputs"]] == ["image_pixels"]
    assert not manifest.get("host_nodes")


def test_program_of_a_device_computes_the_same_integers(repository: Path, tmp_path: Path) -> None:
    """The bundled network with pixels as input, run with the NumPy functions of TPULang."""
    digits = repository / "examples" / "digits"
    shutil.copy(digits / "digits.onnx", tmp_path / "net.onnx")
    model = tc.convert(
        tmp_path / "net.onnx",
        chip="bm1684x",
        quantize="int8",
        calibration=digits / "calibration.npz",
        preprocess="color=GRAY,scale=0.0625,mean=3",
        source_options=tc.SourceOptions(fuse_preprocess="gray"),
    )
    check_program(model, tmp_path)


def test_program_of_a_device_converts_channels(tmp_path: Path) -> None:
    images = np.random.default_rng(2).integers(0, 256, (8, 8, 8, 3), np.uint8)
    path = network(tmp_path / "net.onnx", "NCHW")
    check_program(convert(path, f"color=RGB,{PER_CHANNEL}", "bgr", images, chip="bm1684x"), tmp_path)


def check_program(model: tc.Model, folder: Path) -> None:
    """Export for TPULang with every integer tensor, run the program with NumPy, and compare."""
    package = folder / "home" / "python" / "transform"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "TpuLang.py").write_text("from tests.support.vendor.tpulang_in_numpy import *\n")
    manifest = tc.export(model, folder / "out", to="tpulang", with_checks=True).manifest
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(programs.ROOT), "TPU_MLIR_HOME": str(folder / "home")}
    done = subprocess.run(
        [sys.executable, folder / "out" / "compile_bmodel.py"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    expected, found = np.load(folder / "out" / "expected.npz"), np.load(folder / "out" / "net.bmodel")
    compared = 0
    for output in manifest["outputs"]:
        ours, theirs = expected[output["name"]], found[output["device_name"]]
        if ours.dtype != np.float32:
            assert np.array_equal(ours, theirs), output["name"]
            compared += 1
    assert compared > 3
