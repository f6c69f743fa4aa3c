"""Resize and Upsample.

Along each axis an output element is a weighted sum of input elements. The weights are computed at conversion time by
the formulas of the standard. Then the first operator with these weights is used: upsample, interpolate, a gather, or a
matrix multiplication by the weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.computed_sizes import computed_sizes, fill, known_elements
from tpuconvert.frontends.onnx.operators.data_movement import gather_slices
from tpuconvert.frontends.open_extents import OpenExtentError, is_open, open_within
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.arithmetic.resize_weights import (
    AxisResize,
    Coordinates,
    Interpolation,
    NearestRounding,
    ResizeMode,
    coordinates_of,
)
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.resize import (
    ResizeNearest,
    ResizeWeighted,
    enlarge_plane,
    interpolate_plane,
    select_in_plane,
)
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import Array, DType


def _resize_axes(node: OnnxNode, g: Graph, items: Sequence[AxisResize], rule: Interpolation) -> Result:
    """Resize axes with known extents and scales."""
    for item in items:
        if item.out < 1:
            raise node.invalid(f"axis {item.axis} would have {item.out} elements")
        node.budget((item.extent, item.out), 8, "weight matrix")
    x = _checked_input(node, rule)
    if not items:
        y = x
    elif rule.mode is ResizeMode.nearest:
        y = emit.cast(g, _select(g, emit.as_float(g, x), items, rule), x.dtype)
    else:
        y = _interpolate(node, g, x, items, rule)
    if rule.coordinates is Coordinates.tf_crop_and_resize:
        y = _extrapolate(node, g, y, items)
    return _result(node, y)


def _checked_input(node: OnnxNode, rule: Interpolation) -> Value:
    """Return the image, of a type that the mode accepts."""
    x = node.dequantized_input(0)
    is_nearest = rule.mode is ResizeMode.nearest
    if x.dtype is not DType.FLOAT32 and not is_nearest:
        raise node.fail(UNSUPPORTED_TYPE, f"its input is {node.element(0)}", "supported: floating point")
    if rule.antialias and is_nearest:
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "antialias=1 with mode='nearest'", "supported: linear and cubic")
    return x


def _result(node: OnnxNode, y: Value) -> Result:
    """Result with the scale of the image: the weights of every element sum to 1, so that scale and zero point stay."""
    tensor = node.tensor(0)
    if tensor.quant is not None:
        y.quant = tensor.quant
    return node.result(y, tensor.element, quant=tensor.quant)


def _select(g: Graph, x: Value, items: Sequence[AxisResize], rule: Interpolation) -> Value:
    """Resize by selection of elements."""
    indices = [rule.indices(item) for item in items]
    if (y := select_in_plane(g, x, items, indices)) is not None:
        return y
    for item, index in zip(items, indices, strict=True):
        x = gather_slices(g, x, item.axis, index)
    return x


def _interpolate(node: OnnxNode, g: Graph, x: Value, items: Sequence[AxisResize], rule: Interpolation) -> Value:
    """Resize by weighted sums: interpolate, or a matrix multiplication per axis."""
    weights = [rule.weights(item) for item in items]
    if (y := interpolate_plane(g, x, items, weights)) is not None:
        return y
    for item, weight in zip(items, weights, strict=True):
        node.budget(weight.shape, 4, "weight matrix")
        x = functions.multiply_along_axis(g, x, item.axis, weight.astype(np.float32))
    return x


def _resize_symbolic(
    node: OnnxNode, g: Graph, scales: Sequence[float], sizes: Sequence[int], rule: Interpolation
) -> Result:
    """Resize axes of which some extents are symbolic. ``scales`` or ``sizes`` has an entry for every axis."""
    x, shape = _checked_input(node, rule), node.shape(0)
    rank = len(shape)
    if rule.coordinates is Coordinates.tf_crop_and_resize or not 3 <= rank <= 5:
        raise OpenExtentError(open_within([*sizes, *shape]))
    if not scales:
        scales = [_exact_scale(size, extent) for size, extent in zip(sizes, shape, strict=True)]
    if any(scale != 1 for scale in scales[:2]):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "resizes axis 0 or 1 of a tensor with symbolic extents")
    spatial = tuple(float(np.float32(scale)) for scale in scales[2:])
    if set(spatial) == {1.0}:
        return _result(node, x)
    image = emit.as_float(g, x)
    if rank == 4 and 0 not in spatial and (larger := enlarge_plane(rule, spatial)) is not None:
        return _result(node, emit.cast(g, g.add(larger, image), x.dtype))
    targets = [0 if scale else size for scale, size in zip(spatial, sizes[2:] or (0,) * (rank - 2), strict=True)]
    extents = [emit.positions(g, size) for size in targets if is_open(size)]
    numbers = tuple(0 if is_open(size) else size for size in targets)
    return _result(node, emit.cast(g, g.add(_spatial_op(spatial, numbers, rule), image, *extents), x.dtype))


def _spatial_op(spatial: tuple[float, ...], numbers: tuple[int, ...], rule: Interpolation) -> Op:
    """Operator that resizes the axes after the first two; see ``ResizeNearest`` for scales and sizes."""
    if rule.mode is ResizeMode.nearest:
        return ResizeNearest(scales=spatial, sizes=numbers, coordinates=rule.coordinates, rounding=rule.rounding)
    return ResizeWeighted(
        scales=spatial,
        sizes=numbers,
        mode=rule.mode,
        coordinates=rule.coordinates,
        cubic_coeff_a=rule.cubic_coeff_a,
        exclude_outside=rule.exclude_outside,
        antialias=rule.antialias,
    )


def _resize_to_computed(node: OnnxNode, g: Graph, axes: Sequence[int], policy: str, rule: Interpolation) -> Result:
    """Resize axes after the first two to sizes that are computed when the model runs."""
    x, rank, values = _checked_input(node, rule), node.rank(0), computed_sizes(node, 3)
    if policy != "stretch" or rule.coordinates is Coordinates.tf_crop_and_resize or not 3 <= rank <= 5:
        hint = "supported: rank 3 to 5, no policy, no crop"
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "computed sizes", hint, needs=node.tensor(3))
    sizes = known_elements(values)
    if len(sizes) != len(axes):
        raise node.invalid(f"{len(sizes)} sizes for {len(axes)} axes")
    scales, numbers, extents = [1.0] * (rank - 2), [0] * (rank - 2), {}
    for position, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
        if size is not None and str(size) == str(node.shape(0)[axis]):
            continue
        if axis < 2:
            message, hint = f"a computed size of axis {axis}", "supported: axes 2 and up"
            raise node.fail(UNSUPPORTED_ATTRIBUTE, message, hint, needs=node.tensor(3))
        scales[axis - 2], numbers[axis - 2] = 0.0, size or 0
        if size is None:
            own = emit.slice_axis(g, values, 0, position, position + 1)
            extents[axis] = fill(g, own, np.zeros(1, np.int32))
        elif size < 1:
            raise node.invalid(f"axis {axis} would have {size} elements")
    op = _spatial_op(tuple(scales), tuple(numbers), rule)
    resized = g.add(op, emit.as_float(g, x), *(extents[axis] for axis in sorted(extents)))
    return _result(node, emit.cast(g, resized, x.dtype))


def _exact_scale(size: int, extent: int) -> float:
    """Quotient of two extents if it is the same integer for all extents, otherwise 0."""
    if str(size) == str(extent):
        return 1.0
    try:
        if size % extent != 0:
            return 0.0
        scale = size // extent
    except OpenExtentError:
        return 0.0
    return 0.0 if is_open(scale) else float(scale)


def _extrapolate(node: OnnxNode, g: Graph, y: Value, items: Sequence[AxisResize]) -> Value:
    """Replace elements whose coordinates are outside the image by the extrapolation value."""
    shape = emit.extents(y)
    inside = np.ones((1,) * len(shape), bool)
    for item in items:
        position = coordinates_of(item, Coordinates.tf_crop_and_resize)
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


def _by_scales(node: OnnxNode, scales: Sequence[float], axes: Sequence[int]) -> list[AxisResize]:
    shape = node.shape(0)
    if len(scales) != len(axes):
        raise node.invalid(f"{len(scales)} scales for {len(axes)} axes")
    resizes = []
    for axis, scale in zip(axes, scales, strict=True):
        if not np.isfinite(scale) or scale <= 0:
            raise node.invalid(f"scale {scale}")
        if scale != 1:
            resizes.append(
                AxisResize(axis, shape[axis], int(np.floor(np.float32(shape[axis]) * np.float32(scale))), scale)
            )
    return resizes


def _by_sizes(node: OnnxNode, sizes: Sequence[int], axes: Sequence[int], policy: str) -> list[AxisResize]:
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
    return [AxisResize(a, shape[a], out, scale) for a, out, scale in rows if out != shape[a] or scale != 1]


@onnx_op(
    "Resize",
    since=11,
    kind=Kind.DIRECT,
    limits="constant scales or sizes; computed sizes of the axes after the first two",
)
def resize(node: OnnxNode, g: Graph) -> Result:
    """Resize any axes by scales or to sizes."""
    mode = ResizeMode[node.choice("mode", "nearest", tuple(ResizeMode.__members__))]
    coordinates = Coordinates[
        node.choice("coordinate_transformation_mode", "half_pixel", tuple(Coordinates.__members__))
    ]
    nearest = node.choice("nearest_mode", "round_prefer_floor", tuple(NearestRounding.__members__)[:-1])
    node.optional_attr("extrapolation_value")  # only used outside the image
    if mode is not ResizeMode.cubic:
        node.refuse_attr("exclude_outside", 0)
    rule = Interpolation(
        mode,
        coordinates,
        NearestRounding[nearest],
        node.attr("cubic_coeff_a", -0.75),
        bool(node.attr("exclude_outside", 0)),
        node.version >= 18 and bool(node.attr("antialias", 0)),
    )
    policy, axes = "stretch", tuple(range(node.rank(0)))
    if node.version >= 18:
        policy = node.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
        chosen = node.ints_attr("axes")
        axes = axes if chosen is None else node.axes(chosen, node.rank(0))
    scales = node.constant(2).reshape(-1).astype(np.float32) if node.has_input(2) else np.empty(0, np.float32)
    if node.has_input(3) and not node.is_constant(3) and not len(scales):
        if node.has_input(1):
            node.constant(1)  # only used by tf_crop_and_resize
        return _resize_to_computed(node, g, axes, policy, rule)
    sizes = node.ints(3) if node.has_input(3) else ()
    if bool(len(scales)) == bool(len(sizes)):
        raise node.invalid("needs either scales or sizes")
    changed = _changed(scales, axes) if len(scales) else _resized(sizes, axes, node.shape(0))
    if policy == "stretch" and open_within([*sizes, *(node.shape(0)[axis] for axis in changed)]):
        if node.has_input(1):
            node.constant(1)  # only used by tf_crop_and_resize
        shape = node.shape(0)
        if len(scales):
            factors = dict(zip(axes, scales.tolist(), strict=True))
            return _resize_symbolic(node, g, [factors.get(axis, 1.0) for axis in range(len(shape))], (), rule)
        results = dict(zip(axes, sizes, strict=True))
        return _resize_symbolic(node, g, (), [results.get(axis, extent) for axis, extent in enumerate(shape)], rule)
    items = _by_scales(node, scales.tolist(), axes) if len(scales) else _by_sizes(node, sizes, axes, policy)
    if node.has_input(1):
        roi = node.constant(1).reshape(-1)
        if coordinates is Coordinates.tf_crop_and_resize:
            items = _crop(node, items, axes, roi)
    elif coordinates is Coordinates.tf_crop_and_resize:
        raise node.invalid("tf_crop_and_resize without roi")
    return _resize_axes(node, g, items, rule)


def _changed(scales: Array, axes: Sequence[int]) -> list[int]:
    """Axes whose scale is not 1."""
    return [axis for axis, scale in zip(axes, scales.tolist(), strict=False) if scale != 1]


def _resized(sizes: Sequence[int], axes: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Axes that get another extent, or a symbolic one that may be another."""
    return [axis for axis, size in zip(axes, sizes, strict=False) if str(size) != str(shape[axis])]


