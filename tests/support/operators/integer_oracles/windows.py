"""Pooling and reductions of integers."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hypothesis import assume

from tests.support.operators.integer_oracles.base import (
    BYTES,
    Example,
    Sampler,
    Tensor,
    example,
    half_away,
    half_up,
    made,
    make,
    oracle,
    saturate,
)
from tpuconvert.schema.types import I8, I16, I32, U8


@dataclass
class Axis:
    """One spatial axis: its extent and how windows move along it."""

    extent: int
    kernel: int
    stride: int
    before: int
    after: int

    def count(self, ceil: bool) -> int:
        steps = self.extent + self.before + self.after - self.kernel
        return (-(-steps // self.stride) if ceil else steps // self.stride) + 1

    def padded(self, window: int) -> range:
        """Positions of a window, limited to the padded image; the image starts at 0."""
        first = window * self.stride - self.before
        return range(first, min(first + self.kernel, self.extent + self.after))

    def inside(self, window: int) -> list[int]:
        return [position for position in self.padded(window) if 0 <= position < self.extent]


def axes(s: Sampler, count: int) -> list[Axis]:
    found = []
    for _ in range(count):
        extent, kernel, stride = s.number(1, 5), s.number(1, 3), s.number(1, 3)
        found.append(Axis(extent, kernel, stride, s.number(0, kernel - 1), s.number(0, kernel - 1)))
    assume(all(axis.extent + axis.before + axis.after >= axis.kernel for axis in found))
    return found


@oracle("pool")
def pool(name: str, s: Sampler) -> Example:
    down, along = axes(s, 2)
    is_average, is_ceil, counts_padding, ensures, is_global = (s.flag() for _ in range(5))
    x = s.tensor(s.choice(BYTES), (s.number(1, 2), s.number(1, 2), down.extent, along.extent))
    op = make(
        name, stride_h=down.stride, stride_w=along.stride, kernel_h=down.kernel, kernel_w=along.kernel,
        pad_h=down.before, pad_w=along.before, pad_h_offset=down.after - down.before,
        pad_w_offset=along.after - along.before, pooling_type=int(is_average), is_ceil_mode=is_ceil,
        is_ave_count_zero_pad=counts_padding, ensure_pool_image=ensures, is_global_pooling=is_global,
    )  # fmt: skip
    counts = []
    for axis in (down, along):
        count = axis.count(is_ceil)
        if ensures and (count - 1) * axis.stride >= axis.extent + axis.before:
            count -= 1
        counts.append(count)
    if is_global:
        down, along, counts = Axis(down.extent, down.extent, 1, 0, 0), Axis(along.extent, along.extent, 1, 0, 0), [1, 1]

    def value(index: tuple[int, ...]) -> int:
        n, c, i, j = index
        valid = [x.at((n, c, h, w)) for h in down.inside(i) for w in along.inside(j)]
        if not is_average:
            return max(valid, default=x.dtype.min)
        divisor = len(down.padded(i)) * len(along.padded(j)) if counts_padding else len(valid)
        return saturate(half_away(Fraction(sum(valid), divisor)), x.dtype) if valid else 0

    return example(op, [x], made(x.dtype, (*x.shape[:2], *counts), value))


@oracle("pool_int", "pool3d_int")
def integer_pool(name: str, s: Sampler) -> Example:
    spatial = axes(s, 3 if "3d" in name else 2)
    is_average, is_ceil, by_shift = s.flag(), s.flag(), s.flag()
    x = s.tensor(s.choice((I8, U8, I16)), (1, s.number(1, 2), *(axis.extent for axis in spatial)))
    counts = [axis.count(is_ceil) for axis in spatial]
    assume(all(axis.inside(window) for axis, count in zip(spatial, counts, strict=True) for window in range(count)))
    parameters: dict[str, Any] = {"is_avg_pooling": is_average, "out_ceil_mode": int(is_ceil)}
    ends = (("_t", "_b"), ("_l", "_r")) if len(spatial) == 2 else (("_0", "_1"),) * 3
    for letter, (first, last), axis in zip("hw" if len(spatial) == 2 else "thw", ends, spatial, strict=True):
        parameters |= {
            f"stride_{letter}": axis.stride, f"kernel_{letter}": axis.kernel,
            f"pad_{letter}{first}": axis.before, f"pad_{letter}{last}": axis.after,
        }  # fmt: skip
    multiplier, shift = s.choice(((1, 0), (1, 1), (3, 3), (s.integer(I32), s.number(0, 63)), (s.number(1, 2**14), 14)))
    if by_shift:
        parameters |= {"quant_mode": 2, "scale": multiplier, "rshift": shift}

    def window(index: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
        """Values and positions inside the image, in row-major order."""
        spans = [axis.inside(i) for axis, i in zip(spatial, index[2:], strict=True)]
        return [(x.at((*index[:2], *position)), position) for position in itertools.product(*spans)]

    def average(index: tuple[int, ...]) -> int:
        valid = [value for value, _ in window(index)]
        if by_shift:
            return saturate(half_up(Fraction(sum(valid) * multiplier, 1 << shift)), x.dtype)
        return saturate(half_away(Fraction(sum(valid), len(valid))), x.dtype)

    def largest(index: tuple[int, ...]) -> int:
        return max(value for value, _ in window(index))

    def place_of_largest(index: tuple[int, ...]) -> int:
        top = largest(index)
        position = next(position for value, position in window(index) if value == top)
        number = 0
        for i, axis in zip(position, spatial, strict=True):
            number = number * axis.extent + i
        return number

    op, shape = make(name, **parameters), (*x.shape[:2], *counts)
    if is_average:
        return example(op, [x], made(x.dtype, shape, average))
    return example(op, [x], made(x.dtype, shape, largest), made(I32, shape, place_of_largest))


@oracle("reduce")
def reduce(name: str, s: Sampler) -> Example:
    x = s.tensor(s.choice(BYTES), s.shape(extent=4))
    method, keep, rank = s.number(0, 4), s.flag(), len(x.shape)
    reduced = [axis for axis in range(rank) if s.flag()] or [rank - 1]
    listed = tuple(axis - rank if s.flag() else axis for axis in reduced)
    extra = (0,) if s.flag() else ()
    parameters: dict[str, Any] = (
        {"axis_list": listed + extra, "axis_num": len(listed)} if extra else {"axis_list": listed}
    )

    def value(index: tuple[int, ...]) -> int:
        spans = [range(n) if k in reduced else (i,) for k, (n, i) in enumerate(zip(x.shape, index, strict=True))]
        values = [x.at(position) for position in itertools.product(*spans)]
        exact = (
            half_away(Fraction(sum(values), len(values))),
            sum(values),
            max(values),
            min(values),
            math.prod(values),
        )
        return saturate(exact[method], x.dtype)

    whole = made(x.dtype, [1 if k in reduced else n for k, n in enumerate(x.shape)], value)
    shape = whole.shape if keep else tuple(n for k, n in enumerate(x.shape) if k not in reduced) or (1,)
    op = make(name, method=method, keep_dims=keep, **parameters)
    return example(op, [x], Tensor(x.dtype, shape, whole.values))
