"""Recurrent layers written out in time, against the equations evaluated step by step in NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tflite.models import O, S, T, graph_of, ops, run
from tpuconvert.schema.errors import UnsupportedError

BATCH, TIME, SIZE, UNITS, PROJECTED = 2, 3, 4, 5, 3


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def lstm(
    *,
    coupled: bool = False,
    peephole: bool = False,
    projection: bool = False,
    time_major: bool = False,
    clip: float = 0.0,
) -> tuple[S, Any, Any]:
    """The subgraph, an input, and the expected output."""
    generator = np.random.default_rng(7)

    def make(*shape: int) -> Any:
        return generator.normal(0, 0.7, shape).astype(np.float32)

    out = PROJECTED if projection else UNITS
    w, r, b = (
        [make(UNITS, SIZE) for _ in range(4)],
        [make(UNITS, out) for _ in range(4)],
        [make(UNITS) for _ in range(4)],
    )
    p = [make(UNITS) if peephole else np.zeros(UNITS, np.float32) for _ in range(3)]
    wp, bp = make(PROJECTED, UNITS), make(PROJECTED)
    x = make(BATCH, TIME, SIZE)
    present: list[Any] = [None, *w, *r, *(p if peephole else [None] * 3), *b]
    present += [wp, bp] if projection else [None, None]
    if coupled:
        for position in (1, 5, 9, 12):
            present[position] = None
    shape = (TIME, BATCH, SIZE) if time_major else (BATCH, TIME, SIZE)
    tensors = [T("x", shape)]
    positions = [0]
    for array in present[1:]:
        positions.append(-1 if array is None else len(tensors))
        if array is not None:
            tensors.append(T(f"c{len(tensors)}", data=array))
    tensors += [T("h", (BATCH, out), variable=True), T("c", (BATCH, UNITS), variable=True)]
    positions += [len(tensors) - 2, len(tensors) - 1, -1, -1, -1, -1]
    result = (TIME, BATCH, out) if time_major else (BATCH, TIME, out)
    tensors.append(T("y", result))
    options = {"fused_activation_function": 4, "cell_clip": clip, "time_major": time_major}
    operator = O(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", positions, [len(tensors) - 1], "UnidirectionalSequenceLSTMOptions", options
    )

    h, c = np.zeros((BATCH, out)), np.zeros((BATCH, UNITS))
    steps = []
    for t in range(TIME):
        gate = [x[:, t] @ w[k].T + h @ r[k].T + b[k] for k in range(4)]
        forget = sigmoid(gate[1] + p[1] * c)
        enter = 1 - forget if coupled else sigmoid(gate[0] + p[0] * c)
        c = forget * c + enter * np.tanh(gate[2])
        c = np.clip(c, -clip, clip) if clip else c
        h = sigmoid(gate[3] + p[2] * c) * np.tanh(c)
        h = h @ wp.T + bp if projection else h
        steps.append(h)
    expected = np.stack(steps, 0 if time_major else 1)
    return S(tensors, [operator], [0], [len(tensors) - 1]), x.transpose(1, 0, 2) if time_major else x, expected


@pytest.mark.parametrize(
    "variant",
    [{}, {"coupled": True}, {"peephole": True}, {"projection": True}, {"time_major": True}, {"clip": 0.2}],
    ids=str,
)
def test_lstm(tmp_path: Path, variant: dict[str, Any]) -> None:
    subgraph, x, expected = lstm(**variant)
    graph = graph_of(tmp_path, subgraph)
    (y,) = run(graph, x)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-6)
    is_unrolled = bool(variant.get("projection"))
    assert ops(graph).count("lstm") == (not is_unrolled)
    assert ops(graph).count("matrix_mul") == (1 + (TIME - 1) + TIME if is_unrolled else 0)
    assert "'h' starts at zero" in graph.notes[0]


def test_rnn(tmp_path: Path) -> None:
    """y1 = relu(2 x1 + 1) = 3, y2 = relu(2 x2 - 3 y1 + 1) = 2."""
    tensors = [T("x", (1, 2, 1)), *(T(data=np.asarray(n, np.float32)) for n in ([[2]], [[-3]], [1]))]
    tensors += [T("h", (1, 1), variable=True), T("y", (1, 2, 1))]
    options = {"fused_activation_function": 1}
    operator = O("UNIDIRECTIONAL_SEQUENCE_RNN", [0, 1, 2, 3, 4], [5], "SequenceRNNOptions", options)
    graph = graph_of(tmp_path, S(tensors, [operator], [0], [5]))
    assert run(graph, [[[1], [5]]])[0].tolist() == [[[3], [2]]]


@pytest.mark.parametrize("merged", [False, True])
def test_bidirectional_rnn(tmp_path: Path, merged: bool) -> None:
    """Forward y = x + y_before, backward y = 10 x + y_after: sums from both ends."""
    one, ten, zero = (T(data=np.asarray(n, np.float32)) for n in ([[1]], [[10]], [0]))
    state = T(shape=(1, 1), variable=True)
    tensors = [T("x", (1, 3, 1)), one, one, zero, state, ten, one, zero, state]
    results = [T("y", (1, 3, 2))] if merged else [T("f", (1, 3, 1)), T("b", (1, 3, 1))]
    named = [T(**{**tensor.__dict__, "name": tensor.name or f"c{i}"}) for i, tensor in enumerate([*tensors, *results])]
    positions = list(range(9, 9 + len(results)))
    operator = O(
        "BIDIRECTIONAL_SEQUENCE_RNN", range(9), positions, "BidirectionalSequenceRNNOptions", {"merge_outputs": merged}
    )
    outputs = run(graph_of(tmp_path, S(named, [operator], [0], positions)), [[[1], [2], [4]]])
    forward, backward = [1, 3, 7], [70, 60, 40]
    if merged:
        assert outputs[0].tolist() == [[list(pair) for pair in zip(forward, backward, strict=True)]]
    else:
        assert [y.reshape(-1).tolist() for y in outputs] == [forward, backward]


def test_bidirectional_lstm(tmp_path: Path) -> None:
    """Both directions with the same weights: the second result is the result for the reversed sequence, reversed."""
    one_way, x, expected = lstm(time_major=True)
    (operator,) = one_way.operators
    weights = list(operator.inputs)[1:18]
    tensors = list(one_way.tensors)[:-1]
    states = [T(f"s{i}", (BATCH, UNITS), variable=True) for i in range(4)]
    count = len(tensors)
    positions = [0, *weights, *weights, *range(count, count + 4), *[-1] * 9]
    tensors += [*states, T("f", (TIME, BATCH, UNITS)), T("b", (TIME, BATCH, UNITS))]
    table, options = "BidirectionalSequenceLSTMOptions", {"fused_activation_function": 4}
    both = O("BIDIRECTIONAL_SEQUENCE_LSTM", positions, [count + 4, count + 5], table, options)
    graph = graph_of(tmp_path, S(tensors, [both], [0], [count + 4, count + 5]))
    forward, backward = run(graph, x)
    np.testing.assert_allclose(forward, expected, rtol=0, atol=1e-6)
    (reversed_result, _) = run(graph, x[::-1])
    np.testing.assert_allclose(backward[::-1], reversed_result, rtol=0, atol=1e-6)


def test_too_many_steps(tmp_path: Path) -> None:
    subgraph, _, _ = lstm(projection=True)
    long = [T("x", (1, 100_000, SIZE)), *subgraph.tensors[1:]]
    with pytest.raises(UnsupportedError, match="100000 steps would become more than"):
        graph_of(tmp_path, S(long, subgraph.operators, subgraph.inputs, subgraph.outputs))
