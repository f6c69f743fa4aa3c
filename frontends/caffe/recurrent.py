"""Recurrent layers, unrolled over their T time steps; T is the extent of the input's first axis.

The second bottom, ``cont``, is 1 where a sequence continues and 0 where a new one starts: the states are multiplied by
it. A static input (the same in all steps) is concatenated to the input of each step, and so are its weights.

Shapes: x [T, N, ...], cont [T, N], static input [N, ...], initial and final states [1, N, H].
Source: Caffe's layers RNN and LSTM, and Donahue et al., Long-term Recurrent Convolutional Networks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op
from tpuconvert.schema.errors import INVALID_NODE, TOO_LARGE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.matrix_mul import MatrixMul
from tpuconvert.schema.ops.recurrent_cell import LstmCell
from tpuconvert.schema.types import Array

_NODES_PER_STEP = 8
_LSTM_GATES = (0, 2, 1, 3)
"""Caffe's gates (input, forget, output, candidate) in the order of LstmCell: input, output, forget, candidate."""


@dataclass(frozen=True)
class _Sequence:
    """Inputs and weights that LSTM and RNN layers have in common.

    Args:
        steps: input of each time step, [N, I].
        goes_on: slice of ``cont`` for each time step, [N, 1].
        states: initial states, [N, H] each.
        units: number of units, H.
        weights: kernel [gates * H, I] and bias [gates * H] of the inputs.
        next_blob: index of the layer's first learned tensor that is not in ``weights``.
        gives_states: True if the final states are tops too.

    """

    steps: list[Value]
    goes_on: list[Value]
    states: list[Value]
    units: int
    weights: tuple[Array, Array]
    next_blob: int
    gives_states: bool


def _read(node: CaffeNode, g: Graph, gates: int, states: int) -> _Sequence:
    p = node.params("recurrent_param")
    units, gives_states, shape = p.whole("num_output"), p.flag("expose_hidden"), node.shape(0)
    if units < 1:
        raise node.fail("num_output is missing", "give it in the prototxt", INVALID_NODE)
    if len(shape) < 3 or node.shape(1) != shape[:2]:
        text = f"bottoms of shape {list(shape)} and {list(node.shape(1))} instead of [T, N, ...] and [T, N]"
        raise node.fail(text, kind=INVALID_NODE)
    count, batch = shape[:2]
    if count * _NODES_PER_STEP > node.limits.max_unrolled_nodes:
        raise node.fail(f"{count} time steps", kind=TOO_LARGE)
    first_state = node.input_count - (states if gives_states else 0)
    if first_state not in (2, 3):
        raise node.fail(f"{node.input_count} bottoms with expose_hidden: {gives_states}".lower(), kind=INVALID_NODE)
    length = math.prod(shape[2:])
    kernels = [node.weight(0, (gates * units, length), "input weight")]
    bias = node.weight(1, (gates * units,), "bias")
    steps = _split_steps(g, emit.reshape(g, node.input(0), (count, batch, length)))
    if first_state == 3:
        static = node.shape(2)
        kernels.append(node.weight(2, (gates * units, math.prod(static[1:])), "weight of the unchanging input"))
        unchanging = emit.reshape(g, node.input(2), (batch, math.prod(static[1:])))
        steps = [g.add(Concat(1), step, unchanging) for step in steps]
    begin = [emit.reshape(g, node.input(first_state + k), (batch, units)) for k in range(states if gives_states else 0)]
    zero = np.zeros((batch, units), np.float32)
    return _Sequence(
        steps,
        _split_steps(g, emit.reshape(g, node.input(1), (count, batch, 1))),
        begin or [node.constant(zero, f"state{k}") for k in range(states)],
        units,
        (np.concatenate(kernels, axis=1), bias),
        len(kernels) + 1,
        gives_states,
    )


def _split_steps(g: Graph, x: Value) -> list[Value]:
    """Slices along the first axis, with that axis removed."""
    count, *rest = x.type.static_shape
    parts = g.add_all(Split(0, count, (1,) * count), x) if count > 1 else [x]
    return [emit.reshape(g, part, rest) for part in parts]


