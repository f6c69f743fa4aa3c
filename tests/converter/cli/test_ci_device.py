"""The key ``device`` of a manifest: a program that compiles and computes the same. The tests choose the faults."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml

from tests.support.onnx.models import ramp, save_model
from tests.support.onnx.symbolic_networks import network
from tests.support.vendor.fake_compiler import calls_of, make_fake_compiler
from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]


def write(digits: Path, **device: object) -> None:
    """Write a manifest with the bundled network in INT8 for BM1684X."""
    model = {
        "source": str(digits / "digits.onnx"),
        "chip": "bm1684x",
        "quantize": "int8",
        "effort": "low",
        "calibration": str(digits / "calibration.npz"),
        "preprocess": "color=GRAY,scale=0.0625",
        "device": device or {"chip": "bm1684x"},
    }
    Path("tpuconvert.yaml").write_text(yaml.safe_dump({"models": {"net": model}}))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the compiler, which tests make; the variables name it."""
    monkeypatch.setenv("TPU_MLIR_HOME", str(tmp_path / "vendor" / "tpu_mlir"))
    monkeypatch.setenv("VENDOR_PYTHON", str(tmp_path / "vendor" / "python3.10"))
    return tmp_path / "vendor" / "tpu_mlir"


def test_an_equal_program_is_required(digits: Path, home: Path, capsys: Captured) -> None:
    environment = make_fake_compiler(home)
    write(digits, chip="bm1684x", with_checks=True)
    assert main(["ci", "--markdown", "summary.md", "--report", "models.html"]) == 0
    printed = capsys.readouterr().out
    counts = [int(word) for word in printed.split("bm1684x ")[1].split()[:3:2]]
    assert counts[0] == counts[1] > 5
    assert f"| bm1684x {counts[0]} of {counts[0]} tensors |" in Path("summary.md").read_text()
    assert "bm1684x" in Path("models.html").read_text()
    calls = len(calls_of(environment))
    assert main(["ci"]) == 0  # from the cache
    assert len(calls_of(environment)) == calls and "bm1684x" in capsys.readouterr().out
    write(digits, chip="bm1688", with_checks=True)
    assert main(["ci"]) == 0
    assert len(calls_of(environment)) > calls and "bm1688" in capsys.readouterr().out


@pytest.mark.slow
def test_every_shape_is_compared(home: Path, tmp_path: Path, capsys: Captured) -> None:
    make_fake_compiler(home)
    np.save("x.npy", ramp(2, 3, 32, 32))
    model = {
        "source": str(save_model(network(), tmp_path)),
        "data": "x.npy",
        "chip": "bm1684x",
        "shapes": "1x3x32x32,1x3x48x64",
        "device": {"chip": "bm1684x"},
    }
    Path("tpuconvert.yaml").write_text(yaml.safe_dump({"models": {"net": model}}))
    assert main(["ci"]) == 0
    one = len(onnx.load(tmp_path / "model.onnx").graph.output)
    assert f"bm1684x {2 * one} of {2 * one} tensors" in capsys.readouterr().out


def test_a_differing_program_fails_the_model(digits: Path, home: Path, capsys: Captured) -> None:
    make_fake_compiler(home, wrong_at=[0, 1, 2, 3])
    write(digits)
    assert main(["ci", "--junit", "junit.xml"]) == 5
    text = "device: bm1684x 0 of 1 tensor, the first is 'probability': floating point"
    assert text in capsys.readouterr().out and text in Path("junit.xml").read_text()


def test_a_missing_compiler_is_an_error(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.delenv("TPU_MLIR_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(digits)
    assert main(["ci"]) == 7
    assert "install it: tpuconvert device setup" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ({"floats": "f16"}, "models.net.device: has no chip"),
        ({"chip": "bm1682"}, "models.net.device.chip: 'bm1682' is not one of bm1684x, bm1688, bm1684"),
        ({"chip": ["bm1684x"]}, "is not one of bm1684x"),
        ({"chip": "bm1684x", "floats": "f8"}, "models.net.device.floats: 'f8' is not one of f32, f16, bf16"),
        ({"chip": "bm1684x", "time_limit": 0}, "models.net.device.time_limit: 0 is less than 1 s"),
        ({"chip": "bm1684x", "time": 3}, "models.net.device: unknown key 'time'"),
        ({"chip": "bm1684"}, "models.net.device: the model is for BM1686, bm1684 needs one for BM1684"),
    ],
)
def test_wrong_keys(digits: Path, device: dict[str, object], message: str, capsys: Captured) -> None:
    write(digits, **device)
    assert main(["ci"]) == 2
    assert message in capsys.readouterr().err
