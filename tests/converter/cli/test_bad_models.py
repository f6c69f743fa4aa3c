"""Models that cannot be converted: all problems are reported together, and a damaged file gets one clear error."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]


def three_kinds_of_problems() -> onnx.ModelProto:
    """A model with two unknown operators, one unsupported attribute and one type that TPUs do not have."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    nodes = [
        helper.make_node("Foo", ["x"], ["a"], name="foo_0", domain="com.nobody"),
        helper.make_node("Foo", ["x"], ["b"], name="foo_1", domain="com.nobody"),
        helper.make_node("Resize", ["x", "", "scales"], ["c"], name="up", mode="nearest",
                         coordinate_transformation_mode="tf_crop_and_resize"),
        helper.make_node("Cast", ["x"], ["d"], name="to_text", to=TensorProto.STRING),
    ]  # fmt: skip
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "abc"]
    outputs.append(helper.make_tensor_value_info("d", TensorProto.STRING, None))
    scales = helper.make_tensor("scales", TensorProto.FLOAT, [4], [1, 1, 2, 2])
    graph = helper.make_graph(nodes, "g", [x], outputs, [scales])
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.nobody", 1)]
    return helper.make_model(graph, opset_imports=opsets)


def test_check_tells_all_problems_at_once(capsys: Captured) -> None:
    onnx.save(three_kinds_of_problems(), "bad.onnx")
    assert main(["check", "bad.onnx"]) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    for name in ("foo_0", "foo_1", "up", "to_text", "bad.onnx", "nothing was written"):
        assert name in shown.err
    assert "in 3 kinds" in shown.err
    assert main(["convert", "bad.onnx"]) == 3
    assert [path.name for path in Path().iterdir()] == ["bad.onnx"]


def test_operator_that_the_chip_does_not_have(capsys: Captured) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.INT32, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.INT32, None)
    graph = helper.make_graph([helper.make_node("BitwiseNot", ["x"], ["y"], name="find")], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), "find.onnx")
    assert main(["check", "find.onnx", "--chip", "bm1682"]) == 3
    assert "find" in capsys.readouterr().err


def damaged_files(digits: Path) -> dict[str, bytes]:
    """Files that are truncated, or whose contents do not match their suffix."""
    files = {
        "empty.onnx": b"",
        "page.onnx": b"<!DOCTYPE html><html><body>404</body></html>",
        "pointer.onnx": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 100\n",
        "random.onnx": bytes((i * 7919) % 251 for i in range(5000)),
        "random.tflite": bytes((i * 7919) % 251 for i in range(5000)),
        "renamed.onnx": (digits / "digits.npz").read_bytes(),
    }
    for name in ("digits.onnx", "digits.tflite"):
        content = (digits / name).read_bytes()
        for share in (0.01, 0.5, 0.99):
            files[f"{share}_{name}"] = content[: int(len(content) * share)]
    return files


def test_damaged_files_get_one_clear_error(digits: Path, capsys: Captured) -> None:
    for name, content in damaged_files(digits).items():
        Path(name).write_bytes(content)
        assert main(["check", name]) == 4, name
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith(f"error[TC4001]: {name}: "), shown.err
        assert len(shown.err.splitlines()) <= 3, shown.err


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_damaged_caffe_weights(digits: Path, share: float, capsys: Captured) -> None:
    content = (digits / "digits.caffemodel").read_bytes()
    Path("cut.caffemodel").write_bytes(content[: int(len(content) * share)])
    assert main(["check", str(digits / "digits.prototxt"), "cut.caffemodel"]) == 4
    assert "cut.caffemodel" in capsys.readouterr().err


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.5, 0.999])
def test_damaged_model_files(digits: Path, share: float, capsys: Captured) -> None:
    assert main(["convert", str(digits / "digits.onnx"), "-o", "net.tpum"]) == 0
    content = Path("net.tpum").read_bytes()
    Path("net.tpum").write_bytes(content[: int(len(content) * share)])
    capsys.readouterr()
    for call in (["run", "net.tpum", str(digits / "calibration.npz")], ["inspect", "net.tpum"]):
        assert main(call) == 4
        assert "net.tpum" in capsys.readouterr().err
