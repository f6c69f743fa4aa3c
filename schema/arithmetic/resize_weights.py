"""Weights of a resize: along each axis an output element is a weighted sum of input elements.

The weights are computed by the formulas of ONNX Resize, in float32 as runtimes do.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from tpuconvert.schema.types import Array


class ResizeMode(enum.IntEnum):
    """Interpolation of a resize, with the names of ONNX."""

    nearest = 0
    linear = 1
    cubic = 2


class Coordinates(enum.IntEnum):
    """Position in the input of each output index, with the names of ONNX."""

    half_pixel = 0
    asymmetric = 1
    align_corners = 2
    pytorch_half_pixel = 3
    tf_half_pixel_for_nn = 4
    half_pixel_symmetric = 5
    tf_crop_and_resize = 6


class NearestRounding(enum.IntEnum):
    """Rounding of a position to an index, with the names of ONNX. ``by_scale``: up on a shrinking axis, else down."""

    round_prefer_floor = 0
    round_prefer_ceil = 1
    floor = 2
    ceil = 3
    by_scale = 4


_TIE = 1e-6
"""Distance from a tie at which a position counts as one, like in ONNX Runtime: float32 moves 2 / (4 / 7) below 3.5."""

_ROUND: dict[NearestRounding, Callable[[Array], Array]] = {
    NearestRounding.round_prefer_floor: lambda position: np.ceil(position.astype(np.float64) - 0.5 - _TIE),
    NearestRounding.round_prefer_ceil: lambda position: np.floor(position.astype(np.float64) + 0.5 + _TIE),
    NearestRounding.floor: np.floor,
    NearestRounding.ceil: np.ceil,
}


class AxisResize(NamedTuple):
    """Resize of one axis: input extent, output extent, scale rounded to float32, and region of interest."""

    axis: int
    extent: int
    out: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)


class Interpolation(NamedTuple):
    """Parameters of a resize that are the same for all axes. See ONNX Resize for the last three."""

    mode: ResizeMode = ResizeMode.nearest
    coordinates: Coordinates = Coordinates.half_pixel
    rounding: NearestRounding = NearestRounding.round_prefer_floor
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False

    def indices(self, item: AxisResize) -> Array:
        """Input index of each output index, in the mode ``nearest``."""
        rounding = self.rounding
        if rounding is NearestRounding.by_scale:
            rounding = NearestRounding.ceil if item.scale < 1 else NearestRounding.floor
        position = coordinates_of(item, self.coordinates)
        return np.clip(_ROUND[rounding](position), 0, item.extent - 1).astype(np.int64)

    def weights(self, item: AxisResize) -> Array:
        """Weights [extent, out], in the other modes."""
        position = coordinates_of(item, self.coordinates)
        if self.mode is ResizeMode.linear and not self.antialias:
            return linear_weights(position, item.extent)
        support: int = 1
        weight_of: Callable[[Array], Array] = _triangle
        if self.mode is ResizeMode.cubic:
            support, weight_of = 2, partial(_cubic, a=self.cubic_coeff_a)
        return _kernel_weights(
            position, item, support, weight_of, is_antialiased=self.antialias, exclude_outside=self.exclude_outside
        )


def coordinates_of(item: AxisResize, mode: Coordinates) -> Array:
    """Input coordinate of each output index, computed in float32 like runtimes do."""
    x = np.arange(item.out, dtype=np.float32)
    scale, half = np.float32(item.scale), np.float32(0.5)
    match mode:
        case Coordinates.asymmetric:
            return x / scale
        case Coordinates.align_corners:
            if item.out == 1:
                return x * 0
            return x * np.float32(item.extent - 1) / np.float32(item.out - 1)
        case Coordinates.tf_half_pixel_for_nn:
            return (x + half) / scale
        case Coordinates.tf_crop_and_resize:
            start, end = (np.float32(bound) for bound in item.roi)
            last = np.float32(item.extent - 1)
            if item.out == 1:
                return x * 0 + half * (start + end) * last
            return start * last + x * ((end - start) * last / np.float32(item.out - 1))
        case Coordinates.pytorch_half_pixel if item.out == 1:
            return x * 0
    position = (x + half) / scale - half
    if mode is Coordinates.half_pixel_symmetric:
        adjustment = np.float32(item.out) / np.float32(np.float32(item.extent) * scale)
        position = position + np.float32(item.extent) / 2 * (1 - adjustment)
    return np.asarray(position, np.float32)


def linear_weights(position: Array, extent: int) -> Array:
    """Linear weights [extent, out]: two neighbors per output index; the edge element outside the image."""
    position = np.clip(position, 0, extent - 1)
    low = np.floor(position).astype(np.int64)
    part = position - low
    weights = np.zeros((extent, len(position)), np.float64)
    columns = np.arange(len(position))
    np.add.at(weights, (low, columns), 1 - part)
    np.add.at(weights, (np.minimum(low + 1, extent - 1), columns), part)
    return weights


def _triangle(distance: Array) -> Array:
    """Weight of a linear interpolation by distance."""
    return np.asarray(np.maximum(1 - distance, 0))


def _cubic(distance: Array, a: float) -> Array:
    """Weight of a cubic interpolation by distance."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def _kernel_weights(
    position: Array,
    item: AxisResize,
    support: int,
    weight_of: Callable[[Array], Array],
    *,
    is_antialiased: bool,
    exclude_outside: bool,
) -> Array:
    """Weights [extent, out] of a kernel by distance; antialiasing widens it on a shrinking axis by the scale."""
    scale = min(item.scale, 1.0) if is_antialiased else 1.0
    reach = int(np.ceil(support / scale)) + 1
    taps = np.floor(position).astype(np.int64)[None, :] + np.arange(-reach, reach + 1)[:, None]
    weight = weight_of(np.abs(taps - position.astype(np.float64)) * scale)
    if exclude_outside:
        weight = np.where((taps >= 0) & (taps < item.extent), weight, 0)
    if exclude_outside or is_antialiased:
        weight = weight / weight.sum(0)
    weights = np.zeros((item.extent, len(position)), np.float64)
    columns = np.broadcast_to(np.arange(len(position)), taps.shape)
    np.add.at(weights, (np.clip(taps, 0, item.extent - 1), columns), weight)
    return weights
