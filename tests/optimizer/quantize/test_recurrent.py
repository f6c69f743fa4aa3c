"""INT8 recurrent layers: one integer operator, close to the float network, for any number of steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tpuconvert as tc
from tpuconvert.runtime.session import Session
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.types import Array

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, SIZE, UNITS = 20, 2, 12, 24
INTEGER = {"LSTM": "lstm_int", "GRU": "gru_int", "RNN": "rnn_int"}


def waves(seed: int, steps: int = STEPS, batch: int = BATCH) -> Array:
    """Sums of sinusoids with noise: inputs with the structure of a signal."""
    rng = np.random.default_rng(seed)
    time = np.arange(steps)[:, None, None]
    frequency, phase, height = (
        rng.uniform(low, high, (1, batch, SIZE)) for low, high in ((0.02, 0.3), (0, 6), (0.3, 1.5))
    )
    return (height * np.sin(6.28 * frequency * time + phase) + rng.normal(0, 0.1, (steps, batch, SIZE))).astype(
        np.float32
    )


def network(
    kind: str,
    *,
    direction: str = "forward",
    layers: int = 2,
    lengths: bool = False,
    states: bool = False,
    steps: int | str = STEPS,
    peepholes: bool = False,
    **attributes: Any,
) -> ModelProto:
    """Layers of one kind, then a fully connected layer."""
    rng = np.random.default_rng(3)
    count = 2 if direction == "bidirectional" else 1
    arrays: dict[str, Array] = {}
    nodes, x, size = [], "x", SIZE
    results = ["y", "h", "c"] if kind == "LSTM" else ["y", "h"]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (steps, BATCH, SIZE))]
    if lengths:
        inputs.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, (BATCH,)))
    for layer in range(layers):
        rows = GATES[kind] * UNITS
        arrays[f"W{layer}"] = rng.normal(size=(count, rows, size)) * 1.2 * size**-0.5
        arrays[f"R{layer}"] = rng.normal(size=(count, rows, UNITS)) * UNITS**-0.5
        arrays[f"B{layer}"] = rng.normal(size=(count, 2 * rows)) * 0.2
        names = [x, f"W{layer}", f"R{layer}", f"B{layer}", "lengths" if lengths else ""]
        if states:
            for name in results[1:]:
                names.append(f"{name}0_{layer}")
                shape = (count, BATCH, UNITS)
                inputs.append(helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, shape))
        if peepholes:
            arrays[f"P{layer}"] = rng.normal(size=(count, 3 * UNITS)) * 0.3
            names += [""] * (7 - len(names)) + [f"P{layer}"]
        given = [f"{name}{layer}" for name in results]
        nodes.append(helper.make_node(kind, names, given, hidden_size=UNITS, direction=direction, **attributes))
        nodes.append(helper.make_node("Transpose", [given[0]], [f"t{layer}"], perm=[0, 2, 1, 3]))
        arrays[f"shape{layer}"] = np.array([0, 0, count * UNITS])
        nodes.append(helper.make_node("Reshape", [f"t{layer}", f"shape{layer}"], [f"r{layer}"]))
        x, size = f"r{layer}", count * UNITS
    arrays["matrix"] = rng.normal(size=(size, 8)) * size**-0.5
    nodes.append(helper.make_node("MatMul", [x, "matrix"], ["logits"]))
    last = [f"{name}{layers - 1}" for name in results[1:]]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("logits", *last)]
    constants = [
        numpy_helper.from_array(array if array.dtype == np.int64 else array.astype(np.float32), name)
        for name, array in arrays.items()
    ]
    graph = helper.make_graph(nodes, kind, inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sample(proto: ModelProto, seed: int, steps: int = STEPS) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for item in proto.graph.input:
        if item.name == "x":
            feeds["x"] = waves(seed, steps)
        elif item.name == "lengths":
            feeds["lengths"] = rng.integers(steps // 2, steps, BATCH, np.int32, endpoint=True)
        else:
            shape = [extent.dim_value for extent in item.type.tensor_type.shape.dim]
            feeds[item.name] = np.tanh(rng.normal(size=shape)).astype(np.float32)
    return feeds


def cosine(a: Array, b: Array) -> float:
    x, y = a.ravel().astype(np.float64), b.ravel().astype(np.float64)
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def operators(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def quantize(proto: ModelProto, **options: Any) -> tc.Model:
    samples = options.pop("samples", None) or [sample(proto, 100 + seed) for seed in range(12)]
    return tc.convert(proto, quantize="int8", calibration=samples, **options)


def smallest_cosine(proto: ModelProto, model: tc.Model, steps: int = STEPS) -> float:
    """Smallest cosine of any output to the float network, over samples that calibration did not see."""
    found = []
    with Session(tc.convert(proto).graph) as exact, tc.Session(model) as session:
        for seed in range(4):
            feeds = sample(proto, seed, steps)
            for want, (name, one) in zip(exact.run(feeds).values(), session.run(feeds).items(), strict=True):
                assert np.isfinite(one).all(), name
                found.append(cosine(one, want))
    return min(found)


VARIANTS = [
    *(({"kind": kind}) for kind in GATES),
    *(({"kind": kind, "direction": "bidirectional", "lengths": True}) for kind in GATES),
    *(({"kind": kind, "direction": "reverse", "states": True}) for kind in GATES),
    {"kind": "GRU", "linear_before_reset": 1},
    {"kind": "LSTM", "input_forget": 1},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
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


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ({"kind": "LSTM", "peepholes": True}, "has no peepholes"),
        ({"kind": "GRU", "clip": 0.5}, "does not clip sums"),
        ({"kind": "RNN", "activations": ["Relu"]}, "has no activations relu"),
    ],
    ids=str,
)
def test_other_layers_are_unrolled_or_stay_float(variant: dict[str, Any], reason: str) -> None:
    model = quantize(network(**variant, layers=1))
    assert not {*INTEGER.values(), variant["kind"].lower()} & set(operators(model.graph))
    assert "matrix_mul_v2" in operators(model.graph)
    proto = network(**variant, steps="steps", layers=1)
    model = quantize(proto, samples=[sample(proto, seed) for seed in range(4)])
    assert variant["kind"].lower() in operators(model.graph)
    assert any(reason in note.message for note in model.notes if note.kind == "float")


def test_strict_set_unrolls() -> None:
    names = operators(quantize(network("LSTM", layers=1), strict_set=True).graph)
    assert not {"lstm", "lstm_int"} & set(names)
    assert names.count("matrix_mul_v2") > STEPS


def test_bm1684_has_the_unrolled_form() -> None:
    names = operators(quantize(network("LSTM", layers=1), chip="bm1684").graph)
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
