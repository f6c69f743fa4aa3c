"""Random parts of patterns, and the registry of the patterns.

The patterns are in the files ``*_patterns.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls, Rsubs
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import Array, Scalar


class Draw:
    """A graph and the source of its random parts."""

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

    def weights(self, divisor: float, *shape: int) -> Value:
        """Weights of a linear operator, divided by the root of the number of products of a sum."""
        return self.g.constant(self.normal(*shape) / divisor, "w")

    def add(self, op: Op, *inputs: Value | None) -> Value:
        return self.g.add(op, *inputs)

    def pair(self, op: Op, x: Value, y: Value) -> Value:
        """An add or mul with the operands in either order."""
        return self.add(op, x, y) if self.often() else self.add(op, y, x)

    def conv(
        self, x: Value, channels: int | None = None, padded: bool | None = None, kernel: int | None = None
    ) -> Value:
        kernel = kernel or self.one_of(1, 2, 3)
        padded = self.often() if padded is None else padded
        inputs = int(x.shape[1])
        channels = channels or inputs
        groups = inputs if channels == inputs and self.often(0.3) else 1
        w = self.weights(kernel, channels, inputs // groups, kernel, kernel)
        bias = [self.constant(1, channels, 1, 1)] if self.often() else []
        pads = {"pad_h_t": kernel // 2, "pad_w_r": kernel // 2} if padded else {}
        return self.add(Conv(groups=groups, **pads), x, w, *bias)

    def deconv(self, x: Value, channels: int) -> Value:
        w = self.g.constant(self.normal(int(x.shape[1]), channels, 2, 2), "w")
        bias = [self.constant(1, channels, 1, 1)] if self.often() else []
        return self.add(Deconv(stride_h=2, stride_w=2), x, w, *bias)

    def dense(self, x: Value, outputs: int = 5) -> Value:
        w = self.weights(math.sqrt(int(x.shape[1])), int(x.shape[1]), outputs)
        return self.add(MatrixMul(), x, w, *([self.constant(1, outputs)] if self.often() else []))

    def affine(self, x: Value, shifts: bool = True) -> Value:
        """A per-channel scale, a bias or both, in one of the equivalent forms."""
        channels = int(x.shape[1])
        shape = (1, channels, *(1,) * (x.rank - 2))
        kinds = [Mul(), Muls(Scalar.f32(self.number())), Divs(Scalar.f32(self.number())), Div()]
        if shifts:
            kinds += [Add(), Sub(), Adds(Scalar.f32(self.number())), Rsubs(Scalar.f32(self.number()))]
            kinds += [BatchNorm()] * (x.rank == 4)
        op = self.one_of(*kinds)
        if isinstance(op, BatchNorm):
            return self.batch_norm(x)
        if isinstance(op, Div):
            return self.add(op, x, self.constant(*shape, low=0.5))
        if isinstance(op, (Add, Mul, Sub)):
            return self.pair(op, x, self.constant(*shape, low=0.5))
        return self.add(op, x)

    def batch_norm(self, x: Value) -> Value:
        channels = int(x.shape[1])
        parts = [self.constant(channels), self.constant(channels, low=0.5), self.constant(channels)]
        return self.g.add_all(BatchNorm(), x, *parts, self.constant(channels))[0]

    def unary(self, x: Value) -> Value:
        op = self.one_of(
            Active(ActiveType.ACTIVE_TANH), Active(ActiveType.ACTIVE_RELU), Muls(Scalar.f32(self.number()))
        )
        return self.add(op, x)

    def slice(self, x: Value) -> Value:
        start, end, step = [], [], []
        for extent in x.type.static_shape:
            first = int(self.rng.integers(extent)) if self.often() else 0
            start.append(first)
            end.append(int(self.rng.integers(first + 1, extent + 1)) if self.often() else extent)
            step.append(self.one_of(1, 1, 2))
        return self.add(Extract(tuple(start), tuple(end), tuple(step)), x)

    def reshape(self, x: Value) -> Value:
        """A reshape that groups the prime factors of the extents differently."""
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
            return self.slice(x)
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
