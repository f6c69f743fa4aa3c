"""Steps of the float convolution kernel, for conv, deconv and matmul."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tpuconvert.runtime.native.builder import Builder
from tpuconvert.runtime.native.integer_convolution import Geometry, axis_phases
from tpuconvert.runtime.native.storage import Stored
from tpuconvert.schema.types import Array


@dataclass(frozen=True)
class Image:
    """A stored tensor as channels-last images, or a matrix as one image with one row.

    Args:
        stored: the tensor that owns the memory.
        shape: [N, C, H, W].
        strides: of images, rows and pixels, in bytes.
        skip: byte offset of the images in the tensor.
    """

    stored: Stored
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int]
    skip: int = 0

    @staticmethod
    def of(stored: Stored) -> Image:
        """Return a channels-last tensor [N, C, H, W] as images."""
        n, c, h, w = stored.shape
        image, _, row, pixel = stored.strides
        return Image(stored, (n, c, h, w), (image, row, pixel))

    @staticmethod
    def of_matrix(stored: Stored, columns: int) -> Image:
        """Return a row-major tensor as a matrix with this number of columns, whose rows are pixels."""
        rows = stored.size // columns
        pitch = stored.row_bytes if stored.shape[-1] == columns else columns * stored.itemsize
        return Image(stored, (1, columns, 1, rows), (pitch * rows, pitch * rows, pitch))

    def place(self, builder: Builder) -> Any:
        """Return the address of the images."""
        return builder.native.Place(self.stored.buffer.index, self.stored.offset + self.skip)


def geometry_of(builder: Builder, x: Image, y: Image, kernel: tuple[int, int], geometry: Geometry) -> Any:
    """Return the ``ConvGeometry`` of a sliding window."""
    batch, in_channels, height, width = x.shape
    _, out_channels, out_height, out_width = y.shape
    in_image, in_row, in_pixel = x.strides
    out_image, out_row, out_pixel = y.strides
    return builder.native.ConvGeometry(
        batch=batch,
        height=height,
        width=width,
        in_channels=in_channels,
        out_height=out_height,
        out_width=out_width,
        out_channels=out_channels,
        in_image=in_image,
        in_row=in_row,
        in_pixel=in_pixel,
        out_image=out_image,
        out_row=out_row,
        out_pixel=out_pixel,
        **geometry.window(kernel),
    )


@dataclass(frozen=True)
class FloatEpilogue:
    """Epilogue of a float linear operator.

    Args:
        residual: a tensor with the layout of the result, which is added unless there is a tail.
        limits: clamp after the residual add.
        tail: element-wise operations in place of add and clamp: name, 1 for the residual or -1 for the first number,
            two numbers.
        is_precise: True to sum in float64.
    """

    residual: Stored | None = None
    limits: tuple[float, float] | None = None
    tail: tuple[tuple[str, int, float, float], ...] = ()
    is_precise: bool = False


def convolve(
    builder: Builder,
    x: Image,
    y: Image,
    weights: Array,
    bias: Array | None,
    geometry: Geometry,
    epilogue: FloatEpilogue,
) -> None:
    """Add one convolution step; weights are [out, in of a group, kernel_h, kernel_w], the bias [out]."""
    native, residual = builder.native, epilogue.residual
    spec = native.ConvFloatSpec(
        input=x.place(builder),
        output=y.place(builder),
        geometry=geometry_of(builder, x, y, (weights.shape[2], weights.shape[3]), geometry),
        weights=weights,
        bias=None if bias is None else np.ascontiguousarray(bias, np.float32),
        residual=None if residual is None else native.Place(residual.buffer.index, residual.offset + y.skip),
        limits=epilogue.limits,
        tail=list(epilogue.tail),
        is_precise=epilogue.is_precise,
    )
    builder.step("conv_float32", spec, (x.stored,) if residual is None else (x.stored, residual), (y.stored,))


def convolve_transposed(
    builder: Builder,
    x: Image,
    y: Image,
    weights: Array,
    bias: Array | None,
    geometry: Geometry,
    epilogue: FloatEpilogue,
) -> None:
    """Add the steps of a transposed convolution: one ordinary convolution per phase of the strides.

    Result rows of phase p, those with (row + pad) mod stride = p, get contributions only from kernel rows p,
    p + stride, ...: a convolution of stride 1 with those rows in reverse, written to every stride-th row.
    Weights are [in, out of a group, kernel_h, kernel_w].
    """
    groups, (inputs, outputs) = geometry.groups, weights.shape[:2]
    kernels = weights.reshape(groups, inputs // groups, outputs, *weights.shape[2:]).swapaxes(1, 2)
    kernels = _dilate(kernels.reshape(groups * outputs, inputs // groups, *weights.shape[2:]), geometry.dilations)
    (image, channels, height, width), (_, _, out_height, out_width) = x.shape, y.shape
    for down in axis_phases(height, out_height, kernels.shape[2], geometry.strides[0], geometry.pads[0]):
        for along in axis_phases(width, out_width, kernels.shape[3], geometry.strides[1], geometry.pads[1]):
            part = kernels[:, :, down.taps][:, :, :, along.taps]
            if part.size == 0:  # bias only: one tap with weight 0
                part = np.zeros((*kernels.shape[:2], 1, 1), np.float32)
            source = replace(
                x,
                shape=(image, channels, height - down.skip, width - along.skip),
                skip=down.skip * x.strides[1] + along.skip * x.strides[2],
            )
            target = replace(
                y,
                shape=(image, y.shape[1], down.count, along.count),
                strides=(y.strides[0], y.strides[1] * geometry.strides[0], y.strides[2] * geometry.strides[1]),
                skip=down.start * y.strides[1] + along.start * y.strides[2],
            )
            pads = Geometry(pads=(down.pad, along.pad), groups=groups)
            convolve(builder, source, target, part, bias, pads, epilogue)


def _dilate(kernels: Array, dilations: tuple[int, int]) -> Array:
    """Insert zeros between the taps of kernels."""
    (dh, dw), (kh, kw) = dilations, kernels.shape[2:]
    if dilations == (1, 1):
        return kernels
    wide = np.zeros((*kernels.shape[:2], dh * (kh - 1) + 1, dw * (kw - 1) + 1), kernels.dtype)
    wide[:, :, ::dh, ::dw] = kernels
    return wide
