"""Patterns of the rules that canonicalize operators."""

from __future__ import annotations

import numpy as np

from tests.support.rules.rule_draws import SMALL, Draw, pattern
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls, Rdivs, Rsubs, Subs
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.normalization import GroupNorm, LayerNorm, RmsNorm
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape, Squeeze
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import F32, I8, I16, I32, Scalar


@pattern("convert_batch_matmul_to_matmul", (2, 3, 4))
def _(d: Draw, x: Value) -> Value:
    is_transposed = d.often()
    shape = (5, 4) if is_transposed else (4, 5)
    return d.add(BatchMatmul(right_transpose=is_transposed), x, d.constant(*d.one_of((), (1,), (1, 1)), *shape))


@pattern("move_constant_second")
def _(d: Draw, x: Value) -> Value:
    return d.add(d.one_of(Add(), Mul()), d.constant(*d.one_of((1, 3, 1, 1), SMALL, (1, 1, 1, 6), (1, 1, 1, 1))), x)


@pattern("remove_self_min_max", moves=True)
def _(d: Draw, x: Value) -> Value:
    return d.add(d.one_of(Max(), Min()), x, x)


@pattern("fold_bias_into_group_norm")
def _(d: Draw, x: Value) -> Value:
    scale = [d.constant(3)] if d.often() else []
    return d.pair(Add(), d.add(GroupNorm(d.one_of(1, 3), 1e-3), x, *scale), d.constant(1, 3, 1, 1))


@pattern("fold_scale_into_group_norm")
def _(d: Draw, x: Value) -> Value:
    return d.pair(Mul(), d.add(GroupNorm(d.one_of(1, 3), 1e-3), x), d.constant(1, 3, 1, 1))


@pattern("fold_integer_multiply_by_zero")
def _(d: Draw, x: Value) -> Value:
    zeros = d.add(Muls(Scalar(I32, 0)), d.add(Cast(I32), x))
    return d.pair(Add(), x, d.add(Cast(F32), zeros))


@pattern("remove_concat_of_split", moves=True)
def _(d: Draw, x: Value) -> Value:
    axis = d.one_of(0, 2, 3)
    return d.add(Concat(axis), *d.g.add_all(Split(axis, 2), x))


@pattern("merge_adjacent_slices", moves=True)
def _(d: Draw, x: Value) -> Value:
    axis = int(d.rng.integers(4))
    shape = list(x.type.static_shape)
    low, high = (0, shape[axis]) if d.often() else (0, shape[axis] - 1)
    if high - low < 2:
        low, high = 0, shape[axis]
    middle = int(d.rng.integers(low + 1, high)) if high - low > 1 else high
    start, end = [0] * 4, shape
    parts = []
    for a, b in ((low, middle), (middle, high)):
        start[axis], end[axis] = a, b
        if a < b:
            parts.append(d.add(Extract(tuple(start), tuple(end), (1, 1, 1, 1)), x))
    return d.add(Concat(axis), *parts)


def _align(x: Value, axis: int) -> tuple[int, ...]:
    """The extents from an axis on, with unit axes before them."""
    own = x.type.static_shape[axis:]
    return (1,) * (x.rank - len(own)) + own


@pattern("fold_bias_into_layer_norm")
def _(d: Draw, x: Value) -> Value:
    axis = d.one_of(1, 2, 3, -1)
    scale = [d.constant(*x.type.static_shape[axis:])] if d.often() else []
    return d.pair(Add(), d.add(LayerNorm(axis, 1e-3), x, *scale), d.constant(*_align(x, axis)))


@pattern("fold_scale_into_layer_norm")
def _(d: Draw, x: Value) -> Value:
    axis = d.one_of(1, 2, 3, -1)
    return d.pair(Mul(), d.add(LayerNorm(axis, 1e-3), x), d.constant(*_align(x, axis)))


@pattern("hoist_unary_chain_above_reshape")
def _(d: Draw, x: Value) -> Value:
    y = d.reshape(x)
    for _ in range(int(d.rng.integers(1, 4))):
        y = d.unary(y)
    return d.add(Reshape(x.type.static_shape), y) if d.often() else d.reshape(y)


@pattern("merge_casts", (2, 3))
def _(d: Draw, x: Value) -> Value:
    narrow = d.add(Cast(d.one_of(I8, I16)), x)
    return d.add(Cast(F32), d.add(Cast(d.one_of(I32, I16, F32)), narrow))


@pattern("merge_concats", moves=True)
def _(d: Draw, x: Value) -> Value:
    axis = int(d.rng.integers(4))
    inner = d.add(Concat(axis), *(x for _ in range(int(d.rng.integers(1, 4)))))
    return d.add(Concat(axis), *d.one_of((inner, x), (x, inner), (x, inner, x), (inner,)))


