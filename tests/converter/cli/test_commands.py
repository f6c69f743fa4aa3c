"""The commands on the bundled example."""

import json
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.sampled import sampled
from tpuconvert.__main__ import main
from tpuconvert.optimizer.precision_rules import METHODS

Captured = pytest.CaptureFixture[str]

SOURCES = {
    "onnx": ["digits.onnx"],
    "tflite": ["digits.tflite"],
    "caffe": ["digits.prototxt", "digits.caffemodel"],
}
PREPROCESS = {
    "onnx": "color=GRAY,scale=0.0625",
    "tflite": "color=GRAY,scale=0.0625,layout=NHWC",
    "caffe": "color=GRAY,scale=0.0625",
}


def source(digits: Path, name: str) -> list[str]:
    return [str(digits / file) for file in SOURCES[name]]


def int8(digits: Path, name: str, target: str) -> list[str]:
    data = str(digits / "calibration.npz")
    quantization = ["--quantize", "int8", "--calibration", data, "--preprocess", PREPROCESS[name]]
    return ["convert", *source(digits, name), "-o", target, *quantization]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("chip", ["bm1684", "bm1686"])
def test_convert_in_float(digits: Path, name: str, chip: str, capsys: Captured) -> None:
    assert main(["convert", *source(digits, name), "-o", "net.tpum", "--chip", chip, "--verify"]) == 0
    shown = capsys.readouterr()
    assert f"for {chip.upper()}, float" in shown.out
    assert "compared with the source on 4 samples of random numbers; no tensor stands out" in shown.out
    assert f"wrote net.tpum ({Path('net.tpum').stat().st_size:,} bytes)" in shown.out
    assert shown.err == ""
    assert tc.load("net.tpum").chip.value == chip.upper()


@pytest.mark.parametrize("name", SOURCES)
def test_the_chip_without_softmax(digits: Path, name: str) -> None:
    """BM1682 has no softmax operator; it is decomposed into other operators."""
    assert main(["convert", *source(digits, name), "-o", "net.tpum", "--chip", "bm1682", "--verify"]) == 0
    model = tc.load("net.tpum")
    assert "softmax" not in {node.op.name for node in model.graph.nodes}
    assert [port.name for port in model.outputs] == ["probability"]


def test_output_is_named_after_the_model(digits: Path) -> None:
    assert main(["convert", *source(digits, "onnx")]) == 0
    assert [path.name for path in Path().iterdir()] == ["digits.tpum"]


@pytest.mark.parametrize("name", SOURCES)
def test_convert_in_int8_with_everything(digits: Path, name: str, capsys: Captured) -> None:
    assert main([*int8(digits, name, "net.tpum"), "--verify", "--trace", "--report", "net.html"]) == 0
    shown = capsys.readouterr()
    assert "for BM1686, INT8" in shown.out
    assert "stays in float" in shown.out
    assert "preprocessing: " in shown.out
    assert "fired" in shown.err
    assert "Compared with the source" in Path("net.html").read_text()
    model = tc.load("net.tpum")
    assert model.quantize == "int8"
    assert str(model.preprocess).startswith("fit=stretch,color=GRAY,mean=0.0,scale=0.0625")


def test_what_calibration_used_is_told(digits: Path, capsys: Captured) -> None:
    assert main(int8(digits, "onnx", "net.tpum")) == 0
    shown = capsys.readouterr()
    assert shown.err == "calibration: 100 samples of calibration.npz\n"
    assert "samples only" not in shown.out
    with np.load(digits / "calibration.npz") as archive:
        np.savez("few.npz", images=archive["images"][:3], labels=np.zeros(3))
    call = int8(digits, "onnx", "net.tpum")
    call[call.index("--calibration") + 1] = "few.npz"
    assert main(call) == 0
    shown = capsys.readouterr()
    assert shown.err == "calibration: 3 samples of few.npz (array 'labels' left out)\n"
    text = "ranges come from 3 samples only, which do not show the accuracy of 'probability' on other samples"
    assert f"  calibration: {text}; 50 to 200 are usual\n" in shown.out
    assert "everywhere" not in shown.out
    np.save("blank.npy", np.zeros((50, 8, 8), np.uint8))
    call[call.index("--calibration") + 1] = "blank.npy"
    assert main(call) == 0
    found = capsys.readouterr().out
    assert "  check the samples: input 'image' has one value throughout 50 of 50 samples" in found


