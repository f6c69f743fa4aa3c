"""``tpuconvert export`` on the bundled example."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.support.onnx.models import model as onnx_model
from tests.support.onnx.models import one, save_model
from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model(digits: Path, capsys: Captured) -> str:
    """The bundled network in INT8."""
    how = ["--quantize", "int8", "--calibration", str(digits / "calibration.npz"), "--chip", "bm1684x"]
    how += ["--preprocess", "color=GRAY,scale=0.0625"]
    assert main(["convert", str(digits / "digits.onnx"), "-o", "net.tpum", *how]) == 0
    capsys.readouterr()
    return "net.tpum"


def test_a_quantized_network(digits: Path, model: str, capsys: Captured) -> None:
    assert main(["export", model, "out", "--data", str(digits / "calibration.npz"), "--with-checks"]) == 0
    printed = capsys.readouterr().out
    assert "digits for bm1684x, tpu_mlir" in printed
    assert " out/compile.sh\n" in printed.partition("next: ")[2]
    expected = np.load("out/expected.npz")
    assert {"image:uint8", "conv1/relu", "fc", "probability"} <= set(expected.files)
    assert all(expected[name].shape[0] == 4 for name in expected.files)


def test_json(model: str, capsys: Captured) -> None:
    assert main(["export", model, "out", "--chip", "bm1688", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["path"], document["chip"], document["to"]) == ("out", "bm1688", "tpu-mlir")
    assert [output["name"] for output in document["outputs"]] == ["probability"]


def test_a_model_of_another_chip(model: str, capsys: Captured) -> None:
    assert main(["export", model, "out", "--chip", "bm1684"]) == 2
    error = capsys.readouterr().err
    assert "the model is for BM1686" in error and "--chip bm1684" in error
    assert not Path("out").exists()


@pytest.mark.parametrize(("chip", "exported"), [("bm1684", "bm1684"), ("bm1686", "bm1684x")])
def test_the_default_chip_executes_the_model(digits: Path, chip: str, exported: str, capsys: Captured) -> None:
    assert main(["convert", str(digits / "digits.onnx"), "-o", "float.tpum", "--chip", chip]) == 0
    capsys.readouterr()
    assert main(["export", "float.tpum", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["chip"] == exported


def test_no_program_is_for_bm1682(digits: Path, capsys: Captured) -> None:
    assert main(["convert", str(digits / "digits.onnx"), "-o", "float.tpum", "--chip", "bm1682"]) == 0
    assert main(["export", "float.tpum", "out"]) == 2
    assert "the programs are for bm1684x, bm1688, bm1684\n    convert it with --chip bm1684x" in capsys.readouterr().err


def test_a_folder_is_not_named_like_an_onnx_file(model: str, capsys: Captured) -> None:
    assert main(["export", model, "out.onnx"]) == 2
    assert "out.onnx: the form tpu-mlir is a folder, not an .onnx file\n    add --to onnx" in capsys.readouterr().err
    assert not Path("out.onnx").exists()


def test_a_model_is_not_overwritten(model: str, capsys: Captured) -> None:
    content = Path(model).read_bytes()
    assert main(["export", model, model]) == 2
    assert Path(model).read_bytes() == content
    assert "net.tpum" in capsys.readouterr().err


def test_a_float_model_is_computed_in_a_type(digits: Path) -> None:
    assert main(["convert", str(digits / "digits.onnx"), "-o", "float.tpum", "--chip", "bm1684x"]) == 0
    assert main(["export", "float.tpum", "out", "--floats", "bf16"]) == 0
    assert json.loads(Path("out/export.json").read_text())["floats"] == "bf16"


def test_check_before_quantization(digits: Path, capsys: Captured) -> None:
    """No samples are needed: the operators of the INT8 model hardly depend on the ranges."""
    assert main(["check", str(digits / "digits.onnx"), "--for", "tpu-mlir"]) == 0
    assert "can be quantized and exported to tpu-mlir for BM1686" in capsys.readouterr().out
    assert main(["check", str(digits / "digits.onnx"), "--for", "tpu-mlir", "--chip", "bm1682"]) == 2
    assert "no export for chip BM1682" in capsys.readouterr().err


def save_normalized_matmuls() -> None:
    """Write a model with a normalization between two matmuls, which stays in float and may differ on the device."""
    rng = np.random.default_rng(1)
    constants = {name: rng.standard_normal((8, 8)).astype(np.float32) for name in ("a", "b")}
    constants["scale"] = np.ones(8, np.float32)
    nodes = [
        one("MatMul", "x", "a", outputs=["first"]),
        one("LayerNormalization", "first", "scale", outputs=["normed"]),
        one("MatMul", "normed", "b"),
    ]
    save_model(onnx_model(nodes, {"x": np.zeros((4, 8), np.float32)}, ["y"], constants), Path())


def test_check_lists_nodes_without_an_exact_form(capsys: Captured) -> None:
    save_normalized_matmuls()
    assert main(["check", "model.onnx", "--for", "tpu-mlir"]) == 3
    assert "TC3109" in capsys.readouterr().err


def test_tpulang(model: str, capsys: Captured) -> None:
    assert main(["export", model, "out", "--to", "tpulang", "--chip", "bm1688"]) == 0
    printed = capsys.readouterr().out
    assert "digits for bm1688, a TPULang program for tpu_mlir" in printed
    assert "/bin/python out/compile_bmodel.py\n" in printed.partition("next: ")[2]
    assert main(["export", model, "out", "--to", "tpulang", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["path"], document["chip"], document["to"]) == ("out", "bm1684x", "tpulang")


def test_check_for_tpulang(digits: Path, capsys: Captured) -> None:
    assert main(["check", str(digits / "digits.onnx"), "--for", "tpulang"]) == 0
    assert "can be quantized and exported to tpulang for BM1686" in capsys.readouterr().out
    assert main(["check", str(digits / "digits.onnx"), "--for", "tpulang", "--chip", "bm1684"]) == 2
    assert "no export for chip BM1684" in capsys.readouterr().err


def test_onnx(model: str, capsys: Captured) -> None:
    assert main(["export", model, "out.onnx", "--to", "onnx"]) == 0
    printed = capsys.readouterr().out
    assert "digits with the arithmetic of bm1686, ONNX operator set 21" in printed
    assert "wrote out.onnx" in printed and "next: open out.onnx in ONNX Runtime" in printed
    loaded = onnx.load("out.onnx")
    assert [output.name for output in loaded.graph.output] == ["probability"]


def test_check_for_onnx(digits: Path, capsys: Captured) -> None:
    assert main(["check", str(digits / "digits.onnx"), "--for", "onnx"]) == 0
    assert "can be quantized and exported to onnx for" in capsys.readouterr().out


def test_json_of_onnx(model: str, capsys: Captured) -> None:
    assert main(["export", model, "out.onnx", "--to", "onnx", "--with-checks", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["path"], document["chip"], document["to"]) == ("out.onnx", "bm1686", "onnx")
    assert {"probability", "conv1/relu"} <= {output["name"] for output in document["outputs"]}


def test_float_onnx(digits: Path, capsys: Captured) -> None:
    assert main(["convert", str(digits / "digits.onnx"), "-o", "float.tpum", "--chip", "bm1684x"]) == 0
    assert main(["export", "float.tpum", "out.onnx", "--to", "onnx"]) == 0
    operators = {node.op_type for node in onnx.load("out.onnx").graph.node}
    assert {"Conv", "Softmax"} <= operators and "Cast" not in operators


def test_options_that_onnx_does_not_have(digits: Path, model: str, capsys: Captured) -> None:
    assert main(["export", model, "out.onnx", "--to", "onnx", "--chip", "bm1684x"]) == 2
    assert "leave out --chip" in capsys.readouterr().err
    assert main(["export", model, "out.onnx", "--to", "onnx", "--data", str(digits / "calibration.npz")]) == 2
    assert "leave out --data" in capsys.readouterr().err
    assert main(["export", model, model, "--to", "onnx"]) == 2
    assert not Path("out.onnx").exists()


def test_exact_on_a_chip(digits: Path, capsys: Captured) -> None:
    """The conversion fails before it writes a model that cannot be exported."""
    how = [
        "--quantize",
        "int8",
        "--calibration",
        str(digits / "calibration.npz"),
        "--preprocess",
        "color=GRAY,scale=0.0625",
    ]
    source = str(digits / "digits.onnx")
    assert main(["convert", source, "-o", "exact.tpum", *how, "--exact-on", "bm1684x"]) == 0
    assert main(["convert", source, "-o", "float.tpum", "--exact-on", "bm1684x"]) == 2
    assert "no integers to be exact on bm1684x" in capsys.readouterr().err
    assert main(["convert", source, "-o", "old.tpum", *how, "--chip", "bm1684", "--exact-on", "bm1688"]) == 2
    assert "exactness on bm1688 needs one for BM1686" in capsys.readouterr().err
    assert not Path("float.tpum").exists() and not Path("old.tpum").exists()


def test_bm1684_needs_exact_on(digits: Path, capsys: Captured) -> None:
    """The default forms of BM1684 differ from the forms of the vendor's compiler; the refusal names the option."""
    call = ["convert", str(digits / "digits.onnx"), "-o", "net.tpum", "--chip", "bm1684", "--quantize", "int8"]
    call += ["--calibration", str(digits / "calibration.npz"), "--preprocess", "color=GRAY,scale=0.0625"]
    assert main(call) == 0
    assert main(["export", "net.tpum", "out", "--chip", "bm1684"]) == 3
    assert "--exact-on bm1684" in capsys.readouterr().err and not Path("out").exists()
    assert main([*call, "--exact-on", "bm1684"]) == 0
    assert main(["export", "net.tpum", "out", "--chip", "bm1684"]) == 0
    assert json.loads(Path("out/export.json").read_text())["chip"] == "bm1684"
    assert main(["check", str(digits / "digits.onnx"), "--for", "tpu-mlir", "--chip", "bm1684"]) == 0


