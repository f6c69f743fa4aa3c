"""Verification of models with state: steps in sequence, with LiteRT where it is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tests.support.paired import paired
from tests.support.sampled import sampled
from tests.support.tflite.streaming import CASES, Streaming
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import group_options
from tpuconvert.frontends.tflite.states import States
from tpuconvert.schema.errors import ThresholdError
from tpuconvert.verify.verification import Verification

BY_NAME = {case.name: case for case in CASES}
SOME = ("running_sum_int8", "integer_lstm_batch_2", "containers", "svdf", "signature_with_its_own_initialization")
FORGETFUL = "every run starts anew; in 4 steps in sequence the outputs differ from the source from step 2 on"


def verified(case: Streaming, folder: Path, state: str, samples: int = 4, **settings: Any) -> Verification:
    path = folder / "model.tflite"
    path.write_bytes(case.model)
    model = tc.convert(path, source_options=tc.SourceOptions(state=state, signature=case.signature))  # type: ignore[arg-type]  # a mode
    return tc.verify(model, path, samples=samples, **group_options(state=state, signature=case.signature, **settings))  # type: ignore[arg-type]  # a mode


@pytest.mark.parametrize(("name", "state"), paired(SOME, ["auto", "ports"]))
def test_at_least_three_steps_are_compared_with_litert(name: str, state: str, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    case = BY_NAME[name]
    found = verified(case, tmp_path, state, samples=1 if state == "ports" else 4)
    found.check()
    check = found.to_dict()["state"]
    assert len(check["names"]) == len(case.start)
    assert check["engine"].startswith("litert ")
    assert found.opinion is not None
    assert not found.opinion.problem
    if state == "ports":
        assert (check["is_kept"], check["steps"], found.opinion.samples) == (True, 3, 3)
        assert "3 steps in sequence compared, each with the state that the step before left" in str(found)
    else:
        assert (check["is_kept"], check["steps"], check["first_different"]) == (False, 4, 2)
        assert FORGETFUL in str(found)


def test_the_verdict_on_integers_names_the_runs(tmp_path: Path) -> None:
    found = verified(BY_NAME["running_sum_int8"], tmp_path, "reset", oracle="none")
    assert found.exactness is not None
    assert found.exactness.verdict.startswith("bit-exact in runs from the initial state: ")
    kept = verified(BY_NAME["running_sum_int8"], tmp_path, "ports", oracle="none")
    assert kept.exactness is not None
    assert kept.exactness.verdict.startswith("bit-exact: ")


def test_state_that_the_frontend_overlooks_is_a_fault_of_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ai_edge_litert")
    monkeypatch.setattr(States, "is_changed", lambda self, variable: False)
    for state in ("auto", "ports"):
        found = verified(BY_NAME["running_sum_int8"], tmp_path, state)
        with pytest.raises(ThresholdError, match=r"import: as litert [0-9.]+ computes it, output 'y': cosine"):
            found.check()
        with pytest.raises(ThresholdError, match=r"import: not bit-exact: .* differ from litert"):
            found.check(max_different=0)
        assert "bit-exact" not in str(found).replace("not bit-exact", "")


def test_state_that_cannot_be_passed_on_is_not_compared_in_sequence(tmp_path: Path) -> None:
    found = verified(BY_NAME["growing_content"], tmp_path, "auto", oracle="none")
    assert "no steps in sequence compared; the state cannot be passed from run to run" in str(found)


def test_samples_of_the_user_need_no_states(tmp_path: Path) -> None:
    """States of samples are replaced by those that the steps leave."""
    path = tmp_path / "model.tflite"
    path.write_bytes(BY_NAME["running_sum_float32"].model)
    model = tc.convert(path, source_options=tc.SourceOptions(state="ports"))
    x = np.ones((2, 2), np.float32)
    for data in ({"x": x}, {"x": x, "v": x}):
        found = tc.verify(model, path, data=data, oracle="none", source_options=tc.SourceOptions(state="ports"))
        assert found.state is not None
        assert (found.samples, found.state.steps) == (4, 4)


def test_commands_say_how_many_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.tflite").write_bytes(BY_NAME["running_sum_int8"].model)
    call = ["convert", "net.tflite", "-o", "net.tpum", "--state", "ports", "--verify"]
    assert main(call) == 0
    assert "state 'v': 4 steps in sequence compared" in capsys.readouterr().out
    assert main(["verify", "net.tflite", "net.tpum", "--state", "ports", "--json", "--oracle", "none"]) == 0
    assert json.loads(capsys.readouterr().out)["state"]["steps"] == 4


def write_decoder(path: Path) -> None:
    """A cache that grows by the new tokens: the sum of all tokens so far is added to each."""
    tensors = [helper.make_tensor_value_info("tokens", TensorProto.FLOAT, [1, "new", 2])]
    tensors.append(helper.make_tensor_value_info("past_key_values.0.key", TensorProto.FLOAT, [1, "past", 2]))
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "new", 2])]
    results.append(helper.make_tensor_value_info("present.0.key", TensorProto.FLOAT, [1, "past+new", 2]))
    nodes = [
        helper.make_node("Concat", ["past_key_values.0.key", "tokens"], ["present.0.key"], axis=1),
        helper.make_node("ReduceSum", ["present.0.key", "axes"], ["total"], keepdims=1),
        helper.make_node("Add", ["tokens", "total"], ["y"]),
    ]
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(nodes, "g", tensors, results, [axes])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.parametrize("state", sampled(["auto", "ports"], every=2))
def test_caches_of_a_decoder_grow_from_step_to_step(state: str, tmp_path: Path) -> None:
    path = tmp_path / "decoder.onnx"
    write_decoder(path)
    generator = np.random.default_rng(0)
    data = [
        {
            "tokens": generator.standard_normal((1, 1, 2)).astype(np.float32),
            "past_key_values.0.key": generator.standard_normal((1, 2, 2)).astype(np.float32),
        }
    ]
    model = tc.convert(path, source_options=tc.SourceOptions(state=state))  # type: ignore[arg-type]  # a mode
    found = tc.verify(model, path, data=data, source_options=tc.SourceOptions(state=state), oracle="onnx")  # type: ignore[arg-type]  # a mode
    found.check()
    assert found.state is not None
    assert (found.state.names, found.state.steps, found.state.problem) == (("past_key_values.0.key",), 4, "")
