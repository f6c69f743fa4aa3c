"""Graphs on which a rule fires, with constants that fold without rounding.

The patterns of the tests with random graphs serve here too; ``case`` adds what they do not have: the rules of the last
stages, and patterns of a rule that they do not reach.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.rules.rule_draws import IMAGE, SMALL
from tests.support.rules.rule_patterns import PATTERNS, Draw
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Axpy, Maxs, Muls, Rdivs
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.channel_shift import Clshift, Crshift, Lshift, Rshift
from tpuconvert.schema.ops.compare import Gts, Ne
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.quantization.round_to_integer import Ceil, Floor, Round
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.resize import ResizeNearest, ResizeWeighted
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.symbolic_movement import ReshapeByFormulas
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import Array, Scalar


class ExactDraw(Draw):
    """Draws small multiples of 1/8, so that products and sums of a few constants are exact in binary32."""

    def number(self, low: float = 0.5, high: float = 1.5) -> float:
        steps = np.arange(math.ceil(low * 8), math.floor(high * 8) + 1) / 8
        halves = [step for step in steps if step and step * 2 == round(step * 2)]
        return float(self.rng.choice(halves or steps[steps != 0]))

    def normal(self, *shape: int) -> Array:
        return (self.rng.choice([-3, -2, -1, 1, 2, 3], shape) / 4).astype(np.float32)

    def constant(self, *shape: int, low: float | None = None) -> Value:
        data = self.normal(*shape) if low is None else self.rng.choice([0.5, 1, 2, 4], shape).astype(np.float32)
        return self.g.constant(data, "c")

    def weights(self, divisor: float, *shape: int) -> Value:
        return self.g.constant(self.normal(*shape), "w")

    def batch_norm(self, x: Value, is_uniform: bool = False) -> Value:
        """Statistics with rational roots: a variance plus epsilon is 1, 4 or 16."""
        channels = int(x.shape[1])
        variances = self.rng.choice([0.25, 3.25, 15.25], channels).astype(np.float32)
        parts = [self.normal(channels), variances, self.normal(channels), self.normal(channels)]
        if is_uniform:
            parts = [np.full_like(part, part[0]) for part in parts]
        count = 4 if is_uniform or self.often(0.7) else 2
        return self.g.add_all(BatchNorm(epsilon=0.75), x, *(self.g.constant(part) for part in parts[:count]))[0]


Build = Callable[[ExactDraw, Value], Any]
Extents = tuple[int | str, ...]


@dataclass(frozen=True)
class Case:
    """A graph with one input, as a function of the source of its random parts. The shapes are used in turn.

    Extents may be symbols. Without ``is_real`` the values are not real numbers: there is nothing to prove, and the
    graph is for the comparison of numbers.
    """

    shapes: tuple[Extents, ...]
    build: Callable[[ExactDraw, Value], Any]
    is_real: bool = True


_OTHER_SHAPES: dict[Extents, tuple[Extents, ...]] = {SMALL: ((4, 3, 2, 6), (2, 3, 6, 4), (6, 3, 4, 2))}
_ONE_SHAPE = frozenset(
    {
        "convert_split_to_extract",
        "convert_uniform_constant_to_scalar",
        "factor_out_centered_value",
        "fold_reshape_into_reduce",
        "fold_scalar_into_constant",
        "merge_constants",
        "move_constant_second",
        "recognize_attention",
        "recognize_group_norm",
        "shrink_repeated_constant",
    }
)
"""Rules whose pattern contains the extents of its shape."""


def _cases_of_pattern(rule: str) -> list[Case]:
    shape, build = PATTERNS[rule]
    return [Case((shape, *(() if rule in _ONE_SHAPE else _OTHER_SHAPES.get(shape, ()))), build)]


CASES: dict[str, list[Case]] = {rule: _cases_of_pattern(rule) for rule in PATTERNS}


def case(*rules: str, shape: Extents = SMALL, replaces: bool = False, is_real: bool = True) -> Callable[[Build], Build]:
    """Register a function as a case of rules, in addition to their pattern or in its place."""

    def register(build: Build) -> Build:
        for rule in rules:
            others = [] if replaces else CASES.get(rule, [])
            CASES[rule] = [*others, Case((shape,), build, is_real)]
        return build

    return register


@case("recognize_rms_norm", shape=(2, 4, 4, 4), replaces=True)
def _(d: ExactDraw, x: Value) -> Value:
    """Numbers of elements whose root is rational, as a sum in place of the mean gives it as a factor."""
    axes = d.one_of((3,), (2, 3), (-1,))
    square = d.add(Active(ActiveType.ACTIVE_SQUARE), x) if d.often() else d.add(Mul(), x, x)
    power = d.add(Reduce(axes, d.one_of(ReduceMethodType.REDUCE_MEAN, ReduceMethodType.REDUCE_SUM)), square)
    if d.often():
        power = d.add(Adds(Scalar.f32(d.one_of(0.25, 1.0))), power)
    if d.often():
        return d.add(Div(), x, d.add(Active(ActiveType.ACTIVE_SQRT), power))
    return d.pair(Mul(), x, d.add(Active(ActiveType.ACTIVE_RSQRT), power))


@case("fold_scale_into_conv_before_pad", shape=IMAGE)
def _(d: ExactDraw, x: Value) -> Value:
    y = d.add(Pad(Scalar.f32(d.one_of(0, 1, -0.5)), (0, 0, 0, 0, 1, 0, 2, 1)), d.conv(x, 3))
    if d.often():
        return d.batch_norm(y, is_uniform=True)
    return d.pair(d.one_of(Add(), Mul(), Sub()), y, d.g.constant(np.full((1, 3, 1, 1), d.number(), np.float32)))


@case("replace_div_by_sqrt_by_rsqrt", replaces=True)
def _(d: ExactDraw, x: Value) -> Value:
    """Limits whose square is exact."""
    axes = d.one_of((1,), (3,), (2, 3), (1, 2, 3))
    square = d.add(Active(ActiveType.ACTIVE_SQUARE), x) if d.often() else d.add(Mul(), x, x)
    total = d.add(Reduce(axes, ReduceMethodType.REDUCE_SUM), square)
    root = d.add(Active(ActiveType.ACTIVE_SQRT), total)
    if d.often():
        root = d.add(Maxs(Scalar.f32(d.one_of(0.25, 0.5, 2.0))), root)
    if d.often():
        root = d.add(Tile(tuple(int(extent) if k in axes else 1 for k, extent in enumerate(x.shape))), root)
    return d.add(Div(), x, root)


@case("recognize_attention")
def _(d: ExactDraw, x: Value) -> Value:
    query, key, value = (d.unary(x) for _ in range(3))
    scores = d.add(BatchMatmul(right_transpose=True), query, key)
    scores = d.pair(Add(), scores, _mask(d, x))
    weights = d.add(Softmax(3), scores)
    zero = d.g.constant(np.zeros(1, np.float32))
    return d.add(BatchMatmul(), d.add(ConditionSelect(), d.add(Ne(), weights, weights), zero, weights), value)


def _mask(d: ExactDraw, x: Value) -> Value:
    first = d.add(Extract((0, 0, 0, 0), (2, 1, 1, 4), (1, 1, 1, 1)), x)
    return d.add(Muls(Scalar.f32(-10000)), d.add(Gts(Scalar.f32(0.5)), first))


@case("lower_axpy_to_mul_add")
def _(d: ExactDraw, x: Value) -> Value:
    return d.add(Axpy(Scalar.f32(d.number())), x, d.unary(x))


@case("lower_batch_norm_to_mul_add", "convert_batch_norm_to_depthwise")
def _(d: ExactDraw, x: Value) -> Value:
    return d.batch_norm(x)


@case("lower_rdivs_to_div")
def _(d: ExactDraw, x: Value) -> Value:
    return d.add(Rdivs(Scalar.f32(d.number(-2, 2))), x)


@case("lower_interpolate", shape=(1, 2, 3, 4))
def _(d: ExactDraw, x: Value) -> Value:
    method = d.one_of(InterpolateMode.NEAREST, InterpolateMode.BILINEAR)
    flags = d.one_of({}, {"half_pixel_centers": True}, {"align_corners": True})
    size = d.one_of((6, 8), (6, 4), (2, 3), (5, 7), (3, 4))
    return d.add(Interpolate(size=size, platform=PlatForm.TENSORFLOW, method=method, **flags), x)


@case("lower_symbolic_resize", shape=(1, 2, "H", "W"))
def _(d: ExactDraw, x: Value) -> Value:
    """Weights that are powers of two: ``interpolate`` computes others in binary32, with differences up to 2e-6."""
    exact = ((2.0, 2.0), (1.0, 2.0), (0.5, 2.0))
    if d.often():
        return d.add(ResizeWeighted(scales=d.one_of(*exact), sizes=(0, 0)), x)
    return d.add(ResizeNearest(scales=d.one_of(*exact, (1.5, 1.0)), sizes=(0, 0)), x)


@case("lower_channel_rotation_to_slices", shape=(2, 5, 2, 2))
def _(d: ExactDraw, x: Value) -> Value:
    return d.add(d.one_of(Clshift, Crshift)(int(d.rng.integers(1, 12))), x)


@case("lower_channel_shift_to_pad", shape=(2, 5, 2, 2))
def _(d: ExactDraw, x: Value) -> Value:
    return d.add(d.one_of(Lshift, Rshift)(int(d.rng.integers(1, 7))), x)


@case("lower_rounding_to_activation")
def _(d: ExactDraw, x: Value) -> Value:
    return d.add(d.one_of(Ceil(), Floor(), Round()), x)


@case("lower_softmax_to_exp_div")
def _(d: ExactDraw, x: Value) -> Value:
    return d.add(Softmax(int(d.rng.integers(-4, 4))), x)


@case("decompose_attention", shape=(2, 2, 4, 3))
def _(d: ExactDraw, x: Value) -> Value:
    op = Attention(d.one_of(None, 1.0, 0.5), is_causal=d.often())
    mask = d.one_of(None, d.constant(1, 1, 4, 4), d.constant(2, 1, 1, 4), _hidden(d))
    return d.add(op, d.unary(x), d.unary(x), d.unary(x), *([] if mask is None else [mask]))


@case("decompose_attention", shape=(2, 2, 4, 3), is_real=False)
def _(d: ExactDraw, x: Value) -> Value:
    """A mask that is computed, and hides whole rows."""
    first = d.add(Extract((0, 0, 0, 0), (2, 2, 4, 1), (1, 1, 1, 1)), x)
    zero, hidden = (d.g.constant(np.full(1, number, np.float32)) for number in (0, -np.inf))
    visible = d.add(Gts(Scalar.f32(0)), d.add(Tile((1, 1, 1, 4)), first))
    mask = d.add(ConditionSelect(), visible, zero, hidden)
    return d.add(Attention(None, is_causal=d.often()), d.unary(x), d.unary(x), d.unary(x), mask)


def _hidden(d: ExactDraw) -> Value:
    """A constant mask with minus infinities, but not in a whole row."""
    mask = np.where(d.rng.random((1, 1, 4, 4)) < 0.5, -np.inf, 0).astype(np.float32)
    mask[..., 0] = 0
    return d.g.constant(mask)


@case("decompose_repeated_selection")
def _(d: ExactDraw, x: Value) -> Value:
    axis = d.one_of(*range(-4, 4))
    index = np.repeat(np.arange(int(x.shape[axis])), int(d.rng.integers(2, 4))).astype(np.int32)
    return d.add(IndexSelect(axis), x, d.g.constant(index))


@case("decompose_prelu")
def _(d: ExactDraw, x: Value) -> Value:
    shape = d.one_of((1, 3, 1, 1), (1, 1, 1, 6), SMALL)
    slopes = d.rng.choice([-0.5, 0, 0.25, 0.5, 1], shape).astype(np.float32)
    return d.add(Max(), x, d.add(Mul(), x, d.g.constant(slopes)))


@case("convert_symbolic_batch_matmul", "convert_symbolic_batch_matmul_and_bias", shape=("N", 3, 4))
def _(d: ExactDraw, x: Value) -> Value:
    is_transposed, swaps = d.often(), d.often()
    shape = (5, 3 if swaps else 4) if is_transposed else (3 if swaps else 4, 5)
    op = BatchMatmul(left_transpose=swaps, right_transpose=is_transposed)
    product = d.add(op, x, d.constant(*d.one_of((), (1,)), *shape))
    return d.pair(Add(), product, d.constant(1, 1, 5))


def _formulas(d: ExactDraw, x: Value) -> Value:
    """Rows of x, in the shape of x again by its symbolic extent."""
    rows = d.unary(d.add(Reshape((-1, 4)), x))
    return d.add(ReshapeByFormulas(("N", "3", "4"), ("N",), (0,)), rows, x)


@case("hoist_unary_above_symbolic_reshape", shape=("N", 3, 4))
def _(d: ExactDraw, x: Value) -> Value:
    return d.unary(_formulas(d, x))


@case("remove_symbolic_reshape_and_inverse", shape=("N", 3, 4))
def _(d: ExactDraw, x: Value) -> Value:
    return d.add(Reshape((-1, 4)), _formulas(d, x))


@case("convert_scale_to_depthwise")
def _(d: ExactDraw, x: Value) -> Value:
    return d.pair(Mul(), x, d.constant(1, 3, 1, 1))


@case("convert_mean_to_pool")
def _(d: ExactDraw, x: Value) -> Value:
    return d.add(Reduce(d.one_of((2, 3), (3, 2), (-1, -2)), keep_dims=d.often()), x)


@case("move_computed_bias_to_add", shape=(1, 3, 4, 5))
def _(d: ExactDraw, x: Value) -> Value:
    means = d.add(Reduce((2, 3)), x)
    if d.often():
        return d.add(Conv(pad_h_t=d.one_of(0, 1)), x, d.weights(1, 3, 3, 2, 2), means)
    return d.add(MatrixMul(), d.add(Reshape((20, 3)), x), d.weights(1, 3, 3), d.add(Reshape((1, 3)), means))


@case("add_zero_bias", shape=(1, 3, 4, 5))
def _(d: ExactDraw, x: Value) -> Value:
    if d.often():
        return d.dense(d.add(Reshape((12, 5)), x))
    return d.conv(x, d.one_of(2, 3)) if d.often() else d.deconv(x, 2)


def extents_of(shape: tuple[int | str, ...], number: int) -> dict[str, int]:
    """Numbers in place of the symbols of a shape, different for each graph."""
    symbols = sorted({extent for extent in shape if isinstance(extent, str)})
    pairs = list(itertools.product((2, 1, 3, 4), repeat=len(symbols)))
    return dict(zip(symbols, pairs[number % len(pairs)], strict=True))
