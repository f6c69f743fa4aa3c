"""Resizing of uint8 images with the results of OpenCV's ``cv2.resize``, in NumPy.

Sources: ``modules/imgproc/src/resize.cpp`` of OpenCV 4 and 5. Each method has the arithmetic of OpenCV's 8-bit path:
fixed point for ``linear`` and ``lanczos4``, float32 for ``area``, and both for ``cubic``. The tests compare the pixels
with the pixels of OpenCV.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tpuconvert.schema.types import Array

_COEFFICIENT_BITS = 11  # INTER_RESIZE_COEF_BITS
_COEFFICIENT_SCALE = np.float32(1 << _COEFFICIENT_BITS)

_LANES = 8
"""Number of 16-bit elements in a vector of 128 bits, which the x86 and ARM packages of OpenCV use."""

Taps = tuple[Array, Array, tuple[Array, Array]]
"""Indices of the two pixels of each result pixel along an axis, and their coefficients: int32 in units of 2^-11."""

_LEAST_SHARE = 1e-3  # shares of a pixel up to this are ignored by computeResizeAreaTab


def resize_nearest(image: Array, size: tuple[int, int]) -> Array:
    """Resize by the pixel at or before ``index * scale``, as ``INTER_NEAREST``.

    Args:
        image: uint8 [H, W, C].
        size: (height, width) of the result.

    """
    rows, columns = (nearest_indices(old, new) for new, old in zip(size, image.shape[:2], strict=True))
    resized: Array = image[rows[:, None], columns[None, :]]
    return resized


def resize_linear(image: Array, size: tuple[int, int]) -> Array:
    """Resize bilinearly without antialiasing, as ``INTER_LINEAR``: 11-bit coefficients, rounded once at the end.

    Halving both sides is the mean of four pixels, as in OpenCV.

    Args:
        image: uint8 [H, W, C].
        size: (height, width) of the result.

    """
    if is_halved(image.shape[:2], size):
        return _mean_of_blocks(image, (2, 2))
    return _resize_by_taps(image, *linear_taps(image.shape[:2], size))


def nearest_indices(old: int, new: int) -> Array:
    """Return the pixel of each result pixel of ``resize_nearest`` along an axis."""
    indices: Array = np.minimum(np.floor(np.arange(new) * (1.0 / (new / old))).astype(np.int64), old - 1)
    return indices


def is_halved(shape: Sequence[int], size: Sequence[int]) -> bool:
    """Return True if ``resize_linear`` computes means of blocks."""
    return tuple(shape) == (2 * size[0], 2 * size[1])


def linear_taps(shape: Sequence[int], size: Sequence[int]) -> tuple[Taps, Taps]:
    """Return the taps of ``resize_linear`` along the rows and along the columns.

    Args:
        shape: height and width of the image.
        size: height and width of the result.
    """
    return _taps(shape[1], size[1], zero_outside=True), _taps(shape[0], size[0], zero_outside=False)


def resize_area(image: Array, size: tuple[int, int]) -> Array:
    """Resize by the mean of the covered area, as ``INTER_AREA``; bilinear if a side is enlarged.

    Sums are float32 in OpenCV's order: along a row from left to right, then the rows from top to bottom.

    Args:
        image: uint8 [H, W, C].
        size: (height, width) of the result.

    """
    shape = image.shape[:2]
    if any(new > old for new, old in zip(size, shape, strict=True)):
        vertical, horizontal = (_area_taps(old, new) for new, old in zip(size, shape, strict=True))
        return _resize_by_taps(image, horizontal, vertical)
    if not any(old % new for new, old in zip(size, shape, strict=True)):
        return _mean_of_blocks(image, (shape[0] // size[0], shape[1] // size[1]))
    rows = _sum_areas(image.astype(np.float32), 1, size[1])
    return _to_pixels(_sum_areas(rows, 0, size[0]))


def resize_cubic(image: Array, size: tuple[int, int]) -> Array:
    """Resize bicubically (a = -0.75) without antialiasing, as ``INTER_CUBIC``: 11-bit coefficients.

    OpenCV computes blocks of ``_LANES`` elements of a row in float32, and the rest of the row in fixed point.

    Args:
        image: uint8 [H, W, C].
        size: (height, width) of the result.

    """
    (rows, beta), (columns, alpha) = (
        _kernel_taps(old, new, _cubic_coefficients) for new, old in zip(size, image.shape[:2], strict=True)
    )
    sums = _sum_taps(image.astype(np.int32), columns, alpha, 1)
    parts = [sums[index].reshape(size[0], -1) for index in rows]
    exact = _fixed_point(sum(part * weight[:, None] for part, weight in zip(parts, beta, strict=True)))
    factor = np.float32(1.0) / (_COEFFICIENT_SCALE * _COEFFICIENT_SCALE)
    weights = [(weight.astype(np.float32) * factor)[:, None] for weight in beta]
    total = parts[3].astype(np.float32) * weights[3]
    for part, weight in zip(parts[2::-1], weights[2::-1], strict=True):
        total = part.astype(np.float32) * weight + total
    in_blocks = exact.shape[1] // _LANES * _LANES
    exact[:, :in_blocks] = _to_pixels(total[:, :in_blocks])
    return exact.reshape(*size, image.shape[2])


def resize_lanczos(image: Array, size: tuple[int, int]) -> Array:
    """Resize with 8 Lanczos coefficients of 11 bits, without antialiasing, as ``INTER_LANCZOS4``.

    Args:
        image: uint8 [H, W, C].
        size: (height, width) of the result.

    """
    (rows, beta), (columns, alpha) = (
        _kernel_taps(old, new, _lanczos_coefficients) for new, old in zip(size, image.shape[:2], strict=True)
    )
    sums = _sum_taps(image.astype(np.int32), columns, alpha, 1)
    return _fixed_point(_sum_taps(sums, rows, beta, 0))


RESIZERS: dict[str, Callable[[Array, tuple[int, int]], Array]] = {
    "opencv-nearest": resize_nearest,
    "opencv-linear": resize_linear,
    "opencv-area": resize_area,
    "opencv-cubic": resize_cubic,
    "opencv-lanczos4": resize_lanczos,
}
"""Functions from uint8 [H, W, C] and (height, width) to uint8 [height, width, C], by the value of ``resize=``."""


def _resize_by_taps(image: Array, horizontal: Taps, vertical: Taps) -> Array:
    first, second, alpha = horizontal
    wide = image.astype(np.int32)
    rows = wide[:, first] * alpha[0][:, None] + wide[:, second] * alpha[1][:, None]
    first, second, beta = vertical
    # |rows| <= 255 * 2^11 < 2^19, shifted by 4: the products are below 2^15 * 2^11.
    upper = (beta[0][:, None, None] * (rows[first] >> 4)) >> 16
    lower = (beta[1][:, None, None] * (rows[second] >> 4)) >> 16
    resized: Array = np.clip((upper + lower + 2) >> 2, 0, 255).astype(np.uint8)
    return resized


def _taps(old: int, new: int, *, zero_outside: bool) -> Taps:
    """Return the taps of bilinear resizing between pixel centers.

    Args:
        old: number of pixels of the image along the axis.
        new: number of pixels of the result.
        zero_outside: the second coefficient is 0 outside the image. OpenCV does so along rows only; along columns both
            indices are the border's, and the two products are rounded separately.

    """
    position = ((np.arange(new) + 0.5) * (1.0 / (new / old)) - 0.5).astype(np.float32)
    start = np.floor(position).astype(np.int64)
    fraction = position - start.astype(np.float32)
    if zero_outside:
        fraction = np.where((start < 0) | (start >= old - 1), np.float32(0), fraction)
    return _rounded_taps(start, fraction, old)


def _area_taps(old: int, new: int) -> Taps:
    """Return the taps of ``INTER_AREA`` if a side of the image is enlarged."""
    scale = 1.0 / (new / old)
    indices = np.arange(new)
    start = np.floor(indices * scale).astype(np.int64)
    fraction = ((indices + 1) - (start + 1) * (new / old)).astype(np.float32)
    fraction = np.where(fraction <= 0, np.float32(0), fraction - np.floor(fraction))
    return _rounded_taps(start, np.where(start >= old - 1, np.float32(0), fraction), old)


def _rounded_taps(start: Array, fraction: Array, old: int) -> Taps:
    coefficients = (
        np.rint((np.float32(1) - fraction) * _COEFFICIENT_SCALE).astype(np.int32),
        np.rint(fraction * _COEFFICIENT_SCALE).astype(np.int32),
    )
    return np.clip(start, 0, old - 1), np.clip(start + 1, 0, old - 1), coefficients


def _kernel_taps(old: int, new: int, coefficients: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Return indices and 11-bit coefficients, [taps, new], of a kernel between pixel centers."""
    position = ((np.arange(new) + 0.5) * (1.0 / (new / old)) - 0.5).astype(np.float32)
    start = np.floor(position)
    shares = coefficients(position - start)
    taps = len(shares)
    indices = start.astype(np.int64) + np.arange(1 - taps // 2, 1 + taps // 2)[:, None]
    return np.clip(indices, 0, old - 1), np.rint(shares * _COEFFICIENT_SCALE).astype(np.int32)


def _cubic_coefficients(x: Array) -> Array:
    """Return the 4 coefficients of ``interpolateCubic``, in float32."""
    a, one = np.float32(-0.75), np.float32(1)
    first = ((a * (x + one) - 5 * a) * (x + one) + 8 * a) * (x + one) - 4 * a
    second = ((a + 2) * x - (a + 3)) * x * x + one
    third = ((a + 2) * (one - x) - (a + 3)) * (one - x) * (one - x) + one
    return np.stack([first, second, third, one - first - second - third])


_S45 = math.sqrt(0.5)
_ANGLES = np.array([[1, -_S45, 0, _S45, -1, _S45, 0, -_S45], [0, -_S45, 1, -_S45, 0, _S45, -1, _S45]])
"""Factors of sine and cosine of the first angle, for the sine of the angle of each tap."""

_LEAST_DISTANCE = np.float32(1e-6)


def _lanczos_coefficients(x: Array) -> Array:
    """Return the 8 coefficients of ``interpolateLanczos4``: float64 sines, a float32 sum in the order of the taps."""
    angle = -(x + np.float32(3)) * np.float64(math.pi) * 0.25
    sine, cosine = np.sin(angle), np.cos(angle)
    coefficients = np.empty((8, *x.shape), np.float32)
    total = np.zeros_like(x)
    for tap in range(8):
        distance = x + np.float32(3) - np.float32(tap)
        y = -distance * np.float64(math.pi) * 0.25
        with np.errstate(all="ignore"):
            value = ((_ANGLES[0, tap] * sine + _ANGLES[1, tap] * cosine) / (y * y)).astype(np.float32)
        coefficients[tap] = np.where(np.abs(distance) >= _LEAST_DISTANCE, value, np.float32(1e30))
        total = total + coefficients[tap]
    return coefficients * (np.float32(1) / total)


def _sum_taps(x: Array, indices: Array, weights: Array, axis: int) -> Array:
    """Return the int32 sums of the products of slices of an axis of [H, W, C] and their weights."""
    shape = [1, 1, 1]
    shape[axis] = -1
    total = np.int32(0)
    for index, weight in zip(indices, weights, strict=True):
        total = total + x.take(index, axis) * weight.reshape(shape)
    return np.asarray(total)


def _fixed_point(sums: Array) -> Array:
    """Round sums of products of two 11-bit coefficients to pixels, ties up."""
    bits = 2 * _COEFFICIENT_BITS
    pixels: Array = np.clip((sums + np.int32(1 << (bits - 1))) >> bits, 0, 255).astype(np.uint8)
    return pixels


def _mean_of_blocks(image: Array, block: tuple[int, int]) -> Array:
    """Return the mean of blocks of ``block`` pixels. Halves are rounded up in 2x2 blocks and to even in others."""
    height, width, channels = image.shape
    blocks = image.reshape(height // block[0], block[0], width // block[1], block[1], channels)
    sums = blocks.sum(axis=(1, 3), dtype=np.int32)
    if block == (2, 2):
        return np.asarray((sums + 2) >> 2, np.uint8)
    return _to_pixels(sums.astype(np.float32) * (np.float32(1) / np.float32(block[0] * block[1])))


def _sum_areas(x: Array, axis: int, new: int) -> Array:
    """Return the float32 means of the areas along an axis of [H, W, C], summed in the order of the pixels."""
    indices, weights = _areas(x.shape[axis], new)
    shape = [1, 1, 1]
    shape[axis] = new
    total = np.zeros((*x.shape[:axis], new, *x.shape[axis + 1 :]), np.float32)
    for index, weight in zip(indices.T, weights.T, strict=True):
        total += x.take(index, axis) * weight.reshape(shape)
    return total


def _areas(old: int, new: int) -> tuple[Array, Array]:
    """Return the pixels of each area and their shares of it, [new, most pixels]; the share of padding is 0."""
    scale = 1.0 / (new / old)
    areas: list[list[tuple[int, float]]] = []
    for index in range(new):
        start, stop = index * scale, index * scale + scale
        cell = min(scale, old - start)
        last = min(math.floor(stop), old - 1)
        first = min(math.ceil(start), last)
        area = [(first - 1, (first - start) / cell)] if first - start > _LEAST_SHARE else []
        area += [(pixel, 1.0 / cell) for pixel in range(first, last)]
        if stop - last > _LEAST_SHARE:
            area.append((last, min(min(stop - last, 1.0), cell) / cell))
        areas.append(area)
    largest = max(map(len, areas))
    indices, weights = np.zeros((new, largest), np.int64), np.zeros((new, largest), np.float32)
    for index, area in enumerate(areas):
        indices[index, : len(area)], weights[index, : len(area)] = zip(*area, strict=True)
    return indices, weights


def _to_pixels(x: Array) -> Array:
    pixels: Array = np.clip(np.rint(x), 0, 255).astype(np.uint8)
    return pixels
