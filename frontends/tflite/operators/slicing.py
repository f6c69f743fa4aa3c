"""Operators that select elements: slice, split, gather and reverse."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import functions
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.indexing import strided_index
from tpuconvert.frontends.tflite.lowering import reshape
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.frontends.tflite.operators.gather import gather, slice_box
from tpuconvert.schema.errors import INVALID_NODE, UNKNOWN_SHAPE
from tpuconvert.schema.graph.graph import Graph, Value, static
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.arithmetic_with_scalar import Muls
from tpuconvert.schema.ops.concat import Split
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import Array, Scalar


@tflite_op("STRIDED_SLICE", kind=Kind.DIRECT, limits="constant bounds")
def strided_slice(node: TfliteNode, g: Graph) -> Value | Array:
    """Strided slice: axes with negative steps are gathered by index; a reshape removes and inserts axes."""
    if not all(node.is_constant(index) for index in (1, 2, 3)):
        raise node.fail(UNKNOWN_SHAPE, "begin, end or strides depend on the model's inputs")
    index = strided_index(node)
    shape = node.shape(0)
    x = node.input(0)
    cuts = [entry for entry in index if entry is not None]
    ranges = [
        range(entry, entry + 1) if isinstance(entry, int) else range(*entry.indices(extent))
        for entry, extent in zip(cuts, shape, strict=True)
    ]
    lengths = iter(ranges)
    result: list[int] = []
    for entry in index:
        length = 1 if entry is None else len(next(lengths))
        if not isinstance(entry, int):
            result.append(length)
    if 0 in result:
        return node.empty(result)
    for axis, positions in enumerate(ranges):
        if positions.step < 0:
            node.check_size([len(positions)])
            indices = g.constant(np.asarray(list(positions), dtype=np.int32), "positions")
            x = _annotate(node, gather(g, x, indices, axis))
            ranges[axis] = range(len(positions))
    return reshape(g, _annotate(node, slice_box(g, x, ranges)), result) if shape else reshape(g, x, result)


def _annotate(node: TfliteNode, value: Value) -> Value:
    """Copy the per-tensor quantization of the input to an intermediate result of data movement."""
    if value.quant is None and not value.is_constant:
        quant = node.quant(0)
        value.quant = quant if quant is None or quant.axis is None else None
    return value


@tflite_op("SLICE", kind=Kind.DIRECT, limits="constant bounds")
def slice_(node: TfliteNode, g: Graph) -> Value | Array:
    """Slice a box; a size of -1 extends to the end of the axis."""
    begin, size, shape = node.ints(1), node.ints(2), node.shape(0)
    if not len(begin) == len(size) == len(shape):
        raise node.fail(INVALID_NODE, f"begin {list(begin)} and size {list(size)} for the shape {list(shape)}")
    end = tuple(e if s == -1 else b + s for b, s, e in zip(begin, size, shape, strict=True))
    ranges = [range(b, e) for b, e in zip(begin, end, strict=True)]
    if any(b < 0 or e > extent or b > e for b, e, extent in zip(begin, end, shape, strict=True)):
        raise node.fail(INVALID_NODE, f"begin {list(begin)} and size {list(size)} for the shape {list(shape)}")
    if not all(ranges):
        return node.empty(map(len, ranges))
    return slice_box(g, node.input(0), ranges) if shape else node.input(0)


@tflite_op("STABLEHLO_SLICE", kind=Kind.DIRECT)
def stablehlo_slice(node: TfliteNode, g: Graph) -> Value | Array:
    """Strided slice with positive steps."""
    bounds = [node.option(name, ()) for name in ("start_indices", "limit_indices", "strides")]
    shape = node.shape(0)
    if any(len(numbers) != len(shape) for numbers in bounds) or min(bounds[2], default=1) < 1:
        raise node.fail(INVALID_NODE, f"bounds {bounds} for the shape {list(shape)}")
    ranges = [range(b, e, s) for b, e, s in zip(*bounds, strict=True)]
    if any(r.start < 0 or r.stop > extent for r, extent in zip(ranges, shape, strict=True)):
        raise node.fail(INVALID_NODE, f"bounds {bounds} for the shape {list(shape)}")
    if not all(ranges):
        return node.empty(map(len, ranges))
    return slice_box(g, node.input(0), ranges) if shape else node.input(0)


@tflite_op("SPLIT", kind=Kind.DIRECT)
def split(node: TfliteNode, g: Graph) -> tuple[Value | Array, ...]:
    """Split into equal parts along an axis."""
    shape = node.shape(1)
    axis, count = node.axis(node.one_int(0), len(shape)), node.option("num_splits")
    extent = shape[axis]
    if count < 1 or count != len(node.operator.outputs) or extent % count:
        raise node.fail(INVALID_NODE, f"{count} parts of an extent of {extent}")
    return _sized_parts(node, g, 1, axis, (extent // count,) * count)


@tflite_op("SPLIT_V", kind=Kind.DIRECT)
def split_v(node: TfliteNode, g: Graph) -> tuple[Value | Array, ...]:
    """Split into parts of given sizes along an axis; one size may be -1, which is inferred."""
    node.ignore_option("num_splits")  # redundant: the number of sizes
    shape = node.shape(0)
    axis = node.axis(node.one_int(2), len(shape))
    sizes = node.ints(1)
    extent = shape[axis]
    if sizes.count(-1) == 1:
        rest = extent - sum(size for size in sizes if size != -1)
        sizes = tuple(rest if size == -1 else size for size in sizes)
    if sum(sizes) != extent or min(sizes, default=-1) < 0 or len(sizes) != len(node.operator.outputs):
        raise node.fail(INVALID_NODE, f"parts {list(sizes)} of an extent of {extent}")
    return _sized_parts(node, g, 0, axis, sizes)


def _sized_parts(
    node: TfliteNode, g: Graph, index: int, axis: int, sizes: tuple[int, ...]
) -> tuple[Value | Array, ...]:
    """Split an input along an axis. Parts without elements are constants."""
    shape = node.shape(index)
    if node.is_empty(index):
        parts: tuple[Value, ...] = ()
    else:
        parts = _parts(g, node.input(index), axis, tuple(size for size in sizes if size))
    full = iter(parts)
    return tuple(
        next(full) if parts and size else node.empty((*shape[:axis], size, *shape[axis + 1 :]), number)
        for number, size in enumerate(sizes)
    )


def _parts(g: Graph, x: Value, axis: int, sizes: tuple[int, ...]) -> tuple[Value, ...]:
    if len(sizes) == 1:
        return (x,)
    return g.add_all(Split(axis=axis, num=len(sizes), size=sizes), x, names=("part",) * len(sizes))


@tflite_op("UNPACK")
def unpack(node: TfliteNode, g: Graph) -> tuple[Value, ...]:
    """Split along an axis into slices, and remove the axis."""
    node.ignore_option("num")  # redundant: the number of outputs
    x = node.input(0)
    shape = static(x.shape)
    axis = node.axis(node.option("axis"), len(shape))
    if shape[axis] != len(node.operator.outputs):
        raise node.fail(INVALID_NODE, f"has {len(node.operator.outputs)} outputs for {shape[axis]} slices")
    rest = (*shape[:axis], *shape[axis + 1 :])
    parts = _parts(g, x, axis, (1,) * shape[axis])
    return tuple(reshape(g, _annotate(node, part), rest) for part in parts)


@tflite_op("GATHER", kind=Kind.DIRECT)
def gather_operator(node: TfliteNode, g: Graph) -> Value | Array:
    """Gather slices along an axis; ``batch_dims`` leading axes have separate indices."""
    axis = node.axis(node.option("axis"), node.rank(0))
    batch_dims = node.axis(node.option("batch_dims"), node.rank(1) + 1)
    return _gather_batches(node, g, axis, batch_dims) if batch_dims else _gather_rows(node, g, 0, 1, axis)


def _gather_batches(node: TfliteNode, g: Graph, axis: int, batch_dims: int) -> Value:
    """Gather with separate indices per batch: add the offset of the batch, and gather from the rows of all batches."""
    shape, index_shape, x = node.shape(0), node.shape(1), node.input(0)
    if axis < batch_dims or shape[:batch_dims] != index_shape[:batch_dims]:
        message = f"batch_dims={batch_dims} with axis {axis}, {list(shape)} and indices {list(index_shape)}"
        raise node.fail(INVALID_NODE, message)
    if axis > batch_dims:  # move the axis after the batches, then the new axes back after those that it passed
        passed, rest = tuple(range(batch_dims, axis)), tuple(range(axis + 1, len(shape)))
        x = _annotate(node, g.add(Permute(order=(*range(batch_dims), axis, *passed, *rest)), x))
        y = _annotate(node, _gather_after_batches(node, g, x, batch_dims))
        first, new = batch_dims, len(index_shape) - batch_dims
        order = (*range(first), *range(first + new, axis + new), *range(first, first + new), *range(axis + new, y.rank))
        return g.add(Permute(order=order), y)
    return _gather_after_batches(node, g, x, batch_dims)


def _gather_after_batches(node: TfliteNode, g: Graph, x: Value, axis: int) -> Value:
    """Gather along the axis after the batches."""
    shape, index_shape = static(x.shape), node.shape(1)
    batches, extent = math.prod(shape[:axis]), shape[axis]
    node.check_size([batches])
    first = np.arange(batches, dtype=np.int32)[:, None] * np.int32(extent)
    flat = reshape(g, node.input(1), (batches, math.prod(index_shape[axis:])))
    rows = reshape(g, g.add(Add(), flat, g.constant(first, "first")), (math.prod(index_shape),))
    table = reshape(g, x, (batches * extent, *shape[axis + 1 :]))
    return reshape(g, gather(g, table, rows, 0), (*index_shape, *shape[axis + 1 :]))


@tflite_op("EMBEDDING_LOOKUP", kind=Kind.DIRECT)
def embedding_lookup(node: TfliteNode, g: Graph) -> Value | Array:
    """Gather rows of a table."""
    return _gather_rows(node, g, 1, 0, 0)


def _gather_rows(node: TfliteNode, g: Graph, data: int, index: int, axis: int) -> Value | Array:
    x, shape = node.input(data), node.shape(data)
    index_shape = node.shape(index)
    if node.is_constant(index):
        positions = node.ints(index)
        if any(not 0 <= position < shape[axis] for position in positions):
            raise node.fail(INVALID_NODE, f"an index is outside the extent {shape[axis]}")
        if 0 in (result := (*shape[:axis], *index_shape, *shape[axis + 1 :])):
            return node.empty(result)
        indices = g.constant(np.asarray(positions, dtype=np.int32), f"{node.tensor(index).name}:flat")
    else:
        indices = reshape(g, node.input(index), (math.prod(index_shape),))
    rows = gather(g, x, indices, axis)
    if len(index_shape) != 1:
        rows.quant = node.quant(data)
    return reshape(g, rows, (*shape[:axis], *index_shape, *shape[axis + 1 :]))


@tflite_op("GATHER_ND")
def gather_nd(node: TfliteNode, g: Graph) -> Value | Array:
    """Gather slices by index tuples, which are converted to indices into the flattened leading axes."""
    shape, index_shape = node.shape(0), node.shape(1)
    depth = index_shape[-1] if index_shape else 0
    if not 1 <= depth <= len(shape):
        raise node.fail(INVALID_NODE, f"indices {list(index_shape)} into {list(shape)}")
    rest = shape[depth:]
    if node.is_empty(1) or 0 in rest:
        return node.empty((*index_shape[:-1], *rest))
    count = math.prod(index_shape[:-1])
    steps = [math.prod(shape[axis + 1 : depth]) for axis in range(depth)]
    if node.is_constant(1):
        flat = node.constant(1).reshape(count, depth).astype(np.int64) @ np.asarray(steps, dtype=np.int64)
        if flat.size and (int(flat.min()) < 0 or int(flat.max()) >= math.prod(shape[:depth])):
            raise node.fail(INVALID_NODE, f"an index is outside the shape {list(shape)}")
        linear = g.constant(flat.astype(np.int32), f"{node.tensor(1).name}:flat")
    else:
        columns = _parts(g, reshape(g, node.input(1), (count, depth)), 1, (1,) * depth)
        terms = [g.add(Muls(Scalar(c.dtype, step)), c) for c, step in zip(columns, steps, strict=True)]
        linear = reshape(g, functions.chain(g, Add(), terms), (count,))
    table = reshape(g, node.input(0), (math.prod(shape[:depth]), *rest))
    return reshape(g, gather(g, table, linear, 0), (*index_shape[:-1], *rest))


@tflite_op("REVERSE_V2")
def reverse(node: TfliteNode, g: Graph) -> Value:
    """Reverse the elements along axes."""
    x = node.input(0)
    for axis in node.axes(node.ints(1), x.rank):
        extent = static(x.shape)[axis]
        node.check_size([extent])
        x = gather(g, x, g.constant(np.arange(extent - 1, -1, -1, dtype=np.int32), "backwards"), axis)
    return x
