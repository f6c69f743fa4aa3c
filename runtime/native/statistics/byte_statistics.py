"""Sums over the integer operands of linear operators. All of them are exact; the native engine computes them faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tpuconvert.runtime.native.builder.loader import chosen_isa, extension
from tpuconvert.runtime.threads import available_threads
from tpuconvert.schema.ops.convolution.convolution_params import ConvolutionGeometry
from tpuconvert.schema.types import Array

MOST_OBSERVATIONS = 1 << 15
"""Maximum number of observations of ``multiply_inputs``: their products have a sum below 2^31, 2^15 * 255 * 255."""


def multiply_inputs(rows: Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the products of two inputs and the inputs, added up over observations.

    Args:
        rows: bytes, [groups, observations, inputs], in any memory order; at most ``MOST_OBSERVATIONS``.

    Returns:
        [groups, inputs, inputs] and [groups, inputs].
    """
    groups, count, inputs = rows.shape
    assert count <= MOST_OBSERVATIONS
    native = _function("multiply_inputs")
    if native is None:
        values = rows.astype(np.float64)
        return (values.swapaxes(1, 2) @ values).astype(np.int32), rows.sum(axis=1, dtype=np.int64)
    products, totals = np.empty((groups, inputs, inputs), np.int32), np.empty((groups, inputs), np.int64)
    native(rows, products, totals, chosen_isa(), available_threads())
    return products, totals


def window_sums(x: Array, geometry: ConvolutionGeometry, kernel: Sequence[int]) -> Array:
    """Sum the elements that each element of a kernel is multiplied with, over all positions of a convolution.

    Args:
        x: integers, [N, C, H, W] or [N, C, D, H, W], zero where padded.
        geometry: strides, dilations and pads.
        kernel: extents of the kernel.

    Returns:
        INT64 [N, C, *kernel].
    """
    native = _function("window_sums") if x.ndim == 4 and _has_bytes(x) else None
    if native is not None:
        result = np.empty((*x.shape[:2], *kernel), np.int64)
        native(np.ascontiguousarray(x), *_arguments(geometry, kernel), result)
        return result
    sums = x
    for axis, positions in enumerate(positions_of(x.shape[2:], geometry, kernel)):
        stride, taps = geometry.strides[axis], []
        for tap in range(kernel[axis]):
            start = tap * geometry.dilations[axis] - geometry.pads[axis][0]
            first, end = max(0, -(start // stride)), max(0, start + positions * stride)
            taps.append(sums[:, :, start + first * stride : end : stride].sum(axis=2, dtype=np.int64))
        sums = np.stack(taps, axis=-1)  # the remaining axes of the operand move forward
    return sums


def can_copy_windows(image: Array) -> bool:
    """Return True if ``copy_windows`` takes this image."""
    return image.ndim == 3 and image.dtype.itemsize in (1, 4) and _function("copy_windows") is not None


def copy_windows(
    image: Array,
    geometry: ConvolutionGeometry,
    kernel: Sequence[int],
    positions: npt.NDArray[np.int64],
    windows: Array,
    first: int,
) -> None:
    """Write the windows of a convolution at some positions to columns of a matrix.

    Args:
        image: operand, [C, H, W], zero where padded; see ``can_copy_windows``.
        geometry: strides, dilations and pads.
        kernel: extents of the kernel.
        positions: indices into the flattened result.
        windows: [C * kernel size, columns], of the type of ``image``, contiguous.
        first: column of the first position.
    """
    bits = np.uint8 if image.dtype.itemsize == 1 else np.uint32
    image_bits = np.ascontiguousarray(image).view(bits)
    _function("copy_windows")(image_bits, *_arguments(geometry, kernel), positions, windows.view(bits), first)


def positions_of(extents: Sequence[int], geometry: ConvolutionGeometry, kernel: Sequence[int]) -> list[int]:
    """Extents of the result of a convolution of an image with ``extents``."""
    return [
        (extent + sum(pads) - dilation * (taps - 1) - 1) // stride + 1
        for extent, pads, dilation, taps, stride in zip(
            extents, geometry.pads, geometry.dilations, kernel, geometry.strides, strict=True
        )
    ]


def _arguments(geometry: ConvolutionGeometry, kernel: Sequence[int]) -> tuple[Any, ...]:
    return tuple(kernel), tuple(geometry.strides), tuple(geometry.dilations), tuple(map(tuple, geometry.pads))


def _has_bytes(array: Array) -> bool:
    return array.dtype.kind in "iu" and array.dtype.itemsize == 1


def _function(name: str) -> Any:
    """Return a function of the extension, or None if NumPy has to compute the sums."""
    return getattr(extension(), name, None)
