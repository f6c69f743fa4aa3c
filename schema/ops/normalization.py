"""Composite normalizations: layer_norm, rms_norm, group_norm (instance norm if each channel is a group), lrn.

References are evaluated in binary64 and rounded once.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.schema.definition.extents import may_equal, normalize_axis
from tpuconvert.schema.definition.op import Operand, OpKind, Trait, tpu_op
from tpuconvert.schema.definition.shape_checks import check_ranks, format_types
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.composite import Composite, check_float
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.types import Array, Shape, TensorType, format_shape

_WITH_CHANNELS = tuple(range(2, 9))


def _check_epsilon(name: str, epsilon: float) -> None:
    if not (epsilon >= 0 and math.isfinite(epsilon)):
        raise ValueError(f"{name}: epsilon is {epsilon}")


def _check_factors(op: Composite, shape: Shape, x: TensorType, **factors: TensorType | None) -> None:
    for name, factor in factors.items():
        if factor is not None and not (factor.rank == len(shape) and all(map(may_equal, factor.shape, shape))):
            types = format_types((x, *factors.values()))
            raise ShapeError(f"{op.name}: {name} must be {format_shape(shape)}, got {types}")


def _scale(g: Graph, x: Value, scale: Value | None, bias: Value | None) -> Value:
    """Compute ``x * scale + bias``. Both are optional and have the rank of x."""
    y = x if scale is None else f.mul(g, x, scale)
    return y if bias is None else f.add(g, y, bias)


def _wide(x: Array | None, default: float, shape: tuple[int, ...]) -> Array:
    return np.full(1, default) if x is None else x.astype(np.float64).reshape(shape)


@tpu_op("layer_norm", OpKind.COMPOSITE)
class LayerNorm(Composite):
    """``y = (x - mean) / sqrt(variance + epsilon) * scale + bias``, over ``axis`` and all axes after it.

    Shapes: x [...], scale and bias have the extents of x from ``axis`` to the last, y as x.
    Source: ONNX LayerNormalization-17. The variance is the population variance: the divisor is the number of elements.
    """

    axis: int = -1
    epsilon: float = 1e-5

    inputs = (
        Operand("tensor_i"),
        Operand("scale", coeff=True, optional=True),
        Operand("bias", coeff=True, optional=True),
    )
    traits = Trait.ALONG_AXES

    def __post_init__(self) -> None:
        _check_epsilon(self.name, self.epsilon)

    def infer(
        self, x: TensorType, scale: TensorType | None = None, bias: TensorType | None = None
    ) -> tuple[TensorType]:
        check_float(self, x, scale, bias)
        axis = normalize_axis(self.name, self.axis, x)
        _check_factors(self, x.shape[axis:], x, scale=scale, bias=bias)
        return (x,)

    def reference(self, x: Array, scale: Array | None = None, bias: Array | None = None) -> tuple[Array]:
        axes = tuple(range(self.axis % x.ndim, x.ndim))
        with np.errstate(all="ignore"):
            centred = x - x.mean(axis=axes, keepdims=True, dtype=np.float64)
            y = centred / np.sqrt(np.square(centred).mean(axis=axes, keepdims=True) + self.epsilon)
            return ((y * (1.0 if scale is None else scale) + (0.0 if bias is None else bias)).astype(np.float32),)

    def expand(self, g: Graph, x: Value, scale: Value | None = None, bias: Value | None = None) -> tuple[Value]:
        """Expand to means, subtraction, RSQRT, multiplications and additions."""
        axes = tuple(range(self.axis % x.rank, x.rank))
        centred = f.sub(g, x, f.mean(g, x, axes))
        y = f.mul(g, centred, f.rsqrt(g, f.adds(g, f.mean(g, f.square(g, centred), axes), self.epsilon)))
        return (_scale(g, y, *(_align(self, g, value, x.rank) for value in (scale, bias))),)


@tpu_op("rms_norm", OpKind.COMPOSITE)
class RmsNorm(Composite):
    """``y = x / sqrt(mean(x^2) + epsilon) * scale``, over ``axis`` and all axes after it.

    Shapes: x [...], scale has the extents of x from ``axis`` to the last, y as x.
    Source: ONNX RMSNormalization-23.
    """

    axis: int = -1
    epsilon: float = 1e-5

    inputs = (Operand("tensor_i"), Operand("scale", coeff=True, optional=True))
    traits = Trait.ALONG_AXES

    def __post_init__(self) -> None:
        _check_epsilon(self.name, self.epsilon)

    def infer(self, x: TensorType, scale: TensorType | None = None) -> tuple[TensorType]:
        check_float(self, x, scale)
        _check_factors(self, x.shape[normalize_axis(self.name, self.axis, x) :], x, scale=scale)
        return (x,)

    def reference(self, x: Array, scale: Array | None = None) -> tuple[Array]:
        axes = tuple(range(self.axis % x.ndim, x.ndim))
        wide = x.astype(np.float64)
        with np.errstate(all="ignore"):
            y = wide / np.sqrt(np.square(wide).mean(axis=axes, keepdims=True) + self.epsilon)
            return ((y if scale is None else y * scale).astype(np.float32),)

    def expand(self, g: Graph, x: Value, scale: Value | None = None) -> tuple[Value]:
        """Expand to the mean of squares, RSQRT and multiplications."""
        axes = tuple(range(self.axis % x.rank, x.rank))
        y = f.mul(g, x, f.rsqrt(g, f.adds(g, f.mean(g, f.square(g, x), axes), self.epsilon)))
        return (_scale(g, y, _align(self, g, scale, x.rank), None),)


def _align(op: Composite, g: Graph, x: Value | None, rank: int) -> Value | None:
    """Prepend axes of extent 1 to a scale or bias, so that it has the rank ``rank``."""
    return x if x is None or x.rank == rank else f.reshape(g, x, (1,) * (rank - x.rank) + f.extents(op, x))


def _with_free_batch(op: Composite, x: Value) -> tuple[int, ...]:
    """Return the shape of an operand, with 0 for a symbolic first extent, which ``reshape`` copies.

    Raises:
        ShapeError: another extent is symbolic.

    """
    batch, *rest = x.shape
    if isinstance(batch, int) or not all(isinstance(extent, int) for extent in rest):
        return f.extents(op, x)
    return (0, *(extent for extent in rest if isinstance(extent, int)))


@tpu_op("group_norm", OpKind.COMPOSITE)
class GroupNorm(Composite):
    """``y = (x - mean) / sqrt(variance + epsilon) * scale + bias``, over groups of channels and all axes after them.

    Shapes: x [N, C, ...] with C a multiple of ``groups``, scale and bias [C], y as x.
    Source: ONNX GroupNormalization-21; InstanceNormalization-6 if groups = C.
    """

    groups: int
    epsilon: float = 1e-5

    inputs = (
        Operand("tensor_i", _WITH_CHANNELS, layout="NCHW"),
        Operand("scale", (1,), coeff=True, optional=True),
        Operand("bias", (1,), coeff=True, optional=True),
    )

    def __post_init__(self) -> None:
        _check_epsilon(self.name, self.epsilon)
        if self.groups < 1:
            raise ValueError(f"group_norm: groups is {self.groups}")

    def infer(
        self, x: TensorType, scale: TensorType | None = None, bias: TensorType | None = None
    ) -> tuple[TensorType]:
        check_float(self, x, scale, bias)
        check_ranks(self, x, scale, bias)
        channels = x.shape[1]
        if isinstance(channels, int) and channels % self.groups:
            raise ShapeError(f"{self.name}: {channels} channels do not form {self.groups} groups, got {x}")
        _check_factors(self, (channels,), x, scale=scale, bias=bias)
        return (x,)

    def reference(self, x: Array, scale: Array | None = None, bias: Array | None = None) -> tuple[Array]:
        per_channel = (-1,) + (1,) * (x.ndim - 2)
        grouped = x.astype(np.float64).reshape(x.shape[0], self.groups, math.prod(x.shape[1:]) // self.groups)
        with np.errstate(all="ignore"):
            centred = grouped - grouped.mean(axis=2, keepdims=True)
            y = centred / np.sqrt(np.square(centred).mean(axis=2, keepdims=True) + self.epsilon)
            scaled = y.reshape(x.shape) * _wide(scale, 1, per_channel) + _wide(bias, 0, per_channel)
            return (scaled.astype(np.float32),)

    def expand(self, g: Graph, x: Value, scale: Value | None = None, bias: Value | None = None) -> tuple[Value]:
        """Reshape the groups to an axis, then compute as layer_norm."""
        shape = _with_free_batch(self, x)
        grouped = f.reshape(g, x, (shape[0], self.groups, math.prod(shape[1:]) // self.groups))
        centred = f.sub(g, grouped, f.mean(g, grouped, (2,)))
        y = f.mul(g, centred, f.rsqrt(g, f.adds(g, f.mean(g, f.square(g, centred), (2,)), self.epsilon)))
        per_channel = (1, shape[1]) + (1,) * (x.rank - 2)
        factors = (None if value is None else f.reshape(g, value, per_channel) for value in (scale, bias))
        return (_scale(g, f.reshape(g, y, shape), *factors),)


@tpu_op("lrn", OpKind.COMPOSITE)
class Lrn(Composite):
    """``y = x / (bias + alpha / size * sum of squares of size neighboring channels) ^ beta``.

    Shapes: x [N, C, ...], y the same. Channel c uses the channels from c - floor((size - 1) / 2) to
    c + floor(size / 2).
    Source: ONNX LRN-13; Caffe LRN across channels.
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    inputs = (Operand("tensor_i", _WITH_CHANNELS, layout="NCHW"),)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"lrn: size is {self.size}")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: x has an axis 1, y the shape of x."""
        check_float(self, x)
        check_ranks(self, x)
        return (x,)

    def reference(self, x: Array) -> tuple[Array]:
        with np.errstate(all="ignore"):
            wide = x.astype(np.float64)
            before, after = (self.size - 1) // 2, self.size // 2
            squares = np.pad(np.square(wide), [(0, 0), (before, after)] + [(0, 0)] * (x.ndim - 2))
            sums = sum(squares[:, k : k + x.shape[1]] for k in range(self.size))
            return ((wide / (self.bias + self.alpha / self.size * sums) ** self.beta).astype(np.float32),)

    def expand(self, g: Graph, x: Value) -> tuple[Value]:
        """Compute the base of the power by a 1x1 convolution with a band matrix, the power as EXP(-beta * LN(base))."""
        shape = _with_free_batch(self, x)
        channels = shape[1]
        offset = np.arange(channels)[None, :] - np.arange(channels)[:, None]
        band = (offset >= -((self.size - 1) // 2)) & (offset <= self.size // 2)
        weight = (band * (self.alpha / self.size)).astype(np.float32)
        squares = f.square(g, x)
        if x.rank != 4:
            squares = f.reshape(g, squares, (shape[0], channels, math.prod(shape[2:]), 1))
        bias = np.full((1, channels, 1, 1), self.bias, np.float32)
        base = g.add(Conv(), squares, g.constant(weight[:, :, None, None], "band"), g.constant(bias, "bias"))
        factor = f.exp(g, f.muls(g, f.ln(g, base), -self.beta))
        return (f.mul(g, x, factor if x.rank == 4 else f.reshape(g, factor, shape)),)
