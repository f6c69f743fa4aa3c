"""Windows of the operand of a convolution at evenly spread positions of its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tpuconvert.optimizer.quantize.weights.weight_rounding import patches
from tpuconvert.runtime.native.statistics.byte_statistics import can_copy_windows, copy_windows, positions_of
from tpuconvert.schema.ops.convolution.convolution_params import SpatialConvolution
from tpuconvert.schema.types import Array

_OBSERVATIONS = 8192
"""Number of positions in the operand of a linear operator, over all samples, from which the covariance is computed. If
four times the number of inputs is more, that number is used."""


def positions_per_image(inputs: int, images: int) -> int:
    """Maximum number of positions of each image from which the covariance of the inputs is computed."""
    return max(_OBSERVATIONS, 4 * inputs) // images + 1


def windows_of(images: Sequence[Array], op: SpatialConvolution, kernel: Sequence[int], limit: int) -> Array:
    """Extract the windows of a convolution.

    Args:
        images: operands of one type, [C, H, W] or [C, D, H, W], zero where padded.
        op: strides, dilations, pads and groups.
        kernel: extents of the kernel.
        limit: maximum number of positions of each image.

    Returns:
        [groups, positions of all images, C / groups * kernel size].
    """
    if not all(map(can_copy_windows, images)):
        rows = [patches(image[np.newaxis], op, tuple(kernel), limit) for image in images]
        return np.concatenate(rows, axis=1)
    chosen = [choose_positions(math.prod(positions_of(x.shape[1:], op.geometry, kernel)), limit) for x in images]
    columns = np.empty((len(images[0]) * math.prod(kernel), sum(map(len, chosen))), images[0].dtype)
    first = 0
    is_pointwise = max(kernel) == 1 and not any(map(any, op.geometry.pads))
    for image, positions in zip(images, chosen, strict=True):
        if is_pointwise and not image.flags.c_contiguous:
            strided = image[(slice(None), *(slice(None, None, stride) for stride in op.geometry.strides))]
            indices: tuple[Any, ...] = (slice(None), *np.unravel_index(positions, strided.shape[1:]))
            columns[:, first : first + len(positions)] = strided[indices]
        else:
            copy_windows(image, op.geometry, kernel, positions, columns, first)
        first += len(positions)
    return columns.reshape(op.geometry.groups, -1, first).swapaxes(1, 2)


def choose_positions(total: int, limit: int) -> npt.NDArray[np.int64]:
    """Evenly spread indices below ``total``, at most ``limit``."""
    return np.unique(np.linspace(0, total - 1, min(total, limit)).astype(np.int64))
