"""The option ``--tflite-rounding``."""

from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.tflite.models import T, serialize, single
from tpuconvert.__main__ import main


def write_quantized_conv(folder: Path) -> str:
    """Write a 1x1 convolution of one pixel: 1 * 1 + bias in units of 0.25, with output scale 0.7."""
    w = T("w", data=np.ones((1, 1, 1, 1), np.int8), scale=(0.5,), zero_point=(0,))
    x, y = T("", (1, 1, 1, 1), "INT8", None, (0.5,), (0,)), T("", (1, 1, 1, 1), "INT8", None, (0.7,), (0,))
    file = folder / "model.tflite"
    file.write_bytes(serialize(single("CONV_2D", [x, w], [y], "Conv2DOptions", stride_h=1, stride_w=1)))
    return str(file)


@pytest.mark.parametrize(("rounding", "mode"), [("double", "TFLITE_LSHIFT"), ("single", "MULTIPLIER_SHIFT")])
def test_rescales_round_as_asked(rounding: str, mode: str, tmp_path: Path) -> None:
    out = str(tmp_path / "net.tpum")
    assert main(["convert", write_quantized_conv(tmp_path), "-o", out, "--tflite-rounding", rounding]) == 0
    (rescale,) = [node.op for node in tc.load(out).graph.nodes if node.op.name == "requant_int32"]
    assert rescale.attributes()["mode"].name == mode


def test_other_formats_have_no_such_choice(digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["convert", str(digits / "digits.onnx"), "-o", "net.tpum", "--tflite-rounding", "single"]
    assert main(arguments) == 2
    assert "--tflite-rounding belongs to TFLite models only" in capsys.readouterr().err