@pytest.mark.parametrize("method", sampled(METHODS, every=2))
def test_calibration_methods(digits: Path, method: str) -> None:
    assert main([*int8(digits, "onnx", "net.tpum"), "--calibration-method", method]) == 0


def test_verify_says_where_and_how_much(digits: Path, capsys: Captured) -> None:
    assert main(int8(digits, "onnx", "net.tpum")) == 0
    capsys.readouterr()
    call = ["verify", *source(digits, "onnx"), "net.tpum", "--data", str(digits / "calibration.npz")]
    assert main(call) == 0
    assert "compared with the source on 4 samples" in capsys.readouterr().out
    assert main([*call, "--samples", "2", "--json", "--report", "net.json"]) == 0
    verification = json.loads(capsys.readouterr().out)
    assert verification["samples"] == 2
    assert [output["name"] for output in verification["outputs"]] == ["probability"]
    (model,) = json.loads(Path("net.json").read_text())["models"]
    assert [output["name"] for output in model["verification"]["outputs"]] == ["probability"]
    assert main([*call, "--min-sqnr", "90"]) == 5
    complaint = capsys.readouterr().err
    assert "output 'probability': SQNR in dB" in complaint
    assert "is below 90" in complaint


def test_verify_of_a_caffe_model_takes_three_files(digits: Path, capsys: Captured) -> None:
    assert main(["convert", *source(digits, "caffe"), "-o", "net.tpum"]) == 0
    assert main(["verify", *source(digits, "caffe"), "net.tpum"]) == 0
    capsys.readouterr()
    assert main(["verify", "a", "b", "c", "d"]) == 2
    assert "tpuconvert verify MODEL [WEIGHTS] FILE.tpum" in capsys.readouterr().err


def test_verify_against_another_source(digits: Path, capsys: Captured) -> None:
    assert main(["convert", *source(digits, "onnx"), "-o", "net.tpum", "--outputs", "conv1"]) == 0
    capsys.readouterr()
    assert main(["verify", *source(digits, "onnx"), "net.tpum"]) == 2
    assert "the outputs differ" in capsys.readouterr().err
    assert main(["verify", *source(digits, "onnx"), "net.tpum", "--outputs", "conv1"]) == 0


