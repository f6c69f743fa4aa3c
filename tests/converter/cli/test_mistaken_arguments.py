"""Arguments that are swapped, empty, misplaced or named like options: the error says what to type."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(digits / "digits.onnx", "digits.onnx")
    np.save("x.npy", np.zeros((1, 1, 8, 8), np.float32))


@pytest.fixture
def model(working_folder: None) -> str:
    assert main(["convert", "digits.onnx", "-o", "digits.tpum"]) == 0
    return "digits.tpum"


def error_of(arguments: list[str], captured: Captured, code: int = 2) -> str:
    captured.readouterr()
    assert main(arguments) == code
    return captured.readouterr().err


@pytest.mark.parametrize("call", [["run", "x.npy"], ["evaluate", "x.npy", "--data"]])
def test_the_model_comes_first(model: str, call: list[str], capsys: Captured) -> None:
    assert "x.npy: the model is expected here\n    give it first: digits.tpum" in error_of([*call, model], capsys)


@pytest.mark.parametrize("call", [["check", ""], ["convert", "digits.onnx", "-o", ""], ["run", "digits.tpum", " "]])
def test_an_empty_name(call: list[str], capsys: Captured) -> None:
    assert "the name of a file is empty\n    name it; a variable of the shell may not be set" in error_of(call, capsys)


def test_a_file_with_a_leading_dash(capsys: Captured) -> None:
    Path("digits.onnx").rename("-digits.onnx")
    assert "a file of this name is ./-digits.onnx" in error_of(["check", "-digits.onnx"], capsys)
    assert main(["check", "./-digits.onnx"]) == 0


def test_an_option_of_other_commands(capsys: Captured) -> None:
    error = error_of(["run", "digits.tpum", "--calibration", "x.npy"], capsys)
    assert "No such option '--calibration'" in error and "an option of convert, " in error


def test_the_result_as_an_argument(capsys: Captured) -> None:
    assert "the file to write is an option: -o net.tpum" in error_of(["convert", "digits.onnx", "net.tpum"], capsys)


def test_a_source_where_a_model_is_expected(capsys: Captured) -> None:
    hint = "convert it first: tpuconvert convert digits.onnx -o digits.tpum"
    assert hint in error_of(["run", "digits.onnx", "x.npy"], capsys, 4)
    Path("digits.onnx").rename("digits.tpum")
    hint = "convert it first: tpuconvert convert digits.tpum -o digits.converted.tpum"
    assert hint in error_of(["run", "digits.tpum", "x.npy"], capsys, 4)


def test_an_array_of_another_rank(model: str, capsys: Captured) -> None:
    np.save("x.npy", np.zeros(3, np.float32))
    error = error_of(["run", model, "x.npy"], capsys)
    assert "x.npy: an array float32[3] does not fit input 'image' float32[1, 1, 8, 8]" in error


def test_labels_that_are_missing(model: str, capsys: Captured) -> None:
    np.savez("x.npz", image=np.zeros((2, 1, 8, 8), np.float32))
    Path("images").mkdir()
    for data in ("x.npy", "x.npz", "images"):
        error = error_of(["evaluate", model, "--data", data], capsys)
        assert "give the labels with --labels, or --unlabeled with --reference" in error
    assert "none: no such file" in error_of(["evaluate", model, "--data", "x.npz", "--labels", "none"], capsys)


def test_another_source_is_named(model: str, digits: Path, capsys: Captured) -> None:
    shutil.copy(digits / "digits.tflite", "digits.tflite")
    error = error_of(["verify", "digits.tflite", model], capsys)
    assert (
        "digits.tflite: the model was made from another file, 'digits.onnx': input 'image' has shape [1, 8, 8, 1]"
        in error
    )


@pytest.mark.parametrize("name", ["net.pt", "net.pth", "net.ckpt"])
def test_a_pickle_of_any_protocol(name: str, capsys: Captured) -> None:
    Path(name).write_bytes(b"\x80\x05\x95\x0b\x00\x00\x00\x00\x00\x00\x00}\x94")
    assert "torch.onnx.export" in error_of(["check", name], capsys, 4)


def test_integers_are_ranked_by_their_real_values(digits: Path, capsys: Captured) -> None:
    calibration = str(digits / "calibration.npz")
    call = ["convert", "digits.onnx", "-o", "int8.tpum", "--quantize", "int8", "--calibration", calibration]
    assert main([*call, "--preprocess", "color=GRAY,scale=0.0625"]) == 0
    np.save("x.npy", np.load(calibration)["images"][:1])
    capsys.readouterr()
    assert main(["run", "int8.tpum", "x.npy", "--outputs", "fc", "--json"]) == 0
    (output,) = json.loads(capsys.readouterr().out)["outputs"]
    assert output["dtype"].startswith(("int", "uint"))
    values = [score["value"] for score in output["best"][0]]
    assert values[0] == output["max"] and any(value % 1 for value in values)
