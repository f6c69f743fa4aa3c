"""``tpuconvert verify``: limits by tensor name, and comparison with another inference engine."""

import json
from pathlib import Path

import pytest

from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def files(digits: Path, capsys: Captured) -> list[str]:
    """A source model and the float model converted from it."""
    source = str(digits / "digits.onnx")
    assert main(["convert", source, "-o", "net.tpum"]) == 0
    capsys.readouterr()
    return [source, "net.tpum"]


def test_limits_by_name(files: list[str], capsys: Captured) -> None:
    assert main(["verify", *files, "--oracle", "none", "--threshold", "conv*:sqnr=60"]) == 0
    assert main(["verify", *files, "--oracle", "none", "--threshold", "conv*:sqnr=600"]) == 5
    assert "tensor 'conv1/bn': SQNR in dB" in capsys.readouterr().err
    assert main(["verify", *files, "--oracle", "none", "--threshold", "nothing*:sqnr=6"]) == 2
    assert main(["verify", *files, "--threshold", "conv"]) == 2
    assert "PATTERN:KEY=NUMBER" in capsys.readouterr().err


def test_another_engine(files: list[str], capsys: Captured) -> None:
    pytest.importorskip("onnxruntime")
    assert main(["verify", *files]) == 0
    assert "the source as onnxruntime" in capsys.readouterr().out
    assert main(["verify", *files, "--json"]) == 0
    opinion = json.loads(capsys.readouterr().out)["opinion"]
    assert opinion["tensors"] > 10
    assert opinion["largest_difference"] < 1e-5
    assert main(["verify", *files, "--oracle", "none", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["opinion"] is None
    assert main(["verify", *files, "--oracle", "litert"]) == 2
