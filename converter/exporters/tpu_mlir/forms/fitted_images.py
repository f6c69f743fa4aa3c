"""Lowering of images that are cropped, resized and padded, with integers of 32 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import Tensor
from tpuconvert.exporters.tpu_mlir.forms.requantization import binary
from tpuconvert.exporters.tpu_mlir.lowering import PLAIN_ELEMENTS, Lowering, static_shape
from tpuconvert.exporters.tpu_mlir.registry import lowers, lowers_bm1684
from tpuconvert.schema.arithmetic.opencv_resizing import Taps, is_halved, linear_taps, nearest_indices
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.host.fit_image import METHODS, HostFitImage
from tpuconvert.schema.types import Array, DType

_PIXELS = PLAIN_ELEMENTS[DType.UINT8]

WITHOUT_CAMERA = "convert without camera=, and pass images of the size of the network"


@lowers(HostFitImage)
def fit_image(op: HostFitImage, node: Node, d: Lowering) -> None:
    """Lower a crop, resizing by nearest or bilinear interpolation, and padding.

    Raises:
        NoExactForm: another method.
    """
    x, y = d.tensor(node.inputs[0]), node.output
    name, method = y.name, METHODS[op.method]
    top, left, height, width = op.box
    image = _part(d, x, ((top, top + height, 1), (left, left + width, 1)), f"{name}_box")
    if (height, width) != op.inner:
        if method == "opencv-nearest":
            for axis, (old, new) in enumerate(zip((height, width), op.inner, strict=True), 1):
                image = _gather(d, image, axis, nearest_indices(old, new), f"{name}_nearest{axis}")
        elif method != "opencv-linear":
            reason = f"the chip resizes by opencv-linear and opencv-nearest, not {method}"
            raise NoExactForm(reason, f"convert with one of these, or {WITHOUT_CAMERA.removeprefix('convert ')}")
        elif is_halved((height, width), op.inner):
            image = _mean_of_four(d, image, name)
        else:
            image = _resize_linear(d, image, op.inner, name)
    after = [size - inner - corner for size, inner, corner in zip(op.size, op.inner, op.corner, strict=True)]
    paddings = (0, *op.corner, 0, 0, *after, 0)
    if any(paddings):
        image = d.module.add(
            "tpu.Pad", [image], static_shape(y), _PIXELS, f"{name}_padded", paddings=paddings, val=float(op.pad)
        )
    d.define(y, image)


@lowers_bm1684(HostFitImage)
def refuse_images(op: HostFitImage, node: Node, d: Lowering) -> None:
    """Refuse images of a camera for BM1684, whose form would be at the beginning.

    Raises:
        NoExactForm: always.
    """
    raise NoExactForm("images are resized with integers of 32 bits, which BM1684 does not have", WITHOUT_CAMERA)


def _part(d: Lowering, x: Tensor, ranges: Sequence[tuple[int, int, int]], location: str) -> Tensor:
    """Append a slice of rows and columns of [N, H, W, C], each (start, end, step)."""
    starts, ends, steps = zip((0, x.shape[0], 1), *ranges, (0, x.shape[3], 1), strict=True)
    shape = tuple(len(range(*bounds)) for bounds in zip(starts, ends, steps, strict=True))
    if shape == x.shape:
        return x
    return d.module.add("tpu.Slice", [x], shape, x.element, location, offset=starts, ends=ends, steps=steps)


def _gather(d: Lowering, x: Tensor, axis: int, indices: Array, location: str) -> Tensor:
    """Append a selection of slices along an axis."""
    if np.array_equal(indices, np.arange(x.shape[axis])):
        return x
    shape = (*x.shape[:axis], len(indices), *x.shape[axis + 1 :])
    index = d.module.weight(indices.astype(np.int32), "si32", f"{location}_index")
    return d.module.add("tpu.Gather", [x, index], shape, x.element, location, axis=axis)


def _mean_of_four(d: Lowering, x: Tensor, name: str) -> Tensor:
    """Append the mean of blocks of 2 x 2 pixels, with ties up."""
    _, height, width, _ = x.shape

    def pair(row: int) -> Tensor:
        left, right = (
            _part(d, x, ((row, height, 2), (column, width, 2)), f"{name}_pixel{row}{column}") for column in range(2)
        )
        return binary(d, "Add", left, right, left.shape, "si32", f"{name}_pair{row}")

    upper, lower = pair(0), pair(1)
    return binary(d, "Add", upper, lower, upper.shape, _PIXELS, f"{name}_mean", -2)


def _resize_linear(d: Lowering, x: Tensor, size: tuple[int, int], name: str) -> Tensor:
    """Append OpenCV's bilinear interpolation: along the rows, shifted by 4, and then along the columns.

    Its shifts round down. The shifts of the program round ties up, so that half of the unit is subtracted before.
    """
    horizontal, vertical = linear_taps(x.shape[1:3], size)
    left, right = _weighted(d, x, 2, horizontal, f"{name}_columns")
    right = _minus(d, right, 1 << 3, f"{name}_columns_centered")
    rows = binary(d, "Add", left, right, left.shape, "si32", f"{name}_wide", -4)
    upper, lower = (
        _minus(d, part, 1 << 15, f"{part.location}_shifted", -16)
        for part in _weighted(d, rows, 1, vertical, f"{name}_rows")
    )
    return binary(d, "Add", upper, lower, upper.shape, _PIXELS, f"{name}_resized", -2)


def _weighted(d: Lowering, x: Tensor, axis: int, taps: Taps, name: str) -> list[Tensor]:
    """Append the two pixels of each result along an axis, times their coefficients."""
    products = []
    for index, (indices, coefficients) in enumerate(zip(taps[:2], taps[2], strict=True)):
        pixels = _gather(d, x, axis, indices, f"{name}{index}")
        shape = [1, 1, 1, 1]
        shape[axis] = -1
        weight = d.module.weight(coefficients.reshape(shape), "si32", f"{name}{index}_coefficients")
        products.append(binary(d, "Mul", pixels, weight, pixels.shape, "si32", f"{name}{index}_product"))
    return products


def _minus(d: Lowering, x: Tensor, number: int, name: str, shift: int = 0) -> Tensor:
    """Append the difference from a number, shifted. A negative shift is to the right."""
    weight = d.module.weight(np.full((1, 1, 1, 1), -number, np.int32), "si32", f"{name}_number")
    return binary(d, "Add", x, weight, x.shape, "si32", name, shift)
