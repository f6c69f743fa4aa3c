"""Input of recurrent layers: indices of their tensors, and steps of their sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.tflite import hybrid
from tpuconvert.frontends.tflite.lowering import reshape
from tpuconvert.frontends.tflite.node import TfliteNode
from tpuconvert.schema.errors import INVALID_NODE, TOO_LARGE
from tpuconvert.schema.graph.graph import Graph, Value, static
from tpuconvert.schema.ops.concat import Split
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.recurrent.recurrent import RecurrentLayer
from tpuconvert.schema.types import Array, QuantParams

_NODES_PER_STEP = 24
_ROUNDING_NODES = 32  # further nodes per step of a hybrid layer, which quantize the previous output and the projection


Advance = Callable[..., tuple[Value, ...]]
"""One step of a cell: function of the input and the states (None means zeros) to the next states, output first."""


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


def round_activations(node: TfliteNode, g: Graph, x: Value, index: int) -> Value:
    """Quantize activations to 8 bits if the weights at input ``index``, by which they are multiplied, are integers."""
    asymmetric = bool(node.option("asymmetric_quantize_inputs", False))
    return hybrid.round_activations(node, g, x, asymmetric=asymmetric, index=index)


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
        rows = round_activations(self.node, self.g, self.rows, index)
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
        """Return the outputs in the axis order of the source, given the outputs of each step or of all steps."""
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
