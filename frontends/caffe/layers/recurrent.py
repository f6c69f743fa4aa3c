"""Recurrent layers as one operator each; T is the extent of the input's first axis.

The second bottom, ``cont``, is 1 where a sequence continues and 0 where a new one starts: the states are multiplied by
it. A static input (the same in all steps) is concatenated to the input of each step, and so are its weights.

Shapes: x [T, N, ...], cont [T, N], static input [N, ...], initial and final states [1, N, H].
Source: Caffe's layers RNN and LSTM, and Donahue et al., Long-term Recurrent Convolutional Networks.
"""

import math
from dataclasses import dataclass

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.recurrent.recurrent import Lstm, RecurrentLayer, Rnn
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import Array

_LSTM_GATES = (0, 2, 1, 3)
"""Caffe's gates (input, forget, output, candidate) in the order of lstm: input, output, forget, candidate."""


@dataclass(frozen=True)
class _Sequence:
    """Inputs and weights that LSTM and RNN layers have in common.

    Args:
        x: inputs of all steps, [T, N, I].
        goes_on: ``cont``, [T, N].
        states: initial states, [1, N, H] each; None for zeros.
        units: number of units, H.
        weights: kernel [gates * H, I] and bias [gates * H] of the inputs.
        next_blob: index of the layer's first learned tensor that is not in ``weights``.
        gives_states: True if the final states are tops too.

    """

    x: Value
    goes_on: Value
    states: list[Value | None]
    units: int
    weights: tuple[Array, Array]
    next_blob: int
    gives_states: bool

    def apply(self, node: CaffeNode, g: Graph, op: RecurrentLayer, order: tuple[int, ...]) -> tuple[Value, list[Value]]:
        """Add a layer with the gates of the file in another order. Return all results [T, N, H] and the last states."""
        kernel, bias = self.weights
        recurrent = node.weight(self.next_blob, (len(bias), self.units), "recurrent weight")

        def constant(array: Array, name: str) -> Value:
            gates = array.reshape(len(order), self.units, -1)[list(order)]
            return node.constant(np.ascontiguousarray(gates.reshape(1, len(bias), -1)), name)

        both = np.zeros((1, 2 * len(bias)), np.float32)
        both[0, : len(bias)] = bias.reshape(len(order), self.units)[list(order)].reshape(-1)
        tensors = [self.x, constant(kernel, "weight"), constant(recurrent, "recurrent"), node.constant(both, "bias")]
        operands: list[Value | None] = [*tensors, None, *self.states]
        operands += [None] * (len(op.inputs) - 1 - len(operands))  # an LSTM can have peepholes
        y, *last = g.add_all(op, *operands, self.goes_on)
        steps, _, batch, units = y.type.static_shape
        return emit.reshape(g, y, (steps, batch, units)), last * self.gives_states


def _read(node: CaffeNode, g: Graph, gates: int, states: int) -> _Sequence:
    p = node.params("recurrent_param")
    units, gives_states, shape = p.whole("num_output"), p.flag("expose_hidden"), node.shape(0)
    if units < 1:
        raise node.fail("num_output is missing", "give it in the prototxt", INVALID_NODE)
    if len(shape) < 3 or node.shape(1) != shape[:2]:
        text = f"bottoms of shape {list(shape)} and {list(node.shape(1))} instead of [T, N, ...] and [T, N]"
        raise node.fail(text, kind=INVALID_NODE)
    count, batch = shape[:2]
    first_state = node.input_count - (states if gives_states else 0)
    if first_state not in (2, 3):
        raise node.fail(f"{node.input_count} bottoms with expose_hidden: {gives_states}".lower(), kind=INVALID_NODE)
    length = math.prod(shape[2:])
    kernels = [node.weight(0, (gates * units, length), "input weight")]
    bias = node.weight(1, (gates * units,), "bias")
    x = emit.reshape(g, node.input(0), (count, batch, length))
    if first_state == 3:
        size = math.prod(node.shape(2)[1:])
        kernels.append(node.weight(2, (gates * units, size), "weight of the unchanging input"))
        unchanging = emit.reshape(g, node.input(2), (1, batch, size))
        every = g.add(Tile((count, 1, 1)), unchanging) if count > 1 else unchanging
        x = g.add(Concat(2), x, every)
    begin: list[Value | None] = [None] * states
    if gives_states:
        begin = [emit.reshape(g, node.input(first_state + k), (1, batch, units)) for k in range(states)]
    return _Sequence(
        x,
        node.input(1),
        begin,
        units,
        (np.concatenate(kernels, axis=1), bias),
        len(kernels) + 1,
        gives_states,
    )


@caffe_op("LSTM")
def lstm(node: CaffeNode, g: Graph) -> list[Value]:
    """LSTM: results of all steps, then, with ``expose_hidden``, the final hidden state and cell state."""
    y, last = _read(node, g, gates=4, states=2).apply(node, g, Lstm(), _LSTM_GATES)
    return [y, *last]


@caffe_op("RNN")
def rnn(node: CaffeNode, g: Graph) -> list[Value]:
    """Elman RNN: per step, ``h = tanh(W_hh h + W_xh x + b_h)`` and ``y = tanh(W_ho h + b_o)``.

    With ``expose_hidden``, the final h is a second top.
    """
    sequence = _read(node, g, gates=1, states=1)
    units, blob = sequence.units, sequence.next_blob
    w_o = node.constant(node.weight(blob + 1, (units, units), "weight of the result").T, "result_weight")
    b_o = node.constant(node.weight(blob + 2, (units,), "bias of the result").reshape(1, units), "result_bias")
    hidden, last = sequence.apply(node, g, Rnn(), (0,))
    steps, batch, _ = hidden.type.static_shape
    rows = emit.reshape(g, hidden, (steps * batch, units))
    y = formulas.tanh(g, g.add(MatrixMul(), rows, w_o, b_o))
    return [emit.reshape(g, y, (steps, batch, units)), *last]


@caffe_op("LSTMUnit")
def lstm_unit(node: CaffeNode, g: Graph) -> list[Value]:
    """One LSTM step after its matmuls; bottoms: cell state, gates, cont; tops: cell state, hidden state."""
    batch, units = node.shape(0)[1:] if len(node.shape(0)) == 3 else (0, 0)
    if (node.shape(0)[0], node.shape(1), node.shape(2)) != (1, (1, batch, 4 * units), (1, batch)):
        shapes = ", ".join(str(list(node.shape(index))) for index in range(3))
        raise node.fail(f"bottoms of shape {shapes} instead of [1, N, H], [1, N, 4 * H], [1, N]", kind=INVALID_NODE)
    previous = g.add(Mul(), node.input(0), emit.reshape(g, node.input(2), (1, batch, 1)))
    enter, forget, leave, candidate = g.add_all(Split(2, 4, (units,) * 4), node.input(1))
    added = g.add(Mul(), formulas.sigmoid(g, enter), formulas.tanh(g, candidate))
    memory = g.add(Add(), g.add(Mul(), formulas.sigmoid(g, forget), previous), added)
    return [memory, g.add(Mul(), formulas.sigmoid(g, leave), formulas.tanh(g, memory))]
