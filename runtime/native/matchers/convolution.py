"""Geometry of the convolution kernels: images, sliding windows and the phases of transposed convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.storage import Stored
from tpuconvert.schema.ops.convolution.convolution_params import ConvolutionParams
from tpuconvert.schema.types import Array


class Geometry(NamedTuple):
    """Strides, dilations, leading pads and groups; vertical values first. Trailing pads follow from the extents."""

    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    groups: int = 1

    @staticmethod
    def of(op: ConvolutionParams) -> Geometry:
        """Return the geometry of a convolution operator."""
        return Geometry((op.stride_h, op.stride_w), (op.dh, op.dw), (op.pad_h_t, op.pad_w_l), op.groups)


class Image(NamedTuple):
    """View of a stored tensor as channels-last images, or of a matrix as one image with one row.

    Args:
        stored: the tensor, whose offset is the offset of the first image.
        shape: [N, C, H, W].
        strides: distances of images, rows and pixels, in bytes.
    """

    stored: Stored
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int]

    @staticmethod
    def of(stored: Stored) -> Image:
        """Return a channels-last tensor [N, C, H, W] as images."""
        n, c, h, w = stored.shape
        image, _, row, pixel = stored.strides
        return Image(stored, (n, c, h, w), (image, row, pixel))

    @staticmethod
    def of_matrix(stored: Stored, columns: int) -> Image:
        """View a row-major tensor as a matrix with ``columns`` columns. Its rows are the pixels of the image."""
        rows = stored.size // columns
        pitch = stored.row_bytes if stored.shape[-1] == columns else columns * stored.itemsize
        return Image(stored, (1, columns, 1, rows), (pitch * rows, pitch * rows, pitch))

    def part(self, start: tuple[int, int], extents: tuple[int, int], steps: tuple[int, int] = (1, 1)) -> Image:
        """Slice the image: ``extents`` rows and columns from ``start``, with the steps ``steps``."""
        image, row, pixel = self.strides
        stored = self.stored._replace(offset=self.stored.offset + start[0] * row + start[1] * pixel)
        return Image(stored, (*self.shape[:2], *extents), (image, row * steps[0], pixel * steps[1]))


def geometry_of(builder: Builder, x: Image, y: Image, kernel: Sequence[int], geometry: Geometry) -> Any:
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
        kernel_h=kernel[0],
        kernel_w=kernel[1],
        stride_h=geometry.strides[0],
        stride_w=geometry.strides[1],
        dilation_h=geometry.dilations[0],
        dilation_w=geometry.dilations[1],
        pad_top=geometry.pads[0],
        pad_left=geometry.pads[1],
        groups=geometry.groups,
    )


def transposed_phases(
    x: Image, y: Image, weights: Array, geometry: Geometry, zeros: Sequence[int] = (0,)
) -> Iterator[tuple[Image, Image, Array, Geometry]]:
    """Split a transposed convolution into ordinary convolutions, one per phase of the strides.

    Result rows of phase p, those with (row + pad) mod stride = p, get contributions only from kernel rows p, p +
    stride, ...: the phase is a convolution of stride 1 with these kernel rows in reverse order, written to every
    stride-th row.

    Args:
        x: the operand.
        y: the result.
        weights: weights [in, out of a group, kernel_h, kernel_w].
        geometry: geometry of the transposed convolution.
        zeros: one zero point of the weights, or one per output channel.
    """
    groups, (inputs, outputs) = geometry.groups, weights.shape[:2]
    kernels = weights.reshape(groups, inputs // groups, outputs, *weights.shape[2:]).swapaxes(1, 2)
    kernels = _dilate(kernels.reshape(groups * outputs, inputs // groups, *weights.shape[2:]), geometry.dilations)
    rows, columns = (
        axis_phases(x.shape[axis + 2], y.shape[axis + 2], kernels.shape[axis + 2], stride, pad)
        for axis, (stride, pad) in enumerate(zip(geometry.strides, geometry.pads, strict=True))
    )
    for down in rows:
        for along in columns:
            part = kernels[:, :, down.taps][:, :, :, along.taps]
            if part.size == 0:  # Only the bias contributes: use one tap with weight 0.
                taps = np.asarray(zeros).astype(weights.dtype).reshape(-1, 1, 1, 1)
                part = np.broadcast_to(taps, (*kernels.shape[:2], 1, 1))
            source = x.part((down.skip, along.skip), (x.shape[2] - down.skip, x.shape[3] - along.skip))
            target = y.part((down.start, along.start), (down.count, along.count), geometry.strides)
            yield source, target, part, Geometry(pads=(down.pad, along.pad), groups=groups)


def _dilate(kernels: Array, dilations: tuple[int, int]) -> Array:
    """Dilate kernels by zeros between the taps."""
    (dh, dw), (kh, kw) = dilations, kernels.shape[2:]
    if dilations == (1, 1):
        return kernels
    wide = np.zeros((*kernels.shape[:2], dh * (kh - 1) + 1, dw * (kw - 1) + 1), kernels.dtype)
    wide[:, :, ::dh, ::dw] = kernels
    return wide


@dataclass(frozen=True)
class _Phase:
    """One phase along an axis: kernel taps, first result, number of results, pad, number of skipped operand rows."""

    taps: slice
    start: int
    count: int
    pad: int
    skip: int


def axis_phases(extent: int, out_extent: int, kernel: int, stride: int, pad: int) -> list[_Phase]:
    """Return the phases of one axis of a deconv. Phases without results are omitted."""
    phases = []
    for phase in sorted((first + pad) % stride for first in range(min(stride, out_extent))):
        start = (phase - pad) % stride
        count = -(-(out_extent - start) // stride)
        taps = len(range(phase, kernel, stride))
        # Tap t of result start + stride * r reads the operand row (start + pad - phase) / stride + r - t.
        lead = taps - 1 - (start + pad - phase) // stride if taps else 0
        if -lead >= extent:  # All windows are past the end of the operand.
            taps, lead = 0, 0
        skip = min(max(-lead, 0), extent - 1)
        last = phase + stride * (taps - 1)
        reverse = slice(last, phase - 1 if phase else None, -stride) if taps else slice(0, 0)
        phases.append(_Phase(reverse, start, count, lead + skip, skip))
    return phases
