"""Patterns of the rules that fuse several operators."""

from __future__ import annotations

import math

import numpy as np

from tests.support.rules.rule_draws import SMALL, Draw, pattern
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Maxs, Mins, Muls, Rdivs, Rsubs
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import Eqs, Gts
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.quantization.round_to_integer import Ceil, Floor, Round
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import Scalar


@pattern("convert_conv1x1_to_matmul", (3, 5))
def _(d: Draw, x: Value) -> Value:
    y = d.add(Reshape((3, 5, 1, 1)), x)
    bias = [d.constant(1, 4, 1, 1)] if d.often() else []
    return d.add(Reshape((3, 4)), d.add(Conv(), y, d.constant(4, 5, 1, 1), *bias))


@pattern("convert_gate_matmuls_to_conv1x1", (2, 6, 3, 4))
def _(d: Draw, x: Value) -> Value:
    y = d.add(Reduce((2, 3), ReduceMethodType(int(d.rng.integers(4))), keep_dims=(kept := d.often())), x)
    y = d.add(Reshape((2, 6)), y) if kept else y
    for outputs in (4, 6):
        y = d.dense(y, outputs)
        y = d.unary(y) if d.often(0.7) else y
    return d.pair(Mul(), x, d.add(Reshape((2, 6, 1, 1)), y))


@pattern("convert_matmul_to_conv1x1", (3, 5, 1, 1))
def _(d: Draw, x: Value) -> Value:
    return d.add(Reshape((3, 4, 1, 1)), d.dense(d.add(Reshape((3, 5)), x), 4))


def _negative(d: Draw, x: Value) -> Value:
    return d.add(d.one_of(Muls(Scalar.f32(-1)), Rsubs(Scalar.f32(0))), x)


@pattern("fuse_negation_into_add")
def _(d: Draw, x: Value) -> Value:
    return d.add(Sub(), d.add(Active(ActiveType.ACTIVE_TANH), x), _negative(d, x))


@pattern("fuse_negation_into_sub")
def _(d: Draw, x: Value) -> Value:
    return d.pair(Add(), d.add(Active(ActiveType.ACTIVE_TANH), x), _negative(d, x))


@pattern("fold_reshape_into_reduce")
def _(d: Draw, x: Value) -> Value:
    axes = d.one_of((3,), (2, 3), (1,), (0, 2))
    reduced = d.add(Reduce(axes, ReduceMethodType(int(d.rng.integers(4)))), x)
    return d.add(Reshape(tuple(extent for axis, extent in enumerate(SMALL) if axis not in axes)), reduced)


@pattern("fuse_leaky_relu")
def _(d: Draw, x: Value) -> Value:
    positive = d.add(d.one_of(Active(ActiveType.ACTIVE_RELU), Maxs(Scalar.f32(0))), x)
    return d.pair(Add(), positive, d.add(Muls(Scalar.f32(d.number())), d.add(Mins(Scalar.f32(0)), x)))


@pattern("fuse_max_as_leaky_relu")
def _(d: Draw, x: Value) -> Value:
    return d.pair(Max(), x, d.add(Muls(Scalar.f32(d.number(0.1, 1))), x))


@pattern("fuse_prelu_as_max")
def _(d: Draw, x: Value) -> Value:
    slopes = d.g.constant(d.rng.uniform(0.1, 1, (1, 3, 1, 1)).astype(np.float32))
    negative = d.pair(Mul(), d.add(Mins(Scalar.f32(0)), x), slopes)
    return d.pair(Add(), d.add(Active(ActiveType.ACTIVE_RELU), x), negative)


@pattern("merge_clamps")
def _(d: Draw, x: Value) -> Value:
    for _ in range(2):
        low, high = Scalar.f32(d.number(-1, 0)), Scalar.f32(d.number(0, 1))
        x = d.add(d.one_of(Active(ActiveType.ACTIVE_RELU), Maxs(low), Mins(high), Clamp(low, high)), x)
    return x


