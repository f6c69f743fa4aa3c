"""Common usage errors: one error with what was found, what was expected, and the next step."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model(digits: Path, tmp_path: Path) -> str:
    """A float model with the input ``image``."""
    assert main(["convert", str(digits / "digits.onnx"), "-o", "net.tpum"]) == 0
    np.savez("x.npz", image=np.zeros((1, 1, 8, 8), np.float32))
    return "net.tpum"


@pytest.mark.parametrize(
    ("given", "found", "hint"),
    [
        ("wrong=x.npz", "the model has no input 'wrong'", "its inputs: image"),
        ("Image=x.npz", "the model has no input 'Image'", "did you mean 'image'?"),
        ("imge=absent.npz", "the model has no input 'imge'", "did you mean 'image'?"),
        ("image=absent.npz", "absent.npz: no such file or folder", ""),
    ],
)
def test_run_names_the_input_that_the_model_does_not_have(
    model: str, given: str, found: str, hint: str, capsys: Captured
) -> None:
    assert main(["run", model, given]) == 2
    shown = capsys.readouterr().err
    assert found in shown
    assert hint in shown


def test_run_takes_a_file_whose_name_has_an_equals_sign(model: str, capsys: Captured) -> None:
    Path("x.npz").rename("lr=0.1.npz")
    assert main(["run", model, "lr=0.1.npz"]) == 0


def test_the_second_line_of_a_hint_is_indented_too(digits: Path, capsys: Captured) -> None:
    assert main(["convert", str(digits / "digits.onnx"), "-o", "n.tpum", "--outputs", "probabilty"]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == [
        "    did you mean 'probability'?",
        "    the model's own outputs: probability",
    ]


@pytest.mark.parametrize("command", ["verify", "attribute", "reproduce"])
def test_a_converted_model_before_its_source_is_named(command: str, model: str, digits: Path, capsys: Captured) -> None:
    network, weights = str(digits / "digits.prototxt"), str(digits / "digits.caffemodel")
    assert main([command, network, model, weights]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error[TC2001]: {model}: a converted model where the source is expected",
        f"    give it last: tpuconvert {command} {network} {weights} {model}",
    ]


def test_an_array_is_reported_with_the_shape_that_the_file_has(model: str, capsys: Captured) -> None:
    np.savez("pixels.npz", images=np.zeros((30, 8, 8), np.uint8))
    assert main(["run", model, "pixels.npz"]) == 2
    assert "an array uint8[30, 8, 8] does not fit input 'image' float32[1, 1, 8, 8]" in capsys.readouterr().err


def test_pixels_without_preprocessing_are_reported_with_an_example(digits: Path, capsys: Captured) -> None:
    np.savez("pixels.npz", images=np.zeros((30, 8, 8), np.uint8))
    source = str(digits / "digits.onnx")
    assert main(["convert", source, "-o", "out.tpum", "--quantize", "int8", "--calibration", "pixels.npz"]) == 2
    assert "--preprocess color=GRAY,mean=127.5,scale=0.0078125" in capsys.readouterr().err


def test_a_report_with_the_accuracy_is_suggested_after_a_verification(digits: Path, capsys: Captured) -> None:
    source = str(digits / "digits.onnx")
    assert main(["convert", source, "-o", "net.tpum", "--verify"]) == 0
    suggested = capsys.readouterr().out.splitlines()[-1]
    assert suggested == f"next: tpuconvert verify {source} net.tpum --html net.html"
    assert main(suggested.split()[2:]) == 0
    assert "Compared with the source" in Path("net.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("options", "command"), [([], "bench"), (["--quantize", "int8"], "attribute")])
def test_a_report_that_was_written_is_not_suggested_again(
    options: list[str], command: str, digits: Path, capsys: Captured
) -> None:
    arguments = ["convert", str(digits / "digits.onnx"), "-o", "net.tpum", "--verify", "--report", "net.html", *options]
    if options:
        arguments += ["--calibration", str(digits / "calibration.npz"), "--preprocess", "color=GRAY,scale=0.0625"]
    assert main(arguments) == 0
    suggested = capsys.readouterr().out.splitlines()[-1]
    assert suggested.startswith(f"next: tpuconvert {command} ")
    words = shlex.split(suggested.removeprefix("next: tpuconvert "))
    assert main([*words, "--json"]) == 0, "the suggested command works"


def test_samples_without_labels_say_how_to_store_them(model: str, capsys: Captured) -> None:
    assert main(["evaluate", model, "--data", "x.npz"]) == 2
    assert "numpy.savez(FILE, images=..., labels=...) writes such a file" in capsys.readouterr().err


def test_a_converted_model_is_no_source(model: str, capsys: Captured) -> None:
    before = Path(model).read_bytes()
    assert main(["convert", model]) == 2
    assert "is named like a converted model, expected a source" in capsys.readouterr().err
    assert Path(model).read_bytes() == before


def test_preprocessing_with_other_channels_than_the_input_is_refused_before_it_is_stored(
    digits: Path, capsys: Captured
) -> None:
    """The input is grayscale: a model with color preprocessing could never be run on an image."""
    call = ["convert", str(digits / "digits.onnx"), "-o", "n.tpum", "--preprocess"]
    assert main([*call, "color=RGB"]) == 2
    assert "has 1 channel in NCHW, RGB has 3" in capsys.readouterr().err
    assert not Path("n.tpum").exists()
    assert main([*call, "color=GRAY"]) == 0


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--outputs", "probabilty"], "did you mean 'probability'?"),
        (["--inputs", "imge"], "did you mean 'image'?"),
        (["--input-shapes", "imag=1,1,8,8"], "did you mean 'image'?"),
        (["--fix-input", "imag=1"], "did you mean 'image'?"),
    ],
)
def test_names_of_tensors_get_the_nearest_one(digits: Path, options: list[str], hint: str, capsys: Captured) -> None:
    assert main(["convert", str(digits / "digits.onnx"), "-o", "n.tpum", *options]) == 2
    assert hint in capsys.readouterr().err
