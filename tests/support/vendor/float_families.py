"""Graphs of floating-point operators: the operators of a family are branches of one graph, which is compiled once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Maxs, Mins, Muls, Rdivs, Rsubs, Subs
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import Eq, Eqs, Ge, Ges, Gt, Gts, Le, Les, Lt, Lts, Ne, Nes
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.copy import Constdata, Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.gather_group_quantized import GatherGroupQuantized
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.ops.normalization import GroupNorm, LayerNorm, RmsNorm
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.quantization.round_to_integer import Ceil, Floor
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.smooth_activation import Gelu, GeluForm, HardSwish, Mish, Silu, Softplus
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.ops.trigonometry import Cos, Sin
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import Array, DType, Scalar, TensorType

F32 = DType.FLOAT32


class Family:
    """A graph of branches with FLOAT32 inputs, and the arrays of its inputs."""

    def __init__(self) -> None:
        self.graph = Graph("family")
        self.feed: dict[str, Array] = {}
        self.rng = np.random.default_rng(7)

    def x(self, *shape: int, low: float = -2.0, high: float = 2.0) -> Value:
        """An input of numbers in a range that all types hold without loss: multiples of 1/64."""
        name = f"x{len(self.feed)}"
        steps = self.rng.integers(round(low * 64), round(high * 64), shape, endpoint=True)
        self.feed[name] = (steps / 64).astype(np.float32)
        return self.graph.input(name, TensorType(F32, shape))

    def w(self, *shape: int) -> Value:
        """A constant."""
        array = (self.rng.integers(-128, 128, shape) / 64).astype(np.float32)
        return self.graph.constant(array, f"w{len(self.graph.values)}")

    def ids(self, count: int, below: int) -> Value:
        """An input of indices."""
        name = f"x{len(self.feed)}"
        self.feed[name] = self.rng.integers(0, below, count).astype(np.int32)
        return self.graph.input(name, TensorType(DType.INT32, (count,)))

    def table(self, *shape: int) -> Value:
        """A constant as a tensor."""
        return self.graph.add(Constdata(), self.w(*shape))

    def packed(self, bits: int, group: int, rows: int, depth: int, zero_points: str) -> list[Value]:
        """Codes, scales and zero points of a packed weight. ``zero_points`` is integers, floats, or empty."""
        groups = -(-depth // group)
        codes = self.rng.integers(0, 256, (rows, groups * group * bits // 8)).astype(np.uint8)
        constants = [codes, (self.rng.uniform(0.5, 1, (rows, groups)) / 64).astype(np.float32)]
        if zero_points == "integers":
            constants.append(self.rng.integers(0, 256, (rows, -(-groups * bits // 8))).astype(np.uint8))
        elif zero_points:
            middle = 2 ** (bits - 1)
            constants.append((self.rng.normal(size=(rows, groups)) * middle / 2 + middle).astype(np.float32))
        return [self.graph.constant(array, f"w{len(self.graph.values)}_{k}") for k, array in enumerate(constants)]

    def y(self, op: Op, *operands: Value) -> None:
        """A branch: an operator whose results are outputs."""
        results = self.graph.add_all(op, *operands)
        for result in results:
            self.graph.output(result)


def products(f: Family) -> None:
    """Convolutions and products."""
    x = f.x(1, 8, 9, 7)
    f.y(Conv(pad_h_t=1, pad_h_b=1, pad_w_l=1, pad_w_r=1, stride_h=2, stride_w=2), x, f.w(4, 8, 3, 3), f.w(1, 4, 1, 1))
    f.y(Conv(stride_h=18, stride_w=17, pad_h_t=2, pad_w_r=2), f.x(1, 2, 40, 70), f.w(4, 2, 20, 3))
    f.y(Conv(groups=8, dh=2, dw=2, stride_h=1, stride_w=1), x, f.w(8, 1, 3, 3))
    f.y(Deconv(stride_h=2, stride_w=2, groups=2), x, f.w(8, 3, 2, 2), f.w(1, 6, 1, 1))
    f.y(Deconv(stride_h=2, stride_w=2, pad_h_t=1, pad_w_l=1, pad_h_b=-1, pad_w_r=0), x, f.w(8, 3, 3, 3))
    f.y(MatrixMul(), f.x(5, 24), f.w(24, 10), f.w(1, 10))
    f.y(MatrixMul(), f.x(5, 24), f.w(24, 10))
    f.y(BatchMatmul(), f.x(1, 3, 6, 8), f.x(1, 3, 8, 5))
    f.y(BatchMatmul(right_transpose=True), f.x(1, 3, 6, 8), f.x(1, 3, 5, 8))
    f.y(BatchMatmul(), f.x(1, 3, 6, 8), f.w(1, 3, 8, 5))
    f.y(BatchMatmul(), f.x(1, 6, 8), f.x(7, 8, 5))  # matrices that are repeated
    f.y(BatchMatmul(), f.w(1, 6, 8), f.x(7, 8, 5))
    f.y(BatchMatmul(), f.x(2, 3, 6, 8), f.x(3, 8, 5))
    query, key, value = f.x(1, 2, 6, 8), f.x(1, 2, 6, 8), f.x(1, 2, 6, 8)
    f.y(Attention(), query, key, value)
    f.y(Attention(is_causal=True), query, key, value)
    f.y(Attention(scale=0.25), query, key, value, f.x(1, 1, 6, 6))


def arithmetic(f: Family) -> None:
    """Arithmetic, comparisons and selections."""
    x, other, channels = f.x(1, 4, 6, 5), f.x(1, 4, 6, 5), f.x(1, 4, 1, 1, low=0.5)
    for op in (Add(), Sub(), Mul(), Max(), Min(), Div()):
        f.y(op, x, channels)
        f.y(op, f.w(1, 4, 1, 1) if op.name != "div" else x, channels)
    for name in (Adds, Subs, Rsubs, Muls, Divs, Maxs, Mins):
        f.y(name(Scalar(F32, 0.75)), x)
    f.y(Rdivs(Scalar(F32, 0.75)), f.x(1, 4, 6, 5, low=0.5))
    f.y(Clamp(Scalar(F32, -1), Scalar(F32, 0.5)), x)
    f.y(Clamp(Scalar(F32, -1), Scalar(F32, np.inf)), x)
    f.y(Clamp(Scalar(F32, -np.inf), Scalar(F32, 0.5)), x)
    for op in (Eq(), Ne(), Gt(), Ge(), Lt(), Le()):
        f.y(op, x, other)
    for name in (Eqs, Nes, Gts, Ges, Lts, Les):
        f.y(name(Scalar(F32, 0.5)), x)
    f.y(ConditionSelect(), f.graph.add(Gts(Scalar(F32, 0)), x, name="condition"), x, other)
    f.y(ConditionSelect(), other, f.w(1), x)
    f.y(ConditionSelect(), other, x, f.w(1))
    condition = f.graph.add(Gts(Scalar(F32, 0)), f.x(1, 4, 5, 7))
    number = f.graph.constant(np.float32([-3e4]), "number")
    f.y(ConditionSelect(), condition, f.graph.constant(np.float32([0]), "zero"), number)
    f.y(ConditionSelect(), condition, f.x(1, 4, 5, 7), number)
    f.y(ConditionSelect(), condition, f.x(1), f.x(1, 4, 5, 7))
    f.y(Copy(), x)


def functions(f: Family) -> None:
    """Functions of one operand."""
    x, positive = f.x(1, 4, 6, 5), f.x(1, 4, 6, 5, low=0.25)
    for kind in ActiveType:
        if kind in (ActiveType.UNKNOWN_ACTIVE_TYPE, ActiveType.ACTIVE_LEAKY_RELU):
            continue
        needs_positive = kind in (ActiveType.ACTIVE_SQRT, ActiveType.ACTIVE_RSQRT, ActiveType.ACTIVE_LN)
        f.y(Active(kind), positive if needs_positive else x)
    f.y(ActiveParam(ActiveType.ACTIVE_LEAKY_RELU, (0.125,)), x)
    for op in (Silu(), Gelu(GeluForm.ERF), Gelu(GeluForm.TANH), HardSwish(), Mish(), Softplus()):
        f.y(op, x)
    for op in (Sin(), Cos(), Floor(), Ceil()):
        f.y(op, x)


def averages(f: Family) -> None:
    """Normalizations, averages and resizing."""
    x, tokens = f.x(1, 4, 9, 7), f.x(1, 6, 16)
    f.y(Softmax(axis=2), tokens)
    f.y(Softmax(axis=1), x)
    f.y(LayerNorm(axis=2, epsilon=1e-5), tokens, f.w(16), f.w(16))
    f.y(LayerNorm(axis=2, epsilon=1e-5), tokens)
    f.y(RmsNorm(axis=2, epsilon=1e-6), tokens, f.w(16))
    f.y(GroupNorm(groups=2, epsilon=1e-5), x, f.w(4), f.w(4))
    for method in (ReduceMethodType(number) for number in range(4)):
        f.y(Reduce((2, 3), method, keep_dims=True), x)
        f.y(Reduce((1,), method, keep_dims=False), tokens)
        f.y(Reduce((1, 3), method, keep_dims=False), x)
        f.y(Reduce((0, 2, 3), method, keep_dims=True), x)
    short = f.x(1, 4, 3, 8)
    for kind in (PoolType.MAX, PoolType.AVE):
        f.y(Pool(kernel_h=3, kernel_w=3, stride_h=2, stride_w=2, pad_h=1, pad_w=1, pooling_type=kind), x)
        f.y(Pool(kernel_h=2, kernel_w=2, stride_h=2, stride_w=2, pooling_type=kind, is_ceil_mode=True), x)
        f.y(Pool(stride_h=1, stride_w=1, is_global_pooling=True, pooling_type=kind), x)
        f.y(Pool(kernel_h=2, kernel_w=2, stride_h=2, stride_w=2, pooling_type=kind), short)  # one window, and a rest
    padded = {"kernel_h": 3, "kernel_w": 3, "stride_h": 2, "stride_w": 2, "pad_h": 1, "pad_w": 1}
    f.y(Pool(**padded, pooling_type=PoolType.AVE, is_ave_count_zero_pad=False), x)
    for method in (InterpolateMode.BILINEAR, InterpolateMode.NEAREST):
        for options in ({}, {"align_corners": True}, {"half_pixel_centers": True}):
            for size in ((18, 14), (18, 12), (5, 3)):
                f.y(Interpolate(size=size, platform=PlatForm.TENSORFLOW, method=method, **options), x)


def movements(f: Family) -> None:
    """Data movement."""
    x = f.x(1, 4, 6, 5)
    f.y(Reshape((4, 30)), x)
    f.y(Permute((0, 2, 3, 1)), x)
    f.y(Concat(axis=1), x, f.x(1, 2, 6, 5))
    f.y(Concat(axis=1), f.x(3, 4), f.x(3, 2))
    f.y(Split(axis=1, num=2), x)
    f.y(Extract((0, 1, 0, 0), (1, 3, 6, 5), (1, 1, 2, 1)), x)
    f.y(Pad(Scalar(F32, 0.5), (0, 0, 0, 0, 1, 2, 2, 1)), x)
    f.y(Tile((1, 2, 1, 1)), x)
    f.y(Upsample(scale=2), x)


def packed_weights(f: Family) -> None:
    """Products with packed weights."""
    x = f.x(1, 5, 128)
    for bits in (4, 8):
        for zero_points in ("", "integers", "floats"):
            f.y(MatmulGroupQuantized(bits, 32), x, *f.packed(bits, 32, 64, 128, zero_points))
    f.y(MatmulGroupQuantized(4, 16), x, *f.packed(4, 16, 50, 128, "integers"), f.w(50))
    f.y(MatmulGroupQuantized(8, 64), f.x(3, 100), *f.packed(8, 64, 40, 100, "floats"), f.w(40))
    f.y(MatmulGroupQuantized(4, 256), f.x(1, 1, 2, 300), *f.packed(4, 256, 7, 300, ""))


def lookups(f: Family) -> None:
    """Lookups in tables."""
    ids = f.ids(6, below=50)
    f.y(IndexSelect(0), f.table(50), ids)
    f.y(IndexSelect(0), f.table(50, 16), ids)
    f.y(IndexSelect(1), f.table(2, 50, 8), ids)
    f.y(IndexSelect(0), f.x(50, 8), ids)
    f.y(GatherGroupQuantized(64, 4, 32), ids, *f.packed(4, 32, 50, 64, ""))
    f.y(GatherGroupQuantized(60, 4, 16), ids, *f.packed(4, 16, 50, 60, "integers"))
    f.y(GatherGroupQuantized(64, 8, 32), ids, *f.packed(8, 32, 50, 64, "floats"))


FAMILIES = (products, arithmetic, functions, averages, movements, packed_weights, lookups)


def built(build: Callable[[Family], None]) -> Family:
    family = Family()
    build(family)
    return family
