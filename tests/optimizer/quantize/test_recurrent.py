"""INT8 recurrent layers: one integer operator, close to the float network, for any number of steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.networks.recurrent_networks import (
    GATES,
    INTEGER,
    STEPS,
    network,
    operators,
    quantize,
    sample,
    smallest_cosine,
)
from tests.support.sampled import sampled

FEW_STEPS = 4
VARIANTS = [
    *(({"kind": kind}) for kind in GATES),
    *(({"kind": kind, "direction": "bidirectional", "lengths": True}) for kind in GATES),
    *(({"kind": kind, "direction": "reverse", "states": True}) for kind in GATES),
    {"kind": "GRU", "linear_before_reset": 1},
    {"kind": "LSTM", "input_forget": 1},
]


@pytest.mark.parametrize("variant", sampled(VARIANTS), ids=str)
def test_is_one_operator_close_to_the_float_network(variant: dict[str, Any]) -> None:
    proto = network(**variant)
    model = quantize(proto)
    names = operators(model.graph)
    assert names.count(INTEGER[variant["kind"]]) == 2
    assert len(names) < 20
    # 8-bit weights, inputs and outputs, twice; the smallest measured is 0.9984.
    assert smallest_cosine(proto, model) >= 0.995


def test_a_cell_as_an_input_has_16_bits() -> None:
    model = quantize(network("LSTM", states=True, layers=1))
    (layer,) = (node for node in model.graph.nodes if node.op.name == "lstm_int")
    assert [value.dtype.value for value in layer.inputs[5:] if value is not None] == ["INT8", "INT16"]
    assert all(value.producer.op.name == "requant_fp32_to_int" for value in layer.inputs[5:] if value is not None)


def test_steps_may_be_open() -> None:
    """One file for any number of steps; samples of different lengths calibrate it."""
    proto = network("GRU", steps="steps")
    samples = [sample(proto, 100 + seed, 10 + seed) for seed in range(12)]
    model = quantize(proto, samples=samples)
    assert operators(model.graph).count("gru_int") == 2
    for steps in (1, 7, 60):
        assert smallest_cosine(proto, model, steps) >= 0.995


@pytest.mark.parametrize("kind", GATES)
def test_chunks_with_states_equal_the_whole_sequence(kind: str) -> None:
    """The integer states of a chunk continue the layer exactly; as float outputs they keep their integers."""
    proto = network(kind, steps="steps", states=True, layers=1)
    samples = [sample(proto, 100 + seed, STEPS) for seed in range(8)]
    model = quantize(proto, samples=samples)
    feeds = sample(proto, 7, 30)
    names = [item.name for item in proto.graph.input][1:]
    with tc.Session(model) as session:
        whole = session.run(feeds)
        states = {name: feeds[name] for name in names}
        parts = []
        for start, end in ((0, 4), (4, 19), (19, 30)):
            found = session.run({"x": feeds["x"][start:end], **states})
            logits, *last = found.values()
            parts.append(logits)
            states = dict(zip(names, last, strict=True))
    expected, *last = whole.values()
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    for one, want in zip(states.values(), last, strict=True):
        np.testing.assert_array_equal(one, want)


def quantize_few_steps(kind: str, *, chip: str = "bm1686", strict_set: bool = False, **attributes: Any) -> tc.Model:
    """Quantize a layer of four steps, so that its unrolled form is small."""
    proto = network(kind, layers=1, steps=FEW_STEPS, **attributes)
    samples = [sample(proto, seed, FEW_STEPS) for seed in range(4)]
    return quantize(proto, samples=samples, chip=chip, strict_set=strict_set)


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        pytest.param({"kind": "LSTM", "peepholes": True}, "has no peepholes", marks=pytest.mark.slow),
        ({"kind": "GRU", "clip": 0.5}, "does not clip sums"),
        ({"kind": "RNN", "activations": ["Relu"]}, "has no activations relu"),
    ],
    ids=str,
)
def test_other_layers_are_unrolled_or_stay_float(variant: dict[str, Any], reason: str) -> None:
    model = quantize_few_steps(**variant)
    assert not {*INTEGER.values(), variant["kind"].lower()} & set(operators(model.graph))
    assert "matrix_mul_v2" in operators(model.graph)
    proto = network(**variant, steps="steps", layers=1)
    model = quantize(proto, samples=[sample(proto, seed) for seed in range(4)])
    assert variant["kind"].lower() in operators(model.graph)
    assert any(reason in note.message for note in model.notes if note.kind == "float")


def test_strict_set_unrolls() -> None:
    names = operators(quantize_few_steps("LSTM", strict_set=True).graph)
    assert not {"lstm", "lstm_int"} & set(names)
    assert names.count("matrix_mul_v2") > FEW_STEPS


def test_bm1684_has_the_unrolled_form() -> None:
    names = operators(quantize_few_steps("LSTM", chip="bm1684").graph)
    assert not {"lstm", "lstm_int"} & set(names)


def test_the_scale_of_a_cell_is_that_of_all_steps() -> None:
    """The cell counts ten positive inputs, and is forgotten at the eleventh."""
    arrays = {"W": [[[0], [0], [20], [2]]], "R": [[[0]] * 4], "B": [[20, 20, 0, 0, 0, 0, 0, 0]]}
    constants = [numpy_helper.from_array(np.array(array, np.float32), name) for name, array in arrays.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (11, 1, 1))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("LSTM", ["x", "W", "R", "B"], ["y"], hidden_size=1)
    proto = helper.make_model(
        helper.make_graph([node], "counter", [x], [y], constants),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    feeds = {"x": np.array([3] * 10 + [-3], np.float32).reshape(11, 1, 1)}
    (layer,) = (node for node in quantize(proto, samples=[feeds]).graph.nodes if node.op.name == "lstm_int")
    assert layer.op.attributes()["cell_bits"] == 4  # 10 * 1.25 is below 16; the last cell is -1
    assert len(layer.outputs) == 3
