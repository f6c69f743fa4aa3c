"""Data movement: reshape, transpose, concat, split, slice, expand, tile, pad, depth-to-space, identity.

The result of a quantized tensor has the same scale and zero point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx import shape_arguments
from tpuconvert.frontends.onnx.file.element_types import BOOL, FLOAT
from tpuconvert.frontends.onnx.node import Folded, OnnxNode, OnnxTensor, Result, folds, onnx_op
from tpuconvert.frontends.open_extents import has_zero, is_data_dependent, is_open, open_within
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import UNKNOWN_SHAPE, UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.concat import Split
from tpuconvert.schema.ops.host.expand import HostExpand
from tpuconvert.schema.ops.host.pad import HostPad, HostPadMode
from tpuconvert.schema.ops.host.slice import HostSlice
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.ops.shape_change import Squeeze
from tpuconvert.schema.ops.symbolic_movement import ReshapeAxes, SliceAxis
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import Array, DType, Scalar


def movement_result(node: OnnxNode, value: Value, *, scalar: bool = False) -> Result:
    """Return the result of a data movement operator: element type and quantization are copied from the first input."""
    tensor = node.tensor(0)
    if tensor.quant is not None and tensor.quant.axis is not None:
        raise node.fail(UNSUPPORTED_TYPE, "its input has per-channel quantization")
    if tensor.quant is not None:
        value.quant = tensor.quant
    return node.result(value, tensor.element, scalar=scalar, quant=tensor.quant)


def _reshaping(name: str, target_of: Callable[[OnnxNode], tuple[int, ...]], limits: str = "") -> None:
    def convert(node: OnnxNode, g: Graph) -> Result:
        target, x = target_of(node), node.dequantized_input(0)
        if name == "Squeeze" and (axes := shape_arguments.squeezed_symbolic_axes(node)):
            return movement_result(node, g.add(Squeeze(axes), x), scalar=target == ())
        return movement_result(node, emit.reshape(g, x, target), scalar=target == ())

    def evaluate(node: OnnxNode, _: Graph) -> Array:
        return node.constant(0).reshape(target_of(node))

    convert.__doc__ = f"{name}: change the shape, keep the order of elements."
    onnx_op(name, since=1, kind=Kind.DIRECT, limits=limits)(convert)
    folds(name, since=1)(evaluate)


_reshaping("Reshape", shape_arguments.reshape_target, "a shape that is known at conversion")
_reshaping("Flatten", shape_arguments.flatten_target)
_reshaping("Squeeze", shape_arguments.squeeze_target, "constant axes")
_reshaping("Unsqueeze", shape_arguments.unsqueeze_target, "constant axes")


@onnx_op("Transpose", since=1, kind=Kind.DIRECT)
def transpose(node: OnnxNode, g: Graph) -> Result:
    """Reorder axes."""
    order = shape_arguments.transpose_order(node)
    x = node.dequantized_input(0)
    return movement_result(node, emit.permute(g, x, order) if order else x, scalar=order == ())


@onnx_op("Identity", since=1, kind=Kind.FOLDED)
def identity(node: OnnxNode, _: Graph) -> OnnxTensor:
    """The input; no node is added."""
    return node.tensor(0)


@onnx_op("Dropout", since=1, kind=Kind.FOLDED, limits="inference")
def dropout(node: OnnxNode, _: Graph) -> list[OnnxTensor | Folded]:
    """The input: dropout has no effect at inference; the mask is true everywhere."""
    if node.version < 7:
        node.refuse_attr("is_test", 1, "training is not supported: export the model for inference")
    node.optional_attr("ratio")
    node.optional_attr("seed")
    if node.has_input(1):
        node.tensor(1)  # the ratio does not matter
    if node.has_input(2) and node.scalar(2):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "training_mode is true", "export the model for inference")
    results: list[OnnxTensor | Folded] = [node.tensor(0)]
    if len(node.output_names) > 1:
        node.budget(node.shape(0), 1)
        kind = BOOL if node.version >= 10 else FLOAT
        results.append(Folded(np.ones(node.shape(0), kind.numpy), kind))
    return results


@onnx_op("Concat", since=1, kind=Kind.DIRECT)
def concat(node: OnnxNode, g: Graph) -> Result | Folded:
    """Concatenation along an axis; tensors that are empty along it are skipped."""
    axis = shape_arguments.concat_axis(node)
    first = node.tensor(0)
    for index in range(1, len(node.inputs)):
        if node.tensor(index).quant != first.quant or node.element(index) is not first.element:
            raise node.fail(UNSUPPORTED_TYPE, "its inputs have different types or scales")
    shapes = [node.shape(index) for index in range(len(node.inputs))]
    filled = [index for index, shape in enumerate(shapes) if not has_zero(shape[axis : axis + 1])]
    if not filled or any(has_zero(shape[:axis] + shape[axis + 1 :]) for shape in shapes):
        along = sum(shape[axis] for shape in shapes)
        numbers = [min(extents, key=is_open) for extents in zip(*shapes, strict=True)]  # a number equals the symbols
        return empty_result(node, (*numbers[:axis], along, *numbers[axis + 1 :]))
    parts = [node.dequantized_input(index) for index in filled]
    return movement_result(node, emit.concat(g, parts, axis))


@onnx_op("Split", since=1, kind=Kind.DIRECT, limits="constant extents")
def split(node: OnnxNode, g: Graph) -> list[Result | Folded]:
    """Split along one axis."""
    axis, sizes = shape_arguments.split_sizes(node)
    filled = tuple(size for size in sizes if size)
    x = node.dequantized_input(0)
    parts = iter(g.add_all(Split(axis=axis, num=len(filled), size=filled), x) if len(filled) > 1 else (x,))
    return [movement_result(node, next(parts)) if size else empty(node, axis) for size in sizes]


def empty_result(node: OnnxNode, shape: tuple[int, ...]) -> Folded:
    """Return a constant without elements in the type of the first input.

    Raises:
        CannotConvertError: another extent is symbolic.
    """
    if name := open_within(shape):
        raise node.invalid(f"its result has no elements, and the extent '{name}'", "give the extents of the inputs")
    return Folded(np.empty(shape, node.element(0).numpy), node.element(0))


def empty(node: OnnxNode, axis: int) -> Folded:
    """Return an empty constant in the shape of the first input, with extent 0 along an axis."""
    shape = (*node.shape(0)[:axis], 0, *node.shape(0)[axis + 1 :])
    return Folded(np.empty(shape, node.element(0).numpy), node.element(0))


@onnx_op("Slice", since=1, kind=Kind.DIRECT, limits="the host slices with computed bounds")
def slice_(node: OnnxNode, g: Graph) -> Result | Folded:
    """Strided slice; negative steps gather by index."""
    x = node.dequantized_input(0)
    if node.version >= 10 and not (node.is_constant(1) and node.is_constant(2)):
        return movement_result(node, _slice_on_host(node, g, x))
    shape = node.shape(0)
    parts = shape_arguments.slices(node)
    empty_axes = {part.axis for part in parts if part.count == 0}
    symbolic = {part.axis for part in parts if part.end is not None}
    if empty_axes and not any(is_open(extent) for axis, extent in enumerate(shape) if axis not in empty_axes):
        counts = {part.axis: part.count for part in parts}
        target = tuple(counts.get(axis, extent) for axis, extent in enumerate(shape))
        return Folded(np.empty(target, node.element(0).numpy), node.element(0))
    if any(map(is_open, shape)):
        for part in parts:
            if part.count == 0:
                x = _slice_between(g, x, part.axis, 0, 0)
            elif part.end is not None and (part.step < 0 or is_data_dependent(shape[part.axis])):
                x = _slice_between(g, x, part.axis, part.start, part.end, part.step)
            elif part.end is not None:
                first, last = _from_one_end(part.start, part.end)
                x = g.add(SliceAxis(part.axis, first, last, part.step, may_be_empty=True), x)
            elif part.step > 0:
                x = emit.slice_axis(g, x, part.axis, part.start, part.last + 1, part.step)
    else:
        start, end, step = [0] * len(shape), list(shape), [1] * len(shape)
        for part in parts:
            if part.step < 0:
                continue
            start[part.axis], end[part.axis], step[part.axis] = part.start, part.last + 1, part.step
        if start != [0] * len(shape) or tuple(end) != shape or step != [1] * len(shape):
            x = emit.extract(g, x, start, end, step)
    for part in parts:
        if part.step < 0 and part.axis not in symbolic | empty_axes:
            x = gather_slices(g, x, part.axis, np.array(part.indices, np.int32))
    return movement_result(node, x)


def _from_one_end(start: int, end: int) -> tuple[int, int]:
    """Bounds of ``slice_axis``: 0 instead of a bound that clamping makes the start or the end of every axis."""
    last = shape_arguments.TO_THE_END
    return 0 if start == -last else start, 0 if end == last else end


def _slice_between(g: Graph, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
    """Slice with bounds whose distance depends on the data-dependent or symbolic extent, or is 0."""
    bounds = (g.constant(np.array([bound], np.int32), name="bound") for bound in (start, end))
    return g.add(HostSlice(axis, step), x, *bounds)


def _slice_on_host(node: OnnxNode, g: Graph, x: Value) -> Value:
    """Slice with computed bounds, one axis after the other."""
    (count,) = node.shape(1)
    axes = node.axes(node.ints(3) if node.has_input(3) else range(count), node.rank(0))
    steps = node.ints(4) if node.has_input(4) else (1,) * count
    if not len(axes) == len(steps) == count or node.shape(2) != (count,) or 0 in steps:
        raise node.invalid(f"{count} starts, {list(node.shape(2))} ends, axes {list(axes)}, steps {list(steps)}")
    starts, ends = _bounds(node, g, 1), _bounds(node, g, 2)
    for axis, step, start, end in zip(axes, steps, starts, ends, strict=True):
        x = g.add(HostSlice(axis, step), x, start, end)
    return x


def _bounds(node: OnnxNode, g: Graph, index: int) -> list[Value]:
    """Starts or ends of a slice as INT32 values of one element; larger constants are clamped."""
    if node.is_constant(index):
        limits = np.iinfo(np.int32)
        numbers = [min(max(bound, limits.min), limits.max) for bound in node.ints(index)]
        return [g.constant(np.array([number], np.int32), "bound") for number in numbers]
    value = node.input(index)
    if value.dtype is not DType.INT32:
        raise node.invalid(f"its bounds are {node.element(index)}")
    return [emit.slice_axis(g, value, 0, position, position + 1) for position in range(node.shape(index)[0])]


def gather_slices(g: Graph, x: Value, axis: int, index: np.ndarray) -> Value:
    """Gather slices of one axis by constant indices; integers are cast to FLOAT32, which is exact below 2^24."""
    indices = g.constant(index.astype(np.int32), name="index")
    return emit.cast(g, g.add(IndexSelect(dim=axis), emit.as_float(g, x), indices), x.dtype)


@onnx_op("DepthToSpace", since=1, kind=Kind.DIRECT)
def depth_to_space(node: OnnxNode, g: Graph) -> Result:
    """Move channels to blocks of pixels, depth first (DCR) or column first (CRD)."""
    n, c, h, w = _four(node)
    block = node.required_attr("blocksize", 1)
    mode = node.choice("mode", "DCR", ("DCR", "CRD")) if node.version >= 11 else "DCR"
    if block < 1 or c % (block * block):
        raise node.invalid(f"{c} channels for blocks of {block}")
    depth = c // (block * block)
    inner, order = (
        ((n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2))
        if mode == "DCR"
        else ((n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3))
    )
    y = emit.permute(g, emit.reshape(g, node.dequantized_input(0), inner), order)
    return movement_result(node, emit.reshape(g, y, (n, depth, h * block, w * block)))


@onnx_op("SpaceToDepth", since=1, kind=Kind.DIRECT)
def space_to_depth(node: OnnxNode, g: Graph) -> Result:
    """Move blocks of pixels to channels; the index in the block is major (DCR) or minor (CRD)."""
    n, c, h, w = _four(node)
    block = node.required_attr("blocksize", 1)
    x = node.dequantized_input(0)
    if is_open(h) or is_open(w):
        y = g.add(ReshapeAxes((1, 1, 1, block, 1, block), (1, 1, block, 1, block, 1), (1, 2, 4, 0, 8, 0)), x)
    elif block < 1 or h % block or w % block:
        raise node.invalid(f"extents {h} x {w} for blocks of {block}")
    else:
        y = emit.reshape(g, x, (n, c, h // block, block, w // block, block))
    rows, columns = emit.extents(y)[2], emit.extents(y)[4]
    mode = node.choice("mode", "DCR", ("DCR", "CRD")) if node.version >= 28 else "DCR"
    y = emit.permute(g, y, (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return movement_result(node, emit.reshape(g, y, (n, c * block * block, rows, columns)))


def _four(node: OnnxNode) -> tuple[int, int, int, int]:
    if node.rank(0) != 4:
        raise node.invalid(f"an input of rank {node.rank(0)}, not 4")
    n, c, h, w = node.shape(0)
    return n, c, h, w


@onnx_op("Expand", since=8, kind=Kind.DIRECT, limits="a shape that is known at conversion")
def expand(node: OnnxNode, g: Graph) -> Result | Folded:
    """Broadcast to a shape: repeat unit axes."""
    shape, extents = node.shape(0), shape_arguments.target_extents(node, 1)
    if has_to_be(shape, extents):
        pairs = zip(shape, extents, strict=True)
        target = tuple(have if want == 1 and not is_open(have) else want for have, want in pairs)
        return movement_result(node, g.add(HostExpand(target), node.dequantized_input(0)))
    target = emit.broadcast_shape(shape, extents)
    if has_zero(target):
        return empty_result(node, target)
    x = node.dequantized_input(0)
    return movement_result(node, emit.expand(g, x, target) if target else x, scalar=target == ())


def has_to_be(shape: Sequence[int], extents: Sequence[int]) -> bool:
    """Return True if data-dependent extents have to be 1 or equal to a known shape, which the host checks."""
    pairs = zip(shape, extents, strict=False)
    is_known = len(shape) == len(extents) and not open_within(extents) and not has_zero(extents)
    return is_known and any(is_data_dependent(have) and want != 1 for have, want in pairs)


@onnx_op("Tile", since=6, kind=Kind.DIRECT, limits="constant repeats")
def tile(node: OnnxNode, g: Graph) -> Result:
    """Repeat the whole tensor along every axis."""
    times = node.ints(1)
    if len(times) != node.rank(0) or any(count < 1 for count in times):
        raise node.invalid(f"repeats {list(times)} for rank {node.rank(0)}")
    x = node.dequantized_input(0)
    if open_within(times):
        return movement_result(
            node, emit.expand(g, x, tuple(old * new for old, new in zip(node.shape(0), times, strict=True)))
        )
    return movement_result(node, x if set(times) <= {1} else g.add(Tile(times), x), scalar=times == ())


@onnx_op("Tile", since=1, kind=Kind.DIRECT, limits="constant repeats")
def tile_one_axis(node: OnnxNode, g: Graph) -> Result:
    """Tile of opset 1: repeat along one axis, which is an input."""
    axis = node.axis(int(node.scalar(2)), node.rank(0))
    times = tuple(int(node.scalar(1)) if k == axis else 1 for k in range(node.rank(0)))
    return movement_result(node, g.add(Tile(times), node.dequantized_input(0)))


_MODES = {"constant": PadType.PAD_CONSTANT, "reflect": PadType.PAD_REFLECT, "edge": PadType.PAD_EDGE}


@onnx_op("Pad", since=1, kind=Kind.DIRECT, limits="a constant value; the host pads with computed sizes")
def pad(node: OnnxNode, g: Graph) -> Result:
    """Pad with a constant, reflected, edge or wrapped elements; negative pads crop."""
    mode = node.choice("mode", "constant", (*_MODES, "wrap") if node.version >= 19 else tuple(_MODES))
    x = node.dequantized_input(0)
    if node.version >= 11 and not node.is_constant(1):
        return movement_result(node, _pad_on_host(node, g, x, mode))
    pads = shape_arguments.pads_per_axis(node)
    for axis, (before, after) in enumerate(pads):
        if min(before, after) < 0:
            extent = emit.extents(x)[axis]
            if max(-before, 0) + max(-after, 0) >= extent:
                raise node.invalid(f"pads ({before}, {after}) of extent {extent} leave no elements")
            x = emit.slice_axis(g, x, axis, max(-before, 0), extent - max(-after, 0))
    flat = tuple(max(side, 0) for pair in pads for side in pair)
    value = _pad_value(node, x)
    if any(flat):
        x = _pad_wrap(g, x, flat) if mode == "wrap" else g.add(Pad(value, flat, _MODES[mode]), x)
    return movement_result(node, x)


def _pad_on_host(node: OnnxNode, g: Graph, x: Value, mode: str) -> Value:
    """Pad with computed sizes."""
    axes = node.axes(node.ints(3), node.rank(0)) if node.has_input(3) else tuple(range(node.rank(0)))
    pads = node.input(1)
    if pads.dtype is not DType.INT32 or node.shape(1) != (2 * len(axes),):
        raise node.invalid(f"pads {node.element(1)}{list(node.shape(1))} for {len(axes)} axes")
    return g.add(HostPad(axes=axes, value=_pad_value(node, x), mode=HostPadMode[mode]), x, pads)


def _pad_value(node: OnnxNode, x: Value) -> Scalar:
    """Value of the padding; dequantized if the tensor is quantized."""
    tensor = node.tensor(0)
    if node.version < 11:
        number: float = node.attr("value", 0.0)
    elif node.has_input(2):
        if not node.is_constant(2):
            raise node.fail(UNKNOWN_SHAPE, "its constant value depends on the model's inputs", needs=node.tensor(2))
        number = node.scalar(2) if node.constant(2).size else 0
    else:
        number = 0
    if tensor.quant is not None:
        number = float(tensor.quant.dequantize(np.asarray([int(number)]))[0])
    return Scalar.f32(number) if x.dtype is DType.FLOAT32 else Scalar(x.dtype, int(number))


def _pad_wrap(g: Graph, x: Value, flat: tuple[int, ...]) -> Value:
    for axis in range(x.rank):
        before, after = flat[2 * axis], flat[2 * axis + 1]
        extent = emit.extents(x)[axis]
        if before or after:
            if max(before, after) > extent:
                x = gather_slices(g, x, axis, np.arange(-before, extent + after) % extent)
                continue
            parts = [emit.slice_axis(g, x, axis, extent - before, extent)] if before else []
            parts += [x] + ([emit.slice_axis(g, x, axis, 0, after)] if after else [])
            x = emit.concat(g, parts, axis)
    return x


@onnx_op("CenterCropPad", since=18, limits="a constant shape; floating point")
def center_crop_pad(node: OnnxNode, g: Graph) -> Result:
    """Crop or pad with zeros around the center."""
    target = node.ints(1)
    axes = node.ints_attr("axes")
    chosen = node.axes(axes, node.rank(0)) if axes is not None else tuple(range(node.rank(0)))
    if len(chosen) != len(target):
        raise node.invalid(f"{len(target)} extents for {len(chosen)} axes")
    x = node.dequantized_input(0)
    if x.dtype is not DType.FLOAT32 or node.tensor(0).quant is not None:
        raise node.fail(UNSUPPORTED_TYPE, f"its input is {node.element(0)}", "supported: floating point")
    paddings = [0] * (2 * x.rank)
    for axis, new_extent in zip(chosen, target, strict=True):
        extent = emit.extents(x)[axis]
        surplus = abs(extent - new_extent)
        before = surplus // 2
        if extent > new_extent:
            x = emit.slice_axis(g, x, axis, before, before + new_extent)
        else:
            paddings[2 * axis], paddings[2 * axis + 1] = before, surplus - before
    if any(paddings):
        x = g.add(Pad(Scalar.f32(0), tuple(paddings)), x)
    return movement_result(node, x)
