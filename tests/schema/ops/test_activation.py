"""Activation functions, rounding to integers, sine and cosine."""

import decimal
import math

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f16, f32, i8, i16, type_of, u8
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.quantization.round_to_integer import Ceil, Floor, Round
from tpuconvert.schema.ops.trigonometry import Cos, Sin
from tpuconvert.schema.types import F32, I8, I16, U8, Chip, TensorType

NAN, INF = np.nan, np.inf
T = ActiveType
BELOW_HALF = np.nextafter(np.float32(0.5), np.float32(0))

CASES = [
    Case(Active(T.ACTIVE_RELU), [f32(-1, -0.0, NAN, INF, 2)], [f32(0, 0, NAN, INF, 2)], "no negative zeros"),
    Case(Active(T.ACTIVE_RELU), [f32()], [f32()], "no elements"),
    Case(Active(T.ACTIVE_RELU, U8), [i8(-3, 100)], [u8(0, 100)], "to another type"),
    Case(Active(T.ACTIVE_RELU), [i8(-128, 127)], [i8(0, 127)], "integers"),
    Case(Active(T.ACTIVE_RELU), [f16(-1, 2)], [f16(0, 2)], "binary16"),
    Case(Active(T.ACTIVE_ABSVAL), [f32(-1, -0.0, NAN)], [f32(1, 0, NAN)], "floats"),
    Case(Active(T.ACTIVE_ABSVAL), [i8(-128)], [i8(127)], "-128 has no counterpart"),
    Case(Active(T.ACTIVE_ABSVAL, I16), [i8(-128)], [i16(128)], "in 16 bits it has"),
    Case(Active(T.ACTIVE_LEAKY_RELU), [f32(-2, -INF, 3)], [f32(0, 0, 3)], "slope 0 is RELU"),
    Case(ActiveParam(T.ACTIVE_LEAKY_RELU, (0.0,)), [f32(-2, -INF)], [f32(0, 0)], "a given slope 0 as well"),
    Case(ActiveParam(T.ACTIVE_LEAKY_RELU, (0.5,)), [f32(-2, -0.0, NAN)], [f32(-1, -0.0, NAN)], "zero is not negative"),
    Case(ActiveParam(T.ACTIVE_LEAKY_RELU, (-2.0,)), [f32(-2)], [f32(4)], "a negative slope"),
    Case(ActiveParam(T.ACTIVE_LEAKY_RELU, (0.5,)), [i8(-1, -3, -5, 7)], [i8(-1, -2, -3, 7)], "ties away from zero"),
    Case(ActiveParam(T.ACTIVE_LEAKY_RELU, (-2.0,)), [i8(-128)], [i8(127)], "256 saturates"),
    Case(ActiveParam(T.ACTIVE_LEAKY_RELU, (0.1,)), [f16(-3)], [f16(-0.3)], "binary16"),
    Case(ActiveParam(T.ACTIVE_TANH, (5.0,)), [f32(0.0)], [f32(0.0)], "others ignore the parameters"),
    Case(Active(T.ACTIVE_SQUARE), [f32(-3, 1e30)], [f32(9, INF)], "one operation, no warning"),
    Case(Active(T.ACTIVE_SQRT), [f32(9, -1, 2)], [f32(3, NAN, 1.4142135)], "the negative has no root"),
    Case(Active(T.ACTIVE_RSQRT), [f32(4, 0.0, -1)], [f32(0.5, INF, NAN)], "infinite at 0"),
    Case(Active(T.ACTIVE_LN), [f32(1, 0, -1)], [f32(0, -INF, NAN)], "minus infinity at 0"),
    Case(Active(T.ACTIVE_EXP), [f32(0, -INF, 1000)], [f32(1, 0, INF)], "ends"),
    Case(Active(T.ACTIVE_SIGMOID), [f32(0, -1000, 1000, -INF, NAN)], [f32(0.5, 0, 1, 0, NAN)], "ends, no warning"),
    Case(Active(T.ACTIVE_ELU), [f32(2, -INF, -1e-20)], [f32(2, -1, -1e-20)], "exact near 0"),
    Case(Active(T.ACTIVE_CEIL), [f32(-0.5, 1.1)], [f32(-0.0, 2)], "as ceil"),
    Case(Active(T.ACTIVE_FLOOR), [f32(-0.5, 1.9)], [f32(-1, 1)], "as floor"),
    Case(Active(T.ACTIVE_ROUND), [f32(-2.5, -0.4, 0.5)], [f32(-3, 0, 1)], "as round"),
    Case(Round(), [f32(0.5, 1.5, 2.5, -0.5, -1.5)], [f32(1, 2, 3, -1, -2)], "ties round away from zero"),
    Case(Round(), [f32(BELOW_HALF, -BELOW_HALF)], [f32(0, 0)], "0.49999997 must not become 1"),
    Case(
        Round(),
        [f32(8388609, 16777215, -8388607.5, 1e30, INF, NAN)],
        [f32(8388609, 16777215, -8388608, 1e30, INF, NAN)],
        "whole numbers stay",
    ),
    Case(Ceil(), [f32(-0.5, 0.1, INF)], [f32(-0.0, 1, INF)], "up"),
    Case(Floor(), [f32(-0.1, 0.9, -INF)], [f32(-1, 0, -INF)], "down"),
    Case(Sin(), [f32(0, INF)], [f32(0, NAN)], "infinity has no sine, and gives no warning"),
    Case(Cos(), [f32(0)], [f32(1)], "1 at 0"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (T.ACTIVE_TANH, math.tanh),
        (T.ACTIVE_SIGMOID, lambda v: 1 / (1 + math.exp(-v))),
        (T.ACTIVE_EXP, math.exp),
        (T.ACTIVE_ELU, lambda v: v if v > 0 else math.expm1(v)),
        (T.ACTIVE_SIN, math.sin),
        (T.ACTIVE_COS, math.cos),
    ],
)
def test_within_two_units_in_the_last_place(function, expected):
    x = np.linspace(-20, 20, 997, dtype=np.float32)
    y = Active(function).evaluate(x)[0].astype(np.float64)
    exact = np.array([expected(float(v)) for v in x])
    assert (np.abs(y - exact) <= 2 * np.spacing(np.abs(exact).astype(np.float32))).all()


