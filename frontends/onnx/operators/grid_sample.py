"""GridSample: every output element is a weighted sum of image elements near the coordinates in a grid tensor.

The coordinates are converted to indices of the flattened image. There is one gather per tap of the interpolation; the
number of taps is the product of the numbers of taps per axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.compare import Ges, Les
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.quantization.round_to_integer import Floor
from tpuconvert.schema.types import DType, Scalar

_CUBIC = -0.75
_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic", "bicubic": "cubic"}


@dataclass(frozen=True)
class Tap:
    """One tap of the interpolation along an axis: index and weight; the weight None means 1."""

    index: Value
    weight: Value | None


class SampledAxis(NamedTuple):
    """One axis of the image: extent, ``align_corners`` and padding mode."""

    extent: int
    is_aligned: bool
    padding: str

    def place(self, g: Graph, grid: Value) -> Value:
        """Convert grid coordinates to indices: -1 and 1 are the centers or the outer edges of the edge elements."""
        if self.is_aligned:
            return emit.muls(g, emit.adds(g, grid, 1), (self.extent - 1) / 2)
        return emit.muls(g, emit.adds(g, emit.muls(g, emit.adds(g, grid, 1), self.extent), -1), 0.5)

    def inside(self, g: Graph, x: Value) -> Value:
        """Move coordinates or indices into the image, according to the padding mode."""
        if self.padding == "reflection" and self.extent > 1:
            x = self._reflect(g, x)
        return x if self.padding == "zeros" else emit.mins(g, emit.maxs(g, x, 0), self.extent - 1)

    def _apply_padding(self, g: Graph, coordinate: Value) -> Value:
        """Reflect coordinates into the image.

        With the padding mode ``border`` they stay, and each tap outside reads the edge: PyTorch and ONNX Runtime do so.
        For cubic weights it makes a difference: moved to the edge, a coordinate would have the weights of the edge.
        """
        return self._reflect(g, coordinate) if self.padding == "reflection" and self.extent > 1 else coordinate

    def _reflect(self, g: Graph, x: Value) -> Value:
        low, span = (0.0, self.extent - 1.0) if self.is_aligned else (-0.5, float(self.extent))
        distance = formulas.absolute(g, emit.adds(g, x, -low))
        turns = g.add(Floor(), emit.divs(g, distance, span))
        rest = emit.sub(g, distance, emit.muls(g, turns, span))
        odd = emit.sub(g, turns, emit.muls(g, g.add(Floor(), emit.muls(g, turns, 0.5)), 2))
        back = emit.adds(g, emit.muls(g, rest, -2), span)
        return emit.adds(g, emit.add(g, rest, emit.mul(g, odd, back)), low)

    def taps(self, g: Graph, coordinate: Value, mode: str) -> list[Tap]:
        """Return the taps for a coordinate."""
        if mode == "nearest":
            return [self._tap(g, self.inside(g, functions.round_half_even(g, coordinate)), None)]
        coordinate = self._apply_padding(g, coordinate)
        first = g.add(Floor(), coordinate)
        part = emit.sub(g, coordinate, first)
        if mode == "linear":
            weights = [emit.rsubs(g, 1, part), part]
            return [self._tap(g, emit.adds(g, first, k), weight) for k, weight in enumerate(weights)]
        other = emit.rsubs(g, 1, part)
        weights = [_far(g, emit.adds(g, part, 1)), _near(g, part), _near(g, other), _far(g, emit.adds(g, other, 1))]
        return [self._tap(g, self.inside(g, emit.adds(g, first, k - 1)), weight) for k, weight in enumerate(weights)]

    def _tap(self, g: Graph, index: Value, weight: Value | None) -> Tap:
        """Return a tap with a valid index; the weight of an index outside the image is 0."""
        clipped = emit.mins(g, emit.maxs(g, index, 0), self.extent - 1)
        if self.padding == "zeros":
            counts = emit.mul(g, g.add(Ges(Scalar.f32(0)), index), g.add(Les(Scalar.f32(self.extent - 1)), index))
            weight = counts if weight is None else emit.mul(g, weight, counts)
        return Tap(emit.cast(g, clipped, DType.INT32), weight)


def _near(g: Graph, x: Value) -> Value:
    """``((a + 2) x - (a + 3)) x^2 + 1``: the cubic kernel for distances up to one element."""
    inner = emit.adds(g, emit.muls(g, x, _CUBIC + 2), -(_CUBIC + 3))
    return emit.adds(g, emit.mul(g, emit.mul(g, inner, x), x), 1)


def _far(g: Graph, x: Value) -> Value:
    """``((a x - 5 a) x + 8 a) x - 4 a``: the cubic kernel for distances from one element to two."""
    inner = emit.adds(g, emit.muls(g, x, _CUBIC), -5 * _CUBIC)
    return emit.adds(g, emit.mul(g, emit.adds(g, emit.mul(g, inner, x), 8 * _CUBIC), x), -4 * _CUBIC)


def weighted_picks(g: Graph, image: Value, taps: Sequence[Sequence[Tap]], offset: Value | None) -> Value:
    """Return rows [elements, channels]: the weighted sum over all combinations of one tap per axis.

    Args:
        g: the graph.
        image: [batch, extent .., channels].
        taps: per axis of the image, indices and weights, each with one element per result.
        offset: index of the first element of the image, per output element, in the flattened tensor.
    """
    shape = emit.extents(image)
    strides = [int(np.prod(shape[k + 2 : -1], dtype=np.int64)) for k in range(len(taps))]
    flat = emit.reshape(g, image, (int(np.prod(shape[:-1], dtype=np.int64)), shape[-1]))
    total: Value | None = None
    for chosen in itertools.product(*taps):
        index, weight = offset, None
        for tap, stride in zip(chosen, strides, strict=True):
            step = emit.muls(g, tap.index, stride) if stride != 1 else tap.index
            index = step if index is None else emit.add(g, index, step)
            if tap.weight is not None:
                weight = tap.weight if weight is None else emit.mul(g, weight, tap.weight)
        assert index is not None, "an image has axes"
        rows = g.add(IndexSelect(dim=0), flat, index)
        if weight is not None:
            rows = emit.mul(g, rows, emit.reshape(g, weight, (emit.extents(weight)[0], 1)))
        total = rows if total is None else emit.add(g, total, rows)
    assert total is not None, "an axis has taps"
    return total


@onnx_op("GridSample", since=16)
def grid_sample(node: OnnxNode, g: Graph) -> Result:
    """Sample the image at the coordinates of a grid, with nearest, linear or cubic interpolation."""
    mode = _MODES[node.choice("mode", "bilinear" if node.version < 20 else "linear", tuple(_MODES))]
    padding = node.choice("padding_mode", "zeros", ("zeros", "border", "reflection"))
    is_aligned = bool(node.attr("align_corners", 0))
    x, grid = emit.floats(node.input(0)), emit.floats(node.input(1))
    batch, channels, *extents = node.shape(0)
    target = node.shape(1)[1:-1]
    rank = len(extents)
    if node.shape(1)[0] != batch or node.shape(1)[-1] != rank or len(target) != rank:
        raise node.invalid(f"a grid {list(node.shape(1))} for the image {list(node.shape(0))}")
    if grid.is_constant:
        grid = g.add(Constdata(), grid)
    count = int(np.prod(target, dtype=np.int64))
    taps = []
    for k, extent in enumerate(extents):
        axis = SampledAxis(extent, is_aligned, padding)
        column = emit.reshape(g, emit.slice_axis(g, grid, rank + 1, rank - 1 - k, rank - k), (batch * count,))
        taps.append(axis.taps(g, axis.place(g, column), mode))
    offset = None
    if batch > 1:
        node.budget((batch, count), 8, "offset")
        starts = np.repeat(np.arange(batch) * int(np.prod(extents, dtype=np.int64)), count)
        offset = g.constant(starts.astype(np.int32), name="offset")
    image = emit.permute(g, x, (0, *range(2, rank + 2), 1))
    y = emit.reshape(g, weighted_picks(g, image, taps, offset), (batch, *target, channels))
    return node.result(emit.permute(g, y, (0, rank + 1, *range(1, rank + 1))))
