"""Integer recurrent layers over a sequence: lstm_int, gru_int and rnn_int.

A sum of a gate is an INT16 with 12 fraction bits: the matmul of the input, rescaled with two roundings and saturated,
plus the rescaled matmul of the state, saturated. The logistic function and tanh are computed by ``short_functions``,
with results of 15 fraction bits. An LSTM without optional parts is the integer LSTM of TFLite.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import ONE_HALF, limit_to, rescale_two_roundings, shift_half_away
from tpuconvert.schema.arithmetic.integer_product import add_bias, integer_matmul
from tpuconvert.schema.arithmetic.short_functions import logistic, tanh
from tpuconvert.schema.definition.op import ChipTable, Operand, OpKind, case, on_bm1686, op_base, tpu_op
from tpuconvert.schema.definition.shape_checks import format_types
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.arithmetic_with_scalar import Rsubs
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.recurrent import fixed_point_steps as fixed
from tpuconvert.schema.ops.recurrent.expansion import MAX_EXPANSION_NODES
from tpuconvert.schema.ops.recurrent.recurrent import SequenceLayer, check_layer
from tpuconvert.schema.types import I8, I16, I32, U8, Array, DType, Scalar, TensorType

SUM_BITS = 12
"""Fraction bits of the sums of gates."""

_SUM_INTEGER_BITS = 15 - SUM_BITS
_NODES_PER_STEP = 60
_OPERANDS = (
    Operand("tensor_i", (3,)),
    Operand("weight", (3,), coeff=True),
    Operand("recurrent_weight", (3,), coeff=True),
    Operand("bias", (2,), coeff=True),
    Operand("lengths", (1,), coeff=True, optional=True),
    Operand("hidden", (3,), coeff=True, optional=True),
)


@cache
def gate_table(name: str, integer_bits: int = _SUM_INTEGER_BITS, shift: int = 0) -> Array:
    """Results of ``sigmoid`` or ``tanh`` for all 16-bit integers in ascending order, divided by ``2^shift``.

    The operand has ``integer_bits``; the operands of ``sigmoid`` have 3.
    """
    every = np.arange(I16.min, I16.max + 1)
    entries = logistic(every) if name == "sigmoid" else tanh(every, integer_bits)
    table: Array = shift_half_away(entries, shift).astype(np.int16)
    table.setflags(write=False)
    return table


def _look_up(entries: Array, x: Array) -> Array:
    result: Array = entries[x - I16.min].astype(np.int64)
    return result


class _Rescaling(NamedTuple):
    """Multipliers and shifts of one direction, one per row of the weights."""

    input: tuple[Array, Array]
    recurrent: tuple[Array, Array]


@op_base
class IntegerLayer(SequenceLayer):
    """Base of lstm_int, gru_int and rnn_int: operands, shapes, and the loop over the steps."""

    x_zero: int = 0
    y_zero: int = 0
    input_multipliers: tuple[int, ...] = ()
    input_shifts: tuple[int, ...] = ()
    recurrent_multipliers: tuple[int, ...] = ()
    recurrent_shifts: tuple[int, ...] = ()
    y_multiplier: int = ONE_HALF
    y_shift: int = -7

    inputs: ClassVar[tuple[Operand, ...]] = _OPERANDS
    state_types: ClassVar[tuple[DType, ...]] = (I8,)

    def __post_init__(self) -> None:
        super().__post_init__()
        multipliers = (*self.input_multipliers, *self.recurrent_multipliers, self.y_multiplier)
        if not all(I32.min <= multiplier <= I32.max for multiplier in multipliers):
            raise ValueError(f"{self.name}: a multiplier has more than 32 bits")

    def infer(
        self,
        x: TensorType,
        weight: TensorType,
        recurrent_weight: TensorType,
        bias: TensorType,
        lengths: TensorType | None = None,
        hidden: TensorType | None = None,
        cell: TensorType | None = None,
    ) -> tuple[TensorType, ...]:
        types = (x, weight, recurrent_weight, bias, lengths, hidden, cell)
        allowed = ((I8, U8), (I8,), (I8,), (I32,), (I32,), *((dtype,) for dtype in (*self.state_types, I16)[:2]))
        if any(
            operand_type is not None and operand_type.dtype not in some
            for operand_type, some in zip(types, allowed, strict=True)
        ):
            names = ", ".join("/".join(dtype.value for dtype in some) for some in allowed[: len(self.inputs)])
            raise ShapeError(f"{self.name} takes {names}, got {format_types(types)}")
        sequence, state = check_layer(self, types[: len(self.inputs)])
        rows = self.directions * self.gates * int(state[2])
        for field in ("input_multipliers", "input_shifts", "recurrent_multipliers", "recurrent_shifts"):
            if len(getattr(self, field)) != rows:
                raise ShapeError(f"{self.name} needs {rows} {field}, found {len(getattr(self, field))}")
        return (TensorType(I8, sequence), *(TensorType(dtype, state) for dtype in self.state_types))

    def rescaling(self, direction: int, rows: int) -> _Rescaling:
        """Return the multipliers and shifts of one direction."""
        part = slice(direction * rows, (direction + 1) * rows)
        return _Rescaling(
            (np.asarray(self.input_multipliers[part]), np.asarray(self.input_shifts[part])),
            (np.asarray(self.recurrent_multipliers[part]), np.asarray(self.recurrent_shifts[part])),
        )

    def reference(
        self,
        x: Array,
        weight: Array,
        recurrent_weight: Array,
        bias: Array,
        lengths: Array | None = None,
        hidden: Array | None = None,
        cell: Array | None = None,
    ) -> tuple[Array, ...]:
        """Return the outputs of all steps, which are ``y_zero`` after the end of a sequence, and the last states."""
        (steps, batch, size), units = x.shape, recurrent_weight.shape[2]
        rows = self.gates * units
        y = np.full((steps, self.directions, batch, units), self.y_zero, np.int8)
        last = [np.zeros((self.directions, batch, units), dtype.numpy) for dtype in self.state_types]
        if self.state_types[0] is I8:
            last[0][:] = self.y_zero
        recorded = self.cells_of(y.shape)
        for direction, is_reverse in enumerate(self.direction.reverse):
            factors = self.rescaling(direction, rows)
            for state, initial in zip(last, (hidden, cell), strict=False):
                if initial is not None:
                    state[direction] = initial[direction]
            sums = integer_matmul(x.reshape(-1, size), weight[direction].T, left_zero=self.x_zero)
            sums = add_bias(sums, bias[direction, :rows], I32)
            inputs = limit_to(rescale_two_roundings(sums, *factors.input), I16).reshape(steps, batch, rows)
            for step in reversed(range(steps)) if is_reverse else range(steps):
                old = [state[direction].astype(np.int64) for state in last]
                multiply = _recurrent_matmul(recurrent_weight[direction], bias[direction, rows:], factors, self.y_zero)
                output, *new = self.step(inputs[step], old, multiply)
                is_inside = np.ones((batch, 1), bool) if lengths is None else (step < lengths)[:, None]
                for state, item in zip(last, new, strict=True):
                    state[direction] = np.where(is_inside, item, state[direction])
                y[step, direction] = np.where(is_inside, output, self.y_zero)
                if recorded is not None:
                    recorded[step, direction] = last[1][direction]
        return (y, *last) if recorded is None else (y, *last, recorded)

    def cells_of(self, shape: tuple[int, ...]) -> Array | None:
        """Return an array for the cells of all steps if they are a result, else None."""
        return None

    @abstractmethod
    def step(self, inputs: Array, states: list[Array], multiply: RecurrentMatmul) -> list[Array]:
        """Compute one step from the sums of the inputs and the states: y and the next states, in INT64."""

    @abstractmethod
    def add_step(
        self, g: Graph, inputs: Value, states: list[Value], add: GraphMatmul, tables: list[Value]
    ) -> list[Value]:
        """Add the operators of one step: return y and the next states."""

    @abstractmethod
    def tables(self) -> list[Array]:
        """Return the functions of a step as tables, for ``add_step`` and for the kernel."""

    def to_output(self, x: Array, shift: int = 0) -> Array:
        """Rescale ``x / 2^shift`` to the scale of y."""
        scaled = rescale_two_roundings(x, self.y_multiplier, self.y_shift - shift)
        return limit_to(scaled + self.y_zero, I8)

    def add_output(self, g: Graph, x: Value, shift: int = 0) -> Value:
        """Add the operator of ``to_output``."""
        return fixed.rescale(g, x, self.y_multiplier, self.y_shift - shift, I8, self.y_zero)

    def expand(self, g: Graph, *operands: Value | None) -> tuple[Value, ...]:
        """Unroll the layer into integer operators, with equal results."""
        by_name = self.operands_by_name(operands)
        x, weight, recurrent, bias, lengths = list(by_name.values())[:5]
        initial = [by_name.get(name) for name in ("hidden", "cell")]
        assert x is not None and weight is not None and recurrent is not None and bias is not None
        if not all(value.type.is_static for value in (x, weight, recurrent)):
            raise ShapeError(f"{self.name} can only be expanded for static shapes, got {x.type}")
        (steps, batch, size), units = x.type.static_shape, recurrent.type.static_shape[2]
        if steps < 1 or steps * self.directions * _NODES_PER_STEP > MAX_EXPANSION_NODES:
            raise ShapeError(f"{self.name} with {steps} steps expands to more than {MAX_EXPANSION_NODES} nodes")
        rows = self.gates * units
        masks = None if lengths is None else fixed.masks(g, lengths, steps)
        tables = [fixed.table(g, entries) for entries in self.tables()]
        outside = g.constant(np.full((batch, units), self.y_zero, np.int8), "outside")
        outputs: list[list[Value]] = [[] for _ in range(steps)]
        recorded: list[list[Value]] = [[] for _ in range(steps)]
        last: list[list[Value]] = [[] for _ in self.state_types]
        for direction, is_reverse in enumerate(self.direction.reverse):
            factors = self.rescaling(direction, rows)
            matrix = f.reshape(g, x, (steps * batch, size))
            sums = fixed.matmul(
                g, matrix, _matrix(g, weight, direction), _row(g, bias, direction, 0, rows), self.x_zero
            )
            inputs = fixed.rescale_columns(g, sums, *_lists(factors.input), I16)
            add = GraphMatmul(
                _matrix(g, recurrent, direction), _row(g, bias, direction, rows, 2 * rows), factors, self.y_zero
            )
            states = [
                _matrix(g, value, direction) if value is not None else self._zeros(g, dtype, (batch, units), index)
                for index, (value, dtype) in enumerate(zip(initial, self.state_types, strict=False))
            ]
            for step in reversed(range(steps)) if is_reverse else range(steps):
                part = f.slice_axis(g, inputs, 0, step * batch, (step + 1) * batch)
                output, *new = self.add_step(g, part, states, add, tables)
                if masks is not None:
                    output = fixed.select(g, masks[step], output, outside)
                    new = [fixed.select(g, masks[step], *pair) for pair in zip(new, states, strict=True)]
                states = new
                outputs[step].append(f.reshape(g, output, (1, 1, batch, units)))
                recorded[step].append(f.reshape(g, new[-1], (1, 1, batch, units)))
            for state, last_states in zip(states, last, strict=True):
                last_states.append(f.reshape(g, state, (1, batch, units)))
        results = [f.concat(g, [f.concat(g, step, 1) for step in outputs], 0), *(f.concat(g, part, 0) for part in last)]
        if self.cells_of((0,)) is not None:
            results.append(f.concat(g, [f.concat(g, step, 1) for step in recorded], 0))
        return tuple(results)

    def _zeros(self, g: Graph, dtype: DType, shape: tuple[int, ...], index: int) -> Value:
        zero = self.y_zero if dtype is I8 and index == 0 else 0
        return g.constant(np.full(shape, zero, dtype.numpy), "zeros")


class RecurrentMatmul(NamedTuple):
    """Matmul of a state, rescaled to the sums, in NumPy."""

    weight: Array
    bias: Array
    factors: _Rescaling
    zero: int

    def rescaled(self, state: Array, first: int, last: int) -> Array:
        """Return the rescaled columns from ``first`` to ``last``."""
        part = slice(first, last)
        left = limit_to(state, I8).astype(np.int8)
        sums = add_bias(integer_matmul(left, self.weight[part].T, left_zero=self.zero), self.bias[part], I32)
        result: Array = rescale_two_roundings(sums, *(item[part] for item in self.factors.recurrent))
        return result


def _recurrent_matmul(weight: Array, bias: Array, factors: _Rescaling, zero: int) -> RecurrentMatmul:
    return RecurrentMatmul(weight, bias, factors, zero)


class GraphMatmul(NamedTuple):
    """Matmul of a state, rescaled to the sums, as operators."""

    weight: Value
    bias: Value
    factors: _Rescaling
    zero: int

    def rescaled(self, g: Graph, state: Value, first: int, last: int) -> Value:
        """Return the rescaled columns from ``first`` to ``last`` as INT32."""
        weight = f.slice_axis(g, self.weight, 0, first, last)
        bias = f.slice_axis(g, self.bias, 0, first, last)
        sums = fixed.matmul(g, state, weight, bias, self.zero)
        multipliers, shifts = (item[first:last] for item in self.factors.recurrent)
        return fixed.rescale_columns(g, sums, *_lists((multipliers, shifts)), I32)

    def add_to(self, g: Graph, inputs: Value, state: Value, first: int, last: int) -> Value:
        """Add the rescaled columns to the sums of the inputs, saturated to 16 bits."""
        part = f.slice_axis(g, inputs, 1, first, last)
        return fixed.narrow(g, g.add(Add(), fixed.widen(g, part), self.rescaled(g, state, first, last)), I16)


def _lists(factors: tuple[Array, Array]) -> tuple[list[int], list[int]]:
    return factors[0].tolist(), factors[1].tolist()


def _matrix(g: Graph, x: Value, direction: int) -> Value:
    part = f.slice_axis(g, x, 0, direction, direction + 1)
    return f.reshape(g, part, part.type.static_shape[1:])


def _row(g: Graph, x: Value, direction: int, first: int, last: int) -> Value:
    row = f.slice_axis(g, f.slice_axis(g, x, 0, direction, direction + 1), 1, first, last)
    return f.reshape(g, row, (last - first,))


def _dtypes(*states: DType) -> ChipTable:
    names = ("hidden", "cell")[: len(states)]
    operands = {"tensor_i": (I8, U8), "weight": (I8,), "recurrent_weight": (I8,), "bias": (I32,), "lengths": (I32,)}
    operands |= {name: (dtype,) for name, dtype in zip(names, states, strict=True)}
    operands |= {f"{name}_o": (dtype,) for name, dtype in zip(names, states, strict=True)}
    return on_bm1686(case({**operands, "tensor_o": (I8,), "cells_o": (I16,)}, compute="EXACT_INT"))


_ONE = 1 << 15


@tpu_op("lstm_int", OpKind.COMPOSITE)
class LstmInt(IntegerLayer):
    """Integer LSTM layer: ``cell' = sat(f * cell / 2^15 + i * g / 2^(15 + cell_bits))``, y from ``o * tanh(cell')``.

    The gates are in the order i, o, f, c. A sum is ``sat(sat(a) + b)``, where a is ``(x - x_zero) @ weight^T + bias``,
    multiplied by ``input_multipliers * 2^(input_shifts - 31)``, and b is the same of the hidden state, with ``y_zero``,
    ``recurrent_multipliers`` and the second half of the bias. Sums have 12 fraction bits, gates 15, and a cell has
    ``cell_bits`` integer bits. ``y = sat(o * tanh(cell') * y_multiplier * 2^(y_shift - 31) + y_zero)`` is the hidden
    state too. Multiplications by a multiplier round twice, as requant_int32 in mode TFLITE_LSHIFT; divisions by a power
    of two round ties away from zero. A cell is clipped to ``cell_limit``; 0 means no limit. With ``input_forget``,
    ``f = 32767 - i`` or, if ``is_forget_given``, ``i = 32767 - f``. With ``cell_steps`` there is a further result: the
    cells after every step. After the end of a sequence (``lengths``) the states do not change and y is ``y_zero``.

    Shapes: x [T, N, I], weight [D, 4H, I], recurrent_weight [D, 4H, H], bias [D, 8H], lengths [N], hidden and cell
    [D, N, H]; y and cells [T, D, N, H], states [D, N, H]; D is the number of directions. Multipliers and shifts have
    D * 4H elements.
    Errors: UsageError for lengths outside of 0..T.
    Source: the integer LSTM of TFLite with 8-bit activations and 16-bit cells.
    """

    cell_bits: int = 3
    cell_limit: int = 0
    input_forget: bool = False
    is_forget_given: bool = False
    cell_steps: bool = False

    inputs = (*_OPERANDS, Operand("cell", (3,), coeff=True, optional=True))
    outputs = (*SequenceLayer.outputs, Operand("cell_o", (3,)), Operand("cells_o", (4,), optional=True))
    dtypes = _dtypes(I8, I16)
    gates = 4
    states = 2
    state_types = (I8, I16)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_bits(self.name, "cell_bits", self.cell_bits, 6)
        if not 0 <= self.cell_limit <= I16.max:
            raise ValueError(f"{self.name}: cell_limit is {self.cell_limit}, expected 0 to {I16.max}")

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        result_types = super().infer(*types)  # type: ignore[arg-type]  # the first four are given
        return (*result_types, TensorType(I16, result_types[0].shape)) if self.cell_steps else result_types

    def cells_of(self, shape: tuple[int, ...]) -> Array | None:
        return np.zeros(shape, np.int16) if self.cell_steps else None

    def tables(self) -> list[Array]:
        return [gate_table("sigmoid"), gate_table("tanh"), gate_table("tanh", self.cell_bits)]

    def step(self, inputs: Array, states: list[Array], multiply: RecurrentMatmul) -> list[Array]:
        (hidden, cell), (sigmoid, inner, outer) = states, self.tables()
        sums = limit_to(inputs + multiply.rescaled(hidden, 0, inputs.shape[1]), I16)
        enter, leave, forget, candidate = np.split(sums, 4, axis=1)
        enter, leave, forget = (_look_up(sigmoid, item) for item in (enter, leave, forget))
        if self.input_forget:
            enter, forget = (_ONE - 1 - forget, forget) if self.is_forget_given else (enter, _ONE - 1 - enter)
        added = limit_to(shift_half_away(enter * _look_up(inner, candidate), 15 + self.cell_bits), I16)
        cell = limit_to(limit_to(shift_half_away(forget * cell, 15), I16) + added, I16)
        if self.cell_limit:
            cell = np.clip(cell, -self.cell_limit, self.cell_limit)
        hidden = self.to_output(leave * _look_up(outer, cell))
        return [hidden, hidden, cell]

    def add_step(
        self, g: Graph, inputs: Value, states: list[Value], add: GraphMatmul, tables: list[Value]
    ) -> list[Value]:
        (hidden, cell), (sigmoid, inner, outer) = states, tables
        sums = add.add_to(g, inputs, hidden, 0, inputs.type.static_shape[1])
        enter, leave, forget, candidate = fixed.columns(g, sums, 4)
        direct_gate, derived = (forget, enter) if self.is_forget_given else (enter, forget)
        direct_gate = fixed.look_up(g, direct_gate, sigmoid)
        if self.input_forget:
            derived = g.add(Rsubs(Scalar(I16, _ONE - 1), out_dtype=I16), direct_gate)
        else:
            derived = fixed.look_up(g, derived, sigmoid)
        enter, forget = (derived, direct_gate) if self.is_forget_given else (direct_gate, derived)
        fresh = fixed.multiply(g, enter, fixed.look_up(g, candidate, inner))
        added = fixed.shift_right(g, fresh, 15 + self.cell_bits, I16)
        cell = fixed.add_saturating(g, fixed.shift_right(g, fixed.multiply(g, forget, cell), 15, I16), added)
        if self.cell_limit:
            cell = g.add(Clamp(Scalar(I16, -self.cell_limit), Scalar(I16, self.cell_limit)), cell)
        product = fixed.multiply(g, fixed.look_up(g, leave, sigmoid), fixed.look_up(g, cell, outer))
        hidden = self.add_output(g, product)
        return [hidden, hidden, cell]


@tpu_op("gru_int", OpKind.COMPOSITE)
class GruInt(IntegerLayer):
    """Integer GRU layer: ``hidden' = (z * hidden + (2^15 - z) * g(h) / 2^hidden_bits) / 2^15``; y is rescaled from it.

    The gates are in the order z, r, h. The hidden state has 16 bits, ``hidden_bits`` of them before the point; the
    matmuls read ``y = sat(hidden * y_multiplier * 2^(y_shift - 31) + y_zero)``. A sum of z or r is
    ``sat(sat(a) + b)``, where a is ``(x - x_zero) @ weight^T + bias``, multiplied by ``input_multipliers *
    2^(input_shifts - 31)``, and b is the same of y, with ``y_zero``, ``recurrent_multipliers`` and the second half of
    the bias. The sum of h has ``r * hidden / 2^15`` instead of the hidden state, or with ``linear_before_reset``
    ``r * sat(b) / 2^15`` instead of b. Sums have 12 fraction bits, gates 15. Multiplications by a multiplier round
    twice, as requant_int32 in mode TFLITE_LSHIFT; divisions by a power of two round ties away from zero. After the end
    of a sequence (``lengths``) the state does not change and y is ``y_zero``.

    Shapes: x [T, N, I], weight [D, 3H, I], recurrent_weight [D, 3H, H], bias [D, 6H], lengths [N], hidden [D, N, H];
    y [T, D, N, H], state [D, N, H]; D is the number of directions. Multipliers and shifts have D * 3H elements.
    Errors: UsageError for lengths outside of 0..T.
    """

    linear_before_reset: bool = False
    hidden_bits: int = 0

    gates = 3
    dtypes = _dtypes(I16)
    state_types = (I16,)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_bits(self.name, "hidden_bits", self.hidden_bits, 14)

    def tables(self) -> list[Array]:
        return [gate_table("sigmoid"), gate_table("tanh", shift=self.hidden_bits)]

    def step(self, inputs: Array, states: list[Array], multiply: RecurrentMatmul) -> list[Array]:
        (hidden,), (sigmoid, inner) = states, self.tables()
        first, last = (2 * inputs.shape[1] // 3, inputs.shape[1])
        narrow = self.to_output(hidden)
        gates = limit_to(inputs[:, :first] + multiply.rescaled(narrow, 0, first), I16)
        update, reset = np.split(_look_up(sigmoid, gates), 2, axis=1)
        if self.linear_before_reset:
            recurrent = shift_half_away(reset * limit_to(multiply.rescaled(narrow, first, last), I16), 15)
        else:
            recurrent = multiply.rescaled(self.to_output(reset * hidden, 15), first, last)
        candidate = _look_up(inner, limit_to(inputs[:, first:] + recurrent, I16))
        hidden = shift_half_away(update * hidden + (_ONE - update) * candidate, 15)
        return [self.to_output(hidden), hidden]

    def add_step(
        self, g: Graph, inputs: Value, states: list[Value], add: GraphMatmul, tables: list[Value]
    ) -> list[Value]:
        (hidden,), (sigmoid, inner) = states, tables
        last = inputs.type.static_shape[1]
        first = 2 * last // 3
        narrow = self.add_output(g, hidden)
        update, reset = (
            fixed.look_up(g, part, sigmoid) for part in fixed.columns(g, add.add_to(g, inputs, narrow, 0, first), 2)
        )
        if self.linear_before_reset:
            recurrent = fixed.narrow(g, add.rescaled(g, narrow, first, last), I16)
            recurrent = fixed.shift_right(g, fixed.multiply(g, reset, recurrent), 15, I16)
            total = fixed.add_saturating(g, f.slice_axis(g, inputs, 1, first, last), recurrent)
        else:
            gated = self.add_output(g, fixed.multiply(g, reset, hidden), 15)
            total = add.add_to(g, inputs, gated, first, last)
        candidate = fixed.look_up(g, total, inner)
        rest = g.add(Rsubs(Scalar(I32, _ONE)), fixed.widen(g, update))
        mixed = g.add(Add(), fixed.multiply(g, update, hidden), fixed.multiply(g, rest, candidate))
        hidden = fixed.shift_right(g, mixed, 15, I16)
        return [self.add_output(g, hidden), hidden]


@tpu_op("rnn_int", OpKind.COMPOSITE)
class RnnInt(IntegerLayer):
    """Integer Elman layer: ``hidden' = sat(f(sum) * y_multiplier * 2^(y_shift - 31) + y_zero)``, f is tanh or sigmoid.

    A sum is ``sat(sat(a) + b)``, where a is ``(x - x_zero) @ weight^T + bias``, multiplied by ``input_multipliers *
    2^(input_shifts - 31)``, and b is the same of the hidden state, with ``y_zero``, ``recurrent_multipliers`` and the
    second half of the bias. Sums have 12 fraction bits, results of f 15. Multiplications by a multiplier round twice,
    as requant_int32 in mode TFLITE_LSHIFT. After the end of a sequence (``lengths``) the state does not change and y is
    ``y_zero``.

    Shapes: x [T, N, I], weight [D, H, I], recurrent_weight [D, H, H], bias [D, 2H], lengths [N], hidden [D, N, H];
    y [T, D, N, H], state [D, N, H]; D is the number of directions. Multipliers and shifts have D * H elements.
    Errors: UsageError for lengths outside of 0..T.
    """

    activation: str = "tanh"

    gates = 1
    dtypes = _dtypes(I8)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.activation not in ("tanh", "sigmoid"):
            raise ValueError(f"{self.name}: activation is '{self.activation}', expected tanh or sigmoid")

    def tables(self) -> list[Array]:
        return [gate_table(self.activation)]

    def step(self, inputs: Array, states: list[Array], multiply: RecurrentMatmul) -> list[Array]:
        sums = limit_to(inputs + multiply.rescaled(states[0], 0, inputs.shape[1]), I16)
        hidden = self.to_output(_look_up(self.tables()[0], sums))
        return [hidden, hidden]

    def add_step(
        self, g: Graph, inputs: Value, states: list[Value], add: GraphMatmul, tables: list[Value]
    ) -> list[Value]:
        sums = add.add_to(g, inputs, states[0], 0, inputs.type.static_shape[1])
        hidden = self.add_output(g, fixed.look_up(g, sums, tables[0]))
        return [hidden, hidden]


def _check_bits(name: str, field: str, bits: int, last: int) -> None:
    if not 0 <= bits <= last:
        raise ValueError(f"{name}: {field} is {bits}, expected 0 to {last}")
