"""A network as silero_vad: an If on the sample rate, an LSTM in each branch, and a state as input and output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tpuconvert as tc
from tests.support.onnx.graphs import BACKENDS, FLOAT, INT64, assert_as_onnxruntime, info, node
from tests.support.onnx.models import save_model
from tests.support.paired import paired
from tpuconvert.conversion.options.options import group_options
from tpuconvert.schema.types import Array

HIDDEN = 8
RATES = {16000: 64, 8000: 32}


def branch(name: str, window: int) -> onnx.GraphProto:
    """Spectrum by a convolution, an LSTM over its one step, and a probability."""
    random = np.random.default_rng(window)

    def weight(*shape: int) -> Array:
        return (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    arrays: dict[str, Array] = {
        "basis": weight(HIDDEN, 1, window), "w": weight(1, 4 * HIDDEN, HIDDEN), "r": weight(1, 4 * HIDDEN, HIDDEN),
        "b": weight(1, 8 * HIDDEN), "out": weight(HIDDEN, 1), "first": np.array(0), "second": np.array(1),
        "last": np.array(-1), "unit": np.array(1), "zero": np.array([0]), "one": np.array([1]), "two": np.array([2]),
    }  # fmt: skip
    squeeze = helper.make_graph(
        [node("Squeeze", f"{name}spectrum {name}two", f"{name}squeezed")], "then", [], [info(f"{name}squeezed")]
    )
    keep = helper.make_graph([node("Identity", f"{name}spectrum", f"{name}same")], "else", [], [info(f"{name}same")])
    plain = [
        node("Unsqueeze", "input one", "wave"), node("Conv", "wave basis", "raw", strides=[window]),
        node("Relu", "raw", "spectrum"), node("Shape", "spectrum", "shape"), node("Gather", "shape last", "steps"),
        node("Equal", "steps unit", "is_one"), node("If", "is_one", "features"),
        node("Unsqueeze", "features zero", "sequence"), node("Gather", "state first", "h"),
        node("Gather", "state second", "c"), node("Unsqueeze", "h zero", "h0"), node("Unsqueeze", "c zero", "c0"),
        node("LSTM", "sequence w r b  h0 c0", "y hn cn", hidden_size=HIDDEN), node("Concat", "hn cn", "next", axis=0),
        node("Squeeze", "hn zero", "rows"), node("MatMul", "rows out", "logit"),
        node("Sigmoid", "logit", "probability"),
    ]  # fmt: skip
    for each in plain:
        if each.op_type == "LSTM":
            each.input[:] = ["sequence", "w", "r", "b", "", "h0", "c0"]
        for names in (each.input, each.output):
            names[:] = [item if item in ("input", "state", "") else name + item for item in names]
        if each.op_type == "If":
            each.attribute.extend(
                [helper.make_attribute("then_branch", squeeze), helper.make_attribute("else_branch", keep)]
            )
    results = [info(f"{name}probability"), info(f"{name}next")]
    constants = [numpy_helper.from_array(array, name + key) for key, array in arrays.items()]
    return helper.make_graph(plain, name, [], results, constants)


def detector() -> onnx.ModelProto:
    choice = helper.make_node(
        "If", ["is_wide"], ["output", "state_out"], then_branch=branch("wide_", 64), else_branch=branch("narrow_", 32)
    )
    inputs = [info("input", FLOAT, ["N", "T"]), info("state", FLOAT, [2, "N", HIDDEN]), info("sr", INT64, [])]
    outputs = [info("output", FLOAT, ["N", 1]), info("state_out", FLOAT, [2, "N", HIDDEN])]
    rate = numpy_helper.from_array(np.array(16000), "rate")
    graph = helper.make_graph([node("Equal", "sr rate", "is_wide"), choice], "vad", inputs, outputs, [rate])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)


def chunk(rate: int, batch: int, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        "input": random.standard_normal((batch, RATES[rate])).astype(np.float32),
        "state": random.standard_normal((2, batch, HIDDEN)).astype(np.float32) / 2,
        "sr": np.array(rate),
    }


def test_both_rates_without_a_fixed_input(tmp_path: Path) -> None:
    samples = [chunk(rate, batch) for rate in RATES for batch in (1, 3)]
    converted = assert_as_onnxruntime(detector(), samples, tmp_path)
    assert [each.op.name for each in converted.graph.nodes].count("host_if") == 1


@pytest.mark.parametrize(("rate", "quantize"), paired(list(RATES), ["none", "int8"]))
def test_a_fixed_rate_needs_no_host(tmp_path: Path, rate: int, quantize: str) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")
    path = save_model(detector(), tmp_path)
    samples = [{key: value for key, value in chunk(rate, 1, seed).items() if key != "sr"} for seed in range(12)]
    calibration = {"calibration": samples} if quantize == "int8" else {}
    converted = tc.convert(path, **group_options(fix_inputs={"sr": rate}, quantize=quantize, **calibration))  # type: ignore[arg-type]
    assert not any(each.op.name.startswith("host") for each in converted.graph.nodes)
    oracle = runtime.InferenceSession(str(path))
    # Of probabilities, and of states, whose integers saturate beyond the range of 12 samples.
    tolerance = 0.2 if quantize == "int8" else 1e-5
    for backend in BACKENDS:
        session = tc.Session(converted, backend=backend, threads=1)  # type: ignore[arg-type]
        for batch in (1, 2):
            given = chunk(rate, batch, 1)
            state, expected = given["state"], given["state"]
            for seed in range(3):  # the state of a chunk is passed to the next one
                wave = chunk(rate, batch, seed)["input"]
                found = session.run({"input": wave, "state": state})
                wanted, expected = oracle.run(None, {"input": wave, "state": expected, "sr": np.array(rate)})
                np.testing.assert_allclose(found["output"], wanted, atol=tolerance)
                np.testing.assert_allclose(found["state_out"], expected, atol=tolerance)
                state = found["state_out"]
