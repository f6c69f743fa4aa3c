"""Gather, GatherElements, GatherND, OneHot and Trilu."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.grouped_weight import pack_grouped_weight
from tpuconvert.frontends.onnx.node import Folded, OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.data_movement import empty_result, gather_slices, movement_result
from tpuconvert.frontends.open_extents import has_zero, is_open, to_shape
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.compare import Eq, Eqs, Ges, Lts
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.gather_group_quantized import GatherGroupQuantized
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.symbolic_movement import SliceAxis
from tpuconvert.schema.types import EXACT_FLOAT32, Array, DType, Scalar


def from_front(node: OnnxNode, index: Array, extent: int) -> Array:
    """Return nonnegative constant indices."""
    if index.dtype.kind not in "iu":
        raise node.invalid(f"its indices are {index.dtype}")
    if index.size and (int(index.min()) < -extent or int(index.max()) >= extent):
        raise node.invalid(f"an index is outside {-extent} to {extent - 1}")
    return np.where(index < 0, index + extent, index)


def select_by(g: Graph, x: Value, axis: int, index: Value) -> Value:
    """Gather slices of one axis by computed indices; data of other types are cast to FLOAT32."""
    return emit.cast(g, g.add(IndexSelect(dim=axis), emit.as_float(g, x), index), x.dtype)


def computed_index(node: OnnxNode, g: Graph, position: int, extent: int) -> Value:
    """Return an index input as nonnegative INT32 values, flattened.

    Negative indices count from the end. If the extent is symbolic, they are an error when the model runs.
    """
    index = node.input(position)
    if index.dtype is not DType.INT32:
        raise node.invalid(f"its indices are {node.element(position)}")
    index = emit.reshape(g, index, (math.prod(emit.extents(index)),))
    if is_open(extent):
        return index
    below = emit.cast(g, g.add(Lts(Scalar.f32(0)), emit.as_float(g, index)), DType.INT32)
    return emit.add(g, index, emit.muls(g, below, extent))


def count_outside(g: Graph, index: Value, extent: int) -> Value:
    """Return INT32 values: 1 for an index outside of ``0..extent-1``, else 0."""
    number = emit.as_float(g, index)
    outside = emit.add(g, g.add(Lts(Scalar.f32(0)), number), g.add(Ges(Scalar.f32(extent)), number))
    return emit.cast(g, outside, DType.INT32)


def make_invalid(g: Graph, linear: Value, outside: Value) -> Value:
    """Replace linear indices by negative ones, which are errors at run time, where a count is above 0.

    An index outside of its own axis is the linear index of another element otherwise.
    """
    is_inside = g.add(Eqs(Scalar.f32(0)), emit.as_float(g, outside))
    return emit.sub(g, emit.mul(g, linear, emit.cast(g, is_inside, DType.INT32)), outside)


@onnx_op("Gather", since=1, kind=Kind.DIRECT)
def gather(node: OnnxNode, g: Graph) -> Result | Folded:
    """Gather slices of one axis; the axes of the indices replace it."""
    shape, index_shape = node.shape(0), node.shape(1)
    axis = node.axis(node.attr("axis", 0), len(shape))
    target = shape[:axis] + index_shape + shape[axis + 1 :]
    if has_zero(index_shape):
        return empty_result(node, target)
    table = node.grouped_weight(0, axis=1)
    if table is not None and axis == 0 and not node.is_constant(1):
        group, *operands = pack_grouped_weight(g, table)
        packed = GatherGroupQuantized(table.depth, table.bits, group)
        y = g.add(packed, computed_index(node, g, 1, shape[axis]), *operands)
        return movement_result(node, emit.reshape(g, y, target or (1,)))
    x = node.dequantized_input(0)
    if not node.is_constant(1):
        y = select_by(g, x, axis, computed_index(node, g, 1, shape[axis]))
    elif is_open(shape[axis]) and node.constant(1).size == 1:
        position = int(node.constant(1).item())
        y = g.add(SliceAxis(axis, position, position + 1), x)
    else:
        index = from_front(node, node.constant(1), shape[axis]).reshape(-1)
        steps = np.diff(index)
        if index.size == 1 or (steps.size and (steps == steps[0]).all() and steps[0] > 0):
            step = int(steps[0]) if steps.size else 1
            y = emit.slice_axis(g, x, axis, int(index[0]), int(index[-1]) + 1, step)
        else:
            y = gather_slices(g, x, axis, index)
    return movement_result(node, emit.reshape(g, y, target or (1,)), scalar=target == ())


def row_strides(shape: tuple[int, ...]) -> list[int]:
    """Row-major strides, in elements."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


