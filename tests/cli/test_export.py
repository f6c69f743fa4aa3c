"""``tpuconvert export`` on the bundled example."""

import json
from pathlib import Path

import numpy as np
import pytest

from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model(digits: Path, capsys: Captured) -> str:
    """The bundled network in INT8."""
    how = ["--quantize", "int8", "--calibration", str(digits / "calibration.npz"), "--chip", "bm1684x"]
    how += ["--preprocess", "color=GRAY,scale=0.0625"]
    assert main(["convert", str(digits / "digits.onnx"), "-o", "net.tpum", *how]) == 0
    capsys.readouterr()
    return "net.tpum"


def test_a_quantized_network(digits: Path, model: str, capsys: Captured) -> None:
    assert main(["export", model, "out", "--data", str(digits / "calibration.npz"), "--with-checks"]) == 0
    printed = capsys.readouterr().out
    assert "digits for bm1684x, tpu_mlir" in printed
    assert "next: out/compile.sh" in printed
    expected = np.load("out/expected.npz")
    assert {"image:uint8", "conv1/relu", "fc", "probability"} <= set(expected.files)
    assert all(expected[name].shape[0] == 4 for name in expected.files)


def test_json(model: str, capsys: Captured) -> None:
    assert main(["export", model, "out", "--chip", "bm1688", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["folder"], document["chip"], document["to"]) == ("out", "bm1688", "tpu-mlir")
    assert [output["name"] for output in document["outputs"]] == ["probability"]


def test_a_model_of_another_chip(model: str, capsys: Captured) -> None:
    assert main(["export", model, "out", "--chip", "bm1684"]) == 2
    error = capsys.readouterr().err
    assert "the model is for BM1686" in error and "--chip bm1684" in error
    assert not Path("out").exists()


def test_a_model_is_not_overwritten(model: str, capsys: Captured) -> None:
    content = Path(model).read_bytes()
    assert main(["export", model, model]) == 2
    assert Path(model).read_bytes() == content
    assert "net.tpum" in capsys.readouterr().err


def test_a_float_model_is_refused(digits: Path, capsys: Captured) -> None:
    assert main(["convert", str(digits / "digits.onnx"), "-o", "float.tpum", "--chip", "bm1684x"]) == 0
    capsys.readouterr()
    assert main(["export", "float.tpum", "out"]) == 2
    assert "--quantize int8" in capsys.readouterr().err
    assert not Path("out").exists()
