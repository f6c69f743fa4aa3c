"""Mistakes in the code of the user are reported with file and line, and never as mistakes of tpuconvert."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

START = """from dataclasses import dataclass
import numpy as np
import tpuconvert as tc
from tpuconvert.schema.ops.activation import Active
"""
OPERATOR = """
@tc.register_op("acme_op")
@dataclass(frozen=True)
class Acme(tc.Op):
    inputs = (tc.Operand("x"),)
    outputs = (tc.Operand("y"),)
    def infer(self, x):
        {infer}
    def reference(self, x):
        {reference}
@tc.register_converter("onnx", "Acme", domain="com.acme", since=1)
def acme(node, g):
    {convert}
"""
FINE = {"infer": "return (x,)", "reference": "return (x,)", "convert": "return g.add(Acme(), node.input(0))"}
RULE = """
@tc.register_rule(tc.pattern(Active, "x", name="active"), stage="fuse")
def acme_rule(g, m):
    {}
"""
CONVERT = ["convert", "net.onnx", "-o", "net.tpum", "--plugin", "plugin.py"]
RUN = ["run", "net.tpum", "x.npy", "--plugin", "plugin.py"]
VERIFY = ["convert", "sigmoid.onnx", "-o", "s.tpum"], ["verify", "sigmoid.onnx", "s.tpum", "--oracle", "none"]
EVALUATE = ["convert", "sigmoid.onnx", "-o", "s.tpum"], ["evaluate", "s.tpum", "--data", "labeled.npz"]
INT8 = [
    "convert",
    "sigmoid.onnx",
    "-o",
    "s.tpum",
    "--quantize",
    "int8",
    "--calibration",
    "x.npz",
    "--plugin",
    "plugin.py",
]

MISTAKES = {
    **{
        f"{part} {error}": (OPERATOR.format(**{**FINE, part: text}), [CONVERT, *([RUN] if part == "reference" else [])])
        for part in FINE
        for error, text in (
            ("AttributeError", "return x.no_such" if part != "convert" else "return node.no_such"),
            ("TypeError", "return 1 + None"),
            ("ValueError", "raise ValueError('mistake')"),
            ("KeyError", "return {}['mistake']"),
            ("ZeroDivisionError", "return 1 / 0"),
            ("AssertionError", "assert False, 'mistake'"),
        )
    },
    **{
        f"rule {error}": (RULE.format(text), [["convert", "sigmoid.onnx", "-o", "s.tpum", "--plugin", "plugin.py"]])
        for error, text in (
            ("TypeError", "return 1 + None"),
            ("IndexError", "return []['x']"),
            ("wrong type", "return g.constant(np.zeros((2, 2, 2), np.float32))"),
        )
    },
    "metric": (
        "@tc.register_metric('acme')\ndef acme(a, b):\n    return a.no_such\n",
        [VERIFY[0], [*VERIFY[1], "--metric", "acme", "--plugin", "plugin.py"]],
    ),
    "function": ("def acme(outputs, labels):\n    return outputs.no_such\n",
                 [EVALUATE[0], [*EVALUATE[1], "--metric", "plugin.py:acme"]]),
    "condition": ("def acme(path):\n    return path.no_such\n",
                  [["reduce", "sigmoid.onnx", "--until", "plugin.py:acme"]]),
    "calibrator": (
        "@tc.register_calibrator('acme')\nclass Acme:\n    def add(self, array):\n        array.no_such\n"
        "    def result(self):\n        return None\n",
        [[*INT8, "--calibration-method", "acme"]],
    ),
}  # fmt: skip
DEFAULT = {"infer AttributeError", "convert ValueError", "rule TypeError"}


def network(operator: str, domain: str = "") -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], name="n", domain=domain)], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("kind", [name if name in DEFAULT else pytest.param(name, marks=pytest.mark.slow)
                                  for name in MISTAKES])  # fmt: skip
def test_mistake_is_located(kind: str, tmp_path: Path) -> None:
    text, commands = MISTAKES[kind]
    onnx.save(network("Acme", "com.acme"), tmp_path / "net.onnx")
    onnx.save(network("Sigmoid"), tmp_path / "sigmoid.onnx")
    np.save(tmp_path / "x.npy", np.ones((1, 4), np.float32))
    np.savez(tmp_path / "x.npz", x=np.ones((2, 1, 4), np.float32))
    np.savez(tmp_path / "labeled.npz", x=np.ones((2, 1, 4), np.float32), labels=np.zeros(2, np.int64))
    (tmp_path / "plugin.py").write_text(START + text)
    for words in commands:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tpuconvert", *words],
            cwd=tmp_path,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode in (2, 3, 4, 5, 8), done.stderr
    assert "TC1001" not in done.stderr and "Traceback" not in done.stderr
    assert "plugin.py:" in done.stderr.replace("plugin.py:acme", "") or " of plugin.py" in done.stderr, done.stderr
