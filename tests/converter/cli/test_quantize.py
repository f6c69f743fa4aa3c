"""``tpuconvert calibrate`` and ``quantize`` on the bundled example."""

import json
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.sampled import sampled
from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]
PIXELS = ["--preprocess", "color=GRAY,scale=0.0625"]


@pytest.fixture
def source(digits: Path, capsys: Captured) -> list[str]:
    """Convert the Caffe network with the measured ranges, which are in ranges.json."""
    files = [str(digits / "digits.prototxt"), str(digits / "digits.caffemodel")]
    call = ["calibrate", *files, "--calibration", str(digits / "calibration.npz"), *PIXELS, "-o", "ranges.json"]
    assert main(call) == 0
    shown = capsys.readouterr()
    assert "by auto\nwrote ranges.json\n" in shown.out
    assert "calibration: 100 samples of calibration.npz\n" in shown.err  # progress lines appear after 5 s
    return files


def constants(path: str) -> list[bytes]:
    return [value.array.tobytes() for value in tc.load(path).graph.values if value.is_constant]


def test_ranges_and_samples_are_what_convert_does(digits: Path, source: list[str]) -> None:
    samples = ["--calibration", str(digits / "calibration.npz"), *PIXELS]
    assert main(["convert", *source, "-o", "a.tpum", "--quantize", "int8", *samples]) == 0
    assert main(["quantize", *source, "-o", "b.tpum", *samples]) == 0
    assert Path("a.tpum").read_bytes() == Path("b.tpum").read_bytes()
    assert main(["quantize", *source, "-o", "c.tpum", "--ranges", "ranges.json", *samples, "--verify"]) == 0
    assert constants("a.tpum") == constants("c.tpum")


def test_bias_correction_takes_the_means_of_its_own_samples(digits: Path, source: list[str]) -> None:
    """Bias correction uses its samples, even if the ranges were measured on different ones."""
    call = ["quantize", *source, "--calibration", str(digits / "calibration.npz"), *PIXELS]
    assert main([*call, "--ranges", "ranges.json", "-o", "a.tpum"]) == 0
    content = json.loads(Path("ranges.json").read_text("utf-8"))
    for found in content["ranges"].values():
        if found["channels"] is not None:
            found["channels"]["mean"] = [1000.0] * len(found["channels"]["mean"])
    Path("other.json").write_text(json.dumps(content), "utf-8")
    assert main([*call, "--ranges", "other.json", "-o", "b.tpum"]) == 0
    assert constants("a.tpum") == constants("b.tpum")


@pytest.mark.parametrize("method", ["minmax", "kl", "mse"])
def test_the_order_of_samples_does_not_change_the_ranges(digits: Path, source: list[str], method: str) -> None:
    images = np.load(digits / "calibration.npz")["images"]
    for name, order in (("a", np.arange(100)), ("b", np.random.default_rng(1).permutation(100))):
        np.save(f"{name}.npy", images[order])
        call = ["calibrate", *source, "--calibration", f"{name}.npy", *PIXELS, "--calibration-method", method]
        assert main([*call, "-o", f"{name}.json"]) == 0
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()


def test_ranges_alone(digits: Path, source: list[str], capsys: Captured) -> None:
    assert main(["quantize", *source, "-o", "net.tpum", "--ranges", "ranges.json", *PIXELS]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "next: tpuconvert inspect net.tpum --html net.html"
    assert tc.load("net.tpum").quantize == "int8"
    call = ["verify", *source, "net.tpum", "--data", str(digits / "calibration.npz"), "--min-cosine", "0.99"]
    assert main(call) == 0
    capsys.readouterr()
    assert main(["reproduce", *source, "net.tpum"]) == 2
    assert "was quantized with ranges of a file" in capsys.readouterr().err
    assert main(["reproduce", *source, "net.tpum", "--ranges", "ranges.json"]) == 0
    content = json.loads(Path("ranges.json").read_text())
    content["ranges"]["image"]["threshold"] = 0.5
    Path("other.json").write_text(json.dumps(content))
    assert main(["reproduce", *source, "net.tpum", "--ranges", "other.json"]) == 2
    assert "not the ranges of the first conversion" in capsys.readouterr().err


def test_ranges_are_the_extremes_of_the_samples(digits: Path, source: list[str]) -> None:
    found = json.loads(Path("ranges.json").read_text())["ranges"]["image"]
    with np.load(digits / "calibration.npz") as archive:
        pixels = archive["images"] * np.float32(0.0625)
    assert (found["low"], found["high"]) == (pixels.min(), pixels.max())
    assert len(source) == 2


def test_wrong_calls(digits: Path, source: list[str], capsys: Captured) -> None:
    assert main(["quantize", *source]) == 2
    assert "quantization needs ranges or samples" in capsys.readouterr().err
    assert main(["quantize", *source, "--ranges", "ranges.json", "--verify"]) == 2
    assert "--verify needs samples" in capsys.readouterr().err
    assert main(["quantize", *source, "--ranges", "ranges.json", "--chip", "bm1682"]) == 2
    assert main(["quantize", *source, "--ranges", "absent.json"]) == 2
    assert main(["quantize", *source, "--ranges", "ranges.json", "-o", "ranges.json"]) == 2
    assert main(["quantize", str(digits / "digits.onnx"), "--ranges", "ranges.json"]) == 2
    assert "the ranges belong to another model" in capsys.readouterr().err
    assert main(["convert", *source, "-o", "net.tpum"]) == 0
    assert main(["quantize", "net.tpum", "--ranges", "ranges.json"]) == 2
    assert "give the source that it was converted from" in capsys.readouterr().err
    assert main(["calibrate", *source, "-o", "ranges.json"]) == 2
    assert main(["calibrate", *source, "--calibration", "absent.npz", "-o", "ranges.json"]) == 2
    assert main(["calibrate", *source, "--calibration", "absent.npz", "-o", "ranges.npz"]) == 2
    assert "the name of the ranges ends in .json" in capsys.readouterr().err


def test_ranges_of_other_tensors(source: list[str], capsys: Captured) -> None:
    content = json.loads(Path("ranges.json").read_text())
    del content["ranges"]["image"]
    Path("ranges.json").write_text(json.dumps(content))
    assert main(["quantize", *source, "--ranges", "ranges.json", *PIXELS]) == 2
    assert "no range for 1 tensor, the first is 'image'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after"),
    sampled(
        [
            ('"format": "tpuconvert ranges"', '"format": "else"'),
            ('"low": 0.0', '"low": NaN'),
            ('"low": 0.0', '"low": "0"'),
            ('"low": 0.0', '"low": 1e9'),
            ('"ranges": {', '"ranges": [{'),
            ('"channels"', '"channel"'),
            ('"samples": 100', '"samples": null'),
        ],
        every=2,
    ),
)
def test_damaged_ranges(before: str, after: str, source: list[str], capsys: Captured) -> None:
    text = Path("ranges.json").read_text()
    assert before in text
    Path("ranges.json").write_text(text.replace(before, after, 1))
    assert main(["quantize", *source, "--ranges", "ranges.json", *PIXELS]) == 4
    assert capsys.readouterr().err.startswith("error[TC4001]: ranges.json: ")
