"""Arguments that are swapped, empty, misplaced or named like options: the error says what to type."""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import onnx
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


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (["check", ""], "MODEL"),
        (["convert", "digits.onnx", "-o", ""], "--output"),
        (["run", "digits.tpum", " "], "[NAME=]INPUT..."),
    ],
)
def test_an_empty_name(call: list[str], name: str, capsys: Captured) -> None:
    assert f"{name} is empty\n    name a file; a variable of the shell may not be set" in error_of(call, capsys)


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


def test_pixels_of_one_channel_need_a_gray_color(capsys: Captured) -> None:
    np.savez("pixels.npz", images=np.zeros((4, 8, 8), np.uint8))
    call = ["convert", "digits.onnx", "-o", "int8.tpum", "--quantize", "int8", "--calibration", "pixels.npz"]
    assert "--preprocess color=GRAY,mean=127.5" in error_of(call, capsys)
    assert "color=GRAY has one" in error_of([*call, "--preprocess", "color=RGB"], capsys)
    assert main([*call, "--preprocess", "color=GRAY,mean=127.5,scale=0.0078125"]) == 0


def test_a_changed_source_is_said(model: str, capsys: Captured) -> None:
    source = onnx.load("digits.onnx")
    source.doc_string = "changed"
    onnx.save(source, "other.onnx")
    capsys.readouterr()
    assert main(["verify", "digits.onnx", model, "--samples", "1"]) == 0
    assert "the source is not the one of the conversion" not in capsys.readouterr().out
    assert main(["verify", "other.onnx", model, "--samples", "1"]) == 0
    assert "the source is not the one of the conversion" in capsys.readouterr().out


def test_a_growth_without_a_percent_sign(model: str, capsys: Captured) -> None:
    error = error_of(["diff", model, model, "--max-size-growth", "5"], capsys)
    assert "'5' is a growth of 500%\n    write 5% for a percentage, or 500%" in error


def test_a_float_model_has_no_integers_to_check(capsys: Captured) -> None:
    assert main(["convert", "digits.onnx", "-o", "golden.tpum", "--golden", "1"]) == 0
    assert "golden.tpum: the model has no integer tensors" in error_of(["device", "check", "golden.tpum"], capsys)


def test_a_file_where_a_folder_is_expected(model: str, digits: Path, capsys: Captured) -> None:
    data = str(digits / "digits.npz")
    assert "is a file, expected a folder" in error_of(
        ["evaluate", model, "--data", data, "--metric", "map", "--preprocess", "color=GRAY"], capsys
    )
    assert "x.npy is a file" in error_of(["convert", "digits.onnx", "-o", "x.npy/net.tpum"], capsys)


def test_names_of_results_say_what_they_are(model: str, capsys: Captured) -> None:
    error = error_of(["export", model, "net.tpum", "--to", "onnx"], capsys)
    assert "net.tpum: what is written is an ONNX file\n    name it net.onnx" in error


def test_a_model_beside_a_prototxt(digits: Path, capsys: Captured) -> None:
    error = error_of(["convert", str(digits / "digits.prototxt"), "digits.onnx"], capsys, 4)
    assert "it is a model by itself: leave the other file out" in error


def test_a_quantization_with_ranges_repeats_the_options(digits: Path, capsys: Captured) -> None:
    calibration = str(digits / "calibration.npz")
    call = ["calibrate", "digits.onnx", "--calibration", calibration, "-o", "ranges.json", "--chip", "bm1684"]
    assert main([*call, "--preprocess", "color=GRAY,scale=0.0625"]) == 0
    following = capsys.readouterr().out.splitlines()[-1].removeprefix("next: tpuconvert ")
    assert main(shlex.split(following)) == 0
    assert main(["run", "digits.tpum", calibration]) == 0  # pixels


def test_random_numbers_are_named_by_attribute(digits: Path, capsys: Captured) -> None:
    call = [
        "convert",
        "digits.onnx",
        "-o",
        "int8.tpum",
        "--quantize",
        "int8",
        "--preprocess",
        "color=GRAY,scale=0.0625",
    ]
    assert main([*call, "--calibration", str(digits / "calibration.npz")]) == 0
    capsys.readouterr()
    assert main(["attribute", "digits.onnx", "int8.tpum", "--nodes", "1"]) == 0
    assert "random numbers are not what ranges are made for" in capsys.readouterr().out
    error = error_of(["export", "int8.tpum", "out", "--chip", "bm1684"], capsys)
    assert "convert the source with --chip bm1684 --exact-on bm1684" in error
