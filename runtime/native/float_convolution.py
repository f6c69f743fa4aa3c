"""Steps of the float convolution kernel for ordinary and transposed convolutions and for matrix products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpuconvert.runtime.native.builder import Builder
from tpuconvert.runtime.native.integer_convolution import Geometry
from tpuconvert.runtime.native.storage import Stored
from tpuconvert.schema.types import Array


@dataclass(frozen=True)
class Image:
    """A stored tensor as the kernel sees it: channels-last images, or a matrix as one image of one row.

    Args:
        stored: whose memory it is.
        shape: [N, C, H, W].
        strides: bytes between neighbouring images, rows and pixels.
        skip: bytes from the start of the tensor to where the images start.
    """

    stored: Stored
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int]
    skip: int = 0

    @staticmethod
    def of(stored: Stored) -> Image:
        """A tensor [N, C, H, W] that lies channels-last."""
        n, c, h, w = stored.shape
        image, _, row, pixel = stored.strides
        return Image(stored, (n, c, h, w), (image, row, pixel))

    @staticmethod
    def of_matrix(stored: Stored) -> Image:
        """A row-major tensor [..., M, K] whose rows are pixels."""
        columns = stored.shape[-1]
        rows = stored.size // max(columns, 1)
        return Image(
            stored, (1, columns, 1, rows), (stored.row_bytes * rows, stored.row_bytes * rows, stored.row_bytes)
        )


@dataclass(frozen=True)
class Finish:
    """What follows the sums: a tensor that lies as the result does is added, then limits apply; in binary64 or not."""

    residual: Stored | None = None
    limits: tuple[float, float] | None = None
    is_precise: bool = False


def convolve(
    builder: Builder, x: Image, y: Image, weights: Array, bias: Array | None, geometry: Geometry, finish: Finish
) -> None:
    """Add one convolution step; weights are [out, in of a group, kernel_h, kernel_w], the bias [out]."""
    native = builder.native
    found = native.ConvGeometry()
    found.batch, found.in_channels, found.height, found.width = x.shape
    _, found.out_channels, found.out_height, found.out_width = y.shape
    found.kernel_h, found.kernel_w = weights.shape[2:]
    found.stride_h, found.stride_w = geometry.strides
    found.dilation_h, found.dilation_w = geometry.dilations
    found.pad_top, found.pad_left = geometry.pads
    found.groups = geometry.groups
    found.in_image, found.in_row, found.in_pixel = x.strides
    found.out_image, found.out_row, found.out_pixel = y.strides
    residual = finish.residual
    step = native.conv_float32(
        native.Place(x.stored.buffer.index, x.stored.offset + x.skip),
        native.Place(y.stored.buffer.index, y.stored.offset + y.skip),
        found,
        weights,
        builder.isa,
        bias=None if bias is None else np.ascontiguousarray(bias, np.float32),
        residual=None if residual is None else native.Place(residual.buffer.index, residual.offset + y.skip),
        limits=finish.limits,
        is_precise=finish.is_precise,
    )
    builder.step(step, (x.stored,) if residual is None else (x.stored, residual), (y.stored,))
