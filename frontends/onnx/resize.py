"""Resize and Upsample.

Along each axis an output element is a weighted sum of input elements. The weights are computed at conversion time by
the formulas of the standard. Then the first operator with these weights is used: upsample, interpolate, a gather, or a
matrix multiplication by the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.onnx.data_movement import gather_slices
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import Array, DType

COORDINATES = (
    "half_pixel",
    "asymmetric",
    "align_corners",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "half_pixel_symmetric",
    "tf_crop_and_resize",
)
_ROUND: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda position: np.ceil(position.astype(np.float64) - 0.5),
    "round_prefer_ceil": lambda position: np.floor(position.astype(np.float64) + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
_SAME_WEIGHT = 2e-6
"""Tolerance for equal weights: they are computed in float32, with different orders of operations."""


class _AxisResize(NamedTuple):
    """Resize of one axis: input extent, output extent, scale rounded to float32, and region of interest."""

    axis: int
    extent: int
    out: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)


def _coordinates(item: _AxisResize, mode: str) -> Array:
    """Input coordinate of each output index, computed in float32 like runtimes do."""
    x = np.arange(item.out, dtype=np.float32)
    scale, half = np.float32(item.scale), np.float32(0.5)
    if mode == "asymmetric":
        return x / scale
    if mode == "align_corners":
        if item.out == 1:
            return x * 0
        return x * np.float32(item.extent - 1) / np.float32(item.out - 1)
    if mode == "tf_half_pixel_for_nn":
        return (x + half) / scale
    if mode == "tf_crop_and_resize":
        start, end = (np.float32(bound) for bound in item.roi)
        last = np.float32(item.extent - 1)
        if item.out == 1:
            return x * 0 + half * (start + end) * last
        return start * last + x * ((end - start) * last / np.float32(item.out - 1))
    if mode == "pytorch_half_pixel" and item.out == 1:
        return x * 0
    position = (x + half) / scale - half
    if mode == "half_pixel_symmetric":
        adjustment = np.float32(item.out) / np.float32(np.float32(item.extent) * scale)
        position = position + np.float32(item.extent) / 2 * (1 - adjustment)
    return np.asarray(position, np.float32)


def _nearest_index(position: Array, mode: str, extent: int) -> Array:
    return np.clip(_ROUND[mode](position), 0, extent - 1).astype(np.int64)


def _linear_weights(position: Array, extent: int) -> Array:
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
    item: _AxisResize,
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
    found = np.zeros((item.extent, len(position)), np.float64)
    columns = np.broadcast_to(np.arange(len(position)), taps.shape)
    np.add.at(found, (np.clip(taps, 0, item.extent - 1), columns), weight)
    return found


def _interpolate_weights(item: _AxisResize, method: InterpolateMode, align: bool, half: bool) -> Array:
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
    return _linear_weights(position, item.extent)


_FORMS = ((False, False), (False, True), (True, False))
"""Valid combinations of ``align_corners`` and ``half_pixel_centers`` of ``interpolate``."""


def _is_plane(x: Value, items: Sequence[_AxisResize]) -> bool:
    return x.rank == 4 and all(item.axis >= 2 for item in items)


def _full_plane(x: Value, items: Sequence[_AxisResize]) -> list[_AxisResize]:
    """Return one entry for each of the last two axes, including an axis that keeps its extent."""
    by_axis = {item.axis: item for item in items}
    shape = emit.extents(x)
    return [by_axis.get(axis, _AxisResize(axis, shape[axis], shape[axis], 1.0)) for axis in (2, 3)]


def _by_index(g: Graph, x: Value, items: Sequence[_AxisResize], indices: Sequence[Array]) -> Value:
    """Resize by selection: ``indices`` has the input index of each output index, per axis."""
    if _is_plane(x, items):
        plane = _full_plane(x, items)
        found = dict(zip((item.axis for item in items), indices, strict=True))
        wanted = [found.get(item.axis, np.arange(item.extent)) for item in plane]
        factors = {item.out // item.extent for item in plane if item.out % item.extent == 0}
        factor = factors.pop() if len(factors) == 1 else 0
        if factor > 1 and all(
            item.out == item.extent * factor and np.array_equal(index, np.arange(item.out) // factor)
            for item, index in zip(plane, wanted, strict=True)
        ):
            return g.add(Upsample(scale=factor), x)
        if (y := _interpolate(g, x, plane, InterpolateMode.NEAREST, wanted)) is not None:
            return y
    for item, index in zip(items, indices, strict=True):
        x = gather_slices(g, x, item.axis, index)
    return x


def _interpolate(
    g: Graph, x: Value, plane: Sequence[_AxisResize], method: InterpolateMode, wanted: Sequence[Array]
) -> Value | None:
    """Add ``interpolate`` if some combination of its flags gives the wanted indices or weights, else return None."""
    tolerance = 0 if method is InterpolateMode.NEAREST else _SAME_WEIGHT
    size = (plane[0].out, plane[1].out)
    for align, half in _FORMS:
        made = [_interpolate_weights(item, method, align, half) for item in plane]
        if all(np.abs(a - b).max() <= tolerance * len(a) for a, b in zip(made, wanted, strict=True)):
            return g.add(
                Interpolate(
                    size=size, platform=PlatForm.TENSORFLOW, method=method, align_corners=align, half_pixel_centers=half
                ),
                x,
            )
    return None


def _by_weights(g: Graph, node: OnnxNode, x: Value, items: Sequence[_AxisResize], weights: Sequence[Array]) -> Value:
    """Resize by matrix multiplication: every output element is a weighted sum of input elements."""
    if _is_plane(x, items):
        plane = _full_plane(x, items)
        found = dict(zip((item.axis for item in items), weights, strict=True))
        wanted = [found.get(item.axis, np.eye(item.extent)) for item in plane]
        if (y := _interpolate(g, x, plane, InterpolateMode.BILINEAR, wanted)) is not None:
            return y
    for item, weight in zip(items, weights, strict=True):
        node.budget(weight.shape, 4, "weight matrix")
        x = functions.multiply_along_axis(g, x, item.axis, weight.astype(np.float32))
    return x


def resize_axes(
    node: OnnxNode, g: Graph, items: Sequence[_AxisResize], mode: str, nearest: str, coordinates: str
) -> Result:
    """Resize axes with known extents and scales. An empty ``nearest`` rounds up on a shrinking axis, else down."""
    tensor = node.tensor(0)
    x = node.dequantized_input(0)
    for item in items:
        if item.out < 1:
            raise node.invalid(f"axis {item.axis} would have {item.out} elements")
        node.budget((item.extent, item.out), 8, "weight matrix")
    if x.dtype is not DType.FLOAT32 and mode != "nearest":
        raise node.fail(UNSUPPORTED_TYPE, f"its input is {node.element(0)}", "supported: floating point")
    positions = [_coordinates(item, coordinates) for item in items]
    is_antialiased = node.version >= 18 and node.op_type == "Resize" and bool(node.attr("antialias", 0))
    if is_antialiased and mode == "nearest":
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "antialias=1 with mode='nearest'", "supported: linear and cubic")
    if not items:
        y = x
    elif mode == "nearest":
        indices = [
            _nearest_index(position, nearest or ("ceil" if item.scale < 1 else "floor"), item.extent)
            for item, position in zip(items, positions, strict=True)
        ]
        y = emit.cast(g, _by_index(g, emit.as_float(g, x), items, indices), x.dtype)
    else:
        a, exclude = node.attr("cubic_coeff_a", -0.75), bool(node.attr("exclude_outside", 0))
        matrices = []
        for item, position in zip(items, positions, strict=True):
            if mode == "linear" and not is_antialiased:
                matrices.append(_linear_weights(position, item.extent))
                continue
            support, weight_of = (1, _triangle) if mode == "linear" else (2, partial(_cubic, a=a))
            flags = {"is_antialiased": is_antialiased, "exclude_outside": exclude}
            matrices.append(_kernel_weights(position, item, support, weight_of, **flags))
        y = _by_weights(g, node, x, items, matrices)
    if coordinates == "tf_crop_and_resize":
        y = _extrapolate(node, g, y, items, positions)
    if tensor.quant is not None:  # the weights of every element sum to 1, so that scale and zero point stay
        y.quant = tensor.quant
    return node.result(y, tensor.element, quant=tensor.quant)


def _extrapolate(node: OnnxNode, g: Graph, y: Value, items: Sequence[_AxisResize], positions: Sequence[Array]) -> Value:
    """Replace elements whose coordinates are outside the image by the extrapolation value."""
    shape = emit.extents(y)
    inside = np.ones((1,) * len(shape), bool)
    for item, position in zip(items, positions, strict=True):
        line = (position >= 0) & (position <= item.extent - 1)
        inside = inside & line.reshape([-1 if axis == item.axis else 1 for axis in range(len(shape))])
    if inside.all():
        return y
    if node.tensor(0).quant is not None:
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "tf_crop_and_resize beyond a quantized image", "supported: inside")
    node.budget(shape, 4, "mask")
    condition = emit.expand(g, g.add(Constdata(), emit.float_constant(g, inside, "inside")), shape)
    value = emit.float_constant(g, np.full(1, node.attr("extrapolation_value", 0.0)), "extrapolation_value")
    return emit.cast(g, g.add(ConditionSelect(), condition, emit.as_float(g, y), value), y.dtype)


def _by_scales(node: OnnxNode, scales: Sequence[float], axes: Sequence[int]) -> list[_AxisResize]:
    shape = node.shape(0)
    if len(scales) != len(axes):
        raise node.invalid(f"{len(scales)} scales for {len(axes)} axes")
    found = []
    for axis, scale in zip(axes, scales, strict=True):
        if not np.isfinite(scale) or scale <= 0:
            raise node.invalid(f"scale {scale}")
        if scale != 1:
            found.append(
                _AxisResize(axis, shape[axis], int(np.floor(np.float32(shape[axis]) * np.float32(scale))), scale)
            )
    return found


def _by_sizes(node: OnnxNode, sizes: Sequence[int], axes: Sequence[int], policy: str) -> list[_AxisResize]:
    shape = node.shape(0)
    if len(sizes) != len(axes) or any(size < 1 for size in sizes):
        raise node.invalid(f"sizes {list(sizes)} for {len(axes)} axes")
    if policy == "stretch":  # a symbolic extent has no ratio
        changed = [(axis, size) for axis, size in zip(axes, sizes, strict=True) if str(size) != str(shape[axis])]
        axes, sizes = [axis for axis, _ in changed], [size for _, size in changed]
    outs, scales = list(sizes), [float(np.float32(s) / np.float32(shape[a])) for a, s in zip(axes, sizes, strict=True)]
    if policy != "stretch":
        common = min(scales) if policy == "not_larger" else max(scales)
        outs = [int(np.floor(common * shape[axis] + 0.5)) for axis in axes]
        scales = [common] * len(axes)
    rows = zip(axes, outs, scales, strict=True)
    return [_AxisResize(a, shape[a], out, scale) for a, out, scale in rows if out != shape[a] or scale != 1]


@onnx_op("Resize", since=11, kind=Kind.DIRECT, limits="constant scales or sizes")
def resize(node: OnnxNode, g: Graph) -> Result:
    """Resize any axes by scales or to sizes."""
    mode = node.choice("mode", "nearest", ("nearest", "linear", "cubic"))
    coordinates = node.choice("coordinate_transformation_mode", "half_pixel", COORDINATES)
    nearest = node.choice("nearest_mode", "round_prefer_floor", tuple(_ROUND))
    node.optional_attr("extrapolation_value")  # only used outside the image
    node.optional_attr("cubic_coeff_a")
    if mode != "cubic":
        node.refuse_attr("exclude_outside", 0)
    policy, axes = "stretch", tuple(range(node.rank(0)))
    if node.version >= 18:
        node.optional_attr("antialias")
        policy = node.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
        chosen = node.ints_attr("axes")
        axes = axes if chosen is None else node.axes(chosen, node.rank(0))
    scales = node.constant(2).reshape(-1).astype(np.float32) if node.has_input(2) else np.empty(0, np.float32)
    sizes = node.ints(3) if node.has_input(3) else ()
    if bool(len(scales)) == bool(len(sizes)):
        raise node.invalid("needs either scales or sizes")
    items = _by_scales(node, scales.tolist(), axes) if len(scales) else _by_sizes(node, sizes, axes, policy)
    if node.has_input(1):
        roi = node.constant(1).reshape(-1)
        if coordinates == "tf_crop_and_resize":
            items = _crop(node, items, axes, roi)
    elif coordinates == "tf_crop_and_resize":
        raise node.invalid("tf_crop_and_resize without roi")
    return resize_axes(node, g, items, mode, nearest, coordinates)


def _crop(node: OnnxNode, items: Sequence[_AxisResize], axes: Sequence[int], roi: Array) -> list[_AxisResize]:
    if roi.size != 2 * len(axes):
        raise node.invalid(f"roi of {roi.size} numbers for {len(axes)} axes")
    bounds = {axis: (float(roi[k]), float(roi[k + len(axes)])) for k, axis in enumerate(axes)}
    if any(bounds[axis] != (0.0, 1.0) for axis in axes if axis not in {item.axis for item in items}):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "roi crops an axis that keeps its extent")
    return [_AxisResize(item.axis, item.extent, item.out, item.scale, bounds[item.axis]) for item in items]


@onnx_op("Resize", since=10, kind=Kind.DIRECT, limits="constant scales or sizes")
@onnx_op("Upsample", since=9, kind=Kind.DIRECT, limits="constant scales")
def resize_scales(node: OnnxNode, g: Graph) -> Result:
    """Resize by scales that are an input; some exporters still write the attribute of Upsample of opset 7."""
    if node.op_type == "Upsample" and not node.has_input(1):
        return upsample_attribute(node, g)
    return _by_scales_only(node, g, node.constant(1).reshape(-1).astype(np.float32).tolist())


@onnx_op("Upsample", since=7, kind=Kind.DIRECT, limits="constant scales")
def upsample_attribute(node: OnnxNode, g: Graph) -> Result:
    """Upsample with scales as an attribute."""
    return _by_scales_only(node, g, node.required_attr("scales", (1.0,)))


@onnx_op("Upsample", since=1, kind=Kind.DIRECT, limits="constant scales")
def upsample_plane(node: OnnxNode, g: Graph) -> Result:
    """Upsample of opset 1: one scale for rows, one for columns."""
    scales = (1.0, 1.0, node.required_attr("height_scale", 1.0), node.required_attr("width_scale", 1.0))
    return _by_scales_only(node, g, scales)


def _by_scales_only(node: OnnxNode, g: Graph, scales: Sequence[float]) -> Result:
    mode = node.choice("mode", "nearest", ("nearest", "linear", "bilinear"))
    items = _by_scales(node, scales, range(node.rank(0)))
    if node.op_type == "Upsample" and any(scale < 1 for scale in scales):
        raise node.invalid(f"scales {list(scales)}: the standard requires at least 1", "use Resize")
    return resize_axes(node, g, items, "linear" if mode == "bilinear" else mode, "", "asymmetric")
