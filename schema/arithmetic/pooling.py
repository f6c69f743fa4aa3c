"""Sliding-window sums, maxima and counts for the pooling operators.

Source: docs/inside/semantics.md, section 11.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tpuconvert.schema.types import Array, DType

Reduction = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Span:
    """Windows on one axis: ``count`` windows of ``size`` elements, which begin ``before`` elements before the image."""

    extent: int
    count: int
    size: int
    stride: int
    before: int

    @property
    def is_whole(self) -> bool:
        """True if there is a single window, which covers the whole axis."""
        return (self.count, self.size, self.before) == (1, self.extent, 0)

    def elements(self, after: int = 0, *, with_padding: bool = False) -> Array:
        """Number of elements of each window that are inside the image, or inside the padded image."""
        low, high = (-self.before, self.extent + after) if with_padding else (0, self.extent)
        first = np.arange(self.count) * self.stride - self.before
        inside: Array = np.minimum(first + self.size, high) - np.maximum(first, low)
        return inside.clip(min=0)


def window_counts(down: Span, along: Span, after: tuple[int, int] = (0, 0), *, with_padding: bool = False) -> Array:
    """Number of elements of every window. Shape: [oh, ow]."""
    rows = down.elements(after[0], with_padding=with_padding)
    columns = along.elements(after[1], with_padding=with_padding)
    return rows[:, None] * columns[None, :]


def window_max(x: Array, down: Span, along: Span) -> Array:
    """Maximum of every window, which is the lowest value of the type if the window is outside the image."""
    if down.is_whole and along.is_whole:
        maxima: Array = x.max(axis=(2, 3), keepdims=True)
        return maxima
    lowest = -np.inf if x.dtype.kind == "f" else DType.of(x.dtype).min
    return _reduce(x, down, along, np.maximum, lowest)


def window_sum(x: Array, down: Span, along: Span) -> Array:
    """Sum of every window: float64 for floating point, exact INT64 for integers."""
    wide = x.astype(np.float64 if x.dtype.kind == "f" else np.int64)
    if down.is_whole and along.is_whole:
        total: Array = wide.sum(axis=(2, 3), keepdims=True)
        return total
    return _reduce(wide, down, along, np.add, 0)


def divide_half_away(total: Array, count: Array) -> Array:
    """Divide integers and round to nearest, ties away from zero; 0 where count is 0."""
    divisor = np.maximum(count, 1)
    quotient: Array = np.sign(total) * ((2 * np.abs(total) + divisor) // (2 * divisor))
    return quotient


def first_maxima(x: Array, down: Span, along: Span) -> tuple[Array, Array]:
    """Return the maximum of every window inside the image, and the index of its first occurrence: row * width + column.

    Shapes: x [N, C, H, W] of INT32 with at most 16 bits in use; both results [N, C, oh, ow] of INT32.
    """
    below = int(np.iinfo(np.int32).min)  # lower than all elements, so that padding is never the maximum
    padded = _pad(x, down, along, below)
    shape = (*x.shape[:2], down.count, along.count)
    largest = np.full(shape, below, np.int32)
    places = np.zeros(shape, np.int32)
    rows = np.arange(down.count, dtype=np.int32) * down.stride - down.before
    columns = np.arange(along.count, dtype=np.int32) * along.stride - along.before
    for i in range(down.size):
        for j in range(along.size):
            step = padded[:, :, _every(i, down), _every(j, along)]
            larger = step > largest
            position = (rows[:, None] + i) * along.extent + columns + j
            np.copyto(places, position, where=larger)
            np.copyto(largest, step, where=larger)
    return largest, places


def _every(first: int, span: Span) -> slice:
    """Slice of an axis that selects the elements at one position of all windows."""
    return slice(first, first + (span.count - 1) * span.stride + 1, span.stride)


def _reduce(x: Array, down: Span, along: Span, reduction: Reduction, outside: float) -> Array:
    """Reduce the columns of every window, then its rows; only the padded image is copied."""
    padded = _pad(x, down, along, outside)
    folded = _fold([padded[..., _every(j, along)] for j in range(along.size)], reduction)
    return _fold([folded[:, :, _every(i, down)] for i in range(down.size)], reduction)


def _pad(x: Array, down: Span, along: Span, outside: float) -> Array:
    """Crop the image to the extent of the windows, or pad it with ``outside``."""
    rows = (down.count - 1) * down.stride + down.size
    columns = (along.count - 1) * along.stride + along.size
    top, left = down.before, along.before
    if (rows, columns) == x.shape[2:] and not top and not left:
        return x
    padded = np.full((*x.shape[:2], rows, columns), outside, x.dtype)
    inside = x[:, :, : max(rows - top, 0), : max(columns - left, 0)]
    padded[:, :, top : top + inside.shape[2], left : left + inside.shape[3]] = inside
    return padded


def _fold(steps: list[Array], reduction: Reduction) -> Array:
    result = steps[0].copy()
    for step in steps[1:]:
        reduction(result, step, out=result)  # type: ignore[call-arg]  # NumPy functions have ``out``
    return result