@pattern("fuse_reciprocal_into_div")
def _(d: Draw, x: Value) -> Value:
    positive = d.add(Adds(Scalar.f32(1)), d.add(Active(ActiveType.ACTIVE_SQUARE), x))
    return d.pair(Mul(), d.add(Active(ActiveType.ACTIVE_TANH), x), d.add(Rdivs(Scalar.f32(1)), positive))


@pattern("replace_self_multiply_by_square")
def _(d: Draw, x: Value) -> Value:
    return d.add(Mul(), x, x)


@pattern("fuse_reciprocal_sqrt")
def _(d: Draw, x: Value) -> Value:
    positive = d.add(Adds(Scalar.f32(1)), d.add(Active(ActiveType.ACTIVE_SQUARE), x))
    return d.add(Rdivs(Scalar.f32(1)), d.add(Active(ActiveType.ACTIVE_SQRT), positive))


@pattern("recognize_activation")
def _(d: Draw, x: Value) -> Value:
    g = d.g
    return d.one_of(
        lambda: f.mul(g, x, f.sigmoid(g, x)),
        lambda: f.mul(g, x, f.sigmoid(g, f.muls(g, x, 1.702))),
        lambda: f.muls(g, f.mul(g, x, f.clamp(g, f.adds(g, x, 3), 0, 6)), 1 / 6),
        lambda: f.mul(g, f.muls(g, x, 0.5), f.adds(g, f.erf(g, f.muls(g, x, math.sqrt(0.5))), 1)),
        lambda: f.ln(g, f.adds(g, f.exp(g, x), 1)),
        lambda: f.mul(g, x, f.tanh(g, f.ln(g, f.adds(g, f.exp(g, x), 1)))),
    )()


def _add_mask(d: Draw, scores: Value, x: Value) -> Value:
    """Add a mask or select by it. It is constant or computed from x, and hides no whole row."""
    low = d.g.constant(np.full(1, d.one_of(-np.inf, np.finfo(np.float32).min), np.float32), "low")
    visible = np.triu(np.ones((4, 4), np.float32))[None, None]
    if d.often(0.3):
        condition = d.g.constant(np.broadcast_to(visible, (2, 3, 4, 4)).copy(), "condition")
        return d.add(ConditionSelect(), condition, scores, low)
    first = d.add(Extract((0, 0, 0, 0), (2, 1, 1, 4), (1, 1, 1, 1)), x)
    if d.often():
        mask = d.add(Muls(Scalar.f32(-10000)), d.add(Gts(Scalar.f32(0.5)), first))
        return d.pair(Add(), scores, d.add(Tile((1, 3, 1, 1)), mask) if d.often() else mask)
    one = d.g.constant(np.array([1, 0, 0, 0], np.float32).reshape(1, 1, 1, 4), "one")
    wide = d.add(Tile((1, 3, 4, 1)), d.pair(Max(), d.add(Gts(Scalar.f32(0)), first), one))
    return d.add(ConditionSelect(), wide, scores, low)


def _weights(d: Draw, scores: Value) -> Value:
    return d.add(Softmax(3), scores)


def _guarded_weights(d: Draw, scores: Value) -> Value:
    largest = d.add(
        Maxs(Scalar.f32(np.finfo(np.float32).min)), d.add(Reduce((3,), ReduceMethodType.REDUCE_MAX), scores)
    )
    powers = d.add(Active(ActiveType.ACTIVE_EXP), d.add(Sub(), scores, largest))
    sums = d.add(Reduce((3,), ReduceMethodType.REDUCE_SUM), powers)
    return d.add(Div(), powers, d.add(Add(), sums, d.add(Eqs(Scalar.f32(0)), sums)))


