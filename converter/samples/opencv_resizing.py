"""Resizing of uint8 images with the results of OpenCV's ``cv2.resize``, in NumPy.

Sources: ``modules/imgproc/src/resize.cpp`` of OpenCV 4 and 5. Each method has the arithmetic of OpenCV's 8-bit path:
fixed point for ``linear``, float32 for ``area``. The tests compare the pixels with those of OpenCV.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tpuconvert.schema.types import Array

_COEFFICIENT_BITS = 11  # INTER_RESIZE_COEF_BITS
_COEFFICIENT_SCALE = np.float32(1 << _COEFFICIENT_BITS)

_Taps = tuple[Array, Array, tuple[Array, Array]]
"""Indices of the two pixels of each result pixel along an axis, and their coefficients: int32 in units of 2^-11."""

_LEAST_SHARE = 1e-3  # shares of a pixel up to this are ignored by computeResizeAreaTab


def resize_nearest(image: Array, size: tuple[int, int]) -> Array:
    """Resize by the pixel at or before ``index * scale``, as ``INTER_NEAREST``.

    Args:
        image: uint8 [H, W, C].
        size: (height, width) of the result.

    """
    rows, columns = (
        np.minimum(np.floor(np.arange(new) * (1.0 / (new / old))).astype(np.int64), old - 1)
        for new, old in zip(size, image.shape[:2], strict=True)
    )
    resized: Array = image[rows[:, None], columns[None, :]]
    return resized


def resize_linear(image: Array, size: tuple[int, int]) -> Array:
    """Resize bilinearly without antialiasing, as ``INTER_LINEAR``: 11-bit coefficients, rounded once at the end.

    Halving both sides is the mean of four pixels, as in OpenCV.

    Args:
        image: uint8 [H, W, C].
        size: (height, width) of the result.

    """
    height, width = image.shape[:2]
    if (height, width) == (2 * size[0], 2 * size[1]):
        return _mean_of_blocks(image, (2, 2))
    horizontal = _taps(width, size[1], zero_outside=True)
    return _resize_by_taps(image, horizontal, _taps(height, size[0], zero_outside=False))


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


RESIZERS: dict[str, Callable[[Array, tuple[int, int]], Array]] = {
    "opencv-nearest": resize_nearest,
    "opencv-linear": resize_linear,
    "opencv-area": resize_area,
}
"""Functions from uint8 [H, W, C] and (height, width) to uint8 [height, width, C], by the value of ``resize=``."""


def _resize_by_taps(image: Array, horizontal: _Taps, vertical: _Taps) -> Array:
    first, second, alpha = horizontal
    wide = image.astype(np.int32)
    rows = wide[:, first] * alpha[0][:, None] + wide[:, second] * alpha[1][:, None]
    first, second, beta = vertical
    # |rows| <= 255 * 2^11 < 2^19, shifted by 4: the products are below 2^15 * 2^11.
    upper = (beta[0][:, None, None] * (rows[first] >> 4)) >> 16
    lower = (beta[1][:, None, None] * (rows[second] >> 4)) >> 16
    resized: Array = np.clip((upper + lower + 2) >> 2, 0, 255).astype(np.uint8)
    return resized


def _taps(old: int, new: int, *, zero_outside: bool) -> _Taps:
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


def _area_taps(old: int, new: int) -> _Taps:
    """Return the taps of ``INTER_AREA`` if a side of the image is enlarged."""
    scale = 1.0 / (new / old)
    indices = np.arange(new)
    start = np.floor(indices * scale).astype(np.int64)
    fraction = ((indices + 1) - (start + 1) * (new / old)).astype(np.float32)
    fraction = np.where(fraction <= 0, np.float32(0), fraction - np.floor(fraction))
    return _rounded_taps(start, np.where(start >= old - 1, np.float32(0), fraction), old)


def _rounded_taps(start: Array, fraction: Array, old: int) -> _Taps:
    coefficients = (
        np.rint((np.float32(1) - fraction) * _COEFFICIENT_SCALE).astype(np.int32),
        np.rint(fraction * _COEFFICIENT_SCALE).astype(np.int32),
    )
    return np.clip(start, 0, old - 1), np.clip(start + 1, 0, old - 1), coefficients


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
    most = max(map(len, areas))
    indices, weights = np.zeros((new, most), np.int64), np.zeros((new, most), np.float32)
    for index, area in enumerate(areas):
        indices[index, : len(area)], weights[index, : len(area)] = zip(*area, strict=True)
    return indices, weights


def _to_pixels(x: Array) -> Array:
    pixels: Array = np.clip(np.rint(x), 0, 255).astype(np.uint8)
    return pixels
