"""Models that keep state between runs, several steps in sequence against the reference kernels of LiteRT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.sampled import sampled
from tests.support.tflite.models import O, S, T, serialize
from tests.support.tflite.reference import reference_runner, run_interpreter
from tests.support.tflite.streaming import (
    CASES,
    Streaming,
    assign,
    first,
    handle,
    initial,
    once,
    read,
    resource,
    running_sum,
    signatures,
)
from tpuconvert.runtime.session.border import numpy_type
from tpuconvert.schema.errors import UnsupportedError

STEPS = 4
MODES = ("auto", "reset", "none")
"""Modes in which every run starts with the initial state."""


def reference(case: Streaming) -> tuple[list[list[Any]], list[list[Any]]]:
    """Inputs of the steps, and the outputs of LiteRT."""
    interpreter = reference_runner(case.model)
    generator = np.random.default_rng(7)
    inputs, outputs = [], []
    for _ in range(STEPS):
        feed = []
        for item in interpreter.get_input_details():
            dtype = np.dtype(item["dtype"])
            if dtype.kind == "f":
                feed.append(generator.standard_normal(item["shape"]).astype(dtype))
            else:
                low = {"i": -40, "u": 90, "b": 0}[dtype.kind]
                feed.append(
                    generator.integers(low, low + (2 if dtype.kind == "b" else 80), item["shape"]).astype(dtype)
                )
        inputs.append(feed)
        outputs.append(run_interpreter(interpreter, feed))
    return inputs, outputs


def close(found: Any, expected: Any, atol: float) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=0, atol=atol)


@pytest.mark.parametrize("case", sampled(CASES), ids=str)
def test_state_is_passed_from_step_to_step(case: Streaming, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = tmp_path / "model.tflite"
    path.write_bytes(case.model)
    inputs, outputs = reference(case)
    for chip in ("bm1686", "bm1684"):
        atol = case.atol + ("integer_lstm" in case.name and chip == "bm1684")  # this chip computes the cell in float
        for mode in MODES if "running_sum" in case.name else MODES[: chip == "bm1686"]:
            model = tc.convert(path, chip=chip, source_options=tc.SourceOptions(state=mode, signature=case.signature))
            for backend in ("native", "reference"):
                with tc.Session(model, backend=backend) as session:
                    results = session.run(dict(zip([item.name for item in session.inputs], inputs[0], strict=True)))
                for found, expected in zip(results.values(), outputs[0], strict=True):
                    close(found, expected, atol)
        if case.problem:
            with pytest.raises(UnsupportedError, match=case.problem):
                tc.convert(path, chip=chip, source_options=tc.SourceOptions(state="ports", signature=case.signature))
            continue
        model = tc.convert(path, chip=chip, source_options=tc.SourceOptions(state="ports", signature=case.signature))
        ports = model.graph.input_ports
        assert len(ports) == len(inputs[0]) + len(case.start)
        assert len({port.name for port in ports}) == len(ports)
        for backend in ("native", "reference"):
            pairs = zip(ports[len(inputs[0]) :], case.start, strict=True)
            states = [np.asarray(array).astype(numpy_type(port.dtype)) for port, array in pairs]
            with tc.Session(model, backend=backend) as session:
                names = [item.name for item in session.inputs]
                for feed, expected in zip(inputs, outputs, strict=True):
                    results = list(session.run(dict(zip(names, [*feed, *states], strict=True))).values())
                    states = results[len(expected) :]
                    for found, want in zip(results, expected, strict=False):
                        close(found, want, atol)


@pytest.mark.parametrize("mode", [*MODES, "ports"])
def test_nothing_was_assigned(mode: str, tmp_path: Path) -> None:
    """LiteRT refuses to read such a variable."""
    model = serialize(running_sum())
    path = tmp_path / "model.tflite"
    path.write_bytes(model)
    pytest.importorskip("ai_edge_litert")
    with pytest.raises(RuntimeError, match="variable != nullptr"):
        run_interpreter(reference_runner(model), [np.zeros(2, np.float32)])
    with pytest.raises(UnsupportedError, match="'v' is read before anything is assigned to it"):
        tc.convert(path, source_options=tc.SourceOptions(state=mode))


def test_a_variable_that_another_signature_assigns(tmp_path: Path) -> None:
    """The interpreter runs the signatures one after the other; the caller of the model gives the state."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    path = tmp_path / "model.tflite"
    path.write_bytes(signatures())
    with pytest.raises(UnsupportedError, match="other signatures assign it: pass it as an input"):
        tc.convert(path, source_options=tc.SourceOptions(signature="step"))
    interpreter = litert.Interpreter(model_content=path.read_bytes())
    state = np.array([5, 6], np.float32)
    interpreter.get_signature_runner("load")(x=state)
    with tc.Session(tc.convert(path, source_options=tc.SourceOptions(signature="step", state="ports"))) as session:
        for number in range(3):
            x = np.array([number, -number], np.float32)
            results = session.run({"x": x, "v": state})
            np.testing.assert_array_equal(results["y"], interpreter.get_signature_runner("step")(x=x)["y"])
            state = results["v:next"]


def test_named_outputs_keep_the_state(tmp_path: Path) -> None:
    """The assignment is after the last operator that the output needs."""
    path = tmp_path / "model.tflite"
    extra = [T("z", (2,))]
    main = running_sum(once(), extra=extra)
    operators = [*main.operators, O("NEG", [3], [4])]
    path.write_bytes(serialize(S(main.tensors, operators, [0], [4]), initial(first(1, 2))))
    model = tc.convert(path, source_options=tc.SourceOptions(state="ports", outputs=["y"]))
    with tc.Session(model) as session:
        results = session.run({"x": np.array([10, 20], np.float32), "v": np.array([1, 2], np.float32)})
    assert {name: array.tolist() for name, array in results.items()} == {"y": [11, 22], "v:next": [11, 22]}


def test_a_loop_that_no_output_needs_changes_state(tmp_path: Path) -> None:
    """The results of a CALL are unused, but it assigns the variable."""
    called = S([T("x", (2,)), resource(), T("n", (2,))], [handle(1), O("NEG", [0], [2]), assign(1, 2)], [0], [2])
    tensors = [T("x", (2,)), resource(), T("r", (2,)), T("y", (2,)), T("unused", (2,))]
    operators = [once(), handle(1), read(1, 2), O("ADD", [0, 2], [3], "AddOptions")]
    operators.append(O("CALL", [0], [4], "CallOptions", {"subgraph": 2}))
    path = tmp_path / "model.tflite"
    path.write_bytes(serialize(S(tensors, operators, [0], [3]), initial(first(1, 2)), called))
    with tc.Session(tc.convert(path, source_options=tc.SourceOptions(state="ports"))) as session:
        results = session.run({"x": np.array([10, 20], np.float32), "v": np.array([1, 2], np.float32)})
    assert results["v:next"].tolist() == [-10, -20]
