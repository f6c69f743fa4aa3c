"""The error for an input file that does not exist has a next step."""

from pathlib import Path

import pytest

from tpuconvert.__main__ import main
from tpuconvert.schema.system.absent_file import absent_file


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("net.onnx", "did you mean '{folder}/Net_.onnx'?"),
        ("other.npz", "the folder {folder} has a.npz, b.npz, c.npz and 1 more"),
        ("other.tflite", "the folder {folder} has no .tflite file; check the path"),
        ("images", "check the path"),
        ("models/deep/net.onnx", "there is no folder {folder}/models"),
    ],
)
def test_hints(name: str, hint: str, tmp_path: Path) -> None:
    for file in ("Net_.onnx", "a.npz", "b.npz", "c.npz", "d.npz"):
        (tmp_path / file).touch()
    error = absent_file(tmp_path / name)
    assert error.message == f"{tmp_path / name}: no such file"
    assert error.hint == hint.format(folder=tmp_path)


def test_names_of_the_folder_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[2J\nb.npz").touch()
    assert absent_file(tmp_path / "other.npz").hint.endswith("has a\\x1b[2J\\nb.npz")


@pytest.mark.parametrize(
    "arguments",
    [
        ["convert", "absent.onnx"],
        ["inspect", "absent.tpum"],
        ["run", "absent.tpum", "x.npz"],
        ["calibrate", "net.onnx", "--calibration", "absent.npz", "-o", "ranges.json"],
        ["calibrate", "net.onnx", "--calibration", "absent/", "-o", "ranges.json"],
        ["convert", "absent.prototxt", "absent.caffemodel"],
    ],
)
def test_commands_print_the_next_step(
    arguments: list[str],
    tmp_path: Path,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes((repository / "examples/digits/digits.onnx").read_bytes())
    assert main(arguments) == 2
    first, hint = capsys.readouterr().err.splitlines()
    assert "absent" in first and "no such file" in first
    assert hint.strip()
