"""NaN, infinities and the largest and smallest numbers, as ONNX Runtime has them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.onnx.models import model, one
from tests.support.onnx.oracles import assert_same

pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")

NUMBERS = np.array([np.nan, 1, -2, 0, -0.0, np.inf, -np.inf, 0.5, -0.5, 3e38, -3e38, 1e-45], np.float32)
UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Ceil",
    "Celu",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "HardSigmoid",
    "LeakyRelu",
    "Log",
    "Neg",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Shrink",
    "IsInf",
    "IsNaN",
]
WITHOUT_LIMIT = ["HardSwish", "Mish"]
"""ONNX Runtime multiplies 0 by minus infinity; the result here is the limit, 0."""
BINARY = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]
REDUCTIONS = ["Max", "Min", "Sum", "Mean", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]


def _compare(nodes: list[Any], feeds: dict[str, Any], tmp_path: Path, **constants: Any) -> None:
    names = [node.output[0] for node in nodes]
    assert_same(model(nodes, feeds, names, constants, opset=18), feeds, tmp_path)


def test_functions(tmp_path: Path) -> None:
    _compare([one(op, "x", outputs=[op]) for op in UNARY], {"x": NUMBERS}, tmp_path)
    finite = NUMBERS[~np.isneginf(NUMBERS)]
    _compare([one(op, "x", outputs=[op]) for op in WITHOUT_LIMIT], {"x": finite}, tmp_path)


def test_functions_of_two_operands(tmp_path: Path) -> None:
    a, b = (grid.reshape(-1) for grid in np.meshgrid(NUMBERS, NUMBERS))
    _compare([one(op, "a", "b", outputs=[op]) for op in BINARY], {"a": a, "b": b}, tmp_path)


def test_reductions(tmp_path: Path) -> None:
    inf = np.inf
    rows = [[1, inf], [1, -inf], [inf, inf], [-inf, -inf], [inf, -inf], [np.nan, 1], [1e38, 1e38], [1e-45, 0], [-1, 2]]
    nodes = [one("Reduce" + op, "x", "axes", outputs=[op]) for op in REDUCTIONS]
    _compare(nodes, {"x": np.array(rows, np.float32)}, tmp_path, axes=np.array([1]))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_logarithm_of_a_sum_of_exponentials_of_integers(dtype: Any, tmp_path: Path) -> None:
    feeds = {"x": np.array([[3, 3, 3, -2], [5, 4, 4, 4], [-7, -7, -9, -9]], dtype)}
    _compare([one("ReduceLogSumExp", "x", "axes")], feeds, tmp_path, axes=np.array([1]))
