"""lstm_int, gru_int and rnn_int: small layers computed by hand, plain Python integers, expansions, and float layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, i8, i16, i32
from tests.support.operators.recurrent_int_layers import KINDS, random_layer
from tests.support.paired import paired
from tpuconvert.schema.definition.op import OpKind
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.ops.recurrent.recurrent import Direction
from tpuconvert.schema.ops.recurrent.recurrent_int import GruInt, IntegerLayer, LstmInt, RnnInt, gate_table
from tpuconvert.schema.types import I8, I32, Array, Chip, DType, TensorType

ONLY = (Chip.BM1686,)


def unit(gates: int) -> dict[str, Any]:
    """Factors of a layer with one unit: 1 for the sums, 2^-8 for y of a value with 15 fraction bits."""
    return {
        "input_multipliers": (1 << 30,) * gates,
        "input_shifts": (1,) * gates,
        "recurrent_multipliers": (1 << 30,) * gates,
        "recurrent_shifts": (1,) * gates,
        "y_multiplier": 1 << 30,
        "y_shift": -7,
    }


def weights(gates: int, *biases: int) -> list[Array]:
    """Input weights of 1, recurrent weights of 0, and biases of the inputs."""
    return [i8([[1]] * gates), i8([[0]] * gates), i32([*biases, *[0] * gates])]


LSTM = {**unit(4), "y_shift": -22}
X = i8([[0]])
CASES = [
    Case(RnnInt(**unit(1), y_zero=5), [X, *weights(1, 0)], [i8([[[5]]]), i8([[5]])], "tanh(0) is 0", ONLY),
    Case(RnnInt(**unit(1), activation="sigmoid"), [X, *weights(1, 0)], [i8([[[64]]]), i8([[64]])], "1/2 of 128", ONLY),
    Case(RnnInt(**unit(1), x_zero=3), [i8([[3]], [[3]]), *weights(1, 32767), i32(1), i8([[7]])],
         [i8([[[127]]], [[[0]]]), i8([[127]])], "tanh(8) saturates; the sequence ends after one step", ONLY),
    Case(GruInt(**unit(3)), [X, *weights(3, 0, 0, 0), None, i16([[20000]])],
         [i8([[[39]]]), i16([[10000]])], "half of the state and half of tanh(0); 10000 / 256 = 39.06", ONLY),
    Case(LstmInt(**LSTM), [X, *weights(4, 0, 0, 0, 0), None, i8([[0]]), i16([[32767]])],
         [i8([[[64]]]), i8([[64]]), i16([[16384]])], "half of a cell of 8; half of tanh(4)", ONLY),
    Case(LstmInt(**LSTM, cell_limit=100), [X, *weights(4, 0, 0, 0, 0), None, i8([[0]]), i16([[-32768]])],
         [i8([[[-2]]]), i8([[-2]]), i16([[-100]])], "tanh(-100 / 4096) / 2 = -1.56 / 128", ONLY),
    Case(LstmInt(**LSTM, input_forget=True), [X, *weights(4, -32768, 0, 0, 0), None, i8([[0]]), i16([[1000]])],
         [i8([[[15]]]), i8([[15]]), i16([[1000]])], "i is almost 0 and f = 1 - i", ONLY),
]  # fmt: skip


def divide(x: int, bits: int) -> int:
    """Divide by a power of two; ties round away from zero."""
    magnitude = (abs(x) + (1 << bits >> 1)) >> bits
    return magnitude if x >= 0 else -magnitude


def rescale(x: int, multiplier: int, shift: int) -> int:
    """Multiply by ``multiplier * 2^(shift - 31)`` with two roundings, for shifts up to 0."""
    return divide((x * multiplier + (1 << 30)) >> 31, -shift)


def clip(x: int, bits: int) -> int:
    return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, x))


class Plain:
    """A layer with Python integers, one unit of one sequence at a time."""

    def __init__(self, op: IntegerLayer, operands: Sequence[Array | None]) -> None:
        self.op = op
        given = [None if item is None else item.tolist() for item in operands]
        self.x, self.w, self.r, self.bias, self.lengths, *self.initial = given + [None] * (7 - len(given))
        self.steps, self.batch = len(self.x), len(self.x[0])
        self.units = len(self.r[0][0])
        self.rows = len(self.r[0])

    def run(self) -> list[Array]:
        op, shape = self.op, (self.steps, self.op.directions, self.batch, self.units)
        y = np.full(shape, op.y_zero, np.int8)
        states = [np.zeros(shape[1:], dtype.numpy) for dtype in op.state_types]
        for d, is_reverse in enumerate(op.direction.reverse):
            for n in range(self.batch):
                state = self.first_state(d, n)
                order = list(range(self.steps if self.lengths is None else self.lengths[n]))
                for t in reversed(order) if is_reverse else order:
                    output, state = self.step(d, self.x[t][n], state)
                    y[t, d, n] = output
                for target, values in zip(states, state, strict=True):
                    target[d, n] = values
        return [y, *states]

    def first_state(self, d: int, n: int) -> list[list[int]]:
        zeros = [self.op.y_zero if dtype is I8 else 0 for dtype in self.op.state_types]
        given = zip(self.initial, zeros, strict=False)
        return [[zero] * self.units if state is None else state[d][n] for state, zero in given]

    def input_sum(self, d: int, row: int, x: list[int]) -> int:
        total = sum((a - self.op.x_zero) * w for a, w in zip(x, self.w[d][row], strict=True)) + self.bias[d][row]
        place = d * self.rows + row
        return clip(rescale(total, self.op.input_multipliers[place], self.op.input_shifts[place]), 16)

    def state_sum(self, d: int, row: int, state: list[int]) -> int:
        total = sum((a - self.op.y_zero) * w for a, w in zip(state, self.r[d][row], strict=True))
        place = d * self.rows + row
        total += self.bias[d][self.rows + row]
        return rescale(total, self.op.recurrent_multipliers[place], self.op.recurrent_shifts[place])

    def output(self, x: int, shift: int = 0) -> int:
        return clip(rescale(x, self.op.y_multiplier, self.op.y_shift - shift) + self.op.y_zero, 8)

    def gate(self, table: Array, x: int) -> int:
        return int(table[clip(x, 16) + 32768])

    def step(self, d: int, x: list[int], state: list[list[int]]) -> tuple[list[int], list[list[int]]]:
        kinds: dict[type[IntegerLayer], Callable[[int, list[int], list[list[int]], int], list[int]]] = {
            LstmInt: self.lstm,
            GruInt: self.gru,
            RnnInt: self.rnn,
        }
        found = [kinds[type(self.op)](d, x, state, unit) for unit in range(self.units)]
        output, *new = ([item[k] for item in found] for k in range(len(found[0])))
        return output, new

    def lstm(self, d: int, x: list[int], state: list[list[int]], unit: int) -> list[int]:
        op = self.op
        assert isinstance(op, LstmInt)
        rows = [gate * self.units + unit for gate in range(4)]
        sums = [self.input_sum(d, row, x) + self.state_sum(d, row, state[0]) for row in rows]
        i, o, f = (self.gate(gate_table("sigmoid"), part) for part in sums[:3])
        if op.input_forget:
            i, f = (32767 - f, f) if op.is_forget_given else (i, 32767 - i)
        added = clip(divide(i * self.gate(gate_table("tanh"), sums[3]), 15 + op.cell_bits), 16)
        cell = clip(clip(divide(f * state[1][unit], 15), 16) + added, 16)
        if op.cell_limit:
            cell = max(-op.cell_limit, min(op.cell_limit, cell))
        y = self.output(o * self.gate(gate_table("tanh", op.cell_bits), cell))
        return [y, y, cell]

    def gru(self, d: int, x: list[int], state: list[list[int]], unit: int) -> list[int]:
        op = self.op
        assert isinstance(op, GruInt)
        narrow = [self.output(value) for value in state[0]]

        def sigmoid(gate: int, place: int) -> int:
            row = gate * self.units + place
            return self.gate(gate_table("sigmoid"), self.input_sum(d, row, x) + self.state_sum(d, row, narrow))

        z, row = sigmoid(0, unit), 2 * self.units + unit
        if op.linear_before_reset:
            inner = divide(sigmoid(1, unit) * clip(self.state_sum(d, row, narrow), 16), 15)
        else:
            kept = [self.output(sigmoid(1, k) * value, 15) for k, value in enumerate(state[0])]
            inner = self.state_sum(d, row, kept)
        h = self.gate(gate_table("tanh", shift=op.hidden_bits), self.input_sum(d, row, x) + inner)
        hidden = divide(z * state[0][unit] + ((1 << 15) - z) * h, 15)
        return [self.output(hidden), hidden]

    def rnn(self, d: int, x: list[int], state: list[list[int]], unit: int) -> list[int]:
        assert isinstance(self.op, RnnInt)
        total = self.input_sum(d, unit, x) + self.state_sum(d, unit, state[0])
        y = self.output(self.gate(gate_table(self.op.activation), total))
        return [y, y]


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("kind", "parameters"), KINDS, ids=str)
def test_equals_plain_integers(kind: type[IntegerLayer], parameters: dict[str, Any], direction: Direction) -> None:
    for seed, optional in enumerate((False, True)):
        op, operands = random_layer(kind, parameters, (4, 3, 5, 3), seed, direction, optional=optional)
        for one, want in zip(op.evaluate(*operands), Plain(op, operands).run(), strict=True):
            assert one.dtype == want.dtype
            np.testing.assert_array_equal(one, want)


def expand(op: IntegerLayer, operands: Sequence[Array | None]) -> list[Array]:
    """Evaluate the expansion node by node."""
    g = Graph("expansion")
    known: dict[Value, Array] = {}
    values: list[Value | None] = []
    for index, array in enumerate(operands):
        if array is None or index in (1, 2, 3):
            values.append(None if array is None else g.constant(array))
        else:
            value = g.input(f"x{index}", TensorType(DType.of(array.dtype), array.shape))
            known[value] = array
            values.append(value)
    results = op.expand(g, *values)
    for node in g.sorted_nodes():
        assert node.op.kind is OpKind.TPU
        inputs = [None if v is None else v.array if v.is_constant else known[v] for v in node.inputs]
        known.update(zip(node.outputs, node.op.evaluate(*inputs, chip=Chip.BM1686), strict=True))
    return [known[value] for value in results]


@pytest.mark.parametrize(
    ("kind", "parameters", "direction"), paired([*KINDS, (LstmInt, {"cell_steps": True})], list(Direction)), ids=str
)
def test_is_its_expansion(kind: type[IntegerLayer], parameters: dict[str, Any], direction: Direction) -> None:
    for seed, optional in enumerate((False, True)):
        op, operands = random_layer(kind, parameters, (3, 2, 5, 4), seed, direction, optional=optional)
        found, expected = expand(op, operands), op.evaluate(*operands)
        for one, want in zip(found, expected, strict=True):
            assert one.dtype == want.dtype
            np.testing.assert_array_equal(one, want)
        types = [None if item is None else TensorType(DType.of(item.dtype), item.shape) for item in operands]
        verdicts = {chip: check(op, chip, types, op.infer(*types), (False, True, True, True)).status for chip in Chip}
        assert verdicts[Chip.BM1686] is not Status.ILLEGAL
        assert verdicts[Chip.BM1684] is verdicts[Chip.BM1682] is Status.ILLEGAL


def test_the_cells_of_all_steps() -> None:
    op, operands = random_layer(LstmInt, {"cell_steps": True}, (5, 2, 3, 4), 1, optional=False)
    *_, last, cells = op.evaluate(*operands)
    np.testing.assert_array_equal(cells[-1], last)
    x, *rest = operands
    assert x is not None
    for step in range(1, 5):
        np.testing.assert_array_equal(op.evaluate(x[:step], *rest)[2], cells[step - 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cell_bits": 7}, "cell_bits is 7, expected 0 to 6"),
        ({"cell_limit": -1}, "cell_limit is -1, expected 0 to 32767"),
    ],
)
def test_rejects_parameters(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LstmInt(**change)


def test_rejects_other_functions_and_state_widths() -> None:
    with pytest.raises(ValueError, match="activation is 'relu', expected tanh or sigmoid"):
        RnnInt(activation="relu")
    with pytest.raises(ValueError, match="hidden_bits is 15, expected 0 to 14"):
        GruInt(hidden_bits=15)


def test_rejects_types() -> None:
    types = [TensorType(I8, shape) for shape in ((3, 2, 5), (1, 4, 5), (1, 4, 4))]
    with pytest.raises(ShapeError, match="rnn_int takes INT8/UINT8, INT8, INT8, INT32, INT32, INT8, got"):
        RnnInt().infer(*types, TensorType(I8, (1, 8)))
    with pytest.raises(ShapeError, match="rnn_int needs 4 input_multipliers, found 0"):
        RnnInt().infer(*types, TensorType(I32, (1, 8)))


def test_rejects_lengths_beyond_the_steps() -> None:
    op, operands = random_layer(RnnInt, {}, (3, 2, 5, 4), 1)
    operands[4] = np.array([1, 4], np.int32)
    with pytest.raises(UsageError, match=r"rnn_int: lengths are \[1, 4\], expected 0 to 3"):
        op.evaluate(*operands)