@pattern("merge_constants")
def _(d: Draw, x: Value) -> Value:
    op = d.one_of(Add(), Mul())
    first, second = d.one_of(((1, 3, 1, 1), (1, 3, 1, 1)), (SMALL, (1, 1, 1, 6)), ((1, 1, 1, 6), SMALL))
    return d.add(op, d.add(op, x, d.constant(*first, low=0.5)), d.constant(*second, low=0.5))


@pattern("merge_rsubs")
def _(d: Draw, x: Value) -> Value:
    return d.add(Rsubs(Scalar.f32(d.number(1, 2))), d.add(Rsubs(Scalar.f32(d.number(-2, -1))), x))


@pattern("merge_scalar_multiplies")
def _(d: Draw, x: Value) -> Value:
    for _ in range(2):
        x = d.add(d.one_of(Muls, Divs)(Scalar.f32(d.number())), x)
    return x


@pattern("merge_pads", moves=True)
def _(d: Draw, x: Value) -> Value:
    number = d.one_of(0.0, 1.0, -2.0) if x.dtype is F32 else 0
    for _ in range(2):
        paddings = tuple(int(n) for n in d.rng.integers(0, 3, 8))
        x = d.add(Pad(Scalar(x.dtype, number), paddings), x)
    return x


@pattern("merge_rdivs")
def _(d: Draw, x: Value) -> Value:
    positive = d.add(Adds(Scalar.f32(1)), d.add(Active(ActiveType.ACTIVE_SQUARE), x))
    return d.add(Rdivs(Scalar.f32(d.number())), d.add(Rdivs(Scalar.f32(d.number())), positive))


@pattern("merge_reduces")
def _(d: Draw, x: Value) -> Value:
    method, keeps = ReduceMethodType(int(d.rng.integers(4))), d.often()
    first = d.one_of((3,), (2,), (1, 3), (0,))
    second = d.one_of((0,), (1,), (0, 1)) if keeps else d.one_of((0,), (1,), (-1,))
    if keeps:
        second = tuple(axis for axis in second if axis not in first) or (2,)
    return d.add(Reduce(second, method, keep_dims=keeps), d.add(Reduce(first, method, keep_dims=keeps), x))


@pattern("merge_reshapes", moves=True)
def _(d: Draw, x: Value) -> Value:
    return d.reshape(d.reshape(x))


@pattern("fold_scalar_into_constant")
def _(d: Draw, x: Value) -> Value:
    shape = d.one_of((1, 3, 1, 1), SMALL, (1, 1, 1, 6))
    scalar, whole = d.one_of((Muls, Mul()), (Divs, Mul()), (Adds, Add()), (Subs, Add()))
    number, constant = Scalar.f32(d.number(0.3, 0.5)), d.constant(*shape, low=0.6)
    if d.often():
        return d.add(whole, d.add(scalar(number), x), constant)
    return d.add(scalar(number), d.add(whole, x, constant))


@pattern("merge_scalar_adds")
def _(d: Draw, x: Value) -> Value:
    for number in (d.number(1, 2), d.number(3, 4)):
        x = d.add(d.one_of(Adds, Subs)(Scalar.f32(number)), x)
    return x


@pattern("convert_unit_permute_to_reshape", (1, 3, 1, 4), moves=True)
def _(d: Draw, x: Value) -> Value:
    return d.add(Permute(d.one_of((1, 0, 2, 3), (1, 3, 0, 2), (0, 2, 1, 3), (2, 1, 0, 3), (0, 1, 3, 2))), x)


