"""LSTM with 8-bit activations and a 16-bit cell state, unrolled; values are annotated with the scales of the kernel.

The sums of the gates have the scale 2^-12, results of sigmoid and tanh 2^-15, the cell state the power of two that its
tensor states, and the output the scale of the result tensor.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from tpuconvert.frontends.tflite.node import FUSED_ACTIVATIONS, TfliteNode
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Rsubs
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.concat import Split
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import I8, I16, I32, Arithmetic, Array, QuantParams, Scalar

if TYPE_CHECKING:
    from tpuconvert.frontends.tflite.operators.recurrent_input import InputIndices, Sequence


def _in_cell(params: QuantParams) -> QuantParams:
    return dataclasses.replace(params, arithmetic=Arithmetic.RECURRENT_CELL)


_SUM = _in_cell(QuantParams.per_tensor(2.0**-12, 0, I16))
_WIDE_SUM = _in_cell(QuantParams.per_tensor(2.0**-12, 0, I32))
_GATE = _in_cell(QuantParams.per_tensor(2.0**-15, 0, I16))
_SIGMOID, _TANH = Active(ActiveType.ACTIVE_SIGMOID), Active(ActiveType.ACTIVE_TANH)


def is_integer_lstm(node: TfliteNode, indices: InputIndices, norms: tuple[int, ...], function: Op | None) -> bool:
    """Return True for a layer with 8-bit activations and weights and a 16-bit cell state, which this module supports.

    It must have the activation tanh, and no peepholes, layer normalization or projection.
    """
    x, y = node.quant(0), node.output_quant()
    if x is None or y is None or x.dtype is not I8 or y.dtype is not I8 or not node.has_input(indices.cell_state):
        return False
    cell = node.quant(indices.cell_state)
    extra = [*indices.peepholes.values(), *norms, indices.projection]
    if any(node.has_input(index) for index in extra) or function != FUSED_ACTIVATIONS["TANH"]:
        return False
    weights = (*indices.input_weights, *indices.recurrent_weights)
    quants = [node.quant(index) for index in weights if node.has_input(index)]
    plain = all(item is not None and item.dtype is I8 and len(item.scale) == 1 for item in quants)
    return plain and cell is not None and cell.dtype is I16 and np.frexp(cell.scale[0])[0] == 0.5


class IntegerLstm:
    """One direction of an integer LSTM."""

    def __init__(self, node: TfliteNode, g: Graph, indices: InputIndices) -> None:
        x, y, cell = node.quant(0), node.output_quant(), node.quant(indices.cell_state)
        assert x is not None and y is not None and cell is not None
        self.node, self.g, self.indices = node, g, indices
        self.x, self.y, self.cell = x, _in_cell(y), _in_cell(cell)
        self.gates = [gate for gate in range(4) if node.has_input(indices.input_weights[gate])]
        self.units = node.shape(indices.input_weights[3])[0]

    def run(self, sequence: Sequence, *, backwards: bool = False) -> list[Value]:
        """Outputs of all steps, in the order of the sequence."""
        indices = self.indices
        weights = self._weights([indices.input_weights[gate] for gate in self.gates], "input_weights")
        recurrent = self._weights([indices.recurrent_weights[gate] for gate in self.gates], "recurrent_weights")
        steps = sequence.project(weights, self._biases(weights), _SUM)

        def total(step: Value, output: Value | None) -> Value:
            if output is None:
                return step
            return self._add(Add(), _SUM, step, self._add(MatrixMul(), _WIDE_SUM, output, recurrent))

        states = indices.output_state, indices.cell_state
        return sequence.unroll(
            steps, states, lambda step, output, cell: self._step(total(step, output), cell), backwards
        )

    def _add(self, op: Op, quant: QuantParams, *inputs: Value) -> Value:
        result = self.g.add(op, *inputs)
        result.quant = quant
        return result

    def _weights(self, inputs: list[int], name: str) -> Value:
        """Concatenate the weights of the gates to [size, gates * units], with one scale per column."""
        stored = np.ascontiguousarray(np.concatenate([self.node.constant(index) for index in inputs]).T)
        scales: list[float] = []
        for index in inputs:
            quant = self.node.quant(index)
            assert quant is not None
            scales += quant.scale * self.units
        params = QuantParams(tuple(scales), (0,) * len(scales), I8, axis=1)
        return self.g.constant(params.dequantize(stored), name, params, stored)

    def _biases(self, weights: Value) -> Value:
        assert weights.quant is not None
        parts: list[Array] = []
        for gate in self.gates:
            index = self.indices.biases[gate]
            has_bias = self.node.has_input(index)
            parts.append(self.node.constant(index) if has_bias else np.zeros(self.units, np.int32))
        stored = np.concatenate(parts).astype(np.int32).reshape(1, -1)
        scales = tuple(self.x.scale[0] * scale for scale in weights.quant.scale)
        params = QuantParams(scales, (0,) * len(scales), I32, axis=1)
        return self.g.constant(params.dequantize(stored), "biases", params, stored)

    def _step(self, total: Value, cell: Value | None) -> tuple[Value, Value]:
        count = len(self.gates)
        parts = self.g.add_all(Split(axis=1, num=count), total, names=("gate",) * count)
        for part in parts:
            part.quant = _SUM
        sums = dict(zip(self.gates, parts, strict=True))
        forget = self._add(_SIGMOID, _GATE, sums[1])
        enter = self._add(_SIGMOID, _GATE, sums[0]) if 0 in sums else self._add(Rsubs(Scalar.f32(1)), _GATE, forget)
        fresh = self._add(Mul(), self.cell, enter, self._add(_TANH, _GATE, sums[2]))
        if cell is not None:
            fresh = self._add(Add(), self.cell, self._add(Mul(), self.cell, forget, cell), fresh)
        limit = self.node.option("cell_clip", 0.0)
        if limit > 0:
            fresh = self._add(Clamp(Scalar.f32(-limit), Scalar.f32(limit)), self.cell, fresh)
        leave = self._add(_SIGMOID, _GATE, sums[3])
        return self._add(Mul(), self.y, leave, self._add(_TANH, _GATE, fresh)), fresh
