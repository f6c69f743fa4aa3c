"""Steps of the integer convolution kernel, for conv and deconv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tpuconvert.runtime.native.builder import Builder
from tpuconvert.runtime.native.epilogue import Epilogue
from tpuconvert.runtime.native.storage import Stored
from tpuconvert.schema.convolution_params import ConvolutionParams
from tpuconvert.schema.types import Array


@dataclass(frozen=True)
class Residual:
    """Residual add of a conv; see int8/epilogue/residual.h. Vectors have one element, or one per channel.

    Args:
        other: the other operand, of the result's shape, channels-last.
        factor: multiplier of the stored result of the conv.
        other_factor: multiplier of the other operand.
        offset: including rounding constants and zero points.
        shift: to the right.
        limits: of the stored result.
    """

    other: Stored
    factor: Array
    other_factor: Array
    offset: Array
    shift: int
    limits: tuple[int, int]

    def compiled(self, builder: Builder) -> Any:
        """Return the spec of the extension."""
        image, _, row, pixel = self.other.strides
        return builder.native.ResidualSpec(
            other=builder.place(self.other),
            pixel=pixel,
            row=row,
            image=image,
            factor=np.asarray(self.factor, np.int32),
            other_factor=np.asarray(self.other_factor, np.int32),
            offset=np.asarray(self.offset, np.int32),
            shift=self.shift,
            low=self.limits[0],
            high=self.limits[1],
        )


@dataclass(frozen=True)
class Geometry:
    """Strides, dilations, leading pads and groups, vertical first; trailing pads follow from the extents."""

    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    groups: int = 1

    @staticmethod
    def of(op: ConvolutionParams) -> Geometry:
        """The geometry of an operator."""
        return Geometry((op.stride_h, op.stride_w), (op.dh, op.dw), (op.pad_h_t, op.pad_w_l), op.groups)

    def window(self, kernel: tuple[int, int]) -> dict[str, int]:
        """Fields of a ``ConvGeometry`` for a kernel of this size."""
        return {
            "kernel_h": kernel[0],
            "kernel_w": kernel[1],
            "stride_h": self.strides[0],
            "stride_w": self.strides[1],
            "dilation_h": self.dilations[0],
            "dilation_w": self.dilations[1],
            "pad_top": self.pads[0],
            "pad_left": self.pads[1],
            "groups": self.groups,
        }


def convolve(
    builder: Builder,
    x: Stored,
    y: Stored,
    *,
    shape: tuple[int, ...],
    out_shape: tuple[int, ...],
    weights: Array,
    weight_zeros: tuple[int, ...],
    bias: Array | None,
    input_zero: int,
    geometry: Geometry,
    epilogue: Epilogue,
    input_skip: int = 0,
    output_skip: int = 0,
    output_steps: tuple[int, int] | None = None,
    residual: Residual | None = None,
) -> None:
    """Add one convolution step.

    Args:
        builder: the plan.
        x: the operand, channels last.
        y: the result, channels last.
        shape: [N, C, H, W] of the operand for the kernel.
        out_shape: the same of the result.
        weights: [out, in of a group, kernel_h, kernel_w].
        weight_zeros: one, or one per output channel.
        bias: one integer per output channel, or None.
        input_zero: zero point of the stored operand.
        geometry: strides, dilations, pads and groups.
        epilogue: applied to the accumulators.
        input_skip: byte offset of the kernel's operand in x.
        output_skip: the same for y.
        output_steps: pixel and row stride of the result in bytes, unless it is contiguous.
        residual: added to the result.
    """
    native = builder.native
    batch, channels, height, width = shape
    _, out_channels, out_height, out_width = out_shape
    image = x.row_bytes * x.size // max(batch * x.memory_shape[-1], 1)
    in_row = image // max(_rows(x, height), 1)
    out_pixel, out_row = output_steps or (y.row_bytes, y.row_bytes * out_width)
    out_image = y.row_bytes * y.size // max(batch * y.memory_shape[-1], 1)
    spec = native.ConvInt8Spec(
        input=native.Place(x.buffer.index, x.offset + input_skip),
        output=native.Place(y.buffer.index, y.offset + output_skip),
        geometry=native.ConvGeometry(
            batch=batch,
            height=height,
            width=width,
            in_channels=channels,
            out_height=out_height,
            out_width=out_width,
            out_channels=out_channels,
            in_pixel=x.row_bytes,
            in_row=in_row,
            in_image=image,
            out_pixel=out_pixel,
            out_row=out_row,
            out_image=out_image,
            **geometry.window((weights.shape[2], weights.shape[3])),
        ),
        weights=weights,
        epilogue=epilogue.compiled(out_channels),
        weight_zero=np.asarray(weight_zeros, np.int32),
        bias=None if bias is None else bias.astype(np.int32, copy=False),
        input_zero=input_zero,
        residual=None if residual is None else residual.compiled(builder),
    )
    builder.step("conv_int8", spec, (x,) if residual is None else (x, residual.other), (y,))


def _rows(x: Stored, height: int) -> int:
    """Number of rows of an image; a matrix has one row."""
    return x.shape[2] if len(x.shape) == 4 else height


def convolve_transposed(
    builder: Builder,
    x: Stored,
    y: Stored,
    *,
    shape: tuple[int, ...],
    out_shape: tuple[int, ...],
    weights: Array,
    weight_zeros: tuple[int, ...],
    bias: Array | None,
    input_zero: int,
    geometry: Geometry,
    epilogue: Epilogue,
) -> None:
    """Add the steps of a transposed convolution without dilation: one ordinary convolution per phase of the strides.

    Result rows of phase p, those with (row + pad) mod stride = p, get contributions only from kernel rows p,
    p + stride, ...: a convolution of stride 1 with those rows in reverse, written to every stride-th row.
    Weights are [in, out of a group, kernel_h, kernel_w].
    """
    groups = geometry.groups
    inputs, outputs = weights.shape[:2]
    kernels = weights.reshape(groups, inputs // groups, outputs, *weights.shape[2:]).swapaxes(1, 2)
    kernels = kernels.reshape(groups * outputs, inputs // groups, *weights.shape[2:])
    for down in axis_phases(shape[2], out_shape[2], weights.shape[2], geometry.strides[0], geometry.pads[0]):
        for along in axis_phases(shape[3], out_shape[3], weights.shape[3], geometry.strides[1], geometry.pads[1]):
            part = kernels[:, :, down.taps][:, :, :, along.taps]
            if part.size == 0:  # bias only: one tap with weight 0
                nothing = np.broadcast_to(np.asarray(weight_zeros), len(kernels)).astype(weights.dtype)
                part = np.broadcast_to(nothing.reshape(-1, 1, 1, 1), (len(kernels), inputs // groups, 1, 1))
            convolve(
                builder,
                x,
                y,
                shape=(*shape[:2], shape[2] - down.skip, shape[3] - along.skip),
                out_shape=(*out_shape[:2], down.count, along.count),
                weights=np.ascontiguousarray(part),
                weight_zeros=weight_zeros,
                bias=bias,
                input_zero=input_zero,
                geometry=Geometry(pads=(down.pad, along.pad), groups=groups),
                epilogue=epilogue,
                input_skip=down.skip * x.strides[2] + along.skip * x.strides[3],
                output_skip=down.start * y.strides[2] + along.start * y.strides[3],
                output_steps=(y.strides[3] * geometry.strides[1], y.strides[2] * geometry.strides[0]),
            )


@dataclass(frozen=True)
class _Phase:
    """One phase of one axis: kernel taps, first result, number of results, pad, and offset of the operand."""

    taps: slice
    start: int
    count: int
    pad: int
    skip: int


def axis_phases(extent: int, out_extent: int, kernel: int, stride: int, pad: int) -> list[_Phase]:
    """Phases of one axis of a deconv that have results, for any stride."""
    found = []
    for phase in sorted((first + pad) % stride for first in range(min(stride, out_extent))):
        start = (phase - pad) % stride
        count = -(-(out_extent - start) // stride)
        taps = len(range(phase, kernel, stride))
        # Result start + stride * r has row (start + pad - phase) / stride + r minus tap as its operand.
        lead = taps - 1 - (start + pad - phase) // stride if taps else 0
        if -lead >= extent:  # all windows are after the operand
            taps, lead = 0, 0
        skip = min(max(-lead, 0), extent - 1)
        last = phase + stride * (taps - 1)
        reverse = slice(last, phase - 1 if phase else None, -stride) if taps else slice(0, 0)
        found.append(_Phase(reverse, start, count, lead + skip, skip))
    return found