def test_square_root_and_logarithm_against_decimal_arithmetic():
    x = np.geomspace(1e-3, 1e3, 97, dtype=np.float32)
    with decimal.localcontext(decimal.Context(prec=40)):
        exact = [decimal.Decimal(float(v)) for v in x]
        roots = f32(*(float(v.sqrt()) for v in exact))
        logarithms = f32(*(float(v.ln()) for v in exact))
    assert Active(T.ACTIVE_SQRT).evaluate(x)[0].tobytes() == roots.tobytes()
    assert np.allclose(Active(T.ACTIVE_LN).evaluate(x)[0], logarithms, rtol=2.4e-7, atol=1e-9)  # 2 ULP


def test_unknown_function_is_rejected():
    with pytest.raises(ValueError, match="reserved"):
        Active(T.UNKNOWN_ACTIVE_TYPE)
    with pytest.raises(ValueError, match="17"):
        Active(17)


def test_number_becomes_the_member():
    assert Active(2) == Active(T.ACTIVE_RELU)
    assert str(Active(2)) == "active(active_type=ACTIVE_RELU)"


def test_shape_passes_through():
    assert Active(T.ACTIVE_EXP).infer(TensorType(F32, ("N", 3))) == (TensorType(F32, ("N", 3)),)
    assert Active(T.ACTIVE_RELU, I16).infer(TensorType(I8, (3,))) == (TensorType(I16, (3,)),)


def test_integers_are_for_few_functions():
    x = type_of(i8(1))
    for function in ActiveType:
        if function is T.UNKNOWN_ACTIVE_TYPE:
            continue
        legal = check(Active(function), Chip.BM1684, (x,), (x,)).status is Status.LEGAL
        assert legal == (function in (T.ACTIVE_RELU, T.ACTIVE_ABSVAL, T.ACTIVE_LEAKY_RELU))
    assert check(Active(T.ACTIVE_RELU), Chip.BM1682, (x,), (x,)).status is Status.ILLEGAL
    wide = TensorType(I16, (1,))
    assert check(Active(T.ACTIVE_LEAKY_RELU), Chip.BM1684, (x,), (wide,)).status is Status.ILLEGAL
    with pytest.raises(ValueError, match="does not take integers"):
        Active(T.ACTIVE_TANH).evaluate(i8(1))
