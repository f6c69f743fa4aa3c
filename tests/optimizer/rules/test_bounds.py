"""Bounds and properties of values."""

import math

import numpy as np
import pytest

from tpuconvert.optimizer.rules.value_properties import UNKNOWN, bounds, is_boolean, is_finite, is_never_negative
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Max, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Maxs, Mins, Muls, Rsubs, Subs
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import Gts, Nes
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import F32, I8, I32, Scalar, TensorType

LOWEST = float(np.finfo(np.float32).min)
RELU = Active(ActiveType.ACTIVE_RELU)


def s(number):
    return Scalar.f32(number)


def number(g, value):
    return g.constant(np.full(1, value, np.float32))


@pytest.fixture
def g():
    graph = Graph("test")
    graph.input("x", TensorType(F32, (2, 3)))
    graph.input("i8", TensorType(I8, (2, 3)))
    graph.input("i32", TensorType(I32, (2, 3)))
    graph.input("mask", TensorType(F32, (2, 3)), Port("mask", "bool", (2, 3)))
    return graph


def value(g, name):
    return g.find(name)


BOUNDS = {
    "x": (lambda g: value(g, "x"), UNKNOWN),
    "bytes": (lambda g: g.add(Cast(F32), value(g, "i8")), (-128, 127)),
    "booleans": (lambda g: value(g, "mask"), (0, 1)),
    "1 - booleans": (lambda g: g.add(Rsubs(s(1)), value(g, "mask")), (0, 1)),
    "-10000 * (1 - booleans)": (
        lambda g: g.add(Muls(s(-10000)), g.add(Rsubs(s(1)), value(g, "mask"))),
        (-10000, 0),
    ),
    "bytes / -2": (lambda g: g.add(Divs(s(-2)), g.add(Cast(F32), value(g, "i8"))), (-63.5, 64)),
    "bytes + 1 - 3": (lambda g: g.add(Subs(s(3)), g.add(Adds(s(1)), g.add(Cast(F32), value(g, "i8")))), (-130, 125)),
    "relu": (lambda g: g.add(RELU, value(g, "x")), (0, math.inf)),
    "clamp": (lambda g: g.add(Clamp(min=s(-1), max=s(6)), value(g, "x")), (-1, 6)),
    "min(bytes, 5)": (lambda g: g.add(Mins(s(5)), g.add(Cast(F32), value(g, "i8"))), (-128, 5)),
    "max(bytes, 300)": (lambda g: g.add(Maxs(s(300)), g.add(Cast(F32), value(g, "i8"))), (300, 300)),
    "choice": (lambda g: g.add(ConditionSelect(), value(g, "x"), number(g, -5), number(g, 7)), (-5, 7)),
    "moved": (lambda g: g.add(Tile((1, 2)), g.add(Reshape((3, 2)), g.add(Gts(s(0)), value(g, "x")))), (0, 1)),
    "truths + bytes": (
        lambda g: g.add(Add(), g.add(Gts(s(0)), value(g, "x")), g.add(Cast(F32), value(g, "i8"))),
        (-128, 128),
    ),
    "difference": (lambda g: g.add(Sub(), value(g, "mask"), value(g, "mask")), UNKNOWN),
    "0 * x": (lambda g: g.add(Muls(s(0)), value(g, "x")), UNKNOWN),
    "booleans / 0": (lambda g: g.add(Divs(s(0)), value(g, "mask")), UNKNOWN),
}


@pytest.mark.parametrize("form", BOUNDS)
def test_bounds(form, g):
    build, expected = BOUNDS[form]
    assert bounds(g, build(g)) == expected


FINITE = {
    "booleans * lowest": (lambda g: g.add(Muls(s(LOWEST)), value(g, "mask")), True),
    "integers * lowest": (lambda g: g.add(Muls(s(LOWEST)), g.add(Cast(F32), value(g, "i32"))), False),
    "integers * -10000": (lambda g: g.add(Muls(s(-10000)), g.add(Cast(F32), value(g, "i32"))), True),
    "lowest + lowest": (
        lambda g: g.add(Adds(s(LOWEST)), g.add(Muls(s(LOWEST)), value(g, "mask"))),
        False,
    ),
    "selection of minus infinity": (
        lambda g: g.add(ConditionSelect(), value(g, "mask"), number(g, 0), number(g, -np.inf)),
        False,
    ),
    "an input": (lambda g: value(g, "x"), False),
    "a constant that is not a number": (lambda g: number(g, np.nan), False),
}


@pytest.mark.parametrize("form", FINITE)
def test_finite(form, g):
    build, expected = FINITE[form]
    assert is_finite(g, build(g)) == expected


SIGNS = {
    "a sum of squares": (
        lambda g: g.add(Reduce((1,), ReduceMethodType.REDUCE_SUM), g.add(Mul(), value(g, "x"), value(g, "x"))),
        True,
    ),
    "half a root": (lambda g: g.add(Muls(s(0.5)), g.add(Active(ActiveType.ACTIVE_SQRT), value(g, "x"))), True),
    "minus half a root": (
        lambda g: g.add(Muls(s(-0.5)), g.add(Active(ActiveType.ACTIVE_SQRT), value(g, "x"))),
        False,
    ),
    "max(relu, x)": (lambda g: g.add(Max(), g.add(RELU, value(g, "x")), value(g, "x")), False),
    "Boolean value": (lambda g: g.add(Nes(s(0)), value(g, "x")), True),
    "a difference": (lambda g: g.add(Sub(), g.add(RELU, value(g, "x")), g.add(RELU, value(g, "x"))), False),
}


@pytest.mark.parametrize("form", SIGNS)
def test_signs(form, g):
    build, expected = SIGNS[form]
    assert is_never_negative(build(g)) == expected


TRUTHS = {
    "x": (lambda g: value(g, "x"), False),
    "booleans": (lambda g: value(g, "mask"), True),
    "x > 0": (lambda g: g.add(Gts(s(0)), value(g, "x")), True),
    "booleans and x": (lambda g: g.add(Mul(), value(g, "mask"), value(g, "x")), False),
    "booleans or x > 0": (lambda g: g.add(Max(), value(g, "mask"), g.add(Gts(s(0)), value(g, "x"))), True),
    "a constant of 0 and 1": (lambda g: g.constant(np.eye(2, dtype=np.float32)), True),
    "2": (lambda g: number(g, 2), False),
}


@pytest.mark.parametrize("form", TRUTHS)
def test_boolean_values(form, g):
    build, expected = TRUTHS[form]
    assert is_boolean(g, build(g)) == expected
