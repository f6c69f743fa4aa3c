"""A voice detector like silero_vad: STFT by convolution, an LSTM step with its state, an If on the sample rate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.onnx.models import ops, ramp, save_model
from tpuconvert import Session, SourceOptions, convert
from tpuconvert.__main__ import main
from tpuconvert.schema.types import Array

WINDOW, HOP, UNITS, CHANNELS = 32, 16, 8, 6
SAMPLES = WINDOW + 3 * HOP


def weights(seed: int) -> dict[str, Array]:
    bins = WINDOW // 2 + 1
    angles = 2 * np.pi * np.outer(np.arange(bins), np.arange(WINDOW)) / WINDOW
    basis = np.concatenate([np.cos(angles), -np.sin(angles)]) * np.hanning(WINDOW)
    return {
        "basis": basis[:, None].astype(np.float32),
        "first": ramp(CHANNELS, bins, 3, seed=seed, low=-0.3, high=0.3),
        "W": ramp(1, 4 * UNITS, CHANNELS, seed=seed + 1, low=-0.5, high=0.5),
        "R": ramp(1, 4 * UNITS, UNITS, seed=seed + 2, low=-0.5, high=0.5),
        "B": ramp(1, 8 * UNITS, seed=seed + 3, low=-0.5, high=0.5),
        "last": ramp(1, UNITS, 1, seed=seed + 4),
    }


def branch(seed: int) -> onnx.GraphProto:
    """Network for one sample rate; ``x`` and ``state`` belong to the outer graph."""

    def i64(*numbers: int) -> Array:
        return np.array(numbers, np.int64)

    constants = weights(seed) | {
        "one": i64(1), "zero": i64(0), "two": i64(2), "bins": i64(WINDOW // 2 + 1), "end": i64(2 * (WINDOW // 2 + 1)),
        "pads": i64(0, 0, 0, HOP),
    }  # fmt: skip
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["padded"], mode="reflect"),
        helper.make_node("Unsqueeze", ["padded", "one"], ["signal"]),
        helper.make_node("Conv", ["signal", "basis"], ["stft"], strides=[HOP]),
        helper.make_node("Slice", ["stft", "zero", "bins", "one"], ["real"]),
        helper.make_node("Slice", ["stft", "bins", "end", "one"], ["imaginary"]),
        helper.make_node("Mul", ["real", "real"], ["real2"]),
        helper.make_node("Mul", ["imaginary", "imaginary"], ["imaginary2"]),
        helper.make_node("Add", ["real2", "imaginary2"], ["power"]),
        helper.make_node("Sqrt", ["power"], ["magnitude"]),
        helper.make_node("Conv", ["magnitude", "first"], ["features"], pads=[1, 1], strides=[2]),
        helper.make_node("Relu", ["features"], ["relu"]),
        helper.make_node("ReduceMean", ["relu"], ["pooled"], axes=[2], keepdims=0),
        helper.make_node("Unsqueeze", ["pooled", "zero"], ["step"]),
        helper.make_node("Split", ["state"], ["h0", "c0"], axis=0),
        helper.make_node("LSTM", ["step", "W", "R", "B", "", "h0", "c0"], ["", "h1", "c1"], hidden_size=UNITS),
        helper.make_node("Concat", ["h1", "c1"], ["new_state"], axis=0),
        helper.make_node("Transpose", ["h1"], ["columns"], perm=[1, 2, 0]),
        helper.make_node("Relu", ["columns"], ["decoded"]),
        helper.make_node("Conv", ["decoded", "last"], ["score"]),
        helper.make_node("Sigmoid", ["score"], ["sigmoid"]),
        helper.make_node("Squeeze", ["sigmoid", "two"], ["speech"]),
    ]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("speech", "new_state")]
    return helper.make_graph(nodes, f"rate_{seed}", [], results, initializers)


def detector() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Equal", ["sr", "rate"], ["is_16k"]),
        helper.make_node("If", ["is_16k"], ["output", "stateN"], then_branch=branch(1), else_branch=branch(9)),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", SAMPLES]),
        helper.make_tensor_value_info("state", TensorProto.FLOAT, [2, "N", UNITS]),
        helper.make_tensor_value_info("sr", TensorProto.INT64, []),
    ]
    outputs = [
        helper.make_tensor_value_info("output", TensorProto.FLOAT, ["N", 1]),
        helper.make_tensor_value_info("stateN", TensorProto.FLOAT, [2, "N", UNITS]),
    ]
    rate = numpy_helper.from_array(np.array(16000, np.int64), "rate")
    graph = helper.make_graph(nodes, "vad", inputs, outputs, [rate])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("rate", [16000, 8000])
def test_a_fixed_rate_selects_the_network(rate: int) -> None:
    """The state of a run is the input of the next one; results equal onnxruntime."""
    ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")
    proto = detector()
    model = convert(proto, source_options=SourceOptions(fix_inputs={"sr": rate}))
    assert ops(model.graph).count("lstm") == 1
    assert [port.name for port in model.graph.input_ports] == ["x", "state"]
    oracle = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with Session(model, threads=1) as session:
        for batch in (1, 3):
            state = np.zeros((2, batch, UNITS), np.float32)
            for chunk in range(4):
                feeds = {"x": ramp(batch, SAMPLES, seed=chunk, low=-1, high=1), "state": state}
                found = session.run(feeds)
                speech, expected = oracle.run(None, feeds | {"sr": np.array(rate, np.int64)})
                np.testing.assert_allclose(found["output"], speech, rtol=1e-5, atol=1e-6)
                np.testing.assert_allclose(found["stateN"], expected, rtol=1e-5, atol=1e-6)
                state = found["stateN"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = save_model(detector(), tmp_path)
    assert main(["convert", str(source), "-o", str(tmp_path / "vad.tpum"), "--fix-input", "sr=16000"]) == 0
    assert "stateN" in capsys.readouterr().out
