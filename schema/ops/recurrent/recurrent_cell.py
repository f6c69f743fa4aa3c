"""Composite recurrent cells: one step of an LSTM, one step of a GRU.

References are evaluated in binary64 and rounded once per result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.definition.op import Extents, Operand, OpKind, tpu_op
from tpuconvert.schema.definition.shape_checks import check_bias, check_extent, check_ranks, number
from tpuconvert.schema.graph.composite import Composite, check_float
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.recurrent.functions import sigmoid
from tpuconvert.schema.types import Array, TensorType


def _product(x: Array, w: Array, bias: Array | None) -> Array:
    result: Array = np.matmul(x.astype(np.float64), w.astype(np.float64))
    return result if bias is None else result + bias


class RecurrentCell(Composite):
    """Base of the cells: shapes of the operands."""

    def count_macs(self, operands: Sequence[Extents], results: Sequence[Extents]) -> int:
        """MACs of two matmuls: of the input and of the state, each with the weights of all gates."""
        names = [operand.name for operand in self.inputs]
        weights = (operands[names.index(name)] for name in ("weight", "recurrent_weight"))
        return operands[0][0] * sum(map(math.prod, weights))

    def check(
        self, gates: int, x: TensorType, hidden: TensorType, weight: TensorType, recurrent_weight: TensorType
    ) -> int:
        """Check the shapes of the matmuls of a cell with ``gates`` gates and return the number of units.

        Raises:
            ShapeError: shapes do not match.

        """
        types = (x, hidden, weight, recurrent_weight)
        units = number(self, "the number of units", hidden.shape[1], *types)
        check_extent(self, "the batch of hidden", hidden.shape[0], x.shape[0], *types)
        check_extent(self, "the number of rows of weight", weight.shape[0], x.shape[1], *types)
        check_extent(self, "the number of columns of weight", weight.shape[1], gates * units, *types)
        check_extent(self, "the number of rows of recurrent_weight", recurrent_weight.shape[0], units, *types)
        check_extent(
            self, "the number of columns of recurrent_weight", recurrent_weight.shape[1], gates * units, *types
        )
        return units


@tpu_op("lstm_cell", OpKind.COMPOSITE)
class LstmCell(RecurrentCell):
    """One LSTM step: cell' = sigmoid(f) * cell + sigmoid(i) * tanh(c); hidden' = sigmoid(o) * tanh(cell').

    The gates are columns of x @ weight + hidden @ recurrent_weight + bias, in the order i, o, f, c.

    Shapes: x [N, I], hidden and cell [N, H], weight [I, 4H], recurrent_weight [H, 4H], bias [1, 4H]; results [N, H].
    Source: ONNX LSTM-14 with default activations; its weights are transposed.
    """

    inputs = (
        Operand("tensor_i", (2,)),
        Operand("hidden", (2,), coeff=True),
        Operand("cell", (2,), coeff=True),
        Operand("weight", (2,), coeff=True),
        Operand("recurrent_weight", (2,), coeff=True),
        Operand("bias", (2,), coeff=True, optional=True),
    )
    outputs = (Operand("hidden_o", (2,)), Operand("cell_o", (2,)))

    def infer(
        self,
        x: TensorType,
        hidden: TensorType,
        cell: TensorType,
        weight: TensorType,
        recurrent_weight: TensorType,
        bias: TensorType | None = None,
    ) -> tuple[TensorType, TensorType]:
        types = (x, hidden, cell, weight, recurrent_weight, bias)
        check_float(self, *types)
        check_ranks(self, *types)
        units = self.check(4, x, hidden, weight, recurrent_weight)
        check_extent(self, "the batch of cell", cell.shape[0], hidden.shape[0], *types)
        check_extent(self, "the number of units of cell", cell.shape[1], units, *types)
        check_bias(self, bias, (1, 4 * units), *types)
        return hidden, hidden

    def reference(
        self, x: Array, hidden: Array, cell: Array, weight: Array, recurrent_weight: Array, bias: Array | None = None
    ) -> tuple[Array, Array]:
        with np.errstate(all="ignore"):
            sums = _product(x, weight, bias) + _product(hidden, recurrent_weight, None)
            enter, leave, forget, candidate = np.split(sums, 4, axis=1)
            state = sigmoid(forget) * cell + sigmoid(enter) * np.tanh(candidate)
            return (sigmoid(leave) * np.tanh(state)).astype(np.float32), state.astype(np.float32)

    def expand(
        self, g: Graph, x: Value, hidden: Value, cell: Value, weight: Value, recurrent_weight: Value,
        bias: Value | None = None,
    ) -> tuple[Value, Value]:  # fmt: skip
        """Expand to two matmuls for all gates, then element-wise operators per gate."""
        units = f.extents(self, hidden)[1]
        sums = f.add(g, f.matmul(g, x, weight, bias), f.matmul(g, hidden, recurrent_weight, None))
        enter, leave, forget, candidate = (f.slice_axis(g, sums, 1, k * units, (k + 1) * units) for k in range(4))
        old_part = f.mul(g, f.sigmoid(g, forget), cell)
        state = f.add(g, old_part, f.mul(g, f.sigmoid(g, enter), f.tanh(g, candidate)))
        return f.mul(g, f.sigmoid(g, leave), f.tanh(g, state)), state


@tpu_op("gru_cell", OpKind.COMPOSITE)
class GruCell(RecurrentCell):
    """One GRU step: hidden' = (1 - z) * tanh(h) + z * hidden with the update gate z and the reset gate r.

    The gates are columns in the order z, r, h: z and r are sigmoid(x @ weight + bias + hidden @ recurrent_weight +
    recurrent_bias); h is x @ weight + bias + (r * hidden) @ recurrent_weight + recurrent_bias, or with
    ``linear_before_reset`` x @ weight + bias + r * (hidden @ recurrent_weight + recurrent_bias).

    Shapes: x [N, I], hidden [N, H], weight [I, 3H], recurrent_weight [H, 3H], both biases [1, 3H]; y [N, H].
    Source: ONNX GRU-14 with default activations; its weights are transposed.
    """

    linear_before_reset: bool = False

    inputs = (
        Operand("tensor_i", (2,)),
        Operand("hidden", (2,), coeff=True),
        Operand("weight", (2,), coeff=True),
        Operand("recurrent_weight", (2,), coeff=True),
        Operand("bias", (2,), coeff=True, optional=True),
        Operand("recurrent_bias", (2,), coeff=True, optional=True),
    )
    outputs = (Operand("hidden_o", (2,)),)

    def infer(
        self,
        x: TensorType,
        hidden: TensorType,
        weight: TensorType,
        recurrent_weight: TensorType,
        bias: TensorType | None = None,
        recurrent_bias: TensorType | None = None,
    ) -> tuple[TensorType]:
        types = (x, hidden, weight, recurrent_weight, bias, recurrent_bias)
        check_float(self, *types)
        check_ranks(self, *types)
        units = self.check(3, x, hidden, weight, recurrent_weight)
        check_bias(self, bias, (1, 3 * units), *types)
        check_bias(self, recurrent_bias, (1, 3 * units), *types)
        return (hidden,)

    def reference(
        self, x: Array, hidden: Array, weight: Array, recurrent_weight: Array, bias: Array | None = None,
        recurrent_bias: Array | None = None,
    ) -> tuple[Array]:  # fmt: skip
        units = hidden.shape[1]
        gates, last = slice(0, 2 * units), slice(2 * units, None)
        biases = np.zeros((1, 3 * units)) if recurrent_bias is None else recurrent_bias
        with np.errstate(all="ignore"):
            part = _product(x, weight, bias)
            sums = part[:, gates] + _product(hidden, recurrent_weight[:, gates], biases[:, gates])
            update, reset = np.split(sigmoid(sums), 2, axis=1)
            if self.linear_before_reset:
                recurrent = reset * _product(hidden, recurrent_weight[:, last], biases[:, last])
            else:
                recurrent = _product(reset * hidden, recurrent_weight[:, last], biases[:, last])
            candidate = np.tanh(part[:, last] + recurrent)
            return (((1 - update) * candidate + update * hidden).astype(np.float32),)

    def expand(
        self, g: Graph, x: Value, hidden: Value, weight: Value, recurrent_weight: Value, bias: Value | None = None,
        recurrent_bias: Value | None = None,
    ) -> tuple[Value]:  # fmt: skip
        """Expand to three matmuls, then element-wise operators per gate."""
        units = f.extents(self, hidden)[1]

        def columns(value: Value, first: int, last: int) -> Value:
            return f.slice_axis(g, value, 1, first * units, last * units)

        def recurrent(value: Value, first: int, last: int) -> Value:
            f.extents(self, recurrent_weight)
            summand = None if recurrent_bias is None else columns(recurrent_bias, first, last)
            return f.matmul(g, value, columns(recurrent_weight, first, last), summand)

        part = f.matmul(g, x, weight, bias)
        f.extents(self, part)
        sums = f.sigmoid(g, f.add(g, columns(part, 0, 2), recurrent(hidden, 0, 2)))
        update, reset = columns(sums, 0, 1), columns(sums, 1, 2)
        if self.linear_before_reset:
            inner = f.mul(g, reset, recurrent(hidden, 2, 3))
        else:
            inner = recurrent(f.mul(g, reset, hidden), 2, 3)
        candidate = f.tanh(g, f.add(g, columns(part, 2, 3), inner))
        return (f.add(g, f.mul(g, f.rsubs(g, 1, update), candidate), f.mul(g, update, hidden)),)