@onnx_op("GatherElements", since=11, kind=Kind.DIRECT)
def gather_elements(node: OnnxNode, g: Graph) -> Result | Folded:
    """Gather one element per index, by linear indices into the flattened data."""
    shape, index_shape = node.shape(0), node.shape(1)
    axis = node.axis(node.attr("axis", 0), len(shape))
    if has_zero(index_shape):
        return empty_result(node, index_shape)
    strides = row_strides(shape)
    node.budget((len(shape), *index_shape), 8, "index")
    grids = np.indices(index_shape).reshape(len(shape), -1)
    fixed = sum(grids[k].astype(np.int64) * strides[k] for k in range(len(shape)) if k != axis)
    flat = emit.reshape(g, node.dequantized_input(0), (math.prod(shape),))
    if node.is_constant(1):
        index = from_front(node, node.constant(1), shape[axis]).reshape(-1).astype(np.int64)
        y = gather_slices(g, flat, 0, index * strides[axis] + fixed)
    else:
        computed = computed_index(node, g, 1, shape[axis])
        offset = g.constant(np.broadcast_to(fixed, (grids.shape[1],)).astype(np.int32), name="offset")
        linear = emit.add(g, emit.muls(g, computed, strides[axis]), offset)
        if axis:  # along axis 0 such an element is outside of the flattened data
            linear = make_invalid(g, linear, count_outside(g, computed, shape[axis]))
        y = select_by(g, flat, 0, linear)
    return movement_result(node, emit.reshape(g, y, index_shape))


def _times_extent(g: Graph, x: Value, extent: int) -> Value:
    """Multiply integers by an extent, which may be symbolic."""
    name = to_shape([extent])[0]
    return emit.muls(g, x, extent) if isinstance(name, int) else emit.mul(g, x, emit.extent_number(g, name))


@onnx_op("GatherND", since=11, kind=Kind.DIRECT)
def gather_nd(node: OnnxNode, g: Graph) -> Result | Folded:
    """Gather slices by tuples of indices, as linear indices into the flattened indexed axes."""
    shape, index_shape = node.shape(0), node.shape(1)
    batch = node.attr("batch_dims", 0) if node.version >= 12 else 0
    depth = index_shape[-1]
    if not 0 <= batch < min(len(shape), len(index_shape)) or depth > len(shape) - batch:
        raise node.invalid(f"batch_dims={batch} for ranks {len(shape)} and {len(index_shape)}")
    if has_zero(index_shape[:-1]):
        return empty_result(node, index_shape[:-1] + shape[batch + depth :])
    indexed, rest = shape[batch : batch + depth], shape[batch + depth :]
    strides = row_strides(indexed)
    batches, tuples = math.prod(shape[:batch]), math.prod(index_shape[batch:-1])
    flat = emit.reshape(g, node.dequantized_input(0), (batches * math.prod(indexed), math.prod(rest)))
    offset = np.zeros(1, np.int64)
    if is_open(batches) or batches != 1:
        node.budget((batches, tuples), 8, "index")
        offset = np.repeat(np.arange(batches) * math.prod(indexed), tuples)
    if node.is_constant(1):
        table = node.constant(1).reshape(-1, depth)
        columns = [from_front(node, table[:, k], indexed[k]) * strides[k] for k in range(depth)]
        y = gather_slices(g, flat, 0, offset + sum(columns))
    else:
        index = node.input(1)
        table_value = emit.reshape(g, index, (batches * tuples, depth))
        # A negative index along a symbolic axis is not counted from the end, and is an error at run time.
        static_extents = [0 if is_open(extent) else extent for extent in indexed]
        sizes = g.constant(np.asarray(static_extents, np.int32)[None], name="extents")
        below = emit.cast(g, g.add(Lts(Scalar.f32(0)), emit.as_float(g, table_value)), DType.INT32)
        table_value = emit.add(g, table_value, emit.mul(g, below, sizes))
        linear: Value | None = None
        outside: Value | None = None
        for k in range(depth):
            column = emit.reshape(g, emit.slice_axis(g, table_value, 1, k, k + 1), (batches * tuples,))
            if not is_open(indexed[k]) and (depth > 1 or offset.size > 1):
                count = count_outside(g, column, indexed[k])
                outside = count if outside is None else emit.add(g, outside, count)
            if not is_open(indexed[k]) and indexed[k] == 1 and (linear is not None or k + 1 < depth):
                continue  # the index is 0, or counted as invalid
            column = _times_extent(g, column, strides[k])
            linear = column if linear is None else emit.add(g, linear, column)
        if linear is None:
            raise node.invalid("its indices have no entries")
        if offset.size > 1:
            linear = emit.add(g, linear, g.constant(offset.astype(np.int32), name="offset"))
        if outside is not None:
            linear = make_invalid(g, linear, outside)
        y = select_by(g, flat, 0, linear)
    target = index_shape[:-1] + rest
    return movement_result(node, emit.reshape(g, y, target or (1,)), scalar=target == ())


