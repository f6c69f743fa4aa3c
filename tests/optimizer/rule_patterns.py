"""For every rule a function that puts its pattern into a graph, with numbers, axes and spellings drawn at random.

A function gets a ``Draw`` and the value to build on, of the shape that it declares, and returns its result. ``MOVES``
are the rules whose patterns only move elements or choose among them: they run on integers too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Maxs, Mins, Muls, Rdivs, Rsubs, Subs
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.deconv import Deconv
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.matrix_mul import MatrixMul
from tpuconvert.schema.ops.normalization import GroupNorm, LayerNorm, RmsNorm
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.round_to_integer import Ceil, Floor, Round
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape, Squeeze
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.space_to_batch import BatchToSpace, SpaceToBatch
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import F32, I8, I16, I32, Array, Scalar


class Draw:
    """A graph and where its random parts come from."""

    def __init__(self, graph: Graph, rng: np.random.Generator) -> None:
        self.g = graph
        self.rng = rng

    def one_of(self, *items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def often(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)

    def number(self, low: float = 0.5, high: float = 1.5) -> float:
        return float(np.float32(self.rng.uniform(low, high)))

    def order(self, rank: int) -> tuple[int, ...]:
        return tuple(int(axis) for axis in self.rng.permutation(rank))

    def normal(self, *shape: int) -> Array:
        return self.rng.normal(size=shape).astype(np.float32)

    def constant(self, *shape: int, low: float | None = None) -> Value:
        data = self.normal(*shape) if low is None else self.rng.uniform(low, low + 1, shape).astype(np.float32)
        return self.g.constant(data, "c")

    def add(self, op: Op, *inputs: Value | None) -> Value:
        return self.g.add(op, *inputs)

    def pair(self, op: Op, x: Value, y: Value) -> Value:
        """A sum or product with the operands in either order."""
        return self.add(op, x, y) if self.often() else self.add(op, y, x)

    def conv(
        self, x: Value, channels: int | None = None, padded: bool | None = None, kernel: int | None = None
    ) -> Value:
        kernel = kernel or self.one_of(1, 2, 3)
        padded = self.often() if padded is None else padded
        inputs = int(x.shape[1])
        channels = channels or inputs
        groups = inputs if channels == inputs and self.often(0.3) else 1
        w = self.g.constant(self.normal(channels, inputs // groups, kernel, kernel) / kernel, "w")
        bias = [self.constant(1, channels, 1, 1)] if self.often() else []
        pads = {"pad_h_t": kernel // 2, "pad_w_r": kernel // 2} if padded else {}
        return self.add(Conv(groups=groups, **pads), x, w, *bias)

    def deconv(self, x: Value, channels: int) -> Value:
        w = self.g.constant(self.normal(int(x.shape[1]), channels, 2, 2), "w")
        bias = [self.constant(1, channels, 1, 1)] if self.often() else []
        return self.add(Deconv(stride_h=2, stride_w=2), x, w, *bias)

    def dense(self, x: Value, outputs: int = 5) -> Value:
        w = self.g.constant(self.normal(int(x.shape[1]), outputs) / math.sqrt(int(x.shape[1])), "w")
        return self.add(MatrixMul(), x, w, *([self.constant(1, outputs)] if self.often() else []))

    def affine(self, x: Value, shifts: bool = True) -> Value:
        """A factor, a shift or both per channel, in one of their spellings."""
        channels = int(x.shape[1])
        shape = (1, channels, *(1,) * (x.rank - 2))
        kinds = [Mul(), Muls(Scalar.f32(self.number())), Divs(Scalar.f32(self.number())), Div()]
        if shifts:
            kinds += [Add(), Sub(), Adds(Scalar.f32(self.number())), Rsubs(Scalar.f32(self.number()))]
            kinds += [BatchNorm()] * (x.rank == 4)
        op = self.one_of(*kinds)
        if isinstance(op, BatchNorm):
            parts = [self.constant(channels), self.constant(channels, low=0.5), self.constant(channels)]
            return self.g.add_all(op, x, *parts, self.constant(channels))[0]
        if isinstance(op, Div):
            return self.add(op, x, self.constant(*shape, low=0.5))
        if isinstance(op, (Add, Mul, Sub)):
            return self.pair(op, x, self.constant(*shape, low=0.5))
        return self.add(op, x)

    def unary(self, x: Value) -> Value:
        op = self.one_of(
            Active(ActiveType.ACTIVE_TANH), Active(ActiveType.ACTIVE_RELU), Muls(Scalar.f32(self.number()))
        )
        return self.add(op, x)

    def cut(self, x: Value) -> Value:
        start, end, step = [], [], []
        for extent in x.type.static_shape:
            first = int(self.rng.integers(extent)) if self.often() else 0
            start.append(first)
            end.append(int(self.rng.integers(first + 1, extent + 1)) if self.often() else extent)
            step.append(self.one_of(1, 1, 2))
        return self.add(Extract(tuple(start), tuple(end), tuple(step)), x)

    def reshape(self, x: Value) -> Value:
        """The prime factors of the extents, grouped anew."""
        factors = []
        rest = math.prod(x.type.static_shape)
        for prime in (2, 3, 5, 7, 11, 13):
            while rest % prime == 0:
                factors.append(prime)
                rest //= prime
        extents = [rest] if rest > 1 else []
        while factors:
            count = int(self.rng.integers(1, 4))
            extents.append(math.prod(factors[:count]))
            factors = factors[count:]
        self.rng.shuffle(extents)
        if self.often(0.3):
            extents.insert(int(self.rng.integers(len(extents) + 1)), 1)
        extents = extents or [1]
        return self.add(Reshape(tuple(int(e) for e in (extents if len(extents) <= 6 else [math.prod(extents)]))), x)

    def move(self, x: Value) -> Value:
        kind = self.one_of("reshape", "permute", "cut", "shuffle", "squeeze")
        if kind == "permute":
            return self.add(Permute(self.order(x.rank)), x)
        if kind == "cut":
            return self.cut(x)
        if kind == "shuffle" and 2 <= x.rank < 8:
            groups = [k for k in range(1, int(x.shape[1]) + 1) if int(x.shape[1]) % k == 0]
            return self.add(ChannelShuffle(self.one_of(*groups)), x)
        return self.reshape(x)


Pattern = Callable[[Draw, Value], Value]
PATTERNS: dict[str, tuple[tuple[int, ...], Pattern]] = {}
"""Rule -> shape that its pattern begins with, and the pattern."""

MOVES: set[str] = set()
SMALL = (2, 3, 4, 6)
IMAGE = (1, 4, 6, 6)


def pattern(rule: str, shape: tuple[int, ...] = SMALL, moves: bool = False) -> Callable[[Pattern], Pattern]:
    def register(function: Pattern) -> Pattern:
        PATTERNS[rule] = (shape, function)
        if moves:
            MOVES.add(rule)
        return function

    return register


# Canonical spellings


@pattern("batches_as_rows", (2, 3, 4))
def _(d: Draw, x: Value) -> Value:
    is_transposed = d.often()
    shape = (5, 4) if is_transposed else (4, 5)
    return d.add(BatchMatmul(right_transpose=is_transposed), x, d.constant(*d.one_of((), (1,), (1, 1)), *shape))


@pattern("constant_second")
def _(d: Draw, x: Value) -> Value:
    return d.add(d.one_of(Add(), Mul()), d.constant(*d.one_of((1, 3, 1, 1), SMALL, (1, 1, 1, 6), (1, 1, 1, 1))), x)


@pattern("extremum_of_same", moves=True)
def _(d: Draw, x: Value) -> Value:
    return d.add(d.one_of(Max(), Min()), x, x)


@pattern("group_norm_with_bias")
def _(d: Draw, x: Value) -> Value:
    scale = [d.constant(3)] if d.often() else []
    return d.pair(Add(), d.add(GroupNorm(d.one_of(1, 3), 1e-3), x, *scale), d.constant(1, 3, 1, 1))


@pattern("group_norm_with_scale")
def _(d: Draw, x: Value) -> Value:
    return d.pair(Mul(), d.add(GroupNorm(d.one_of(1, 3), 1e-3), x), d.constant(1, 3, 1, 1))


@pattern("join_of_all_parts", moves=True)
def _(d: Draw, x: Value) -> Value:
    axis = d.one_of(0, 2, 3)
    return d.add(Concat(axis), *d.g.add_all(Split(axis, 2), x))


@pattern("join_of_slices", moves=True)
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


def _aligned(x: Value, axis: int) -> tuple[int, ...]:
    """The extents from an axis on, with ones before them."""
    own = x.type.static_shape[axis:]
    return (1,) * (x.rank - len(own)) + own


@pattern("layer_norm_with_bias")
def _(d: Draw, x: Value) -> Value:
    axis = d.one_of(1, 2, 3, -1)
    scale = [d.constant(*x.type.static_shape[axis:])] if d.often() else []
    return d.pair(Add(), d.add(LayerNorm(axis, 1e-3), x, *scale), d.constant(*_aligned(x, axis)))


@pattern("layer_norm_with_scale")
def _(d: Draw, x: Value) -> Value:
    axis = d.one_of(1, 2, 3, -1)
    return d.pair(Mul(), d.add(LayerNorm(axis, 1e-3), x), d.constant(*_aligned(x, axis)))


@pattern("meet_reshapes")
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


@pattern("merge_differences")
def _(d: Draw, x: Value) -> Value:
    return d.add(Rsubs(Scalar.f32(d.number(1, 2))), d.add(Rsubs(Scalar.f32(d.number(-2, -1))), x))


@pattern("merge_factors")
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


@pattern("merge_quotients")
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


@pattern("merge_scalar_into_constant")
def _(d: Draw, x: Value) -> Value:
    shape = d.one_of((1, 3, 1, 1), SMALL, (1, 1, 1, 6))
    scalar, whole = d.one_of((Muls, Mul()), (Divs, Mul()), (Adds, Add()), (Subs, Add()))
    number, constant = Scalar.f32(d.number(0.3, 0.5)), d.constant(*shape, low=0.6)
    if d.often():
        return d.add(whole, d.add(scalar(number), x), constant)
    return d.add(scalar(number), d.add(whole, x, constant))


@pattern("merge_shifts")
def _(d: Draw, x: Value) -> Value:
    for number in (d.number(1, 2), d.number(3, 4)):
        x = d.add(d.one_of(Adds, Subs)(Scalar.f32(number)), x)
    return x


@pattern("permute_of_ones", (1, 3, 1, 4), moves=True)
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


@pattern("gather_centred_value")
def _(d: Draw, x: Value) -> Value:
    axes, shape = d.one_of(((3,), (1, 1, 1, 6)), ((2, 3), (1, 3, 1, 1)))
    mean = d.add(Reduce(axes), x)
    square = d.add(Active(ActiveType.ACTIVE_SQUARE), d.add(Sub(), x, mean))
    root = d.add(Active(ActiveType.ACTIVE_RSQRT), d.add(Adds(Scalar.f32(0.1)), d.add(Reduce(axes), square)))
    factor = d.pair(Mul(), root, d.constant(*shape)) if d.often() else root
    rest = d.add(Sub(), d.constant(*shape), d.pair(Mul(), mean, factor))
    return d.pair(Add(), d.pair(Mul(), x, factor), rest)


@pattern("reduce_of_ones", (1, 3, 1, 4))
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


@pattern("remove_same_shape", moves=True)
def _(d: Draw, x: Value) -> Value:
    shape = x.type.static_shape
    ones = (1,) * len(shape)
    whole = Extract((0,) * len(shape), shape, ones)
    return d.add(d.one_of(Reshape(shape), whole, Tile(ones), Pad(Scalar(x.dtype, 0), (0,) * 2 * len(shape))), x)


@pattern("remove_single_concat", moves=True)
def _(d: Draw, x: Value) -> Value:
    return d.add(Concat(int(d.rng.integers(4))), x)


@pattern("rms_norm_with_scale")
def _(d: Draw, x: Value) -> Value:
    axis = d.one_of(1, 2, 3, -1)
    extents = x.type.static_shape[axis:]
    scale = [d.constant(*extents)] if d.often() else []
    return d.pair(Mul(), d.add(RmsNorm(axis, 1e-3), x, *scale), d.constant(*d.one_of(_aligned(x, axis), (1, 1, 1, 1))))


@pattern("root_of_square")
def _(d: Draw, x: Value) -> Value:
    return d.add(Active(ActiveType.ACTIVE_SQRT), d.add(Active(ActiveType.ACTIVE_SQUARE), x))


@pattern("slice_of_concat", moves=True)
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


@pattern("spell_as_reshape", (1, 3, 1, 4), moves=True)
def _(d: Draw, x: Value) -> Value:
    return d.add(d.one_of(Squeeze((0,)), Squeeze((2,)), Squeeze(), ExpandDims(int(d.rng.integers(4)))), x)


@pattern("spell_as_scalar")
def _(d: Draw, x: Value) -> Value:
    op = d.one_of(Add(), Mul(), Sub(), Max(), Min(), Div())
    c = d.g.constant(np.full(d.one_of((1, 1, 1, 1), SMALL, (1, 3, 1, 1)), d.number(), np.float32))
    return d.add(op, x, c) if isinstance(op, (Div, Sub)) else d.pair(op, x, c)


@pattern("split_with_one_reader", moves=True)
def _(d: Draw, x: Value) -> Value:
    axis, parts = d.one_of((0, 2), (1, 3), (2, 2), (3, 3), (2, 1))
    return d.one_of(*d.g.add_all(Split(axis, parts), x))


@pattern("sum_of_same")
def _(d: Draw, x: Value) -> Value:
    return d.add(Add(), x, x)


# Layout


def _permuted(d: Draw, x: Value) -> Value:
    return d.add(Permute(d.order(x.rank)), x)


@pattern("absorb_permute_into_weights")
def _(d: Draw, x: Value) -> Value:
    moved = d.add(Permute(d.one_of((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3))), x)
    return d.dense(d.add(Reshape((2, 72)), moved))


@pattern("merge_permutes", moves=True)
def _(d: Draw, x: Value) -> Value:
    return _permuted(d, _permuted(d, x))


@pattern("sink_through_axes", moves=True)
def _(d: Draw, x: Value) -> Value:
    y = _permuted(d, x)
    kind = d.one_of("cut", "pad", "tile", "softmax")
    if kind == "cut":
        return d.cut(y)
    if kind == "pad":
        return d.add(Pad(Scalar(x.dtype, 1), tuple(int(n) for n in d.rng.integers(0, 2, 8))), y)
    if kind == "softmax" and x.dtype is F32:
        return d.add(Softmax(int(d.rng.integers(4))), y)
    return d.add(Tile(tuple(int(n) for n in d.rng.integers(1, 3, 4))), y)


@pattern("sink_through_binary")
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


@pattern("sink_through_concat", moves=True)
def _(d: Draw, x: Value) -> Value:
    order = d.order(4)
    parts = [d.add(Permute(order), x) for _ in range(int(d.rng.integers(2, 4)))]
    return d.add(Concat(int(d.rng.integers(4))), *parts)


@pattern("sink_through_reduce")
def _(d: Draw, x: Value) -> Value:
    axes = d.one_of((1,), (2, 3), (0, 3), (-1,))
    return d.add(Reduce(axes, ReduceMethodType(int(d.rng.integers(4))), keep_dims=d.often()), _permuted(d, x))


@pattern("sink_through_split", moves=True)
def _(d: Draw, x: Value) -> Value:
    order = d.order(4)
    y = d.add(Permute(order), x)
    axis = d.one_of(*(k for k in range(4) if int(y.shape[k]) % 2 == 0))
    back = tuple(order.index(k) for k in range(4))
    first, second = (d.add(Permute(back), part) for part in d.g.add_all(Split(axis, 2), y))
    return d.add(Max(), first, second)


@pattern("sink_through_unary")
def _(d: Draw, x: Value) -> Value:
    y = _permuted(d, x)
    for _ in range(int(d.rng.integers(1, 3))):
        y = d.unary(y)
    return y


# Folding


@pattern("fold_branches_into_product", IMAGE)
def _(d: Draw, x: Value) -> Value:
    padded = d.often()
    branches = [d.affine(x, shifts=not padded), x if d.often() else d.unary(x)]
    if d.often():
        branches.reverse()
    return d.conv(d.add(Concat(1), *branches), 3, padded=padded)


@pattern("fold_into_joined_products", IMAGE)
def _(d: Draw, x: Value) -> Value:
    joined = d.add(Concat(1), *(d.conv(x, d.one_of(2, 3), kernel=1) for _ in range(int(d.rng.integers(1, 4)))))
    return d.affine(joined)


@pattern("fold_into_product_before", IMAGE)
def _(d: Draw, x: Value) -> Value:
    kind = d.one_of("conv", "deconv", "dense", "reshaped")
    if kind == "conv":
        return d.affine(d.conv(x, d.one_of(4, 3)))
    if kind == "deconv":
        return d.affine(d.deconv(x, 3))
    y = d.dense(d.add(Reshape((1, 144)), x), 6)
    return d.affine(y if kind == "dense" else d.add(Reshape((1, 6, 1, 1)), y))


@pattern("fold_into_product_before_pad", IMAGE)
def _(d: Draw, x: Value) -> Value:
    border = Pad(Scalar.f32(d.one_of(0, 1, -0.5)), (0, 0, 0, 0, 1, 0, 2, 1))
    y = d.add(border, d.conv(x, 3))
    return d.add(d.one_of(Muls, Divs, Adds, Rsubs)(Scalar.f32(d.number())), y)


@pattern("fold_into_product_behind", IMAGE)
def _(d: Draw, x: Value) -> Value:
    kind = d.one_of("conv", "padded", "deconv", "dense", "permuted")
    if kind == "conv":
        return d.conv(d.affine(x), 3, padded=False)
    if kind == "padded":
        return d.conv(d.affine(x, shifts=False), 3, padded=True)
    if kind == "deconv":
        return d.deconv(d.affine(x, shifts=False), 3)
    if kind == "dense":
        return d.dense(d.affine(d.add(Reshape((1, 144)), x)))
    return d.conv(d.add(Permute((0, 1, 3, 2)), d.affine(x)), 3, padded=False)


@pattern("fold_into_product_behind_flattening", IMAGE)
def _(d: Draw, x: Value) -> Value:
    return d.dense(d.add(Reshape((1, 144)), d.affine(x)))


@pattern("fold_into_product_behind_pad", IMAGE)
def _(d: Draw, x: Value) -> Value:
    factor, shift = d.number(), d.number()
    op, border = d.one_of((Muls, d.one_of(0.0, 1.0)), (Adds, shift), (Adds, 0.0), (Subs, 2.0))
    scaled = d.add(op(Scalar.f32(factor if op is Muls else shift)), x)
    return d.conv(d.add(Pad(Scalar.f32(border), (0, 0, 0, 0, 1, 1, 0, 2)), scaled), 3, padded=False)


@pattern("fuse_dilated_convolution", (1, 3, 8, 8))
def _(d: Draw, x: Value) -> Value:
    blocks = d.add(SpaceToBatch((2, 2), (2, 2, 2, 2)), x)
    crops = d.one_of((0, 0, 0, 0), (2, 2, 2, 2), (1, 1, 0, 2))
    return d.add(BatchToSpace((2, 2), crops), d.conv(blocks, 4, padded=False, kernel=2))


@pattern("merge_pad_into_convolution", IMAGE)
def _(d: Draw, x: Value) -> Value:
    paddings = (0, 0, 0, 0, *(int(n) for n in d.rng.integers(0, 3, 4)))
    y = d.add(Pad(Scalar.f32(0), paddings), x)
    return d.conv(d.add(Permute((0, 1, 3, 2)), y) if d.often(0.3) else y, 3)


@pattern("merge_pad_into_pooling", IMAGE)
def _(d: Draw, x: Value) -> Value:
    kind = d.one_of(PoolType.AVE, PoolType.MAX)
    positive = d.add(Active(ActiveType.ACTIVE_RELU), x)
    y = d.add(Pad(Scalar.f32(0), (0, 0, 0, 0, 1, 0, 1, 1)), positive)
    return d.add(Pool(stride_h=d.one_of(1, 2), stride_w=1, kernel_h=3, kernel_w=2, pooling_type=kind), y)


@pattern("space_to_depth_into_convolution", IMAGE)
def _(d: Draw, x: Value) -> Value:
    size = d.one_of(2, 3)
    part = 6 // size
    if d.often():
        split = d.add(Reshape((1, 4, part, size, part, size)), x)
        moved = d.add(Permute((0, *d.one_of((3, 5, 1), (1, 3, 5), (5, 3, 1)), 2, 4)), split)
        y = d.add(Reshape((1, 4 * size * size, part, part)), moved)
    else:
        places = [(row, column) for row in range(size) for column in range(size)]
        d.rng.shuffle(places)
        cuts = [Extract((0, 0, int(a), int(b)), (1, 4, 6, 6), (1, 1, size, size)) for a, b in places]
        y = d.add(Concat(1), *(d.add(cut, x) for cut in cuts))
    kernel = int(d.rng.integers(1, part + 1))
    w = d.g.constant(d.normal(3, 4 * size * size, kernel, kernel), "w")
    pads = {"pad_h_t": 1, "pad_w_l": 1, "pad_w_r": 1} if d.often() else {}
    return d.add(Conv(stride_h=d.one_of(1, 2), **pads), y, w, *([d.constant(1, 3, 1, 1)] if d.often() else []))


# Fusing


@pattern("convolution_as_product", (3, 5))
def _(d: Draw, x: Value) -> Value:
    y = d.add(Reshape((3, 5, 1, 1)), x)
    bias = [d.constant(1, 4, 1, 1)] if d.often() else []
    return d.add(Reshape((3, 4)), d.add(Conv(), y, d.constant(4, 5, 1, 1), *bias))


@pattern("product_as_convolution", (3, 5, 1, 1))
def _(d: Draw, x: Value) -> Value:
    return d.add(Reshape((3, 4, 1, 1)), d.dense(d.add(Reshape((3, 5)), x), 4))


def _negative(d: Draw, x: Value) -> Value:
    return d.add(d.one_of(Muls(Scalar.f32(-1)), Rsubs(Scalar.f32(0))), x)


@pattern("difference_with_negative")
def _(d: Draw, x: Value) -> Value:
    return d.add(Sub(), d.add(Active(ActiveType.ACTIVE_TANH), x), _negative(d, x))


@pattern("sum_with_negative")
def _(d: Draw, x: Value) -> Value:
    return d.pair(Add(), d.add(Active(ActiveType.ACTIVE_TANH), x), _negative(d, x))


@pattern("drop_reduced_axes")
def _(d: Draw, x: Value) -> Value:
    axes = d.one_of((3,), (2, 3), (1,), (0, 2))
    reduced = d.add(Reduce(axes, ReduceMethodType(int(d.rng.integers(4)))), x)
    return d.add(Reshape(tuple(extent for axis, extent in enumerate(SMALL) if axis not in axes)), reduced)


@pattern("fuse_leaky_relu")
def _(d: Draw, x: Value) -> Value:
    positive = d.add(d.one_of(Active(ActiveType.ACTIVE_RELU), Maxs(Scalar.f32(0))), x)
    return d.pair(Add(), positive, d.add(Muls(Scalar.f32(d.number())), d.add(Mins(Scalar.f32(0)), x)))


@pattern("fuse_maximum_as_leaky_relu")
def _(d: Draw, x: Value) -> Value:
    return d.pair(Max(), x, d.add(Muls(Scalar.f32(d.number(0.1, 1))), x))


@pattern("fuse_slopes_as_maximum")
def _(d: Draw, x: Value) -> Value:
    slopes = d.g.constant(d.rng.uniform(0.1, 1, (1, 3, 1, 1)).astype(np.float32))
    negative = d.pair(Mul(), d.add(Mins(Scalar.f32(0)), x), slopes)
    return d.pair(Add(), d.add(Active(ActiveType.ACTIVE_RELU), x), negative)


@pattern("merge_limits")
def _(d: Draw, x: Value) -> Value:
    for _ in range(2):
        low, high = Scalar.f32(d.number(-1, 0)), Scalar.f32(d.number(0, 1))
        x = d.add(d.one_of(Active(ActiveType.ACTIVE_RELU), Maxs(low), Mins(high), Clamp(low, high)), x)
    return x


@pattern("product_as_quotient")
def _(d: Draw, x: Value) -> Value:
    positive = d.add(Adds(Scalar.f32(1)), d.add(Active(ActiveType.ACTIVE_SQUARE), x))
    return d.pair(Mul(), d.add(Active(ActiveType.ACTIVE_TANH), x), d.add(Rdivs(Scalar.f32(1)), positive))


@pattern("product_of_same")
def _(d: Draw, x: Value) -> Value:
    return d.add(Mul(), x, x)


@pattern("reciprocal_of_root")
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


@pattern("recognize_attention", (2, 3, 4, 6))
def _(d: Draw, x: Value) -> Value:
    query, key, value = (d.unary(x) for _ in range(3))
    scale = d.one_of(Muls(Scalar.f32(0.4)), Divs(Scalar.f32(2.5)), None)
    if scale is not None and d.often():
        query, scale = d.add(scale, query), None
    scores = d.add(BatchMatmul(right_transpose=True), query, key)
    if scale is not None:
        scores = d.add(scale, scores)
    if d.often():
        scores = d.pair(Add(), scores, d.constant(*d.one_of((1, 1, 4, 4), (2, 1, 1, 4))))
    return d.add(BatchMatmul(), d.add(Softmax(3), scores), value)


@pattern("remove_useless_function")
def _(d: Draw, x: Value) -> Value:
    if d.often():
        rounded = d.add(d.one_of(Ceil(), Floor(), Round(), Active(ActiveType.ACTIVE_FLOOR)), x)
        return d.add(d.one_of(Ceil(), Floor(), Round(), Active(ActiveType.ACTIVE_ROUND)), rounded)
    kind = d.one_of(ActiveType.ACTIVE_SQUARE, ActiveType.ACTIVE_SIGMOID, ActiveType.ACTIVE_ABSVAL)
    positive = d.add(Active(kind), x)
    limits = (Active(ActiveType.ACTIVE_RELU), Active(ActiveType.ACTIVE_ABSVAL), Maxs(Scalar.f32(-1)))
    return d.add(d.one_of(*limits), positive)


@pattern("shorten_moves", moves=True)
def _(d: Draw, x: Value) -> Value:
    for _ in range(int(d.rng.integers(2, 6))):
        x = d.move(x)
    return x


@pattern("spell_as_relu")
def _(d: Draw, x: Value) -> Value:
    return d.add(Maxs(Scalar.f32(0)), x)


@pattern("transposed_left", (2, 3, 4))
def _(d: Draw, x: Value) -> Value:
    swapped = d.add(Permute((0, 2, 1)), x)
    right = d.unary(x)
    return d.add(BatchMatmul(), swapped, right)


@pattern("transposed_right", (2, 3, 4))
def _(d: Draw, x: Value) -> Value:
    swapped = d.add(Permute((0, 2, 1)), d.unary(x))
    return d.add(BatchMatmul(left_transpose=False), x, swapped)