@pytest.mark.parametrize("name", SOURCES)
def test_run_on_images_in_an_archive(digits: Path, name: str, capsys: Captured) -> None:
    convert = ["convert", *source(digits, name), "-o", "net.tpum", "--preprocess", PREPROCESS[name]]
    assert main(convert) == 0
    capsys.readouterr()
    with np.load(digits / "digits.npz") as archive, np.load(digits / "expected.npz") as expected:
        np.save("images.npy", archive["images"][archive["test"]][expected["chosen"]])
        wanted = expected["onnxruntime"]
    assert main(["run", "net.tpum", "images.npy", "-o", "out.npz"]) == 0
    shown = capsys.readouterr().out
    assert "16 samples of images.npy" in shown
    assert "    sample 4  " in shown
    assert "    and 11 more\n" in shown
    with np.load("out.npz") as out:
        np.testing.assert_allclose(out["probability"], wanted, rtol=0, atol=1e-5)  # float32 sums in a different order
    assert main(["run", "net.tpum", "image=images.npy", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["samples"] == 16
    assert summary["outputs"][0]["shape"] == [16, 10]
    assert [best[0]["index"] for best in summary["outputs"][0]["best"]] == wanted[:5].argmax(axis=1).tolist()


def test_run_names_the_images(digits: Path, capsys: Captured) -> None:
    from PIL import Image

    assert main(["convert", *source(digits, "onnx"), "-o", "net.tpum", "--preprocess", PREPROCESS["onnx"]]) == 0
    Path("folder").mkdir()
    for index in range(6):
        Image.new("L", (8, 8), 40 * index).save(f"folder/image_{index}.png")
    capsys.readouterr()
    assert main(["run", "net.tpum", "folder"]) == 0
    shown = capsys.readouterr().out
    assert "    image_4.png  " in shown
    assert "and 1 more; -o OUT.npz writes all" in shown
    assert main(["run", "net.tpum", "folder", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pictures"] == [f"image_{index}.png" for index in range(6)]


def test_run_says_which_inputs_are_missing(capsys: Captured) -> None:
    from tests.support.networks.small_models import two_inputs

    two_inputs().save("two.tpum")
    np.save("a.npy", np.zeros((1, 4), np.float32))
    assert main(["run", "two.tpum", "a.npy"]) == 2
    assert "give an .npz file with one array per input name, or NAME=FILE.npy for each" in capsys.readouterr().err
    assert main(["run", "two.tpum", "a=a.npy"]) == 2
    assert "no array for 'b' float32[1, 4]\n    given: a" in capsys.readouterr().err
    assert main(["run", "two.tpum", "a=a.npy", "b=a.npy"]) == 0
    assert capsys.readouterr().out.startswith("1 sample of arrays\n")


def test_inspect(digits: Path, capsys: Captured) -> None:
    assert main(int8(digits, "onnx", "net.tpum")) == 0
    capsys.readouterr()
    assert main(["inspect", "net.tpum"]) == 0
    text = capsys.readouterr().out
    assert "softmax" in text
    assert main(["inspect", "net.tpum", "--summary"]) == 0
    assert text.startswith(capsys.readouterr().out.rstrip("\n"))
    assert main(["inspect", "net.tpum", "--json"]) == 0
    description = json.loads(capsys.readouterr().out)
    assert description["inputs"] == [{"name": "image", "dtype": "float32", "shape": [1, 1, 8, 8], "quantization": None}]
    assert main(["inspect", "net.tpum", "--html", "net.html"]) == 0
    assert Path("net.html").read_text().startswith("<!DOCTYPE html>")
    assert main(["inspect", "net.tpum", "--html", "net.txt"]) == 2
    assert main(["inspect", "net.tpum", "--html", "net.html", "--json"]) == 2


def test_inspect_source_files(digits: Path, capsys: Captured) -> None:
    for name in SOURCES:
        assert main(["inspect", *source(digits, name)]) == 0
        assert "source graph" in capsys.readouterr().out


def test_ops(capsys: Captured) -> None:
    assert main(["ops", "--chip", "bm1684", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"operator", "kind", "bm1684"} == set(rows[0])
    assert main(["ops"]) == 0
    assert "bm1682" in capsys.readouterr().out
    assert main(["ops", "--format", "onnx", "--json"]) == 0
    assert "Conv" in [row["operator"] for row in json.loads(capsys.readouterr().out)]
    assert main(["ops", "--chip", "bm1690"]) == 2
    assert main(["ops", "--chip", "bm1684", "--format", "onnx"]) == 2


def test_check(digits: Path, capsys: Captured) -> None:
    assert main(["check", *source(digits, "onnx")]) == 0
    assert "can be converted for BM1686" in capsys.readouterr().out
    assert list(Path().iterdir()) == []


def test_check_looks_at_a_prototxt_without_its_weights(digits: Path, capsys: Captured) -> None:
    for command in ("check", "inspect"):
        assert main([command, str(digits / "digits.prototxt")]) == 0
        assert "about the source: no weight file was given: weights are taken as zeros" in capsys.readouterr().out
    assert main(["convert", str(digits / "digits.prototxt")]) == 2
    assert list(Path().iterdir()) == []


def test_demo(capsys: Captured) -> None:
    assert main(["demo", "-o", "out"]) == 0
    shown = capsys.readouterr().out
    for name in SOURCES:
        [line] = [line for line in shown.splitlines() if line.startswith(name)]
        in_float, in_int8 = (float(word.rstrip("%")) for word in line.split()[1:3])
        assert in_float == pytest.approx(98.8, abs=0.21)  # the accuracy reached in training, plus or minus one image
        assert in_float - in_int8 <= 1.5
    page = Path("out/report.html").read_text()
    assert page.count("<h3>Compared with the source</h3>") == 3
    assert f"report: {Path('out/report.html').resolve()}" in shown


def test_demo_needs_a_chip_with_integers(capsys: Captured) -> None:
    assert main(["demo", "-o", "out", "--chip", "bm1682"]) == 2
    assert "choose --chip bm1684 or bm1686" in capsys.readouterr().err
    assert list(Path().iterdir()) == []


def test_progress_is_drawn_on_a_terminal(digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert main(int8(digits, "onnx", "net.tpum")) == 0
    shown = capsys.readouterr()
    assert "calibrate" in shown.err or "write" in shown.err
    assert shown.out.startswith("digits.onnx for BM1686, INT8")  # only data: no terminal control sequences
