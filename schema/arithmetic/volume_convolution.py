"""Three-dimensional convolution and transposed convolution, computed with the two-dimensional ones.

The kernel positions on the first spatial axis (depth or time, t here) become channels: of the input for a convolution,
of the result for a transposed convolution, whose planes are then accumulated. As in the two-dimensional convolutions,
integers are exact, memory is bounded, and floats are rounded once.

Source: docs/inside/semantics.md, sections 4 and 8.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from tpuconvert.schema.arithmetic.convolution import Window, convolve
from tpuconvert.schema.arithmetic.integer_product import integer_convolution, integer_transposed_convolution
from tpuconvert.schema.types import Array


class VolumeWindow(NamedTuple):
    """Geometry of a 3-D convolution: ``plane`` for h and w, the other fields for t. Pads are (before, after)."""

    plane: Window
    kernel: int
    stride: int = 1
    dilation: int = 1
    pads: tuple[int, int] = (0, 0)

    @property
    def reach(self) -> int:
        """Planes that one window covers, including the gaps of dilation."""
        return self.dilation * (self.kernel - 1) + 1


def convolve_volume(x: Array, w: Array, window: VolumeWindow, out: npt.DTypeLike, *, bias: Array | None) -> Array:
    """Convolution in the type of ``w``, rounded once to ``out``.

    Shapes: x [N, ic, T, H, W], w [oc, ic/groups, kt, kh, kw], bias [oc] or None; the result is [N, oc, ot, oh, ow].
    """
    kernels = _flat_kernels(w)
    planes = [
        convolve(_taps(image, window, 0), kernels, window.plane, out, bias=bias) for image in x
    ]  # one array [ot, oc, oh, ow] per image
    return np.stack(planes).transpose(0, 2, 1, 3, 4)


def integer_volume_convolution(
    x: Array, w: Array, window: VolumeWindow, *, x_zero: Array | int = 0, w_zero: Array | int = 0
) -> Array:
    """Exact convolution of (x - x_zero) with (w - w_zero). Padding contributes 0.

    Shapes: x [N, ic, T, H, W], w [oc, ic/groups, kt, kh, kw], x_zero scalar or [ic], w_zero scalar or [oc]; the result
    is [N, oc, ot, oh, ow] of type INT32 if all possible sums fit, else INT64.
    """
    kernels, zero = _flat_kernels(w), np.asarray(x_zero)
    per_tap = np.repeat(zero, window.kernel) if zero.ndim else zero
    planes = [
        integer_convolution(_taps(image, window, zero), kernels, window.plane, x_zero=per_tap, w_zero=w_zero)
        for image in x
    ]
    return np.stack(planes).transpose(0, 2, 1, 3, 4)


def _taps(image: Array, window: VolumeWindow, zero: Array | int) -> Array:
    """Gather the planes of every window along t as channels. Shapes: [ic, T, H, W] to [ot, ic * kt, H, W].

    Planes of padding contain the zero point, so that they are 0 after it is subtracted.
    """
    channels, count, height, width = image.shape
    before, after = window.pads
    padded = np.empty((channels, before + count + after, height, width), image.dtype)
    padded[:] = np.asarray(zero).reshape(-1, 1, 1, 1)
    padded[:, before : before + count] = image
    # [ic, ot, H, W, kt]
    windows = sliding_window_view(padded, window.reach, axis=1)[:, :: window.stride, :, :, :: window.dilation]
    return windows.transpose(1, 0, 4, 2, 3).reshape(windows.shape[1], -1, height, width)


def _flat_kernels(w: Array) -> Array:
    """Reshape kernels from [first, second, kt, kh, kw] to [first, second * kt, kh, kw]."""
    return w.reshape(w.shape[0], -1, *w.shape[3:])


def integer_volume_transposed_convolution(
    x: Array, w: Array, window: VolumeWindow, *, x_zero: Array | int = 0, w_zero: Array | int = 0
) -> Array:
    """Exact transposed convolution of (x - x_zero) with (w - w_zero).

    Shapes: x [N, ic, T, H, W], w [ic, oc/groups, kt, kh, kw], x_zero scalar or [ic], w_zero scalar or [oc]; the result
    is [N, oc, ot, oh, ow] of type INT64.
    """
    zero = np.asarray(w_zero)
    per_tap = np.repeat(zero, window.kernel) if zero.ndim else zero
    planes = integer_transposed_convolution(_planes(x), _flat_kernels(w), window.plane, x_zero=x_zero, w_zero=per_tap)
    return _accumulate_planes(planes.astype(np.int64), x, window)


def _planes(x: Array) -> Array:
    """Convert [N, ic, T, H, W] to [N * T, ic, H, W]."""
    return x.transpose(0, 2, 1, 3, 4).reshape(-1, x.shape[1], *x.shape[3:])


def _accumulate_planes(planes: Array, x: Array, window: VolumeWindow) -> Array:
    """Accumulate the planes [N * T, oc * kt, oh, ow] along t; a negative pad after the end appends zero planes."""
    images, count = x.shape[0], x.shape[2]
    parts = planes.reshape(images, count, -1, window.kernel, *planes.shape[2:])
    before, after = window.pads
    length = (count - 1) * window.stride + window.reach
    full = np.zeros((images, parts.shape[2], length + max(-after, 0), *planes.shape[2:]), planes.dtype)
    for tap in range(window.kernel):
        first = tap * window.dilation
        places = slice(first, first + (count - 1) * window.stride + 1, window.stride)
        full[:, :, places] += parts[:, :, :, tap].transpose(0, 2, 1, 3, 4)
    return full[:, :, before : length - after]


def volume_window(
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[tuple[int, int], ...],
    groups: int,
) -> VolumeWindow:
    """Create a window from parameters with one entry per axis (t, h, w); pads are (before, after)."""
    (along, (top, bottom), (left, right)) = pads
    (kt, kh, kw), (st, sh, sw), (dt, dh, dw) = kernel, strides, dilations
    return VolumeWindow(Window((kh, kw), (sh, sw), (dh, dw), (top, left, bottom, right), groups), kt, st, dt, along)
