"""Host operators on channels: sums, local response normalization, splitting and interleaving, scaling."""

from __future__ import annotations

import enum

import numpy as np

from tpuconvert.schema.arithmetic.bfloat16 import widen
from tpuconvert.schema.definition.op import Op, OpKind, case, on, tpu_op
from tpuconvert.schema.ops.host.flat_tensors import (
    TensorFormat,
    channels_first,
    check_extents,
    check_format,
    check_size,
    flat,
    flatten,
)
from tpuconvert.schema.types import F32, U16, Array, TensorType


@tpu_op("channel_sum_16b", OpKind.HOST, kw_only=True)
class ChannelSum16b(Op):
    """Sum of the BFLOAT16 elements of every channel, accumulated sequentially in binary32.

    Shapes: x [channels * spatial] of BFLOAT16 words (UINT16), y [channels].
    """

    channels: int
    spatial: int
    format: TensorFormat = TensorFormat.NCHW

    inputs = (flat("src"),)
    outputs = (flat("sum"),)
    dtypes = on(case({"src": (U16,), "sum": (F32,)}))

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", check_format(self, self.format))
        check_extents(self, channels=self.channels, spatial=self.spatial)

    def infer(self, x: TensorType) -> tuple[TensorType]:
        check_size(self, "src", x, self.channels * self.spatial)
        return (TensorType(F32, (self.channels,)),)

    def reference(self, x: Array) -> tuple[Array]:
        lines = channels_first(widen(x), self.channels, self.format)
        start = np.zeros((self.channels, 1), np.float32)
        with np.errstate(all="ignore"):
            sums = np.add.accumulate(np.concatenate([start, lines], axis=1), axis=1, dtype=np.float32)
        return (sums[:, -1].copy(),)


@tpu_op("lrn_cross_channels", OpKind.HOST, kw_only=True)
class LrnCrossChannels(Op):
    """Local response normalization: y = x * (k[0] + k[1] * sum(x^2))^k[2].

    The sum is over the channel and ``half`` channels on each side.

    Shapes: x [channels * spatial], y the same. Evaluated in binary64, rounded once.
    """

    half: int
    channels: int
    spatial: int
    k: tuple[float, float, float]
    format: TensorFormat = TensorFormat.NCHW

    inputs = (flat("src"),)
    outputs = (flat("dst"),)
    dtypes = on(F32)

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", check_format(self, self.format))
        check_extents(self, channels=self.channels, spatial=self.spatial)
        if self.half < 0 or len(self.k) != 3:
            raise ValueError(f"{self.name}: half must not be negative, and k has three numbers, found {self}")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        check_size(self, "src", x, self.channels * self.spatial)
        return (x,)

    def reference(self, x: Array) -> tuple[Array]:
        lines = channels_first(x, self.channels, self.format).astype(np.float64)
        with np.errstate(all="ignore"):
            squares = np.square(lines)
            windows = (slice(max(0, c - self.half), c + self.half + 1) for c in range(self.channels))
            sums = np.stack([squares[window].sum(axis=0) for window in windows])
            result = lines * np.power(self.k[0] + self.k[1] * sums, self.k[2])
            return (flatten(result.astype(np.float32), self.format),)


class ShuffleType(enum.IntEnum):
    """SPLIT separates even and odd channels, INTERLEAVE is its inverse."""

    SPLIT = 0
    INTERLEAVE = 1


@tpu_op("shuffle_forward", OpKind.HOST, kw_only=True)
class ShuffleForward(Op):
    """SPLIT: y0 = even channels, y1 = odd channels of the concatenation of x0 and x1. INTERLEAVE is the inverse.

    Shapes: SPLIT: x0 [channels0 * spatial], x1 [channels1 * spatial], y0 and y1 [(channels0 + channels1) / 2 *
    spatial]. For INTERLEAVE these are reversed. channels0 and channels1 are even.
    """

    channels0: int
    channels1: int
    spatial: int
    format: TensorFormat = TensorFormat.NCHW
    type: ShuffleType

    inputs = (flat("src0"), flat("src1"))
    outputs = (flat("dst0"), flat("dst1"))
    dtypes = on(F32)

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", check_format(self, self.format))
        object.__setattr__(self, "type", ShuffleType(self.type))
        check_extents(self, channels0=self.channels0, channels1=self.channels1, spatial=self.spatial)
        if self.channels0 % 2 or self.channels1 % 2:
            raise ValueError(f"{self.name}: channels come in pairs, found {self.channels0} and {self.channels1}")

    @property
    def _half(self) -> int:
        return (self.channels0 + self.channels1) // 2

    def infer(self, x0: TensorType, x1: TensorType) -> tuple[TensorType, TensorType]:
        both, halves = (self.channels0, self.channels1), (self._half, self._half)
        operand_channels, result_channels = (both, halves) if self.type is ShuffleType.SPLIT else (halves, both)
        check_size(self, "src0", x0, operand_channels[0] * self.spatial)
        check_size(self, "src1", x1, operand_channels[1] * self.spatial)
        return TensorType(x0.dtype, (result_channels[0] * self.spatial,)), TensorType(
            x0.dtype, (result_channels[1] * self.spatial,)
        )

    def reference(self, x0: Array, x1: Array) -> tuple[Array, Array]:
        if self.type is ShuffleType.SPLIT:
            lines = np.concatenate(
                [channels_first(x0, self.channels0, self.format), channels_first(x1, self.channels1, self.format)]
            )
            return flatten(lines[0::2], self.format), flatten(lines[1::2], self.format)
        pairs = [channels_first(x, self._half, self.format) for x in (x0, x1)]
        mixed = np.stack(pairs, axis=1).reshape(2 * self._half, self.spatial)
        return flatten(mixed[: self.channels0], self.format), flatten(mixed[self.channels0 :], self.format)


@tpu_op("tiled_scale_2d_32f", OpKind.HOST, kw_only=True)
class TiledScale2d32f(Op):
    """Multiply every element by the factor of its column, then by the factor of its row, rounding each product.

    Shapes: x [channels * height * width], ver [channels * width], hor [channels * height], y as x.
    """

    channels: int
    height: int
    width: int
    format: TensorFormat = TensorFormat.NCHW

    inputs = (flat("src"), flat("ver", coeff=True), flat("hor", coeff=True))
    outputs = (flat("dst"),)
    dtypes = on(F32)

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", check_format(self, self.format))
        check_extents(self, channels=self.channels, height=self.height, width=self.width)

    def infer(self, x: TensorType, ver: TensorType, hor: TensorType) -> tuple[TensorType]:
        check_size(self, "src", x, self.channels * self.height * self.width)
        check_size(self, "ver", ver, self.channels * self.width)
        check_size(self, "hor", hor, self.channels * self.height)
        return (x,)

    def reference(self, x: Array, ver: Array, hor: Array) -> tuple[Array]:
        c, h, w = self.channels, self.height, self.width
        with np.errstate(all="ignore"):
            if self.format is TensorFormat.NCHW:
                scaled = x.reshape(c, h, w) * ver.reshape(c, 1, w) * hor.reshape(c, h, 1)
            else:
                scaled = x.reshape(h, w, c) * ver.reshape(1, w, c) * hor.reshape(h, 1, c)
        return (scaled.reshape(-1),)
