"""lstm, gru and rnn: small layers computed by hand."""

import math

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f32, i32
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.ops.recurrent.recurrent import Direction, Gru, Lstm, Rnn
from tpuconvert.schema.types import F32, I32, TensorType

ONE = f32([[1]])
LINEAR = Rnn(activations=("affine",), alphas=(1.0,))
GATES = f32([[1], [1], [1], [1]])


def steps(*numbers: float):
    """One sequence of one input: [T, 1, 1]."""
    return f32(*[[[number]] for number in numbers])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


CELL = sigmoid(1) * math.tanh(1)
UPDATE = sigmoid(2)

CASES = [
    Case(LINEAR, [steps(1, 2, 4), f32([[1]]), f32([[1]])],
         [f32(*[[[[n]]] for n in (1, 3, 7)]), f32([[7]])], "running sums"),
    Case(LINEAR, [steps(1, 2, 4), f32([[1]]), f32([[1]]), None, i32(2), f32([[10]])],
         [f32(*[[[[n]]] for n in (11, 13, 0)]), f32([[13]])], "the sequence ends after two steps"),
    Case(Rnn(Direction.REVERSE, ("affine",), alphas=(1.0,)), [steps(1, 2, 4), f32([[1]]), f32([[1]]), None, i32(2)],
         [f32(*[[[[n]]] for n in (3, 2, 0)]), f32([[3]])], "the last step of the sequence is the first"),
    Case(Rnn(activations=("relu",), clip=3.0), [steps(1, 2, 4), f32([[2]]), f32([[1]]), f32([0.5, -1.5])],
         [f32(*[[[[n]]] for n in (1, 3, 3)]), f32([[3]])], "both biases, and the limit"),
    Case(LINEAR, [steps(1, 2, 4), f32([[1]]), f32([[1]]), None, None, f32([[10]]), f32([1], [0], [1])],
         [f32(*[[[[n]]] for n in (11, 2, 6)]), f32([[6]])], "a sequence starts at the second step"),
    Case(Lstm(), [steps(1), GATES, f32([[0], [0], [0], [0]])],
         [f32([[[sigmoid(1) * math.tanh(CELL)]]]), f32([[sigmoid(1) * math.tanh(CELL)]]), f32([[CELL]])], "from zeros"),
    Case(Lstm(input_forget=True, cell_clip=2.0), [steps(0), GATES, f32([[0]] * 4), None, None, f32([[0]]), f32([[8]])],
         [f32([[[0.5 * math.tanh(2)]]]), f32([[0.5 * math.tanh(2)]]), f32([[2]])], "f = 1 - i; limit of a cell"),
    Case(Gru(), [steps(2), f32([[1], [1], [1]]), f32([[0], [0], [0]]), None, None, f32([[1]])],
         [f32([[[(1 - UPDATE) * math.tanh(2) + UPDATE]]]), f32([[(1 - UPDATE) * math.tanh(2) + UPDATE]])], "z and h"),
    Case(Gru(linear_before_reset=True), [steps(0), f32([[0]] * 3), f32([[0]] * 3), f32([0, 0, 0, 0, 0, 2])],
         [f32([[[0.5 * math.tanh(1)]]]), f32([[0.5 * math.tanh(1)]])], "the reset gate times the recurrent bias"),
]  # fmt: skip


def types(*shapes):
    return [TensorType(F32, shape) for shape in shapes]


def test_both_directions_are_two_layers():
    rng = np.random.default_rng(1)
    x, w, r = (rng.normal(size=shape).astype(np.float32) for shape in ((5, 2, 3), (2, 16, 3), (2, 16, 4)))
    y, hidden, cell = Lstm(Direction.BIDIRECTIONAL).reference(x, w, r)
    for index, direction in enumerate((Direction.FORWARD, Direction.REVERSE)):
        alone = Lstm(direction).reference(x, w[index : index + 1], r[index : index + 1])
        np.testing.assert_array_equal(y[:, index], alone[0][:, 0])
        np.testing.assert_array_equal(hidden[index], alone[1][0])
        np.testing.assert_array_equal(cell[index], alone[2][0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"activations": ("tanh",)}, "expected 3 of sigmoid"),
        ({"activations": ("sigmoid", "tanh", "gelu")}, "expected 3 of sigmoid"),
        ({"alphas": (1.0,)}, "1 alphas, expected 3"),
        ({"clip": -1.0}, "clip is -1.0, expected at least 0"),
        ({"cell_clip": float("nan")}, "cell_clip is nan, expected at least 0"),
        ({"direction": 3}, "3 is not a valid Direction"),
    ],
)
def test_rejects_invalid_parameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        Lstm(**arguments)


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        (types((3, 2, 3), (1, 12, 3), (1, 16, 4)), "number of rows of weight must be 16, not 12"),
        (types((3, 2, 3), (1, 16, 5), (1, 16, 4)), "number of columns of weight must be 3, not 5"),
        (types((3, 2, 3), (2, 16, 3), (2, 16, 4)), "number of directions of weight must be 1, not 2"),
        (types((3, 2, 3), (1, 16, 3), (1, 16, 4), (1, 16)), r"bias must be \[1, 32\]"),
        ([*types((3, 2, 3), (1, 16, 3), (1, 16, 4)), None, TensorType(F32, (2,))], "INT32 lengths"),
        (
            [*types((3, 2, 3), (1, 16, 3), (1, 16, 4)), None, TensorType(I32, (3,))],
            "number of lengths must be 2, not 3",
        ),
        ([*types((3, 2, 3), (1, 16, 3), (1, 16, 4)), None, None, *types((1, 3, 4))], "extent 1 of hidden must be 2"),
        (types((3, 2, 3), (1, 0, 3), (1, 0, 0)), "at least one unit"),
        (types((3, 2, 3), (1, 16, 3), (1, 16, "H")), "number of units must be a number"),
    ],
)
def test_rejects_shapes_that_do_not_fit(operands, message):
    with pytest.raises(ShapeError, match=message):
        Lstm().infer(*operands)


@pytest.mark.parametrize("lengths", [[4], [-1]])
def test_rejects_lengths_beyond_the_steps(lengths):
    with pytest.raises(UsageError, match="expected 0 to 3"):
        LINEAR.evaluate(steps(1, 2, 4), ONE[None], ONE[None], None, np.array(lengths, np.int32))