def _crop(node: OnnxNode, items: Sequence[AxisResize], axes: Sequence[int], roi: Array) -> list[AxisResize]:
    if roi.size != 2 * len(axes):
        raise node.invalid(f"roi of {roi.size} numbers for {len(axes)} axes")
    bounds = {axis: (float(roi[k]), float(roi[k + len(axes)])) for k, axis in enumerate(axes)}
    if any(bounds[axis] != (0.0, 1.0) for axis in axes if axis not in {item.axis for item in items}):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "roi crops an axis that keeps its extent")
    return [AxisResize(item.axis, item.extent, item.out, item.scale, bounds[item.axis]) for item in items]


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
    if node.op_type == "Upsample" and any(scale < 1 for scale in scales):
        raise node.invalid(f"scales {list(scales)}: the standard requires at least 1", "use Resize")
    kind = ResizeMode.nearest if mode == "nearest" else ResizeMode.linear
    rule = Interpolation(kind, Coordinates.asymmetric, NearestRounding.by_scale)
    shape = node.shape(0)
    changed = _changed(np.array(scales), range(len(shape)))
    if len(scales) == len(shape) and open_within([shape[axis] for axis in changed]):
        return _resize_symbolic(node, g, scales, (), rule)
    return _resize_axes(node, g, _by_scales(node, scales, range(node.rank(0))), rule)
