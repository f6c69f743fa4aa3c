"""ONNX networks of recurrent layers, their samples, and their quantization, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tpuconvert as tc
from tpuconvert.conversion.options.options import group_options
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph
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
    return tc.convert(proto, calibration=samples, **group_options(quantize="int8", **options))


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