@pattern("recognize_group_norm")
def _(d: Draw, x: Value) -> Value:
    groups = d.one_of(1, 3)
    inner = d.add(LayerNorm(2, 1e-3), d.add(Reshape((2, groups, 72 // groups)), x))
    return d.add(Reshape(SMALL), inner)


@pattern("recognize_instance_norm")
def _(d: Draw, x: Value) -> Value:
    return d.pair(Mul(), d.add(LayerNorm(2, 1e-3), x), d.constant(1, 3, 1, 1))


def _centred_over_root(d: Draw, x: Value, axes: tuple[int, ...], method: ReduceMethodType) -> Value:
    square = d.add(Active(ActiveType.ACTIVE_SQUARE), x) if d.often() else d.add(Mul(), x, x)
    power = d.add(Adds(Scalar.f32(d.one_of(1e-3, 0.1))), d.add(Reduce(axes, method), square))
    if d.often():
        return d.add(Div(), x, d.add(Active(ActiveType.ACTIVE_SQRT), power))
    return d.pair(Mul(), x, d.add(Active(ActiveType.ACTIVE_RSQRT), power))


@pattern("recognize_layer_norm")
def _(d: Draw, x: Value) -> Value:
    axes = d.one_of((3,), (2, 3), (1, 2, 3), (-1,))
    centred = d.add(Sub(), x, d.add(Reduce(axes), x))
    return _centred_over_root(d, centred, axes, ReduceMethodType.REDUCE_MEAN)


@pattern("recognize_rms_norm")
def _(d: Draw, x: Value) -> Value:
    axes = d.one_of((3,), (2, 3), (1, 2, 3), (-1,))
    method = d.one_of(ReduceMethodType.REDUCE_MEAN, ReduceMethodType.REDUCE_SUM)
    return _centred_over_root(d, x, axes, method)


@pattern("factor_out_centered_value")
def _(d: Draw, x: Value) -> Value:
    axes, shape = d.one_of(((3,), (1, 1, 1, 6)), ((2, 3), (1, 3, 1, 1)))
    mean = d.add(Reduce(axes), x)
    square = d.add(Active(ActiveType.ACTIVE_SQUARE), d.add(Sub(), x, mean))
    root = d.add(Active(ActiveType.ACTIVE_RSQRT), d.add(Adds(Scalar.f32(0.1)), d.add(Reduce(axes), square)))
    factor = d.pair(Mul(), root, d.constant(*shape)) if d.often() else root
    rest = d.add(Sub(), d.constant(*shape), d.pair(Mul(), mean, factor))
    return d.pair(Add(), d.pair(Mul(), x, factor), rest)


@pattern("remove_unit_reduce", (1, 3, 1, 4))
def _(d: Draw, x: Value) -> Value:
    method = ReduceMethodType(int(d.rng.integers(5)))
    return d.add(Reduce(d.one_of((0,), (2,), (0, 2)), method, keep_dims=d.often()), x)


@pattern("remove_copy", moves=True)
def _(d: Draw, x: Value) -> Value:
    return d.add(Copy(), x)


@pattern("remove_neutral_scalar")
def _(d: Draw, x: Value) -> Value:
    op, number = d.one_of((Adds, 0), (Subs, 0), (Muls, 1), (Divs, 1))
    return d.add(op(Scalar.f32(number)), x)


@pattern("remove_same_cast")
def _(d: Draw, x: Value) -> Value:
    return d.add(Cast(x.dtype), x)


@pattern("remove_shape_noop", moves=True)
def _(d: Draw, x: Value) -> Value:
    shape = x.type.static_shape
    ones = (1,) * len(shape)
    whole = Extract((0,) * len(shape), shape, ones)
    return d.add(d.one_of(Reshape(shape), whole, Tile(ones), Pad(Scalar(x.dtype, 0), (0,) * 2 * len(shape))), x)


@pattern("remove_single_concat", moves=True)
def _(d: Draw, x: Value) -> Value:
    return d.add(Concat(int(d.rng.integers(4))), x)


@pattern("fold_scale_into_rms_norm")
def _(d: Draw, x: Value) -> Value:
    axis = d.one_of(1, 2, 3, -1)
    extents = x.type.static_shape[axis:]
    scale = [d.constant(*extents)] if d.often() else []
    return d.pair(Mul(), d.add(RmsNorm(axis, 1e-3), x, *scale), d.constant(*d.one_of(_align(x, axis), (1, 1, 1, 1))))


@pattern("replace_sqrt_of_square_by_abs")
def _(d: Draw, x: Value) -> Value:
    return d.add(Active(ActiveType.ACTIVE_SQRT), d.add(Active(ActiveType.ACTIVE_SQUARE), x))


@pattern("hoist_slice_above_concat", moves=True)
def _(d: Draw, x: Value) -> Value:
    axis = int(d.rng.integers(4))
    other = d.add(Copy(), x)
    joined = d.add(Concat(axis), x, other, x)
    extent, shape = x.type.static_shape[axis], list(joined.type.static_shape)
    part = int(d.rng.integers(3))
    first = part * extent + int(d.rng.integers(extent))
    start, end = [0] * 4, shape
    start[axis], end[axis] = first, int(d.rng.integers(first + 1, (part + 1) * extent + 1))
    return d.add(Extract(tuple(start), tuple(end), tuple(d.one_of(1, 2) for _ in range(4))), joined)


@pattern("convert_squeeze_to_reshape", (1, 3, 1, 4), moves=True)
def _(d: Draw, x: Value) -> Value:
    return d.add(d.one_of(Squeeze((0,)), Squeeze((2,)), Squeeze(), ExpandDims(int(d.rng.integers(4)))), x)


@pattern("convert_uniform_constant_to_scalar")
def _(d: Draw, x: Value) -> Value:
    op = d.one_of(Add(), Mul(), Sub(), Max(), Min(), Div())
    c = d.g.constant(np.full(d.one_of((1, 1, 1, 1), SMALL, (1, 3, 1, 1)), d.number(), np.float32))
    return d.add(op, x, c) if isinstance(op, (Div, Sub)) else d.pair(op, x, c)


@pattern("convert_split_to_extract", moves=True)
def _(d: Draw, x: Value) -> Value:
    axis, parts = d.one_of((0, 2), (1, 3), (2, 2), (3, 3), (2, 1))
    return d.one_of(*d.g.add_all(Split(axis, parts), x))


@pattern("replace_self_add_by_muls")
def _(d: Draw, x: Value) -> Value:
    return d.add(Add(), x, x)
