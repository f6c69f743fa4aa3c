"""Sliding-window sums, maxima and counts for the pooling operators.

Source: section 11 of the operator set's semantics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tpuconvert.schema.types import Array, DType

Reduction = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Span:
    """How windows lie on one axis: ``count`` windows of ``size`` elements, the first one ``before`` the image."""

    extent: int
    count: int
    size: int
    stride: int
    before: int

    @property
    def is_whole(self) -> bool:
        """True when there is one window, and it is the whole axis."""
        return (self.count, self.size, self.before) == (1, self.extent, 0)

    def elements(self, after: int = 0, *, with_padding: bool = False) -> Array:
        """How many elements each window holds, cut to the image, or to the image with its padding."""
        low, high = (-self.before, self.extent + after) if with_padding else (0, self.extent)
        first = np.arange(self.count) * self.stride - self.before
        inside = np.minimum(first + self.size, high) - np.maximum(first, low)
        return np.maximum(inside, 0)


def window_counts(down: Span, along: Span, after: tuple[int, int] = (0, 0), *, with_padding: bool = False) -> Array:
    """Elements of every window. Shape: [oh, ow]."""
    rows = down.elements(after[0], with_padding=with_padding)
    columns = along.elements(after[1], with_padding=with_padding)
    return rows[:, None] * columns[None, :]


def window_max(x: Array, down: Span, along: Span) -> Array:
    """The largest element of every window; the lowest value of the type for windows outside the image."""
    if down.is_whole and along.is_whole:
        whole: Array = x.max(axis=(2, 3), keepdims=True)
        return whole
    lowest = -np.inf if x.dtype.kind == "f" else DType.of(x.dtype).min
    return _reduce(x, down, along, np.maximum, lowest)


def window_sum(x: Array, down: Span, along: Span) -> Array:
    """The sum of every window: binary64 for floating point, exact INT64 for integers."""
    wide = x.astype(np.float64 if x.dtype.kind == "f" else np.int64)
    if down.is_whole and along.is_whole:
        whole: Array = wide.sum(axis=(2, 3), keepdims=True)
        return whole
    return _reduce(wide, down, along, np.add, 0)


def quotient_half_away(total: Array, count: Array) -> Array:
    """Quotient total / count for exact integers, rounded to the nearest, halves away from zero; 0 where count is 0."""
    divisor = np.maximum(count, 1)
    return np.sign(total) * ((2 * np.abs(total) + divisor) // (2 * divisor))


def _reduce(x: Array, down: Span, along: Span, reduction: Reduction, outside: float) -> Array:
    """First the columns of every window, then its rows; nothing is copied but the padded image."""
    rows = (down.count - 1) * down.stride + down.size
    columns = (along.count - 1) * along.stride + along.size
    padded = x
    if (rows, columns) != x.shape[2:] or down.before or along.before:
        padded = np.full((*x.shape[:2], rows, columns), outside, x.dtype)
        inside = x[:, :, : max(rows - down.before, 0), : max(columns - along.before, 0)]
        top, left = down.before, along.before
        padded[:, :, top : top + inside.shape[2], left : left + inside.shape[3]] = inside
    steps = [padded[..., j : j + (along.count - 1) * along.stride + 1 : along.stride] for j in range(along.size)]
    folded = _fold(steps, reduction)
    steps = [folded[:, :, i : i + (down.count - 1) * down.stride + 1 : down.stride] for i in range(down.size)]
    return _fold(steps, reduction)


def _fold(steps: list[Array], reduction: Reduction) -> Array:
    result = steps[0].copy()
    for step in steps[1:]:
        reduction(result, step, out=result)  # type: ignore[call-arg]  # a NumPy function: both know ``out``
    return result
