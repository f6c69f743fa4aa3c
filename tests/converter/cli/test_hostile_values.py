"""Weights and inputs that are NaN, infinite, huge, tiny or subnormal cause no warnings and no internal errors."""

import os
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]

ORDINARY = (0, 2, 3, 5)
"""Success, usage error, rejected model, missed limit. Codes 1 and 4 would be defects."""

HOSTILE = {"nan": np.nan, "inf": np.inf, "huge": 3e38, "subnormal": 1e-44}
NETWORKS = {
    "ordinary": {},
    "spike": {"spike": 3e38},
    "tiny": {"scale": 1e-38},
    "nan": {"spike": np.nan},
    "inf": {"spike": np.inf},
    "huge": {"scale": 1e37},
    "subnormal": {"scale": 1e-44},
    "zero": {"scale": 0.0},
    "without variance": {"variance": 0.0},
    "subnormal variance": {"variance": 1e-42},
}
FAST = ("spike", "nan", "without variance")
"""Networks of each run. With ``tiny`` weights, the search for scales takes four times as long."""


def write_network(path: Path, scale: float = 1.0, spike: float | None = None, variance: float = 1.0) -> None:
    """Conv, batch norm, ReLU, pooling, sigmoid, dense and softmax. One weight and one bias are ``spike``."""
    rng = np.random.default_rng(0)
    w0, b0, w1 = (rng.normal(size=shape) * scale for shape in ((4, 1, 3, 3), (4,), (3, 64)))
    if spike is not None:
        w0[1, 0, 0, 0] = b0[0] = spike
    constants = {"w0": w0, "b0": b0, "w1": w1, "be": np.zeros(4)}
    constants |= {name: np.full(4, variance) for name in ("g", "m", "v")}
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["t"]),
        helper.make_node("BatchNormalization", ["t", "g", "be", "m", "v"], ["n"], epsilon=0.0),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["p"], ["s"]),
        helper.make_node("Flatten", ["s"], ["f"]),
        helper.make_node("Gemm", ["f", "w1"], ["l"], transB=1),
        helper.make_node("Softmax", ["l"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])
    initializers = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def write_samples() -> None:
    """Twelve ordinary samples, and twelve per hostile value that contain it; the first consists only of it."""
    ordinary = np.random.default_rng(1).normal(size=(12, 1, 8, 8)).astype(np.float32)
    for name, value in {"ordinary": None, **HOSTILE}.items():
        x = ordinary.copy()
        if value is not None:
            x[:, 0, 0, 0] = x[0] = value
        np.savez(f"{name}.npz", x=x)
        np.savez(f"{name}_labeled.npz", x=x, labels=np.arange(12) % 3)


def call(capsys: Captured, *words: str) -> int:
    """Run a command. NumPy warnings are errors, which end it with code 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        code = main(list(words))
    told = capsys.readouterr()
    assert code in ORDINARY, f"{words}: {code}\n{told.err}"
    assert "Warning" not in told.err, f"{words}:\n{told.err}"
    return code


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS])
def test_no_command_warns_about_numbers(name: str, capsys: Captured) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        write_network(Path("net.onnx"), **NETWORKS[name])
    write_samples()
    accept = ["--allow-non-finite"] if name in ("nan", "inf") else []
    assert call(capsys, "check", "net.onnx") == (3 if accept else 0)
    assert call(capsys, "inspect", "net.onnx") == 0
    assert call(capsys, "convert", "net.onnx", "-o", "float.tpum", *accept) == 0
    call(capsys, "convert", "net.onnx", "-o", "verified.tpum", "--verify", *accept)
    int8 = ["--quantize", "int8", "--calibration"]
    for chip in ("bm1684", "bm1686"):
        call(capsys, "convert", "net.onnx", "-o", f"{chip}.tpum", "--chip", chip, *int8, "ordinary.npz")
    models = [file for file in ("float.tpum", "bm1684.tpum", "bm1686.tpum") if os.path.exists(file)]
    for data in HOSTILE:
        call(capsys, "convert", "net.onnx", "-o", "other.tpum", *int8, f"{data}.npz")
        call(capsys, "calibrate", "net.onnx", "--calibration", f"{data}.npz", "-o", "ranges.json")
        for model in models:
            call(capsys, "run", model, f"{data}.npz", "-o", "results.npz")
            call(capsys, "verify", "net.onnx", model, "--data", f"{data}.npz", "--oracle", "none", *accept)
            call(capsys, "evaluate", model, f"{data}_labeled.npz")
    for model in models:
        call(capsys, "inspect", model, "--html", "net.html")
        call(capsys, "bench", model, "--runs", "2")


def test_nan_of_folded_constants_does_not_become_zero_in_int8(capsys: Captured) -> None:
    """A variance of 0 without epsilon: quantization computes 0 / 0 in the batch norm."""
    write_network(Path("net.onnx"), variance=0.0)
    write_samples()
    words = ["convert", "net.onnx", "-o", "net.tpum", "--quantize", "int8", "--calibration", "ordinary.npz"]
    assert main(words) == 3
    assert "TC3108" in capsys.readouterr().err
    assert not Path("net.tpum").exists()
