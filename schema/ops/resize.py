"""resize_nearest, resize_weighted: resize axes with symbolic extents; and the TPU operators that resize axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.arithmetic.resize_weights import (
    AxisResize,
    Coordinates,
    Interpolation,
    NearestRounding,
    ResizeMode,
    linear_weights,
)
from tpuconvert.schema.definition.extents import scaled_floor, times
from tpuconvert.schema.definition.op import Operand, OpKind, Trait, on, tpu_op
from tpuconvert.schema.definition.shape_checks import check_ranks
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.deferred import DeferredOp
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import F16, F32, I8, I16, U8, U16, Array, Dim, TensorType

_SAME_WEIGHT = 2e-6
"""Tolerance for equal weights: they are computed in float32, with different orders of operations."""

_FORMS = ((False, False), (False, True), (True, False))
"""Valid combinations of ``align_corners`` and ``half_pixel_centers`` of ``interpolate``."""

_PROBES = (1, 2, 3, 5, 8, 13, 64, 127)
"""Extents for which a form of all extents is compared with the weights."""


class _SpatialResize(DeferredOp):
    """Base of resizes of the axes after the first two, whose extents are symbolic."""

    scales: tuple[float, ...]
    sizes: tuple[int, ...]
    coordinates: Coordinates

    inputs = (
        Operand("tensor_i", (3, 4, 5)),
        Operand("extent_0", (1,), coeff=True, optional=True),
        Operand("extent_1", (1,), coeff=True, optional=True),
        Operand("extent_2", (1,), coeff=True, optional=True),
    )
    shape_operands = ("extent_0", "extent_1", "extent_2")

    @property
    def sample_extent(self) -> int:
        """Return an extent that every scale leaves an element of."""
        return max([2, *(math.ceil(2 / scale) for scale in self.scales if scale)])

    def _check(self) -> None:
        object.__setattr__(self, "coordinates", Coordinates(self.coordinates))
        if self.coordinates is Coordinates.tf_crop_and_resize:
            raise ValueError(f"{self.name}: tf_crop_and_resize needs numbers as extents")
        if len(self.scales) != len(self.sizes):
            counts = f"{len(self.scales)} scales and {len(self.sizes)} sizes"
            raise ValueError(f"{self.name}: {counts}, expected equal numbers")
        if not all(math.isfinite(scale) and scale >= 0 for scale in self.scales) or min(self.sizes, default=0) < 0:
            raise ValueError(f"{self.name}: scales {self.scales} and sizes {self.sizes} must not be negative")

    def infer(self, x: TensorType, *extents: TensorType | None) -> tuple[TensorType]:
        """Shapes: as many scales and sizes as x has axes after the first two."""
        check_ranks(self, x, *extents, *(None,) * (len(self.inputs) - 1 - len(extents)))
        sizes = [item.shape[0] for item in extents if item is not None]
        free = sum(not scale and not size for scale, size in zip(self.scales, self.sizes, strict=True))
        if len(self.scales) != x.rank - 2 or len(sizes) != free:
            raise ShapeError(f"{self}: needs {x.rank - 2} scales and {free} extents, got {x} and {len(sizes)}")
        following = iter(sizes)
        axes = zip(x.shape[2:], self.scales, self.sizes, strict=True)
        shape = [size or (_scaled(extent, scale) if scale else next(following)) for extent, scale, size in axes]
        if 0 in shape:
            raise ShapeError(f"{self.name}: scales {self.scales} leave no elements of {x}")
        return (TensorType(x.dtype, (*x.shape[:2], *shape)),)

    def _items(self, x: Value, extents: Sequence[Value | None]) -> list[AxisResize]:
        """The axes that change."""
        before = f.extents(self, x)
        after = self.infer(x.type, *(None if item is None else item.type for item in extents))[0].static_shape
        items = []
        for axis in range(2, x.rank):
            old, new = before[axis], after[axis]
            by_size = self.sizes[axis - 2] or not self.scales[axis - 2]
            scale = float(np.float32(new) / np.float32(old)) if by_size else self.scales[axis - 2]
            if new != old or scale != 1:
                items.append(AxisResize(axis, old, new, scale))
        return items


@tpu_op("resize_nearest", OpKind.COMPOSITE, kw_only=True)
class ResizeNearest(_SpatialResize):
    """Selection of the nearest elements on the axes after the first two, while their extents are symbolic.

    ``scales`` and ``sizes`` have one entry per axis. A size that is not 0 is the extent of the result; otherwise a
    scale that is not 0 gives ``floor(extent * scale)``; if both are 0, the next operand after x has the extent of the
    result, and its elements are not used. ``has_interpolate`` is False for a chip without the operator interpolate.

    Shapes: x [N, C, ...], the other operands [extent], y [N, C, ...].
    Source: ONNX Resize-19, mode nearest.
    """

    scales: tuple[float, ...]
    sizes: tuple[int, ...]
    coordinates: Coordinates = Coordinates.half_pixel
    rounding: NearestRounding = NearestRounding.round_prefer_floor
    has_interpolate: bool = True

    dtypes = on(bm1682=(F32,), bm1684=(F32, I8, U8), bm1686=(F32, F16, I8, U8, I16, U16))
    traits = Trait.MOVES_INTEGERS

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "rounding", NearestRounding(self.rounding))

    def expand(self, g: Graph, x: Value, *extents: Value | None) -> tuple[Value]:
        """Expand to upsample, interpolate, or one index_select per axis, the last two in floating point."""
        items = self._items(x, extents)
        rule = Interpolation(ResizeMode.nearest, self.coordinates, self.rounding)
        indices = [rule.indices(item) for item in items]
        if not items:
            return (x,)
        if (factor := _upsample_factor(x, items, indices)) > 1 and x.dtype not in (I16, U16):
            return (g.add(Upsample(scale=factor), x),)
        y = x if x.dtype.is_float else g.add(Cast(out_dtype=F32), x)
        if self.has_interpolate and (selected := select_in_plane(g, y, items, indices)) is not None:
            y = selected
        else:
            for item, index in zip(items, indices, strict=True):
                y = g.add(IndexSelect(dim=item.axis), y, g.constant(index.astype(np.int32), "index"))
        return (y if y.dtype is x.dtype else g.add(Cast(out_dtype=x.dtype), y),)


@tpu_op("resize_weighted", OpKind.COMPOSITE, kw_only=True)
class ResizeWeighted(_SpatialResize):
    """Linear or cubic interpolation on the axes after the first two, while their extents are symbolic.

    ``scales``, ``sizes`` and the operands after x determine the extents as for ``resize_nearest``, where
    ``has_interpolate`` is explained too.

    Shapes: x [N, C, ...], the other operands [extent], y [N, C, ...].
    Source: ONNX Resize-19, modes linear and cubic.
    """

    scales: tuple[float, ...]
    sizes: tuple[int, ...]
    mode: ResizeMode = ResizeMode.linear
    coordinates: Coordinates = Coordinates.half_pixel
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    has_interpolate: bool = True

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "mode", ResizeMode(self.mode))
        if self.mode is ResizeMode.nearest:
            raise ValueError("resize_weighted: mode nearest is the operator resize_nearest")

    def expand(self, g: Graph, x: Value, *extents: Value | None) -> tuple[Value]:
        """Expand to interpolate, or to one matmul per axis."""
        items = self._items(x, extents)
        flags = self.cubic_coeff_a, self.exclude_outside, self.antialias
        rule = Interpolation(self.mode, self.coordinates, NearestRounding.floor, *flags)
        weights = [rule.weights(item) for item in items]
        if not items:
            return (x,)
        if self.has_interpolate and (y := interpolate_plane(g, x, items, weights)) is not None:
            return (y,)
        for item, weight in zip(items, weights, strict=True):
            x = f.multiply_along_axis(g, x, item.axis, weight.astype(np.float32))
        return (x,)


def _scaled(extent: Dim, scale: float) -> Dim:
    if isinstance(extent, int):
        return int(np.floor(np.float32(extent) * np.float32(scale)))
    return times(extent, int(scale)) if float(scale).is_integer() else scaled_floor(extent, scale)


def select_in_plane(g: Graph, x: Value, items: Sequence[AxisResize], indices: Sequence[Array]) -> Value | None:
    """Add upsample or interpolate for a selection of rows and columns; None if neither computes it.

    ``indices`` has the input index of each output index, per axis of ``items``.
    """
    if not _is_plane(x, items):
        return None
    if (factor := _upsample_factor(x, items, indices)) > 1:
        return g.add(Upsample(scale=factor), x)
    return _interpolate(g, x, _full_plane(x, items), InterpolateMode.NEAREST, _full_indices(x, items, indices))


def _full_indices(x: Value, items: Sequence[AxisResize], indices: Sequence[Array]) -> list[Array]:
    """Return the indices of rows and columns, including an axis that keeps its extent."""
    indices_by_axis = dict(zip((item.axis for item in items), indices, strict=True))
    return [indices_by_axis.get(item.axis, np.arange(item.extent)) for item in _full_plane(x, items)]


def _upsample_factor(x: Value, items: Sequence[AxisResize], indices: Sequence[Array]) -> int:
    """Factor of the upsample with these indices; 0 if there is none."""
    if not _is_plane(x, items):
        return 0
    plane = _full_plane(x, items)
    factors = {item.out // item.extent for item in plane if item.out % item.extent == 0}
    factor = factors.pop() if len(factors) == 1 else 0
    pairs = zip(plane, _full_indices(x, items, indices), strict=True)
    repeats = factor > 1 and all(
        item.out == item.extent * factor and np.array_equal(index, np.arange(item.out) // factor)
        for item, index in pairs
    )
    return factor if repeats else 0


def interpolate_plane(g: Graph, x: Value, items: Sequence[AxisResize], weights: Sequence[Array]) -> Value | None:
    """Add interpolate for weights of rows and columns, [extent, out] per axis of ``items``; None if they differ."""
    if not _is_plane(x, items):
        return None
    plane = _full_plane(x, items)
    weights_by_axis = dict(zip((item.axis for item in items), weights, strict=True))
    plane_weights = [weights_by_axis.get(item.axis, np.eye(item.extent)) for item in plane]
    return _interpolate(g, x, plane, InterpolateMode.BILINEAR, plane_weights)


def enlarge_plane(rule: Interpolation, scales: tuple[float, ...]) -> Upsample | Interpolate | None:
    """Operator that multiplies any height and width by integers; None if no operator does for all extents."""
    if len(scales) != 2 or not all(scale >= 1 and float(scale).is_integer() for scale in scales):
        return None
    if rule.mode is ResizeMode.cubic or rule.antialias:
        return None
    is_nearest = rule.mode is ResizeMode.nearest
    probes = [AxisResize(2, extent, extent * int(scale), scale) for scale in set(scales) for extent in _PROBES]
    if is_nearest and scales[0] == scales[1]:
        factor = int(scales[0])
        if all(np.array_equal(rule.indices(item), np.arange(item.out) // factor) for item in probes):
            return Upsample(scale=factor)
    method = InterpolateMode.NEAREST if is_nearest else InterpolateMode.BILINEAR
    expected = [rule.indices(item) if is_nearest else rule.weights(item) for item in probes]
    form = _form(probes, method, expected)
    if form is None:
        return None
    align, half = form
    return Interpolate(
        scale_factor=scales, platform=PlatForm.TENSORFLOW, method=method, align_corners=align, half_pixel_centers=half
    )


def _is_plane(x: Value, items: Sequence[AxisResize]) -> bool:
    """Return True if only rows and columns of an image change, and their extents are numbers."""
    is_image = x.rank == 4 and all(isinstance(extent, int) for extent in x.shape[2:])
    return is_image and all(item.axis >= 2 for item in items)


def _full_plane(x: Value, items: Sequence[AxisResize]) -> list[AxisResize]:
    """Return one entry for each of the last two axes, including an axis that keeps its extent."""
    by_axis = {item.axis: item for item in items}
    resizes = []
    for axis in (2, 3):
        extent = x.shape[axis]
        assert axis in by_axis or isinstance(extent, int)
        resizes.append(by_axis[axis] if axis in by_axis else AxisResize(axis, int(extent), int(extent), 1.0))
    return resizes


def _interpolate(
    g: Graph, x: Value, plane: Sequence[AxisResize], method: InterpolateMode, expected: Sequence[Array]
) -> Value | None:
    """Add ``interpolate`` if some combination of its flags gives the wanted indices or weights, else return None."""
    form = _form(plane, method, expected)
    if form is None:
        return None
    size, (align, half) = (plane[0].out, plane[1].out), form
    return g.add(
        Interpolate(
            size=size, platform=PlatForm.TENSORFLOW, method=method, align_corners=align, half_pixel_centers=half
        ),
        x,
    )


def _form(items: Sequence[AxisResize], method: InterpolateMode, expected: Sequence[Array]) -> tuple[bool, bool] | None:
    """Flags with which ``interpolate`` has the wanted indices or weights on all axes, or None."""
    tolerance = 0 if method is InterpolateMode.NEAREST else _SAME_WEIGHT
    for align, half in _FORMS:
        computed = [_interpolate_weights(item, method, align, half) for item in items]
        if all(np.abs(a - b).max() <= tolerance * len(a) for a, b in zip(computed, expected, strict=True)):
            return align, half
    return None


def _interpolate_weights(item: AxisResize, method: InterpolateMode, align: bool, half: bool) -> Array:
    """Indices (nearest) or weights [extent, out] (bilinear) with which ``interpolate`` computes one axis."""
    one = np.float32(1)
    ratio = np.float32(item.extent) / np.float32(item.out)
    if align and item.out > 1:
        ratio = np.float32(item.extent - 1) / np.float32(item.out - 1)
    x = np.arange(item.out, dtype=np.float32)
    if method is InterpolateMode.NEAREST:
        position = ((x + one / 2) if half else x) * ratio
        index = np.floor(position.astype(np.float64) + 0.5) if align else np.floor(position)
        return np.clip(index, 0, item.extent - 1).astype(np.int64)
    position = (x + one / 2) * ratio - one / 2 if half else x * ratio
    return linear_weights(position, item.extent)
