"""Windows of the operand of a convolution at evenly spread positions of its result."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tpuconvert.optimizer.quantize.weight_rounding import patches
from tpuconvert.runtime.byte_statistics import can_copy_windows, copy_windows, positions_of
from tpuconvert.schema.convolution_params import SpatialConvolution
from tpuconvert.schema.types import Array


def windows_of(images: Sequence[Array], op: SpatialConvolution, kernel: Sequence[int], most: int) -> Array:
    """Extract the windows of a convolution.

    Args:
        images: operands of one type, [C, H, W] or [C, D, H, W], zero where padded.
        op: strides, dilations, pads and groups.
        kernel: extents of the kernel.
        most: maximum number of positions of each image.

    Returns:
        [groups, positions of all images, C / groups * kernel size].
    """
    if not all(map(can_copy_windows, images)):
        rows = [patches(image[np.newaxis], op, tuple(kernel), most) for image in images]
        return np.concatenate(rows, axis=1)
    chosen = [choose_positions(math.prod(positions_of(image.shape[1:], op.geometry, kernel)), most) for image in images]
    columns = np.empty((len(images[0]) * math.prod(kernel), sum(map(len, chosen))), images[0].dtype)
    first = 0
    for image, positions in zip(images, chosen, strict=True):
        copy_windows(image, op.geometry, kernel, positions, columns, first)
        first += len(positions)
    return columns.reshape(op.geometry.groups, -1, first).swapaxes(1, 2)


def choose_positions(total: int, most: int) -> npt.NDArray[np.int64]:
    """Evenly spread indices below ``total``, at most ``most``."""
    return np.unique(np.linspace(0, total - 1, min(total, most)).astype(np.int64))
