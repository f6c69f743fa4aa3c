"""``tpuconvert reproduce`` on the bundled example."""

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture(params=["low", pytest.param("default", marks=pytest.mark.slow)])
def files(request: pytest.FixtureRequest, digits: Path, capsys: Captured) -> list[str]:
    """A source and its quantized model, with a limit on the transposes."""
    source, samples = [str(digits / "digits.prototxt"), str(digits / "digits.caffemodel")], digits / "calibration.npz"
    how = ["--quantize", "int8", "--calibration", str(samples), "--preprocess", "color=GRAY,scale=0.0625"]
    how += ["--effort", request.param]
    assert main(["convert", *source, "-o", "net.tpum", *how, "--max-transposes", "5"]) == 0
    capsys.readouterr()
    return [*source, "net.tpum"]


def test_the_same_bytes(digits: Path, files: list[str], capsys: Captured) -> None:
    samples = str(digits / "calibration.npz")
    assert main(["reproduce", *files, "--calibration", samples, "-o", "again.tpum"]) == 0
    assert "net.tpum: reproduced, the bytes are equal" in capsys.readouterr().out
    assert Path("again.tpum").read_bytes() == Path("net.tpum").read_bytes()
    assert main(["reproduce", *files, "--calibration", samples, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["is_same"] is True
    assert told["wanted"] == told["found"]


def test_other_bytes(digits: Path, files: list[str], capsys: Captured) -> None:
    """A file whose recipe states that a rule was disabled."""
    model = tc.load("net.tpum")
    model.metadata["recipe"]["options"]["disable_rules"] = ["fold_scale_into_previous_linear"]
    model.save("changed.tpum")
    code = main(["reproduce", *files[:2], "changed.tpum", "--calibration", str(digits / "calibration.npz"), "--json"])
    shown = capsys.readouterr()
    assert code == 5
    assert json.loads(shown.out)["is_same"] is False
    assert "changed.tpum: a second conversion gives other bytes" in shown.err


def test_wrong_calls(files: list[str], capsys: Captured) -> None:
    assert main(["reproduce", "net.tpum"]) == 2
    assert "tpuconvert reproduce MODEL [WEIGHTS] net.tpum" in capsys.readouterr().err
    assert main(["reproduce", *files]) == 2
    assert "was quantized with 100 samples" in capsys.readouterr().err
    assert main(["reproduce", *files, "-o", files[0]]) == 2
    assert main(["reproduce", files[1], files[0], "net.tpum"]) == 2
    assert "not the source" in capsys.readouterr().err


@pytest.mark.parametrize("chip", ["bm1686", "bm1684", "bm1684x", "bm1688"])
def test_every_name_of_a_chip(chip: str, tmp_path: Path, capsys: Captured) -> None:
    """The notes of a device are the same in the command, in Python and again."""
    source = tmp_path / "net.onnx"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 4, 4]) for name in "xy")
    nodes = [helper.make_node("Concat", ["x", "x"], ["c"], axis=1), helper.make_node("ReduceSum", ["c"], ["y"])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y])), source)
    written, by_function = str(tmp_path / "net.tpum"), tmp_path / "function.tpum"
    assert main(["convert", str(source), "-o", written, "--chip", chip]) == 0
    tc.convert(source, chip=chip).save(by_function)
    assert by_function.read_bytes() == Path(written).read_bytes()
    assert main(["reproduce", str(source), written]) == 0, capsys.readouterr().err
    assert tc.reproduce(written, source).is_same


def test_a_recipe_with_an_unknown_device(files: list[str], digits: Path, capsys: Captured) -> None:
    model = tc.load("net.tpum")
    model.metadata["recipe"]["device"] = "bm9"
    model.save("changed.tpum")
    assert main(["reproduce", *files[:2], "changed.tpum", "--calibration", str(digits / "calibration.npz")]) == 4
    assert "its recipe has the device 'bm9'" in capsys.readouterr().err
