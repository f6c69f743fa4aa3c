"""Recurrent layers: LSTM and RNN, unidirectional and bidirectional.

A float layer becomes one operator per direction. Layers with integers, a projection, layer normalization or a function
that the operator does not have are unrolled over their static sequence.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.tflite import hybrid
from tpuconvert.frontends.tflite.node import FUSED_ACTIVATIONS, TfliteNode, tflite_op
from tpuconvert.frontends.tflite.operators.integer_lstm import IntegerLstm, is_integer_lstm
from tpuconvert.frontends.tflite.operators.recurrent_input import InputIndices, Sequence, round_activations
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Rsubs
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.recurrent.recurrent import Direction, Lstm, Rnn
from tpuconvert.schema.types import Array, Scalar


def _input_indices(first: int, output_state: int, cell_state: int) -> InputIndices:
    weights, recurrent, biases = (range(first + start, first + start + 4) for start in (0, 4, 11))
    peepholes = {0: first + 8, 1: first + 9, 3: first + 10}
    return InputIndices(weights, recurrent, peepholes, biases, first + 15, first + 16, output_state, cell_state)


_ONE_WAY = _input_indices(1, 18, 19)
_FORWARD, _BACKWARD = _input_indices(1, 35, 36), _input_indices(18, 37, 38)
_LAYER_NORMS = (20, 21, 22, 23)
_AUXILIARY = range(39, 48)
_SIGMOID = Active(ActiveType.ACTIVE_SIGMOID)
_TANH = Active(ActiveType.ACTIVE_TANH)
_FULL, _BASIC = 0, 1  # values of kernel_type
_TINY = 1e-8  # epsilon of layer normalization
_LAYER_FUNCTIONS = {0: "affine", 1: "relu", 4: "tanh"}
"""Functions of the operators, by the number of the option; "affine" is the identity."""


def _concat_weights(node: TfliteNode, g: Graph, indices: list[int], name: str) -> Value:
    """Concatenate and transpose the weights of several gates: [size, gates * units]."""
    parts = [node.real(index) for index in indices]
    if any(part.ndim != 2 or part.shape != parts[0].shape for part in parts):
        raise node.fail(INVALID_NODE, f"weights {[list(part.shape) for part in parts]} do not fit each other")
    return g.constant(np.ascontiguousarray(np.concatenate(parts).T), name)


def _clip(g: Graph, x: Value, limit: float) -> Value:
    return g.add(Clamp(Scalar.f32(-limit), Scalar.f32(limit)), x) if limit > 0 else x


def _function(node: TfliteNode) -> Op | None:
    names = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH")
    number = node.option("fused_activation_function")
    if not 0 <= number < len(names):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"fused_activation_function={number}", f"supported: {', '.join(names)}")
    return FUSED_ACTIVATIONS.get(names[number])


@tflite_op("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(node: TfliteNode, g: Graph) -> Value:
    """LSTM; if the weights of the input gate are absent, the input gate is ``1 - forget gate``."""
    node.refuse_option("diagonal_recurrent_tensors", False)
    sequence = Sequence(node, g, bool(node.option("time_major", False)))
    if is_integer_lstm(node, _ONE_WAY, _LAYER_NORMS, _function(node)):
        node.ignore_option("proj_clip")  # an integer LSTM has no projection
        return sequence.join(IntegerLstm(node, g, _ONE_WAY).run(sequence))
    return sequence.join(_Lstm(node, g, _ONE_WAY, _LAYER_NORMS).outputs(sequence))


@tflite_op("LSTM")
def lstm_step(node: TfliteNode, g: Graph) -> Value | tuple[Value, ...]:
    """One LSTM step. The states of the basic kernel are plain inputs and outputs, not variable tensors."""
    kernel = node.option("kernel_type")
    if kernel not in (_FULL, _BASIC):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"kernel_type={kernel}", "supported: FULL and BASIC")
    if kernel == _BASIC:
        return _basic_step(node, g)
    sequence = Sequence(node, g, time_major=True, single=True)
    return sequence.join(_Lstm(node, g, _ONE_WAY, _LAYER_NORMS).run(sequence))


def _basic_step(node: TfliteNode, g: Graph) -> tuple[Value, ...]:
    """Convert the basic kernel; gates are in the order input, cell update, forget, output.

    Results: output, cell state, concatenated input of the matmul, and result of the matmul.
    """
    # The basic kernel always uses tanh, without clipping, and does not quantize activations.
    node.ignore_option("fused_activation_function", "cell_clip", "proj_clip", "asymmetric_quantize_inputs")
    x, before, cell = node.input(0), node.input(1), node.input(4)
    if len(node.operator.outputs) != 4 or node.rank(2) != 2:
        raise node.fail(INVALID_NODE, f"weights {list(node.shape(2))}, {len(node.operator.outputs)} outputs")
    every = g.add(Concat(axis=1), x, before)
    weights = g.constant(np.ascontiguousarray(node.real(2).T), "weights")
    sums = g.add(MatrixMul(), every, weights, g.constant(node.real(3).reshape(1, -1), "biases"))
    gates = g.add_all(Split(axis=1, num=4), sums, names=("gate",) * 4)
    enter, forget, leave = (g.add(_SIGMOID, gates[index]) for index in (0, 2, 3))
    fresh = g.add(Add(), g.add(Mul(), forget, cell), g.add(Mul(), enter, g.add(_TANH, gates[1])))
    return g.add(Mul(), leave, g.add(_TANH, fresh)), fresh, every, sums


@tflite_op("BIDIRECTIONAL_SEQUENCE_LSTM", limits="no auxiliary input")
def bidirectional_lstm(node: TfliteNode, g: Graph) -> Value | tuple[Value, Value]:
    """A forward and a backward LSTM, with concatenated or separate results."""
    _refuse_auxiliary(node, _AUXILIARY)
    sequence = Sequence(node, g, bool(node.option("time_major", True)))
    forward = _Lstm(node, g, _FORWARD).outputs(sequence)
    backward = _Lstm(node, g, _BACKWARD).outputs(sequence, backwards=True)
    return _both_directions(node, g, sequence, forward, backward)


def _refuse_auxiliary(node: TfliteNode, indices: range) -> None:
    if any(node.has_input(index) for index in indices):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "an auxiliary input", "export the layers one by one")


def _both_directions(
    node: TfliteNode, g: Graph, sequence: Sequence, forward: list[Value] | Value, backward: list[Value] | Value
) -> Value | tuple[Value, Value]:
    if not node.option("merge_outputs", False):
        return sequence.join(forward), sequence.join(backward)
    if isinstance(forward, Value) or isinstance(backward, Value):
        return g.add(Concat(axis=2), sequence.join(forward), sequence.join(backward))
    return sequence.join([g.add(Concat(axis=1), *pair) for pair in zip(forward, backward, strict=True)])


class _Lstm:
    def __init__(self, node: TfliteNode, g: Graph, indices: InputIndices, norms: tuple[int, ...] = ()) -> None:
        self.node = node
        self.g = g
        self.indices = indices
        self.gates = [gate for gate in range(4) if node.has_input(indices.input_weights[gate])]
        if self.gates not in ([0, 1, 2, 3], [1, 2, 3]):
            raise node.fail(INVALID_NODE, "lacks the weights of a gate")
        self.units = node.shape(indices.input_weights[3])[0]
        self.function = _function(node)
        self.cell_clip, self.projection_clip = node.option("cell_clip", 0.0), node.option("proj_clip", 0.0)
        self.peepholes: dict[int, Value] = {}
        for gate, index in indices.peepholes.items():
            if node.has_input(index):
                self.peepholes[gate] = g.constant(node.real(index).reshape(1, self.units), "peephole")
        normalized = [gate for gate, index in enumerate(norms) if node.has_input(index)]
        if normalized and normalized != self.gates:
            raise node.fail(INVALID_NODE, "lacks the layer normalization of a gate")
        self.norms = {gate: g.constant(node.real(norms[gate]).reshape(1, self.units), "norm") for gate in normalized}
        self.shifts = {gate: g.constant(self._bias(gate).reshape(1, self.units), "shift") for gate in normalized}
        self.projection: Value | None = None
        self.projection_bias: Value | None = None
        if node.has_input(indices.projection):
            self.projection = _concat_weights(node, g, [indices.projection], "projection")
            if node.has_input(indices.projection_bias):
                self.projection_bias = g.constant(node.real(indices.projection_bias).reshape(1, -1), "projection_bias")

    def outputs(self, sequence: Sequence, *, backwards: bool = False) -> list[Value] | Value:
        """Outputs of one operator, or of all steps if the layer must be unrolled."""
        function = _LAYER_FUNCTIONS.get(self.node.option("fused_activation_function"))
        is_rounding = hybrid.is_rounding(self.node, self.indices.input_weights[3])
        if function is None or is_rounding or self.norms or self.projection is not None:
            return self.run(sequence, backwards=backwards)
        op = Lstm(
            direction=Direction.REVERSE if backwards else Direction.FORWARD,
            activations=("sigmoid", function, function),
            cell_clip=max(self.cell_clip, 0.0),
            input_forget=0 not in self.gates,
        )
        indices, node = self.indices, self.node
        weights, recurrent = (
            self._in_order([node.real(part[gate]) for gate in self.gates])
            for part in (indices.input_weights, indices.recurrent_weights)
        )
        bias = self._in_order([self._bias(gate) for gate in self.gates])
        peepholes = None
        if self.peepholes:
            peepholes = self._in_order([self._peephole(gate) for gate in self.gates])[: 3 * self.units]
        constants = [weights, recurrent, np.concatenate([bias, np.zeros_like(bias)]), peepholes]
        return sequence.apply(op, constants, (indices.output_state, indices.cell_state))

    def _peephole(self, gate: int) -> Array:
        if gate not in self.peepholes:
            return np.zeros(self.units, np.float32)
        return self.node.real(self.indices.peepholes[gate]).reshape(-1)

    def _in_order(self, parts: list[Array]) -> Array:
        """Concatenate parts of the gates in the order of the operator: input, output, forget, cell.

        The operator has the forget gate 1 - i. If the input gate is absent, it is ``1 - f = sigmoid(-sum of f)``.
        """
        part_of = dict(zip(self.gates, parts, strict=True))
        enter = part_of[0] if 0 in part_of else -part_of[1]
        return np.concatenate([enter, part_of[3], part_of[1], part_of[2]])

    def run(self, sequence: Sequence, *, backwards: bool = False) -> list[Value]:
        """Outputs of all steps, in the order of the sequence."""
        node, g, indices = self.node, self.g, self.indices
        biases = np.concatenate([self._bias(gate) * (gate not in self.norms) for gate in self.gates])
        weights = _concat_weights(node, g, [indices.input_weights[gate] for gate in self.gates], "input_weights")
        recurrent = _concat_weights(
            node, g, [indices.recurrent_weights[gate] for gate in self.gates], "recurrent_weights"
        )
        steps = sequence.project(
            weights, g.constant(biases.reshape(1, -1), "biases"), index=indices.input_weights[self.gates[-1]]
        )
        last = indices.recurrent_weights[self.gates[-1]]

        def total(step: Value, output: Value | None) -> Value:
            if output is None:
                return step
            return g.add(Add(), step, g.add(MatrixMul(), round_activations(node, g, output, last), recurrent))

        states = indices.output_state, indices.cell_state
        return sequence.unroll(
            steps, states, lambda step, output, cell: self._step(total(step, output), cell), backwards
        )

    def _bias(self, gate: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        index = self.indices.biases[gate]
        if not self.node.has_input(index):
            return np.zeros(self.units, dtype=np.float32)
        return self.node.real(index).reshape(-1)

    def _step(self, total: Value, cell: Value | None) -> tuple[Value, Value]:
        g = self.g
        parts = g.add_all(Split(axis=1, num=len(self.gates)), total, names=("gate",) * len(self.gates))
        sums = dict(zip(self.gates, parts, strict=True))
        forget = g.add(_SIGMOID, self._add_peephole(1, sums[1], cell))
        enter = (
            g.add(_SIGMOID, self._add_peephole(0, sums[0], cell)) if 0 in sums else g.add(Rsubs(Scalar.f32(1)), forget)
        )
        update = g.add(Mul(), enter, self._activate(self._normalize(2, sums[2])))
        fresh = update if cell is None else g.add(Add(), g.add(Mul(), forget, cell), update)
        fresh = _clip(g, fresh, self.cell_clip)
        leave = g.add(_SIGMOID, self._add_peephole(3, sums[3], fresh))
        output = g.add(Mul(), leave, self._activate(fresh))
        if self.projection is not None:
            output = round_activations(self.node, g, output, self.indices.projection)
            output = g.add(MatrixMul(), output, self.projection, self.projection_bias)
            output = _clip(g, output, self.projection_clip)
        return output, fresh

    def _add_peephole(self, gate: int, total: Value, cell: Value | None) -> Value:
        if gate in self.peepholes and cell is not None:
            total = self.g.add(Add(), total, self.g.add(Mul(), cell, self.peepholes[gate]))
        return self._normalize(gate, total)

    def _normalize(self, gate: int, x: Value) -> Value:
        """Layer normalization of the sum of a gate, if the layer has weights for it."""
        if gate not in self.norms:
            return x
        g = self.g
        centered = g.add(Sub(), x, emit.mean(g, x, (1,)))
        variance = emit.mean(g, g.add(Active(ActiveType.ACTIVE_SQUARE), centered), (1,))
        root = g.add(Active(ActiveType.ACTIVE_RSQRT), g.add(Adds(Scalar.f32(_TINY)), variance))
        scaled = g.add(Mul(), g.add(Mul(), centered, root), self.norms[gate])
        return g.add(Add(), scaled, self.shifts[gate])

    def _activate(self, x: Value) -> Value:
        return x if self.function is None else self.g.add(self.function, x)


@tflite_op("UNIDIRECTIONAL_SEQUENCE_RNN")
def rnn(node: TfliteNode, g: Graph) -> Value:
    """Elman RNN: ``y[t] = f(W x[t] + R y[t-1] + b)``."""
    sequence = Sequence(node, g, bool(node.option("time_major", False)))
    return sequence.join(_simple_layer(node, g, sequence, 1))


@tflite_op("BIDIRECTIONAL_SEQUENCE_RNN", limits="no auxiliary input")
def bidirectional_rnn(node: TfliteNode, g: Graph) -> Value | tuple[Value, Value]:
    """A forward and a backward Elman RNN, with concatenated or separate results."""
    _refuse_auxiliary(node, range(9, 12))
    sequence = Sequence(node, g, bool(node.option("time_major", False)))
    forward, backward = _simple_layer(node, g, sequence, 1), _simple_layer(node, g, sequence, 5, backwards=True)
    return _both_directions(node, g, sequence, forward, backward)


@tflite_op("RNN")
def rnn_step(node: TfliteNode, g: Graph) -> Value:
    """One step of an Elman RNN."""
    sequence = Sequence(node, g, time_major=True, single=True)
    return sequence.join(_simple_cell(node, g, sequence, 1))


def _simple_layer(
    node: TfliteNode, g: Graph, sequence: Sequence, first: int, *, backwards: bool = False
) -> list[Value] | Value:
    """Outputs of an Elman RNN as one operator, or of all steps if it must be unrolled; arguments as _simple_cell."""
    function = _LAYER_FUNCTIONS.get(node.option("fused_activation_function"))
    weights, recurrent, bias = (node.real(first + offset) for offset in range(3))
    units = node.shape(first)[0]
    if function is None or hybrid.is_rounding(node, first) or math.prod(bias.shape) != units:
        return _simple_cell(node, g, sequence, first, backwards=backwards)
    op = Rnn(Direction.REVERSE if backwards else Direction.FORWARD, (function,))
    biases = np.concatenate([bias.reshape(-1), np.zeros(units, np.float32)])
    return sequence.apply(op, [weights, recurrent, biases], (first + 3,))


def _simple_cell(node: TfliteNode, g: Graph, sequence: Sequence, first: int, *, backwards: bool = False) -> list[Value]:
    """Unroll an Elman RNN, whose weights, recurrent weights, bias and state are the inputs from ``first`` on."""
    function = _function(node)
    units = node.shape(first)[0]
    if math.prod(node.shape(first + 2)) != units:
        raise node.fail(INVALID_NODE, f"bias {list(node.shape(first + 2))} for {units} units")
    weights = _concat_weights(node, g, [first], "input_weights")
    recurrent = _concat_weights(node, g, [first + 1], "recurrent_weights")
    steps = sequence.project(weights, g.constant(node.real(first + 2).reshape(1, -1), "bias"), index=first)

    def advance(step: Value, output: Value | None) -> tuple[Value]:
        if output is not None:
            step = g.add(Add(), step, g.add(MatrixMul(), round_activations(node, g, output, first + 1), recurrent))
        return (step if function is None else g.add(function, step),)

    return sequence.unroll(steps, (first + 3,), advance, backwards)
