"""A node with a known deviation from the standard of its format: a warning, and no comparison calls it exact."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tpuconvert.__main__ import main
from tpuconvert.frontends.onnx.node import onnx_op

TEXT = "the largest value saturates instead of wrapping"


@pytest.fixture(autouse=True)
def deviating_relu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the converter of Relu record a deviation."""
    monkeypatch.chdir(tmp_path)
    find = onnx_op.find

    def find_with_deviation(name: str, **arguments: Any) -> Any:
        found = find(name, **arguments)
        if found is None or name != "Relu":
            return found
        original = found.converter

        def convert(node: Any, g: Any) -> Any:
            g.note_deviation(TEXT)
            return original(node, g)

        return dataclasses.replace(found, converter=convert)

    monkeypatch.setattr(onnx_op, "find", find_with_deviation)


def write(nodes: list[onnx.NodeProto], outputs: list[str], constants: dict[str, Any]) -> None:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "net.onnx")


def test_only_tensors_behind_the_node_lose_the_word(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="cut"), helper.make_node("Neg", ["a"], ["after"])]
    write([*nodes, helper.make_node("Neg", ["x"], ["beside"])], ["after", "beside"], {})
    assert main(["convert", "net.onnx", "-o", "net.tpum", "--verify"]) == 0
    text = capsys.readouterr().out
    assert f"warning: Relu ('cut'): {TEXT}" in text
    assert "'beside': cosine 1.000000, SQNR exact" in text
    assert "'after': cosine 1.000000, SQNR as read" in text
    assert main(["verify", "net.onnx", "net.tpum", "--json", "--oracle", "none"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {item["name"]: item["stage"] for item in found["outputs"]} == {"after": "as read", "beside": "same"}


def test_integers_are_equal_but_not_exact(capsys: pytest.CaptureFixture[str]) -> None:
    scales = {"s": np.float32(0.1), "z": np.int8(3)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Relu", ["d"], ["r"], name="cut"),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "s", "z"], ["y"]),
    ]
    write(nodes, ["y"], scales)
    assert main(["convert", "net.onnx", "-o", "net.tpum", "--verify"]) == 0
    assert "exact" not in capsys.readouterr().out
    assert main(["verify", "net.onnx", "net.tpum", "--json", "--oracle", "none"]) == 0
    exactness = json.loads(capsys.readouterr().out)["exactness"]
    assert exactness["different"] == exactness["output_different"] == 0
    assert not exactness["is_exact"]
    assert exactness["deviations"] == [f"Relu 'cut': {TEXT}"]
    assert "exact" not in exactness["verdict"]
