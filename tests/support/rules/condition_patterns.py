"""Patterns of the rules for comparisons, selections and tiles."""

from __future__ import annotations

import numpy as np

from tests.support.rules.rule_draws import SMALL, Draw, pattern
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Rsubs, Subs
from tpuconvert.schema.ops.compare import Eq, Eqs, Ge, Gts, Lts, Ne, Nes
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.quantization.round_to_integer import Round
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.tile import Broadcast, Tile
from tpuconvert.schema.types import Scalar

ZERO = Scalar.f32(0)


def _truth(d: Draw, x: Value) -> Value:
    return d.add(d.one_of(Gts(Scalar.f32(0.2)), Lts(Scalar.f32(0.2))), x)


def _choices(d: Draw, x: Value) -> tuple[Value, Value]:
    number = d.g.constant(np.full(1, d.number(), np.float32), "number")
    return d.one_of((d.unary(x), number), (number, d.unary(x)), (d.unary(x), d.unary(x)))


@pattern("remove_boolean_test")
def _(d: Draw, x: Value) -> Value:
    truth = _truth(d, x)
    if d.often():
        truth = d.add(d.one_of(Max(), Min(), Mul()), truth, _truth(d, d.unary(x)))
    return d.add(Nes(ZERO), truth)


@pattern("fold_negation_into_comparison")
def _(d: Draw, x: Value) -> Value:
    rounded = d.add(Round(), x)
    if d.often():
        return d.add(Eqs(ZERO), d.add(d.one_of(Eqs, Nes)(Scalar.f32(1)), rounded))
    other = d.add(Round(), d.unary(x))
    return d.add(Eqs(ZERO), d.add(d.one_of(Eq(), Ne()), rounded, other))


@pattern("swap_select_branches")
def _(d: Draw, x: Value) -> Value:
    return d.add(ConditionSelect(), d.add(Eqs(ZERO), _truth(d, x)), *_choices(d, x))


@pattern("fold_offset_into_comparison")
def _(d: Draw, x: Value) -> Value:
    number = Scalar.f32(d.one_of(0, 1, -2, 0.3))
    shifted = d.add(d.one_of(Adds(number), Rsubs(number), Subs(number)), d.add(Round(), x))
    return d.add(d.one_of(Eqs(ZERO), Nes(ZERO)), shifted)


@pattern("replace_select_branch_by_zero")
def _(d: Draw, x: Value) -> Value:
    rounded = d.add(Round(), x)
    number = d.g.constant(np.full(1, -1e4, np.float32), "low")
    other = number if d.often() else d.unary(x)
    if d.often():
        return d.add(ConditionSelect(), d.add(Nes(ZERO), rounded), other, rounded)
    return d.add(ConditionSelect(), d.add(Eqs(ZERO), rounded), rounded, other)


def _once(d: Draw, x: Value) -> tuple[Value, tuple[int, ...]]:
    """Slice x to extent 1 along some axes. Also return the repetitions of a tile that undoes it."""
    cut = [d.often() for _ in range(x.rank)]
    cut[int(d.rng.integers(x.rank))] = True
    shape = x.type.static_shape
    end = tuple(1 if is_cut else extent for is_cut, extent in zip(cut, shape, strict=True))
    counts = tuple(extent if is_cut else 1 for is_cut, extent in zip(cut, shape, strict=True))
    return d.add(Extract((0,) * x.rank, end, (1,) * x.rank), x), counts


@pattern("remove_tile_before_broadcast")
def _(d: Draw, x: Value) -> Value:
    once, counts = _once(d, x)
    repeated = d.add(d.one_of(Broadcast, Tile)(counts), once)
    return d.pair(d.one_of(Add(), Ge(), Max(), Mul(), Sub()), d.unary(x), repeated)


@pattern("sink_tile_through_elementwise")
def _(d: Draw, x: Value) -> Value:
    once, counts = _once(d, x)
    kind = d.one_of("function", "pair", "choice")
    repeated = d.add(Tile(counts), once)
    if kind == "function":
        return d.unary(repeated)
    if kind == "pair":
        return d.pair(d.one_of(Add(), Max(), Mul(), Sub()), repeated, d.add(Tile(counts), d.unary(once)))
    numbers = (d.g.constant(np.full(1, d.number(), np.float32), "number") for _ in range(2))
    return d.add(ConditionSelect(), repeated, *numbers)


@pattern("shrink_repeated_constant")
def _(d: Draw, x: Value) -> Value:
    axes = [axis for axis in range(4) if d.often()] or [2]
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(SMALL))
    data = d.rng.uniform(0.5, 2, shape).astype(np.float32)
    constant = d.g.constant(np.broadcast_to(data, SMALL).copy(), "c")
    if d.often(0.3):
        return d.add(Div(), constant, d.add(Adds(Scalar.f32(3)), d.add(Max(), x, d.unary(x))))
    return d.pair(d.one_of(Add(), Max(), Mul(), Sub()), x, constant)