@pattern("recognize_attention", (2, 3, 4, 6))
def _(d: Draw, x: Value) -> Value:
    query, key, value = (d.unary(x) for _ in range(3))
    scale = d.one_of(Muls(Scalar.f32(0.4)), Divs(Scalar.f32(2.5)), None)
    if scale is not None and d.often():
        query, scale = d.add(scale, query), None
    if d.often():
        scores = d.add(BatchMatmul(right_transpose=True), query, key)
    else:
        columns = d.add(Permute((0, 2, 3, 1)), d.add(Muls(Scalar.f32(0.5)), d.add(Permute((0, 2, 1, 3)), key)))
        scores = d.add(BatchMatmul(), query, columns)
    if scale is not None:
        scores = d.add(scale, scores)
    if d.often(0.3):
        return d.add(BatchMatmul(), _weights(d, scores), value)
    if d.often():
        scores = d.pair(Add(), scores, d.constant(*d.one_of((1, 1, 4, 4), (2, 1, 1, 4))))
    if d.often():
        return d.add(BatchMatmul(), _guarded_weights(d, _add_mask(d, scores, x)), value)
    return d.add(BatchMatmul(), _weights(d, _add_mask(d, scores, x)), value)


@pattern("replace_div_by_sqrt_by_rsqrt")
def _(d: Draw, x: Value) -> Value:
    axes = d.one_of((1,), (3,), (2, 3), (1, 2, 3))
    square = d.add(Active(ActiveType.ACTIVE_SQUARE), x) if d.often() else d.add(Mul(), x, x)
    length = d.add(Active(ActiveType.ACTIVE_SQRT), d.add(Reduce(axes, ReduceMethodType.REDUCE_SUM), square))
    least = Scalar.f32(d.one_of(1e-12, 1e-6, 2.0))
    limited = d.add(Maxs(least), length) if d.often(0.8) else d.add(Active(ActiveType.ACTIVE_SQRT), _positive(d, x))
    if d.often():
        reps = [extent if whole == 1 else 1 for extent, whole in zip(x.shape, limited.shape, strict=True)]
        limited = d.add(Tile(tuple(int(count) for count in reps)), limited)
    return d.add(Div(), x, limited)


def _positive(d: Draw, x: Value) -> Value:
    return d.add(Adds(Scalar.f32(0.5)), d.add(Active(ActiveType.ACTIVE_SQUARE), x))


@pattern("remove_redundant_activation")
def _(d: Draw, x: Value) -> Value:
    if d.often():
        rounded = d.add(d.one_of(Ceil(), Floor(), Round(), Active(ActiveType.ACTIVE_FLOOR)), x)
        return d.add(d.one_of(Ceil(), Floor(), Round(), Active(ActiveType.ACTIVE_ROUND)), rounded)
    kind = d.one_of(ActiveType.ACTIVE_SQUARE, ActiveType.ACTIVE_SIGMOID, ActiveType.ACTIVE_ABSVAL)
    positive = d.add(Active(kind), x)
    limits = (Active(ActiveType.ACTIVE_RELU), Active(ActiveType.ACTIVE_ABSVAL), Maxs(Scalar.f32(-1)))
    return d.add(d.one_of(*limits), positive)


@pattern("simplify_data_movement", moves=True)
def _(d: Draw, x: Value) -> Value:
    for _ in range(int(d.rng.integers(2, 6))):
        x = d.move(x)
    return x


@pattern("replace_max_by_relu")
def _(d: Draw, x: Value) -> Value:
    return d.add(Maxs(Scalar.f32(0)), x)


@pattern("fold_permute_into_left_operand", (2, 3, 4))
def _(d: Draw, x: Value) -> Value:
    swapped = d.add(Permute((0, 2, 1)), x)
    right = d.unary(x)
    return d.add(BatchMatmul(), swapped, right)


@pattern("fold_permute_into_right_operand", (2, 3, 4))
def _(d: Draw, x: Value) -> Value:
    swapped = d.add(Permute((0, 2, 1)), d.unary(x))
    return d.add(BatchMatmul(left_transpose=False), x, swapped)