def _unroll(
    node: CaffeNode, g: Graph, sequence: _Sequence, step: Callable[[Value, list[Value]], tuple[Value, list[Value]]]
) -> list[Value]:
    """Unroll a layer: return the results of all steps, then the final states if the layer exposes them."""
    states, results = sequence.states, []
    for x, goes_on in zip(sequence.steps, sequence.goes_on, strict=True):
        result, states = step(x, [g.add(Mul(), state, goes_on) for state in states])
        results.append(emit.reshape(g, result, (1, *result.type.static_shape)))
    y = emit.concat(g, results, 0)
    return [y, *(emit.reshape(g, state, (1, *state.type.static_shape)) for state in states * sequence.gives_states)]


@caffe_op("LSTM")
def lstm(node: CaffeNode, g: Graph) -> list[Value]:
    """LSTM: results of all steps, then, with ``expose_hidden``, the final hidden state and cell state."""
    sequence = _read(node, g, gates=4, states=2)
    units = sequence.units

    def gates_in_order(weights: Array) -> Array:
        split = weights.reshape(4, units, -1)
        return split[list(_LSTM_GATES)].reshape(4 * units, -1)

    kernel, bias = (gates_in_order(array).T for array in sequence.weights)
    recurrent = gates_in_order(node.weight(sequence.next_blob, (4 * units, units), "recurrent weight")).T
    constants = [
        node.constant(array, name)
        for name, array in (("weight", kernel), ("recurrent", recurrent), ("bias", bias.reshape(1, 4 * units)))
    ]

    def step(x: Value, states: list[Value]) -> tuple[Value, list[Value]]:
        hidden, memory = g.add_all(LstmCell(), x, *states, *constants)
        return hidden, [hidden, memory]

    return _unroll(node, g, sequence, step)


@caffe_op("RNN")
def rnn(node: CaffeNode, g: Graph) -> list[Value]:
    """Elman RNN: per step, ``h = tanh(W_hh h + W_xh x + b_h)`` and ``y = tanh(W_ho h + b_o)``.

    With ``expose_hidden``, the final h is a second top.
    """
    sequence = _read(node, g, gates=1, states=1)
    units, blob = sequence.units, sequence.next_blob
    square = (units, units)
    kernel, bias = sequence.weights
    w_x, b_h = node.constant(kernel.T, "weight"), node.constant(bias.reshape(1, units), "bias")
    w_h = node.constant(node.weight(blob, square, "recurrent weight").T, "recurrent")
    w_o = node.constant(node.weight(blob + 1, square, "weight of the result").T, "result_weight")
    b_o = node.constant(node.weight(blob + 2, (units,), "bias of the result").reshape(1, units), "result_bias")

    def step(x: Value, states: list[Value]) -> tuple[Value, list[Value]]:
        inputs, remembered = g.add(MatrixMul(), x, w_x, b_h), g.add(MatrixMul(), states[0], w_h)
        hidden = formulas.tanh(g, g.add(Add(), inputs, remembered))
        return formulas.tanh(g, g.add(MatrixMul(), hidden, w_o, b_o)), [hidden]

    return _unroll(node, g, sequence, step)


@caffe_op("LSTMUnit")
def lstm_unit(node: CaffeNode, g: Graph) -> list[Value]:
    """One LSTM step after its matmuls; bottoms: cell state, gates, cont; tops: cell state, hidden state."""
    batch, units = node.shape(0)[1:] if len(node.shape(0)) == 3 else (0, 0)
    if (node.shape(0)[0], node.shape(1), node.shape(2)) != (1, (1, batch, 4 * units), (1, batch)):
        shapes = ", ".join(str(list(node.shape(index))) for index in range(3))
        raise node.fail(f"bottoms of shape {shapes} instead of [1, N, H], [1, N, 4 * H], [1, N]", kind=INVALID_NODE)
    kept = g.add(Mul(), node.input(0), emit.reshape(g, node.input(2), (1, batch, 1)))
    enter, forget, leave, candidate = g.add_all(Split(2, 4, (units,) * 4), node.input(1))
    added = g.add(Mul(), formulas.sigmoid(g, enter), formulas.tanh(g, candidate))
    memory = g.add(Add(), g.add(Mul(), formulas.sigmoid(g, forget), kept), added)
    return [memory, g.add(Mul(), formulas.sigmoid(g, leave), formulas.tanh(g, memory))]
