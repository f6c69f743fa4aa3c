"""Recurrent layers: LSTM and RNN, unidirectional and bidirectional.

A float layer becomes one operator per direction. Layers with integers, a projection, layer normalization or a function
that the operator does not have are unrolled over their static sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.tflite import hybrid
from tpuconvert.frontends.tflite.integer_lstm import IntegerLstm, is_integer_lstm
from tpuconvert.frontends.tflite.lowering import reshape
from tpuconvert.frontends.tflite.node import FUSED_ACTIVATIONS, TfliteNode, tflite_op
from tpuconvert.schema.errors import INVALID_NODE, TOO_LARGE, UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph import Graph, Value, static
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Rsubs
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.recurrent import Direction, Lstm, RecurrentLayer, Rnn
from tpuconvert.schema.types import Array, QuantParams, Scalar


class InputIndices(NamedTuple):
    """Input indices of the weights of one direction; gates in the order input, forget, cell, output."""

    input_weights: range
    recurrent_weights: range
    peepholes: dict[int, int]  # by gate index; the cell gate has no peephole
    biases: range
    projection: int
    projection_bias: int
    output_state: int
    cell_state: int


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

_NODES_PER_STEP = 24
_ROUNDING_NODES = 32  # further nodes per step of a hybrid layer, which quantize the previous output and the projection

Advance = Callable[..., tuple[Value, ...]]
"""One step of a cell: function of the input and the states (None means zeros) to the next states, output first."""


class Sequence:
    """Input of a recurrent layer: splits it into steps, unrolls cells, and concatenates the outputs.

    With ``single``, the input has rank 2 and is a single step.
    """

    def __init__(self, node: TfliteNode, g: Graph, time_major: bool, *, single: bool = False) -> None:
        shape: tuple[int, ...] = node.shape(0)
        if len(shape) != (2 if single else 3) or 0 in shape:
            raise node.fail(INVALID_NODE, f"input {list(shape)} must have rank {2 if single else 3}")
        self.single, self.time_major = single, single or time_major
        if single:
            shape = (1, *shape)
        self.time, self.batch = (shape[0], shape[1]) if self.time_major else (shape[1], shape[0])
        self.size = shape[2]
        self.node, self.g = node, g
        self.x = node.input(0)
        if not self.time_major and self.batch > 1:
            quant = self.x.quant
            self.x = g.add(Permute(order=(1, 0, 2)), self.x)
            self.x.quant = quant

    @property
    def rows(self) -> Value:
        """Inputs of all steps, [T * N, I], of a layer that is unrolled."""
        node = self.node
        limit = node.tensors.file.limits.max_unrolled_nodes
        is_rounding = node.has_input(2) and hybrid.is_rounding(node, 2)  # input 2 is a weight in all recurrent layers
        per_step = _NODES_PER_STEP + (_ROUNDING_NODES if is_rounding else 0)
        if self.time * per_step > limit:
            raise node.fail(TOO_LARGE, f"{self.time} steps would become more than {limit} nodes")
        return reshape(self.g, self.x, (self.time * self.batch, self.size))

    def project(
        self, weights: Value, bias: Value | None, quant: QuantParams | None = None, index: int = 1
    ) -> tuple[Value, ...]:
        """Multiply the inputs of all steps by the weights in one matmul, and split the result into steps.

        Args:
            weights: matrix [size, columns].
            bias: row [1, columns], or None.
            quant: annotation of the results, if the kernel quantizes them.
            index: input index of the weights of some gate, which determines if activations are quantized.
        """
        rows = _round(self.node, self.g, self.rows, index)
        product = self.g.add(MatrixMul(), rows, weights, bias)
        product.quant = quant
        if self.time == 1:
            return (product,)
        steps = self.g.add_all(Split(axis=0, num=self.time), product, names=("step",) * self.time)
        for step in steps:
            step.quant = quant
        return steps

    def unroll(
        self, steps: tuple[Value, ...], states: tuple[int, ...], advance: Advance, backwards: bool
    ) -> list[Value]:
        """Unroll a cell; return its outputs in the order of the sequence.

        Args:
            steps: inputs of the cell.
            states: input indices of the states, output state first.
            advance: one step of the cell.
            backwards: True to begin with the last step.
        """
        current: tuple[Value | None, ...] = tuple(map(self.node.state, states))
        outputs: list[Value] = []
        for step in reversed(steps) if backwards else steps:
            following = advance(step, *current)
            outputs.append(following[0])
            current = following
        for index, state in zip(states, current, strict=True):
            assert state is not None, "a sequence has a step"
            self.node.set_state(index, state)
        return outputs[::-1] if backwards else outputs

    def apply(self, op: RecurrentLayer, constants: list[Array | None], states: tuple[int, ...]) -> Value:
        """Add a layer of one direction as one operator.

        Args:
            op: the layer.
            constants: weights, recurrent weights, bias, and peepholes of an LSTM, without the axis of directions.
            states: input indices of the states, output state first.

        Returns:
            The outputs of all steps, [T, N, H].
        """
        g, node = self.g, self.node
        names = ("input_weights", "recurrent_weights", "biases", "peepholes")
        values = [
            None if array is None else g.constant(np.ascontiguousarray(array, np.float32)[None], name)
            for array, name in zip(constants, names, strict=False)
        ]
        before = [node.state(index) for index in states]
        initial = [None if value is None else reshape(g, value, (1, *static(value.shape))) for value in before]
        x = reshape(g, self.x, (self.time, self.batch, self.size))
        y, *last = g.add_all(op, x, *values[:3], None, *initial, *values[3:])
        units = static(y.shape)[-1]
        for index, value in zip(states, last, strict=True):
            node.set_state(index, reshape(g, value, (self.batch, units)))
        return reshape(g, y, (self.time, self.batch, units))

    def join(self, steps: list[Value] | Value) -> Value:
        """Return the outputs in the axis order of the source, given those of each step or of all steps."""
        if self.single:
            assert isinstance(steps, list), "a single step is unrolled"
            return steps[0]
        stacked = steps if isinstance(steps, Value) else emit.concat(self.g, steps, 0)
        size = static(stacked.shape)[-1]
        if self.time_major or self.batch == 1:
            shape = (self.time, self.batch, size) if self.time_major else (self.batch, self.time, size)
            return reshape(self.g, stacked, shape)
        cube = reshape(self.g, stacked, (self.time, self.batch, size))
        return self.g.add(Permute(order=(1, 0, 2)), cube)


def _concat_weights(node: TfliteNode, g: Graph, indices: list[int], name: str) -> Value:
    """Concatenate and transpose the weights of several gates: [size, gates * units]."""
    parts = [node.real(index) for index in indices]
    if any(part.ndim != 2 or part.shape != parts[0].shape for part in parts):
        raise node.fail(INVALID_NODE, f"weights {[list(part.shape) for part in parts]} do not fit each other")
    return g.constant(np.ascontiguousarray(np.concatenate(parts).T), name)


def _round(node: TfliteNode, g: Graph, x: Value, index: int) -> Value:
    """Quantize activations to 8 bits if the weights at input ``index``, by which they are multiplied, are integers."""
    asymmetric = bool(node.option("asymmetric_quantize_inputs", False))
    return hybrid.round_activations(node, g, x, asymmetric=asymmetric, index=index)


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
        given = [gate for gate, index in enumerate(norms) if node.has_input(index)]
        if given and given != self.gates:
            raise node.fail(INVALID_NODE, "lacks the layer normalization of a gate")
        self.norms = {gate: g.constant(node.real(norms[gate]).reshape(1, self.units), "norm") for gate in given}
        self.shifts = {gate: g.constant(self._bias(gate).reshape(1, self.units), "shift") for gate in given}
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
        found = dict(zip(self.gates, parts, strict=True))
        enter = found[0] if 0 in found else -found[1]
        return np.concatenate([enter, found[3], found[1], found[2]])

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
            return g.add(Add(), step, g.add(MatrixMul(), _round(node, g, output, last), recurrent))

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
            output = _round(self.node, g, output, self.indices.projection)
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
            step = g.add(Add(), step, g.add(MatrixMul(), _round(node, g, output, first + 1), recurrent))
        return (step if function is None else g.add(function, step),)

    return sequence.unroll(steps, (first + 3,), advance, backwards)
