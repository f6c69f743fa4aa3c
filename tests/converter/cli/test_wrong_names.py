"""Output names that would overwrite an input or cannot be written: reported before conversion, nothing is written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model(digits: Path) -> Path:
    """The bundled network, copied to the folder of the test."""
    return Path(shutil.copy(digits / "digits.onnx", "net.onnx"))


@pytest.mark.parametrize("target", ["net.onnx", "./net.onnx", "link.tpum"])
def test_the_source_is_never_replaced(model: Path, target: str, capsys: Captured) -> None:
    os.symlink("net.onnx", "link.tpum")
    before = model.read_bytes()
    assert main(["convert", "net.onnx", "-o", target]) == 2
    complaint = f"error[TC2001]: {target}: this file is read, and would be replaced by the result"
    assert complaint in capsys.readouterr().err
    assert main(["convert", "net.onnx", "--report", target]) == 2
    assert model.read_bytes() == before
    assert sorted(path.name for path in Path().iterdir()) == ["link.tpum", "net.onnx"]


def test_a_model_is_not_named_like_a_source(model: Path, capsys: Captured) -> None:
    assert main(["convert", "net.onnx", "-o", "other.onnx"]) == 2
    assert "name it other.tpum" in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["net.onnx"]


def test_forms_of_reports(model: Path, capsys: Captured) -> None:
    assert main(["convert", "net.onnx", "--report", "net.pdf"]) == 2
    assert "one of .html, .htm, .json, .txt" in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["net.onnx"]
    for name in ("net.html", "net.json", "net.txt"):
        assert main(["convert", "net.onnx", "--report", name]) == 0
        assert Path(name).stat().st_size > 0
    assert main(["convert", "net.onnx", "-o", "net.txt", "--report", "net.txt"]) == 2


def test_run_does_not_replace_its_inputs(model: Path) -> None:
    assert main(["convert", "net.onnx"]) == 0
    np.savez("image.npz", image=np.zeros((1, 1, 8, 8), np.float32))
    before = Path("image.npz").read_bytes()
    assert main(["run", "net.tpum", "image.npz", "-o", "image.npz"]) == 2
    assert main(["run", "net.tpum", "image=image.npz", "-o", "image.npz"]) == 2
    assert Path("image.npz").read_bytes() == before


def test_a_pipe_is_refused_and_not_waited_for(capsys: Captured) -> None:
    os.mkfifo("net.onnx")
    assert main(["check", "net.onnx"]) == 2
    assert "net.onnx: is a pipe or a device, not a file" in capsys.readouterr().err


def test_a_full_disk_is_a_resource_limit() -> None:

    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tpuconvert", "ops"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 6
    assert "error[TC6001]: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("files", [["net.onnx"], ["a", "b", "c", "d"]])
def test_verify_says_which_files_it_takes(model: Path, files: list[str], capsys: Captured) -> None:
    assert main(["verify", *files]) == 2
    assert "tpuconvert verify" in capsys.readouterr().err


def test_a_report_has_one_name(digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(digits / "digits.onnx")
    assert main(["convert", source, "--report", "net.json", "--html", "net.html"]) == 2
    assert "--report with --html" in capsys.readouterr().err
    assert main(["convert", source, "--html", "net.json"]) == 2
    assert "net.json: a page ends in .html" in capsys.readouterr().err
    assert list(Path().iterdir()) == []
    assert main(["convert", source, "-o", "net.tpum", "--html", "net.html"]) == 0
    assert main(["verify", source, "net.tpum", "--samples", "1", "--html", "verified.html"]) == 0
    for name in ("net.html", "verified.html"):
        assert Path(name).read_text().startswith("<!DOCTYPE html>")
    assert "Compared with the source" in Path("verified.html").read_text()
