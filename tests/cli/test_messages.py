"""Mistakes of newcomers: one error with what was found, what was expected, and the next step."""

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


def test_a_measure_close_to_its_limit_is_written_with_enough_digits(digits: Path, model: str, capsys: Captured) -> None:
    """A cosine of 1 - 4e-7 would be written as 1 with six digits."""
    assert main(["convert", str(digits / "digits.onnx"), "-o", "int8.tpum", "--quantize", "int8", "--calibration",
                 str(digits / "calibration.npz"), "--preprocess", "color=GRAY,scale=0.0625"]) == 0  # fmt: skip
    data = ["--data", str(digits / "calibration.npz"), "--preprocess", "color=GRAY,scale=0.0625"]
    capsys.readouterr()
    assert main(["verify", str(digits / "digits.onnx"), "int8.tpum", *data, "--min-cosine", "1"]) == 5
    line = next(line for line in capsys.readouterr().err.splitlines() if "cosine" in line)
    found = float(line.partition("cosine ")[2].split()[0])
    assert 0.99 < found < 1.0
