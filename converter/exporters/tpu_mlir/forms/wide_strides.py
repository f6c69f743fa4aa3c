"""Convolutions with strides that the chips do not have, as convolutions of blocks of the operand with stride 1."""

from __future__ import annotations

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import Tensor
from tpuconvert.exporters.tpu_mlir.forms.window import Window
from tpuconvert.exporters.tpu_mlir.lowering import Lowering
from tpuconvert.schema.types import Array

MOST_STRIDE = 15
"""Largest stride. The compiler accepts larger ones, with wrong results in the simulator."""


def without_wide_strides(
    d: Lowering, x: Tensor, weights: Array, window: Window, results: tuple[int, int], number: float, name: str
) -> tuple[Tensor, Array, Window]:
    """Return operand, weights and window of an equal convolution with strides of at most ``MOST_STRIDE``.

    An axis of extent W becomes blocks of as many elements as the stride: [.., W] is read as [.., W / stride, stride],
    and the elements of a block become channels. Rows of the kernel are blocked in the same way.

    Args:
        d: the lowering.
        x: operand [N, C, H, W].
        weights: [O, C / groups, kernel height, kernel width].
        window: geometry.
        results: height and width of the result.
        number: number of the padding.
        name: name of the result, from which names of steps are derived.

    Raises:
        NoExactForm: the dilation of such an axis is not 1.
    """
    for axis in (0, 1):
        stride = window.strides[axis]
        if stride <= MOST_STRIDE:
            continue
        if window.dilations[axis] != 1:
            raise NoExactForm(f"a stride of {stride} with a dilation of {window.dilations[axis]}, expected 1")
        count = -(-window.kernel[axis] // stride)
        x = _resized(d, x, 2 + axis, window.pads[axis], (results[axis] - 1 + count) * stride, number, f"{name}_used")
        x = _blocked(d, x, 2 + axis, stride, f"{name}_blocks")
        weights = _blocked_weights(weights, 2 + axis, stride, count)
        pads = list(window.pads)
        pads[axis] = pads[2 + axis] = 0
        kernel, strides = list(window.kernel), list(window.strides)
        kernel[axis], strides[axis] = count, 1
        window = window._replace(
            kernel=(kernel[0], kernel[1]), strides=(strides[0], strides[1]), pads=(pads[0], pads[1], pads[2], pads[3])
        )
    return x, weights, window


def _resized(d: Lowering, x: Tensor, axis: int, before: int, extent: int, number: float, name: str) -> Tensor:
    """Pad an axis before its first element, and pad or cut it to an extent."""
    shape = list(x.shape)
    after = extent - before - shape[axis]
    if after < 0:
        shape[axis] += after
        starts, steps = (0,) * len(shape), (1,) * len(shape)
        x = d.module.add(
            "tpu.Slice", [x], shape, x.element, f"{name}_part", offset=starts, ends=tuple(shape), steps=steps
        )
        after = 0
    if before or after:
        paddings = [0] * 2 * len(shape)
        paddings[axis], paddings[len(shape) + axis] = before, after
        shape[axis] = extent
        x = d.module.add("tpu.Pad", [x], shape, x.element, f"{name}_padded", paddings=paddings, val=float(number))
    return x


def _blocked(d: Lowering, x: Tensor, axis: int, block: int, name: str) -> Tensor:
    """Move the elements of blocks of an axis to the channels."""
    shape = x.shape
    parts = (*shape[:axis], shape[axis] // block, block, *shape[axis + 1 :])
    order = (0, 1, axis + 1, *(one for one in range(2, 5) if one != axis + 1))
    moved = tuple(parts[one] for one in order)
    split = d.reshape(x, parts, f"{name}_{axis}")
    permuted = d.module.add("tpu.Permute", [split], moved, x.element, f"{name}_{axis}_moved", order=order)
    return d.reshape(permuted, (shape[0], shape[1] * block, *moved[3:]), f"{name}_{axis}_channels")


def _blocked_weights(weights: Array, axis: int, block: int, count: int) -> Array:
    """Pad an axis of a kernel with zeros, and move the elements of its blocks to the channels."""
    widths = [(0, 0)] * weights.ndim
    widths[axis] = (0, count * block - weights.shape[axis])
    padded = np.pad(weights, widths)
    shape = padded.shape
    parts = padded.reshape(*shape[:axis], count, block, *shape[axis + 1 :])
    moved = np.moveaxis(parts, axis + 1, 2)
    return np.ascontiguousarray(moved).reshape(shape[0], shape[1] * block, *moved.shape[3:])
