"""LSTM, GRU and RNN against the reference evaluator, and both directions against one at a time."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.support.onnx.models import assert_converts, graph_of, model, one, ops, ours, ramp, save_model
from tpuconvert import Session, convert
from tpuconvert.frontends.onnx import load
from tpuconvert.optimizer.recurrent_layers import expand_recurrent_layers
from tpuconvert.schema.errors import RunError, UnsupportedError
from tpuconvert.schema.system.limits import Limits
from tpuconvert.schema.types import Array

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, SIZE, HIDDEN = 5, 2, 3, 4


def weights(op: str, directions: int = 1) -> dict[str, Array]:
    rows = GATES[op] * HIDDEN
    return {
        "W": ramp(directions, rows, SIZE, seed=1, low=-1, high=1),
        "R": ramp(directions, rows, HIDDEN, seed=2, low=-1, high=1),
        "B": ramp(directions, 2 * rows, seed=3, low=-1, high=1),
    }


def outputs(op: str) -> list[str]:
    return ["Y", "Y_h", "Y_c"] if op == "LSTM" else ["Y", "Y_h"]


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("with_state", [False, True])
def test_forward(op: str, with_state: bool, tmp_path: Path) -> None:
    constants = weights(op)
    names = ["x", "W", "R", "B"]
    if with_state:
        constants |= {"h": ramp(1, BATCH, HIDDEN, seed=4), "c": ramp(1, BATCH, HIDDEN, seed=5)}
        names += ["", "h", "c"] if op == "LSTM" else ["", "h"]
    node = one(op, *names, outputs=outputs(op), hidden_size=HIDDEN)
    x = ramp(STEPS, BATCH, SIZE)
    assert_converts(model([node], {"x": x}, outputs(op), constants), {"x": x}, tmp_path, atol=1e-5)


@pytest.mark.parametrize("attributes", [{"linear_before_reset": 1}, {"linear_before_reset": 0}])
def test_gru_reset(attributes: dict[str, Any], tmp_path: Path) -> None:
    node = one("GRU", "x", "W", "R", "B", outputs=["Y", "Y_h"], hidden_size=HIDDEN, **attributes)
    x = ramp(STEPS, BATCH, SIZE)
    assert_converts(model([node], {"x": x}, ["Y", "Y_h"], weights("GRU")), {"x": x}, tmp_path, atol=1e-5)


def test_lstm_peepholes(tmp_path: Path) -> None:
    node = one("LSTM", "x", "W", "R", "B", "", "", "", "P", outputs=outputs("LSTM"), hidden_size=HIDDEN)
    x = ramp(STEPS, BATCH, SIZE)
    constants = weights("LSTM") | {"P": ramp(1, 3 * HIDDEN, seed=6)}
    assert_converts(model([node], {"x": x}, outputs("LSTM"), constants), {"x": x}, tmp_path, atol=1e-5)


@pytest.mark.parametrize("op", GATES)
def test_both_directions_are_two_single_ones(op: str, tmp_path: Path) -> None:
    x, both = ramp(STEPS, BATCH, SIZE), weights(op, 2)

    def run(constants: dict[str, Array], direction: str, x: Array) -> dict[str, Array]:
        node = one(op, "x", "W", "R", "B", outputs=outputs(op), hidden_size=HIDDEN, direction=direction)
        return ours(model([node], {"x": x}, outputs(op), constants), {"x": x}, tmp_path)

    halves = [{name: array[k : k + 1] for name, array in both.items()} for k in (0, 1)]
    found = run(both, "bidirectional", x)
    forward, reverse = run(halves[0], "forward", x), run(halves[1], "reverse", x)
    for name, axis in (("Y", 1), ("Y_h", 0)):
        np.testing.assert_allclose(found[name], np.concatenate([forward[name], reverse[name]], axis), rtol=1e-6)
    mirrored = run(halves[1], "forward", x[::-1].copy())
    np.testing.assert_allclose(reverse["Y"], mirrored["Y"][::-1], rtol=1e-6)


@pytest.mark.parametrize("op", GATES)
def test_batch_first(op: str, tmp_path: Path) -> None:
    x = ramp(STEPS, BATCH, SIZE)

    def run(layout: int, x: Array) -> dict[str, Array]:
        node = one(op, "x", "W", "R", "B", outputs=outputs(op), hidden_size=HIDDEN, layout=layout)
        return ours(model([node], {"x": x}, outputs(op), weights(op)), {"x": x}, tmp_path)

    usual, first = run(0, x), run(1, np.ascontiguousarray(x.transpose(1, 0, 2)))
    np.testing.assert_allclose(first["Y"], usual["Y"].transpose(2, 0, 1, 3), rtol=1e-6)
    np.testing.assert_allclose(first["Y_h"], usual["Y_h"].transpose(1, 0, 2), rtol=1e-6)


def test_activations_with_numbers_and_clip(tmp_path: Path) -> None:
    node = one("RNN", "x", "W", "R", outputs=["", "Y_h"], hidden_size=1, activations=["Affine"],
               activation_alpha=[2.0], activation_beta=[0.5], clip=3.0)  # fmt: skip
    x = np.array([[[1]], [[2]]], np.float32)
    constants = {"W": np.ones((1, 1, 1), np.float32), "R": np.ones((1, 1, 1), np.float32)}
    found = ours(model([node], {"x": x}, ["Y_h"], constants), {"x": x}, tmp_path)
    assert found["Y_h"].item() == 6.5  # h = 2 * 1 + 0.5 = 2.5; 2 + 2.5 is clipped to 3; 2 * 3 + 0.5


@pytest.mark.parametrize("op", GATES)
def test_a_layer_is_one_operator(op: str, tmp_path: Path) -> None:
    node = one(op, "x", "W", "R", "B", outputs=["Y"], hidden_size=HIDDEN)
    graph = graph_of(model([node], {"x": ramp(STEPS, BATCH, SIZE)}, ["Y"], weights(op)), tmp_path)
    assert ops(graph) == [op.lower()]
    assert expand_recurrent_layers(graph) == 1
    assert ops(graph).count("matrix_mul") == {"LSTM": STEPS, "GRU": 2 * STEPS - 1, "RNN": STEPS}[op], (
        "one for the inputs of all steps; the first state is 0"
    )


def in_onnxruntime(proto: onnx.ModelProto, feeds: dict[str, Array], outputs: list[str]) -> list[Array]:
    ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")
    for value in proto.graph.output:
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(outputs, feeds))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", GATES)
def test_lengths_that_are_an_input(op: str, direction: str, tmp_path: Path) -> None:
    """The model accepts any lengths, and equals onnxruntime and its own unrolled form."""
    node = one(op, "x", "W", "R", "B", "lengths", outputs=outputs(op), hidden_size=HIDDEN, direction=direction)
    x = ramp(STEPS, 3, SIZE)
    feeds = {"x": x, "lengths": np.array([5, 2, 3], np.int32)}
    proto = model([node], feeds, outputs(op), weights(op, 2 if direction == "bidirectional" else 1))
    graph = graph_of(proto, tmp_path)
    unrolled = graph_of(proto, tmp_path)
    assert expand_recurrent_layers(unrolled) == 1
    for lengths in ([5, 2, 3], [1, 5, 4]):
        feeds["lengths"] = np.array(lengths, np.int32)
        expected = in_onnxruntime(proto, feeds, outputs(op))
        for one_graph in (graph, unrolled):
            with Session(one_graph, threads=1) as session:
                found = session.run(feeds)
            for name, want in zip(outputs(op), expected, strict=True):
                # Float32 sums in another order.
                np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("lengths", [[6, 1], [-1, 5]])
def test_lengths_of_a_run_are_checked(lengths: list[int], tmp_path: Path) -> None:
    node = one("GRU", "x", "W", "R", "B", "lengths", outputs=["Y"], hidden_size=HIDDEN)
    feeds = {"x": ramp(STEPS, BATCH, SIZE), "lengths": np.array([5, 5], np.int32)}
    proto = model([node], feeds, ["Y"], weights("GRU"))
    with pytest.raises(RunError, match="expected 0 to 5"):
        ours(proto, {**feeds, "lengths": np.array(lengths, np.int32)}, tmp_path)


@pytest.mark.parametrize("op", GATES)
def test_steps_and_batch_may_be_dynamic(op: str, tmp_path: Path) -> None:
    node = one(op, "x", "W", "R", "B", outputs=outputs(op), hidden_size=HIDDEN, direction="bidirectional")
    proto = model([node], {"x": ramp(STEPS, BATCH, SIZE)}, outputs(op), weights(op, 2))
    for axis, name in enumerate(("T", "N")):
        proto.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    with Session(graph_of(proto, tmp_path), threads=1) as session:
        for steps, batch in ((5, 2), (1, 1), (9, 3)):
            feeds = {"x": ramp(steps, batch, SIZE, seed=steps)}
            found, expected = session.run(feeds), in_onnxruntime(proto, feeds, outputs(op))
            for output, want in zip(outputs(op), expected, strict=True):
                np.testing.assert_allclose(found[output], want, rtol=1e-5, atol=1e-6, err_msg=output)


def test_weights_may_be_computed(tmp_path: Path) -> None:
    node = one("GRU", "x", "W", "R", outputs=["Y"], hidden_size=HIDDEN)
    constants = weights("GRU")
    feeds = {"x": ramp(STEPS, BATCH, SIZE), "W": constants["W"], "R": constants["R"]}
    assert_converts(model([node], feeds, ["Y"]), feeds, tmp_path, atol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "complaint"),
    [
        ({"direction": "sideways"}, "direction='sideways'"),
        ({"activations": ["Sigmoid", "Tanh"]}, "activations="),
        ({"activations": ["Sigmoid", "Tanh", "Gelu"]}, "activations="),
        ({"hidden_size": 9}, "for hidden_size=9"),
    ],
)
def test_refused(attributes: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    node = one("LSTM", "x", "W", "R", "B", outputs=["Y"], **attributes)
    with pytest.raises(UnsupportedError, match=complaint):
        load(save_model(model([node], {"x": ramp(STEPS, BATCH, SIZE)}, ["Y"], weights("LSTM")), tmp_path))


def test_a_long_sequence_is_not_unrolled(tmp_path: Path) -> None:
    """Conversion does not depend on the number of steps; the unrolled form has a limit."""
    node = one("LSTM", "x", "W", "R", "B", outputs=["Y"], hidden_size=HIDDEN)
    proto = model([node], {"x": np.zeros((2, BATCH, SIZE), np.float32)}, ["Y"], weights("LSTM"))
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 10**9
    converted = convert(proto)
    assert ops(converted.graph) == ["lstm"]
    with pytest.raises(UnsupportedError, match="1000000000 steps expands to more than 50000 nodes"):
        convert(proto, strict_set=True)


def test_a_constant_sequence_has_a_limit(tmp_path: Path) -> None:
    node = one("LSTM", "x", "W", "R", "B", outputs=["Y"], hidden_size=HIDDEN)
    proto = model([node], {}, ["Y"], weights("LSTM") | {"x": ramp(STEPS, BATCH, SIZE)})
    with pytest.raises(UnsupportedError, match="5 steps of a constant sequence"):
        load(save_model(proto, tmp_path), limits=Limits(max_unrolled_nodes=4))


@pytest.mark.parametrize("lengths", [[5, 6], [5, -1], [5, 5, 5]])
def test_lengths_that_do_not_fit(lengths: list[int], tmp_path: Path) -> None:
    node = one("RNN", "x", "W", "R", "B", "lengths", outputs=["Y"], hidden_size=HIDDEN)
    constants = weights("RNN") | {"lengths": np.array(lengths, np.int32)}
    with pytest.raises(UnsupportedError, match="for 2 sequences of 5 steps"):
        load(save_model(model([node], {"x": ramp(STEPS, BATCH, SIZE)}, ["Y"], constants), tmp_path))
