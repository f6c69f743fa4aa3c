"""UNIDIRECTIONAL_SEQUENCE_LSTM and UNIDIRECTIONAL_SEQUENCE_RNN, written out step by step over a static time."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends.tflite.lowering import reshaped
from tpuconvert.frontends.tflite.node import FUSED_ACTIVATIONS, TfliteNode, tflite_op
from tpuconvert.schema.errors import INVALID_NODE, TOO_LARGE, UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Rsubs
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import Scalar

# Places of the inputs of UNIDIRECTIONAL_SEQUENCE_LSTM; gates in the order input, forget, cell, output.
_INPUT_WEIGHTS = (1, 2, 3, 4)
_RECURRENT_WEIGHTS = (5, 6, 7, 8)
_PEEPHOLES = (9, 10, None, 11)
_BIASES = (12, 13, 14, 15)
_PROJECTION, _PROJECTION_BIAS = 16, 17
_OUTPUT_STATE, _CELL_STATE = 18, 19
_LAYER_NORMS = (20, 21, 22, 23)
_SIGMOID = Active(ActiveType.ACTIVE_SIGMOID)
_NODES_PER_STEP = 24


class _Sequence:
    """The steps of a sequence input, and the way back from the steps to one tensor."""

    def __init__(self, node: TfliteNode, g: Graph) -> None:
        shape = node.shape(0)
        if len(shape) != 3 or 0 in shape:
            raise node.fail(INVALID_NODE, f"input {list(shape)} must have rank 3")
        self.time_major = bool(node.option("time_major", False))
        self.time, self.batch = (shape[0], shape[1]) if self.time_major else (shape[1], shape[0])
        self.size = shape[2]
        limit = node.tensors.file.limits.max_unrolled_nodes
        if self.time * _NODES_PER_STEP > limit:
            raise node.fail(TOO_LARGE, f"{self.time} steps would become more than {limit} nodes")
        self.g = g
        x = node.input(0)
        ordered = x if self.time_major or self.batch == 1 else g.add(Permute(order=(1, 0, 2)), x)
        self.rows = reshaped(g, ordered, (self.time * self.batch, self.size))

    def projected(self, weights: Value, bias: Value | None) -> tuple[Value, ...]:
        """The product of every step with the weights, in one matrix product."""
        product = self.g.add(MatrixMul(), self.rows, weights, bias)
        if self.time == 1:
            return (product,)
        return self.g.add_all(Split(axis=0, num=self.time), product, names=("step",) * self.time)

    def joined(self, steps: list[Value], size: int) -> Value:
        """The results of all steps in the layout of the source."""
        stacked = steps[0] if len(steps) == 1 else self.g.add(Concat(axis=0), *steps)
        if self.time_major or self.batch == 1:
            shape = (self.time, self.batch, size) if self.time_major else (self.batch, self.time, size)
            return reshaped(self.g, stacked, shape)
        cube = reshaped(self.g, stacked, (self.time, self.batch, size))
        return self.g.add(Permute(order=(1, 0, 2)), cube)


def _joined_weights(node: TfliteNode, g: Graph, places: list[int], name: str) -> Value:
    """The weights of several gates next to each other, transposed: [size, gates * units]."""
    parts = [node.real(place) for place in places]
    if any(part.ndim != 2 or part.shape != parts[0].shape for part in parts):
        raise node.fail(INVALID_NODE, f"weights {[list(part.shape) for part in parts]} do not fit each other")
    return g.constant(np.ascontiguousarray(np.concatenate(parts).T), name)


def _state(node: TfliteNode, index: int) -> Value | None:
    """The state before the first step; None for zeros."""
    if not node.has_input(index):
        return None
    if node.tensor(index).is_variable:
        message = f"'{node.name}': the state starts at zero in every run; TFLite keeps it between runs"
        if message not in node.graph.notes:
            node.graph.notes.append(message)
        return None
    return node.input(index)


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
    """Long short-term memory; without weights of the input gate that gate is one minus the forget gate."""
    node.ignore_option("asymmetric_quantize_inputs")  # how a hybrid kernel rounds; here its arithmetic is float
    node.refuse_option("diagonal_recurrent_tensors", False)
    if any(node.has_input(place) for place in _LAYER_NORMS):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "layer normalization inside the cell", "export the layer unfused")
    return _Lstm(node, g).run()


class _Lstm:
    def __init__(self, node: TfliteNode, g: Graph) -> None:
        self.node = node
        self.g = g
        self.gates = [gate for gate in range(4) if node.has_input(_INPUT_WEIGHTS[gate])]
        if self.gates not in ([0, 1, 2, 3], [1, 2, 3]):
            raise node.fail(INVALID_NODE, "lacks the weights of a gate")
        self.units = node.shape(_INPUT_WEIGHTS[3])[0]
        self.function = _function(node)
        self.cell_clip, self.projection_clip = node.option("cell_clip", 0.0), node.option("proj_clip", 0.0)
        self.peepholes = {
            gate: g.constant(node.real(place).reshape(1, self.units), "peephole")
            for gate, place in enumerate(_PEEPHOLES)
            if place is not None and node.has_input(place)
        }
        self.projection: Value | None = None
        self.projection_bias: Value | None = None
        if node.has_input(_PROJECTION):
            self.projection = _joined_weights(node, g, [_PROJECTION], "projection")
            if node.has_input(_PROJECTION_BIAS):
                self.projection_bias = g.constant(node.real(_PROJECTION_BIAS).reshape(1, -1), "projection_bias")

    def run(self) -> Value:
        node, g = self.node, self.g
        sequence = _Sequence(node, g)
        biases = np.concatenate([self._bias(gate) for gate in self.gates])
        weights = _joined_weights(node, g, [_INPUT_WEIGHTS[gate] for gate in self.gates], "input_weights")
        recurrent = _joined_weights(node, g, [_RECURRENT_WEIGHTS[gate] for gate in self.gates], "recurrent_weights")
        steps = sequence.projected(weights, g.constant(biases.reshape(1, -1), "biases"))
        output, cell = _state(node, _OUTPUT_STATE), _state(node, _CELL_STATE)
        outputs: list[Value] = []
        for step in steps:
            total = step if output is None else g.add(Add(), step, g.add(MatrixMul(), output, recurrent))
            output, cell = self._step(total, cell)
            outputs.append(output)
        size = self.units if self.projection is None else int(node.shape(_PROJECTION)[0])
        return sequence.joined(outputs, size)

    def _bias(self, gate: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        if not self.node.has_input(_BIASES[gate]):
            return np.zeros(self.units, dtype=np.float32)
        return self.node.real(_BIASES[gate]).reshape(-1)

    def _step(self, total: Value, cell: Value | None) -> tuple[Value, Value]:
        g = self.g
        parts = g.add_all(Split(axis=1, num=len(self.gates)), total, names=("gate",) * len(self.gates))
        sums = dict(zip(self.gates, parts, strict=True))
        forget = g.add(_SIGMOID, self._peeked(1, sums[1], cell))
        enter = g.add(_SIGMOID, self._peeked(0, sums[0], cell)) if 0 in sums else g.add(Rsubs(Scalar.f32(1)), forget)
        update = g.add(Mul(), enter, self._applied(sums[2]))
        fresh = update if cell is None else g.add(Add(), g.add(Mul(), forget, cell), update)
        fresh = _clip(g, fresh, self.cell_clip)
        leave = g.add(_SIGMOID, self._peeked(3, sums[3], fresh))
        output = g.add(Mul(), leave, self._applied(fresh))
        if self.projection is not None:
            output = g.add(MatrixMul(), output, self.projection, self.projection_bias)
            output = _clip(g, output, self.projection_clip)
        return output, fresh

    def _peeked(self, gate: int, total: Value, cell: Value | None) -> Value:
        if gate not in self.peepholes or cell is None:
            return total
        return self.g.add(Add(), total, self.g.add(Mul(), cell, self.peepholes[gate]))

    def _applied(self, x: Value) -> Value:
        return x if self.function is None else self.g.add(self.function, x)


@tflite_op("UNIDIRECTIONAL_SEQUENCE_RNN")
def rnn(node: TfliteNode, g: Graph) -> Value:
    """The simple recurrent cell: y = f(W x + R y_before + b)."""
    node.ignore_option("asymmetric_quantize_inputs")  # how a hybrid kernel rounds; here its arithmetic is float
    sequence = _Sequence(node, g)
    function = _function(node)
    units = node.shape(1)[0]
    if math.prod(node.shape(3)) != units:
        raise node.fail(INVALID_NODE, f"bias {list(node.shape(3))} for {units} units")
    weights = _joined_weights(node, g, [1], "input_weights")
    recurrent = _joined_weights(node, g, [2], "recurrent_weights")
    output = _state(node, 4)
    outputs: list[Value] = []
    for step in sequence.projected(weights, g.constant(node.real(3).reshape(1, -1), "bias")):
        total = step if output is None else g.add(Add(), step, g.add(MatrixMul(), output, recurrent))
        output = total if function is None else g.add(function, total)
        outputs.append(output)
    return sequence.joined(outputs, units)
