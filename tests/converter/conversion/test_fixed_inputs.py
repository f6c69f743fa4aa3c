"""Inputs that a conversion fixes to a value: they become constants, so that ``If`` and shapes can depend on them."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp, save_model
from tests.support.tflite.models import O, S, T, serialize
from tpuconvert.__main__ import main
from tpuconvert.conversion.reproduction import reproduce


def info(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def write_model_with_rate(folder: Path) -> Path:
    """y = relu(x) if the input ``sr`` is 16000, else -x, as in silero VAD."""
    then = helper.make_graph([helper.make_node("Relu", ["x"], ["a"])], "then", [], [info("a")])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "else", [], [info("b")])
    nodes = [one("Equal", "sr", "k", outputs=["c"]), one("If", "c", then_branch=then, else_branch=other)]
    proto = model(nodes, {"x": ramp(1, 8), "sr": np.array(0)}, ["y"], {"k": np.array(16000)})
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT  # required by ONNX Runtime
    return save_model(proto, folder)


def test_a_fixed_input_decides_the_branch_and_is_gone(tmp_path: Path) -> None:
    x = ramp(1, 8)
    for rate, expected in ((16000, np.maximum(x, 0)), (8000, -x)):
        made = tc.convert(write_model_with_rate(tmp_path), source_options=tc.SourceOptions(fix_inputs={"sr": rate}))
        assert [item.name for item in made.inputs] == ["x"]
        with tc.Session(made) as session:
            np.testing.assert_array_equal(session.run({"x": x})["y"], expected)


def test_the_message_names_the_input_and_the_option(tmp_path: Path) -> None:
    border = np.array([1, 1])
    nodes = [one("Pad", "x", "border", "value")]
    path = save_model(model(nodes, {"x": ramp(8), "value": np.float32(0)}, ["y"], {"border": border}), tmp_path)
    with pytest.raises(tc.UnsupportedError) as told:
        tc.convert(path)
    (problem,) = told.value.problems
    assert problem.op == "Pad"
    assert problem.needs == ("value",)
    assert problem.hint == "fix the input that decides it (value float32[]):  --fix-input value=VALUE"


def test_an_image_is_no_input_to_fix(tmp_path: Path) -> None:
    nodes = [one("ReduceMax", "x", outputs=["m"], keepdims=0), one("Pad", "x", "border", "m")]
    border = np.array([0, 1, 1, 0, 1, 1])
    path = save_model(model(nodes, {"x": ramp(3, 32, 32)}, ["y"], {"border": border}), tmp_path)
    with pytest.raises(tc.UnsupportedError) as told:
        tc.convert(path)
    assert "--fix-input" not in str(told.value)


def test_without_a_fixed_input_the_host_decides_the_branch(tmp_path: Path) -> None:
    x = ramp(1, 8)
    with tc.Session(tc.convert(write_model_with_rate(tmp_path))) as session:
        for rate, expected in ((16000, np.maximum(x, 0)), (8000, -x)):
            np.testing.assert_array_equal(session.run({"x": x, "sr": np.array(rate)})["y"], expected)


def test_on_the_command_line_verified_by_another_engine_and_reproduced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.chdir(tmp_path)
    write_model_with_rate(tmp_path)
    words = ["--fix-input", "sr=16000"]
    assert main(["convert", "model.onnx", "-o", "a.tpum", "--verify", *words]) == 0
    capsys.readouterr()
    assert main(["verify", "model.onnx", "a.tpum", "--oracle", "onnxruntime", *words]) == 0
    assert "could not run" not in capsys.readouterr().out
    assert main(["reproduce", "model.onnx", "a.tpum"]) == 0
    assert reproduce(tmp_path / "a.tpum", tmp_path / "model.onnx").is_same


def test_in_a_configuration_and_a_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_model_with_rate(tmp_path)
    np.save(tmp_path / "rate.npy", np.array(16000))
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "options.yaml").write_text("model: ../model.onnx\nfix_inputs: {sr: ../rate.npy}\n")
    assert main(["convert", "--config", "deeper/options.yaml", "-o", "a.tpum"]) == 0
    assert [item.name for item in tc.load("a.tpum").inputs] == ["x"]
    assert main(["convert", "model.onnx", "-o", "b.tpum", "--set", "fix_inputs.sr=16000"]) == 0
    manifest = "models: {m: {source: ../model.onnx, output: ../c.tpum, fix_inputs: {sr: ../rate.npy}}}\n"
    (tmp_path / "deeper" / "models.yaml").write_text(manifest)
    assert main(["ci", "deeper/models.yaml", "--cache", "cache"]) == 0
    assert [item.name for item in tc.load("c.tpum").inputs] == ["x"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("16000", 16000), ("[1,2]", (1, 2)), ("1,2", (1, 2)), ("[[1],[2]]", ((1,), (2,))), ("true", True), ("2.5", 2.5)],
)
def test_values_are_written_as_in_json(text: str, value: object) -> None:
    from tpuconvert.conversion.fixed_inputs import parse_fixed, read_fixed

    assert read_fixed(parse_fixed([f"a=b={text}"])) == {"a=b": value}


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"sR": 1}, "the model has no input 'sR'\n.*did you mean 'sr'"),
        ({"zebra": 1}, "the model has no input 'zebra'\n.*its inputs: x, sr"),
        ({"sr": 16000.5}, "input 'sr' has type float64, the model takes int64"),
        ({"sr": [1, 2]}, r"'sr' has shape \[2\], the model takes int64\[\]"),
        ({"x": 1.0}, r"'x' has one number, the model takes float32\[1, 8\]\n.*--fix-input x=\[...\]"),
        ({"x": np.zeros((1, 8), np.uint8)}, ""),
        ({"sr": [[1], [2, 3]]}, "expected numbers"),
        ({"sr": "sixteen"}, "is fixed to 'sixteen', expected numbers"),
        ({"sr": "absent.npy"}, "absent.npy: no such file"),
        ({"x": np.zeros(1 << 15)}, "is fixed to 32768 elements, expected at most 16384"),
        ({"x": []}, "without elements"),
    ],
)
def test_what_does_not_fit_is_refused(fixed: dict[str, Any], message: str, tmp_path: Path) -> None:
    if not message:  # the pixel values are in the command, because a session takes no array for a fixed input
        assert [
            item.name
            for item in tc.convert(
                write_model_with_rate(tmp_path), source_options=tc.SourceOptions(fix_inputs={**fixed, "sr": 1})
            ).inputs
        ] == []
        return
    with pytest.raises(tc.UsageError, match=f"(?s){message}"):
        tc.convert(write_model_with_rate(tmp_path), source_options=tc.SourceOptions(fix_inputs=fixed))


def test_a_value_and_a_shape_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(tc.UsageError, match="input 'x' has a fixed value and a shape"):
        tc.convert(
            write_model_with_rate(tmp_path),
            source_options=tc.SourceOptions(fix_inputs={"x": np.zeros((1, 8))}, input_shapes={"x": (1, 8)}),
        )


def test_a_value_gives_open_extents_their_numbers(tmp_path: Path) -> None:
    proto = model([one("Add", "x", "z")], {"x": ramp(1, 3), "z": ramp(1, 3)}, ["y"])
    for value in proto.graph.input:
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    made = tc.convert(
        save_model(proto, tmp_path), source_options=tc.SourceOptions(fix_inputs={"z": [[1, 2, 3], [4, 5, 6]]})
    )
    assert made.inputs[0].shape == (2, 3)


def test_the_input_of_a_tflite_model(tmp_path: Path) -> None:
    tensors = [T("x", (1, 3)), T("shift", (3,)), T("codes", (3,), "INT8", scale=[0.5], zero_point=[1]), T("real", (3,))]
    tensors += [T("sum", (1, 3)), T("y", (1, 3))]
    operators = [O("DEQUANTIZE", [2], [3]), O("ADD", [0, 1], [4], "AddOptions"), O("ADD", [4, 3], [5], "AddOptions")]
    path = tmp_path / "net.tflite"
    path.write_bytes(serialize(S(tensors, operators, [0, 1, 2], [5])))
    made = tc.convert(path, source_options=tc.SourceOptions(fix_inputs={"shift": [1, 2, 3], "codes": [1, 3, -1]}))
    assert [item.name for item in made.inputs] == ["x"]
    with tc.Session(made) as session:
        found = session.run({"x": np.zeros((1, 3), np.float32)})["y"]
    np.testing.assert_array_equal(found, [[1 + 0, 2 + 1, 3 - 1]])  # the codes represent 0, 1 and -1
    with pytest.raises(tc.UsageError, match=r"'shift' has shape \[2\], the model takes float32\[3\]"):
        tc.convert(path, source_options=tc.SourceOptions(fix_inputs={"shift": [1, 2]}))
    with pytest.raises(tc.UsageError, match="has values outside int8: from 200 to 200"):
        tc.convert(path, source_options=tc.SourceOptions(fix_inputs={"codes": [200, 200, 200]}))


def test_a_caffe_network_has_no_inputs_to_fix(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text('name: "net"\ninput: "x"\n')
    with pytest.raises(tc.UsageError, match="--fix-input belongs to ONNX and TFLite models only"):
        tc.convert(tmp_path / "net.prototxt", source_options=tc.SourceOptions(fix_inputs={"x": 1}))