def test_exact_on_leaves_the_end_in_float(capsys: Captured) -> None:
    """Nodes that depend on a floating-point node stay in float, so that the first matmul can be exported."""
    save_normalized_matmuls()
    np.save("samples.npy", np.random.default_rng(2).standard_normal((8, 4, 8)).astype(np.float32))
    call = ["convert", "model.onnx", "-o", "net.tpum", "--quantize", "int8", "--calibration", "samples.npy"]
    assert main(call) == 0
    assert main(["export", "net.tpum", "out", "--with-checks"]) == 0
    outputs = json.loads(Path("out/export.json").read_text())["outputs"]
    integers = [output for output in outputs if output["dtype"] != "float32"]
    assert {output["is_exact"] for output in integers} == {True, False}  # some follow from the normalization
    assert main([*call, "--exact-on", "bm1684x"]) == 0
    assert "no exact form on bm1684x" in capsys.readouterr().out
    assert main(["export", "net.tpum", "out", "--with-checks"]) == 0
    manifest = json.loads(Path("out/export.json").read_text())
    assert manifest["host_nodes"] == []
    assert all(output["is_exact"] or output["dtype"] == "float32" for output in manifest["outputs"])


def test_exact_on_refuses_a_model_that_would_stay_in_float(capsys: Captured) -> None:
    constants = {"scale": np.ones(8, np.float32), "a": np.ones((8, 8), np.float32)}
    nodes = [one("LayerNormalization", "x", "scale", outputs=["normed"]), one("MatMul", "normed", "a")]
    save_model(onnx_model(nodes, {"x": np.zeros((4, 8), np.float32)}, ["y"], constants), Path())
    np.save("samples.npy", np.random.default_rng(2).standard_normal((8, 4, 8)).astype(np.float32))
    call = ["convert", "model.onnx", "-o", "net.tpum", "--quantize", "int8", "--calibration", "samples.npy"]
    assert main([*call, "--exact-on", "bm1684x"]) == 3
    assert "TC3109" in capsys.readouterr().err and not Path("net.tpum").exists()
    assert main(call) == 0
