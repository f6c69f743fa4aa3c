"""Patterns of the rules that sink, merge and remove permutes and reshapes."""

from __future__ import annotations

from tests.support.rules.rule_draws import Draw, pattern
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.arithmetic import Add, Max, Min, Mul, Sub
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.normalization import LayerNorm
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import F32, Scalar


def _permute(d: Draw, x: Value) -> Value:
    return d.add(Permute(d.order(x.rank)), x)


@pattern("fold_permute_into_weights")
def _(d: Draw, x: Value) -> Value:
    moved = d.add(Permute(d.one_of((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3))), x)
    return d.dense(d.add(Reshape((2, 72)), moved))


@pattern("merge_permutes", moves=True)
def _(d: Draw, x: Value) -> Value:
    return _permute(d, _permute(d, x))


@pattern("sink_permute_through_axis_op", moves=True)
def _(d: Draw, x: Value) -> Value:
    y = _permute(d, x)
    kind = d.one_of("cut", "pad", "tile", "softmax")
    if kind == "cut":
        return d.slice(y)
    if kind == "pad":
        return d.add(Pad(Scalar(x.dtype, 1), tuple(int(n) for n in d.rng.integers(0, 2, 8))), y)
    if kind == "softmax" and x.dtype is F32:
        return d.add(Softmax(int(d.rng.integers(4))), y)
    return d.add(Tile(tuple(int(n) for n in d.rng.integers(1, 3, 4))), y)


@pattern("sink_permute_through_binary")
def _(d: Draw, x: Value) -> Value:
    order = d.order(4)
    y = d.add(Permute(order), x)
    shape = y.type.static_shape
    other = d.one_of(
        d.add(Permute(order), d.unary(x)),
        d.constant(*shape),
        d.constant(*(extent if d.often() else 1 for extent in shape)),
    )
    return d.pair(d.one_of(Add(), Mul(), Max(), Min(), Sub()), y, other)


@pattern("sink_permute_through_concat", moves=True)
def _(d: Draw, x: Value) -> Value:
    order = d.order(4)
    parts = [d.add(Permute(order), x) for _ in range(int(d.rng.integers(2, 4)))]
    return d.add(Concat(int(d.rng.integers(4))), *parts)


@pattern("sink_permute_through_reduce")
def _(d: Draw, x: Value) -> Value:
    axes = d.one_of((1,), (2, 3), (0, 3), (-1,))
    return d.add(Reduce(axes, ReduceMethodType(int(d.rng.integers(4))), keep_dims=d.often()), _permute(d, x))


@pattern("sink_permute_through_split", moves=True)
def _(d: Draw, x: Value) -> Value:
    order = d.order(4)
    y = d.add(Permute(order), x)
    axis = d.one_of(*(k for k in range(4) if int(y.shape[k]) % 2 == 0))
    back = tuple(order.index(k) for k in range(4))
    first, second = (d.add(Permute(back), part) for part in d.g.add_all(Split(axis, 2), y))
    return d.add(Max(), first, second)


@pattern("sink_permute_through_unary")
def _(d: Draw, x: Value) -> Value:
    y = _permute(d, x)
    for _ in range(int(d.rng.integers(1, 3))):
        y = d.unary(y)
    return y


@pattern("hoist_reshape_above_split", (2, 5, 12), moves=True)
def _(d: Draw, x: Value) -> Value:
    axis = d.one_of(0, 2)
    y = d.add(Permute((2, 1, 0)), x) if axis == 0 else x
    sizes = d.one_of((6, 6), (4, 4, 4), (8, 2, 2), (2, 10))
    shapes = [(size // 2, 2, 5, 2) if axis == 0 else d.one_of((2, 5, size // 2, 2)) for size in sizes]
    parts = d.g.add_all(Split(axis, len(sizes), sizes), y)
    return d.add(Concat(axis), *(d.add(Reshape(shape), part) for shape, part in zip(shapes, parts, strict=True)))


@pattern("hoist_permute_above_split", moves=True)
def _(d: Draw, x: Value) -> Value:
    order = d.one_of((0, 2, 1, 3), (3, 1, 0, 2), (2, 3, 1, 0))
    axis = d.one_of(*(k for k in range(4) if int(x.shape[k]) % 2 == 0))
    parts = [d.add(Permute(order), part) for part in d.g.add_all(Split(axis, 2), x)]
    return d.add(Concat(1), *(d.add(ChannelShuffle(int(part.shape[1])), part) for part in parts))


@pattern("move_region_across_reshape", (2, 3, 8))
def _(d: Draw, x: Value) -> Value:
    """Layers of all rows, with normalizations, sums and functions in three axes between them."""
    rows = d.add(Reshape((6, 8)), x)
    for _ in range(d.one_of(1, 2, 3)):
        x = d.add(Reshape((2, 3, 8)), d.dense(rows, 8))
        for _ in range(d.one_of(1, 2)):
            x = _indifferent(d, x)
        rows = d.add(Reshape((6, 8)), x)
    return d.dense(rows)


def _indifferent(d: Draw, x: Value) -> Value:
    kind = d.one_of("function", "constant", "sum", "norm", "softmax", "cut", "mean")
    if kind == "function":
        return d.unary(x)
    if kind == "constant":
        return d.pair(d.one_of(Add(), Max(), Mul(), Sub()), x, d.constant(*d.one_of((1, 1, 8), (2, 3, 1), (2, 3, 8))))
    if kind == "sum":
        return d.pair(d.one_of(Add(), Max(), Mul(), Sub()), x, d.unary(x))
    if kind == "norm":
        return d.add(LayerNorm(d.one_of(2, -1)), x, d.constant(8), *([d.constant(8)] if d.often() else []))
    if kind == "softmax":
        return d.add(Softmax(2), x)
    if kind == "mean":
        return d.add(Sub(), x, d.add(Reduce((2,), ReduceMethodType.REDUCE_MEAN), x))
    return d.add(Concat(2), *reversed(d.g.add_all(Split(2, 2), x)))


def _lines(d: Draw, x: Value) -> Value:
    """A convolution over one axis, as converters read it: the result has three axes."""
    y = d.add(Reshape((2, 3, 1, 6)), x) if x.rank == 3 else x
    return d.add(Reshape((2, 3, 6)), d.conv(y, 3, padded=False, kernel=1))


@pattern("sink_reshape_through_elementwise", (2, 3, 6))
def _(d: Draw, x: Value) -> Value:
    y = _lines(d, x)
    kind = d.one_of("function", "constant", "pair", "input")
    if kind == "function":
        return d.unary(y)
    if kind == "constant":
        return d.pair(d.one_of(Add(), Max(), Mul(), Sub()), y, d.constant(*d.one_of((1, 3, 1), (2, 3, 6), (1, 1, 6))))
    if kind == "pair":
        return d.pair(d.one_of(Add(), Max(), Mul(), Sub()), y, _lines(d, d.unary(x)))
    return d.pair(Add(), y, x)


@pattern("sink_reshape_through_concat", (2, 3, 6))
def _(d: Draw, x: Value) -> Value:
    parts = [_lines(d, d.unary(x)) for _ in range(d.one_of(2, 3))]
    return d.add(Concat(d.one_of(0, 1, 2, -1)), *parts)