@onnx_op("OneHot", since=9, limits="a constant depth; integer values up to 2^24")
def one_hot(node: OnnxNode, g: Graph) -> Result:
    """One-hot encoding of indices; an index outside the range gives a row of off values."""
    depth, element = int(node.scalar(1)), node.element(2)
    values = node.constant(2).reshape(-1)[:2]
    if element.is_integer and any(abs(int(number)) > EXACT_FLOAT32 for number in values):
        raise node.fail(UNSUPPORTED_TYPE, f"values {values.tolist()}", "supported: integers up to 2^24")
    shape = node.shape(0)
    axis = node.axis(node.attr("axis", -1), len(shape) + 1)
    node.budget((depth,), 4)
    index = emit.as_float(g, emit.reshape(g, node.input(0), (*shape[:axis], 1, *shape[axis:])))
    counter = np.arange(depth, dtype=np.float32).reshape([depth if k == axis else 1 for k in range(len(shape) + 1)])
    forward, backward = (emit.float_constant(g, numbers, "counter") for numbers in (counter, counter - depth))
    hot = emit.binary(g, "max", g.add(Eq(), index, forward), g.add(Eq(), index, backward))
    off, on = (
        emit.float_constant(g, number.reshape(1), name) for number, name in zip(values, ("off", "on"), strict=True)
    )
    return node.result(emit.cast(g, g.add(ConditionSelect(), hot, on, off), element.graph), element)


@onnx_op("Trilu", since=14, limits="a constant k")
def trilu(node: OnnxNode, g: Graph) -> Result:
    """Upper or lower triangle; other elements are 0, even if the data are not finite there."""
    x = node.input(0)
    shape = node.shape(0)
    if len(shape) < 2:
        raise node.invalid(f"an input of rank {len(shape)}")
    k = int(node.scalar(1)) if node.has_input(1) else 0
    node.budget(shape[-2:], 4, "mask")
    keep = (np.triu if node.attr("upper", 1) else np.tril)(np.ones(shape[-2:], np.float32), k)
    return node.result(emit.cast(g, zero_unmasked(g, emit.as_float(g, x), keep), x.dtype), node.element(0))


def zero_unmasked(g: Graph, x: Value, keep: Array) -> Value:
    """``where(keep, x, 0)`` with a constant 0/1 mask."""
    condition = emit.expand(g, g.add(Constdata(), emit.float_constant(g, keep, "mask")), emit.extents(x))
    return g.add(ConditionSelect(), condition, x, emit.float_constant(g, np.zeros(1), "zero"))
