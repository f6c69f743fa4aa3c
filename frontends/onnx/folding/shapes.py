"""Constant evaluators of operators that create, move and select data. Integers stay 64-bit.

Each evaluator checks the size of its result against the limit before it allocates memory.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit, open_extents
from tpuconvert.frontends.onnx import shape_arguments
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.file.element_types import ELEMENTS, FLOAT
from tpuconvert.frontends.onnx.file.messages import SparseTensorProto, TensorProto
from tpuconvert.frontends.onnx.node import Folded, OnnxNode, Result, folds
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.generation import ShapeFetch
from tpuconvert.schema.ops.positions import Positions
from tpuconvert.schema.types import Array


@folds("Shape", since=1)
def shape(node: OnnxNode, _: Graph) -> Array:
    """Shape of the input; since opset 15, attributes may select a range of its axes."""
    extents = node.shape(0)
    start = node.attr("start", 0) if node.version >= 15 else 0
    end = node.attr("end", len(extents)) if node.version >= 15 else len(extents)
    return open_extents.extents_array(extents[slice(*slice(start, end).indices(len(extents)))])


@folds("Size", since=1)
def size(node: OnnxNode, _: Graph) -> Array:
    """Number of elements of the input."""
    return open_extents.extents_array(math.prod(node.shape(0)))


@folds("Constant", since=1)
def constant(node: OnnxNode, _: Graph) -> Folded | Array:
    """Value of the node's only attribute, which may have several names and types."""
    names = [name for name in node.attributes if name.startswith(("value", "sparse_value"))]
    if len(names) != 1:
        raise node.invalid(f"has {len(names)} values")
    value = node.optional_attr(names[0])
    if isinstance(value, TensorProto):
        return Folded(node.reader.read(value), node.reader.element(value))
    if isinstance(value, SparseTensorProto):
        return Folded(node.reader.read_sparse(value), node.reader.element(value.values))
    if names[0] in ("value_float", "value_floats"):
        return np.array(value, np.float32)
    if names[0] in ("value_int", "value_ints"):
        return np.array(value, np.int64)
    raise node.fail(UNSUPPORTED_TYPE, f"{names[0]} contains text", "supported: numbers")


@folds("ConstantOfShape", since=9)
def constant_of_shape(node: OnnxNode, g: Graph) -> Folded | Array | Result:
    """Tensor filled with one value."""
    target = shape_arguments.target_extents(node, 0)
    value = node.optional_attr("value")
    if open_extents.open_within(target):
        return _fill(node, g, target, value)
    if value is None:
        node.budget(target, 4)
        return np.zeros(target, np.float32)
    if not isinstance(value, TensorProto):
        raise node.invalid("its value is not a tensor")
    filler = node.reader.read(value)
    if filler.size != 1:
        raise node.invalid(f"its value has {filler.size} elements")
    node.budget(target, filler.itemsize)
    return Folded(np.full(target, filler.reshape(-1)[0], filler.dtype), node.reader.element(value))


def _fill(node: OnnxNode, g: Graph, target: tuple[int, ...], value: object) -> Result:
    """Return a tensor filled with one value whose shape has symbolic extents."""
    filler, element = np.zeros(1, np.float32), FLOAT
    if isinstance(value, TensorProto):
        filler, element = node.reader.read(value), node.reader.element(value)
    number = filler.reshape(-1)[:1].astype(element.graph.numpy)
    return node.result(emit.expand(g, g.constant(number, name="filler"), target), element)


@folds("Identity", since=1)
def identity(node: OnnxNode, _: Graph) -> Array:
    """Return the input unchanged."""
    return node.constant(0)


@folds("Transpose", since=1)
def transpose(node: OnnxNode, _: Graph) -> Array:
    """Reorder axes."""
    # ascontiguousarray would give a scalar the rank 1
    return np.array(node.constant(0).transpose(shape_arguments.transpose_order(node)), order="C")


@folds("Concat", since=1)
def concat(node: OnnxNode, _: Graph) -> Array:
    """Concatenation along an axis."""
    axis = shape_arguments.concat_axis(node)
    return np.concatenate([node.constant(index) for index in range(len(node.inputs))], axis=axis)


@folds("Split", since=1)
def split(node: OnnxNode, _: Graph) -> list[Array]:
    """Split along one axis."""
    axis, sizes = shape_arguments.split_sizes(node)
    return np.split(node.constant(0), np.cumsum(sizes)[:-1], axis=axis)


@folds("Slice", since=1)
def slice_(node: OnnxNode, _: Graph) -> Array:
    """Strided slice."""
    x = node.constant(0)
    for part in shape_arguments.slices(node):
        x = np.take(x, np.array(part.indices, np.int64), axis=part.axis)
    return x


@folds("Gather", since=1)
def gather(node: OnnxNode, _: Graph) -> Array:
    """Gather slices by index; negative indices count from the end."""
    data, indices = node.constant(0), node.constant(1)
    axis = node.axis(node.attr("axis", 0), data.ndim)
    indices = _normalize_indices(node, indices, data.shape[axis])
    node.budget(data.shape[:axis] + indices.shape + data.shape[axis + 1 :], data.itemsize)
    return np.asarray(np.take(data, indices, axis=axis))  # NumPy returns a scalar instead of an array of rank 0


@folds("GatherElements", since=11)
def gather_elements(node: OnnxNode, _: Graph) -> Array:
    """Gather one element per index."""
    data, indices = node.constant(0), node.constant(1)
    axis = node.axis(node.attr("axis", 0), data.ndim)
    return np.take_along_axis(data, _normalize_indices(node, indices, data.shape[axis]), axis=axis)


@folds("GatherND", since=11)
def gather_nd(node: OnnxNode, _: Graph) -> Array:
    """Gather slices by tuples of indices."""
    data, indices = node.constant(0), node.constant(1)
    batch = node.attr("batch_dims", 0) if node.version >= 12 else 0
    depth = indices.shape[-1] if indices.ndim else 0
    if not 0 <= batch < min(data.ndim, indices.ndim) or depth > data.ndim - batch:
        raise node.invalid(f"batch_dims={batch} for ranks {data.ndim} and {indices.ndim}")
    if indices.shape[:batch] != data.shape[:batch]:
        raise node.invalid(
            f"batch axes {list(indices.shape[:batch])} of the indices, {list(data.shape[:batch])} of data"
        )
    columns = [_normalize_indices(node, indices[..., k], data.shape[batch + k]) for k in range(depth)]
    node.budget(indices.shape[:-1] + data.shape[batch + depth :], data.itemsize)
    batches = np.ogrid[tuple(map(slice, data.shape[:batch]))] if batch else []
    leading = [grid.reshape(grid.shape + (1,) * (indices.ndim - 1 - batch)) for grid in batches]
    return np.asarray(data[(*leading, *columns)])


@folds("Expand", since=8)
def expand(node: OnnxNode, g: Graph) -> Array | Result:
    """Broadcast to a shape: repeat unit axes."""
    data = node.constant(0)
    extents = shape_arguments.target_extents(node, 1)
    if open_extents.open_within(extents):
        target = emit.broadcast_shape(data.shape, extents)
        return node.result(emit.expand(g, node.input(0), target), node.element(0))
    target = np.broadcast_shapes(data.shape, extents)
    node.budget(target, data.itemsize)
    return np.array(np.broadcast_to(data, target), order="C")


@folds("Tile", since=6)
def tile(node: OnnxNode, g: Graph) -> Array | Result:
    """Repeat along every axis."""
    data, times = node.constant(0), shape_arguments.target_extents(node, 1)
    if len(times) != data.ndim:
        raise node.invalid(f"{len(times)} repeats for {data.ndim} axes")
    if open_extents.open_within(times):
        target = tuple(extent * count for extent, count in zip(data.shape, times, strict=True))
        return node.result(emit.expand(g, node.input(0), target), node.element(0))
    node.budget([extent * count for extent, count in zip(data.shape, times, strict=True)], data.itemsize)
    return np.tile(data, times)


@folds("Range", since=11)
def range_(node: OnnxNode, g: Graph) -> Array | Result:
    """``start, start + delta, ...`` below ``limit``; a node if start or limit is symbolic and delta is 1."""
    start, limit, delta = (node.constant(index).reshape(()) for index in range(3))
    if open_extents.is_shape_tensor(start) or open_extents.is_shape_tensor(limit):
        if delta != 1:
            raise node.fail(UNSUPPORTED_ATTRIBUTE, f"delta={delta} with symbolic extents", "supported: 1")
        numbers = _symbolic_range(g, start.item(), limit.item())
        if node.element(0).is_integer:
            return node.result(numbers, element_types.INT64)
        return node.result(emit.as_float(g, numbers), node.element(0))
    if delta == 0:
        raise node.invalid("its delta is 0")
    exact = [x.item() for x in (start, limit, delta)]
    count = max(math.ceil((exact[1] - exact[0]) / exact[2]), 0)
    if isinstance(exact[0], int):
        count = max(-((exact[0] - exact[1]) // exact[2]), 0)
    node.budget([count], start.dtype.itemsize)
    steps: Array = start + np.arange(count).astype(start.dtype) * delta
    return steps.astype(start.dtype)


def _positions(g: Graph, extent: int) -> Value:
    """``0, ..., extent - 1`` for a symbolic extent, which may be a sum of extents of different inputs."""
    try:
        return emit.positions(g, extent)
    except open_extents.OpenExtentError:
        return g.add(Positions(), emit.zeros(g, extent))


def _symbolic_range(g: Graph, start: int, limit: int) -> Value:
    """``start, ..., limit - 1`` for symbolic extents: positions along a tensor with this extent, plus the start."""
    numbers = _positions(g, limit - start)
    if not open_extents.is_open(start):
        return emit.adds(g, numbers, start) if start else numbers
    return emit.add(g, numbers, g.add(ShapeFetch(), emit.zeros(g, start)))


@folds("EyeLike", since=9)
def eye_like(node: OnnxNode, _: Graph) -> Folded:
    """Ones on a diagonal; only the shape of the input matters."""
    rows, columns = node.shape(0)
    code = node.optional_attr("dtype")
    element = node.element(0) if code is None else ELEMENTS.get(code, FLOAT)
    node.budget((rows, columns), element.numpy.itemsize)
    return Folded(np.eye(rows, columns, node.attr("k", 0), dtype=element.numpy), element)


@folds("Where", since=9)
def where(node: OnnxNode, _: Graph) -> Array:
    """``where(condition, x, y)`` with broadcasting."""
    condition, x, y = (node.constant(index) for index in range(3))
    target = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    node.budget(target, x.itemsize)
    return np.where(condition, x, y)


@folds("NonZero", since=9)
def non_zero(node: OnnxNode, _: Graph) -> Array:
    """Coordinates of the elements that are not 0, one row per axis."""
    return np.array(np.nonzero(np.atleast_1d(node.constant(0))), np.int64)


@folds("OneHot", since=9)
def one_hot(node: OnnxNode, _: Graph) -> Array:
    """One-hot encoding of indices."""
    indices, depth, values = node.constant(0), int(node.scalar(1)), node.constant(2)
    axis = node.axis(node.attr("axis", -1), indices.ndim + 1)
    node.budget((*indices.shape, depth), values.itemsize)
    hot = np.expand_dims(np.where(indices < 0, indices + depth, indices), axis)
    counter = np.arange(depth).reshape([depth if k == axis else 1 for k in range(indices.ndim + 1)])
    encoded: Array = np.where(hot == counter, values[1], values[0])
    return encoded.astype(values.dtype)


@folds("Trilu", since=14)
def trilu(node: OnnxNode, _: Graph) -> Array:
    """Upper or lower triangle; other elements are 0."""
    k = int(node.scalar(1)) if node.has_input(1) else 0
    if node.rank(0) < 2:
        raise node.invalid(f"input {list(node.shape(0))} must have rank 2 or more")
    return (np.triu if node.attr("upper", 1) else np.tril)(node.constant(0), k)


_COMBINATIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@folds("ScatterND", since=11)
def scatter_nd(node: OnnxNode, _: Graph) -> Array:
    """Copy the data and replace slices by updates, or combine them with those."""
    reductions = ("none", "add", "mul", *(("max", "min") if node.version >= 18 else ()))
    reduction = node.choice("reduction", "none", reductions) if node.version >= 16 else "none"
    data, indices, updates = node.constant(0).copy(), node.constant(1), node.constant(2)
    columns = [_normalize_indices(node, indices[..., k], data.shape[k]) for k in range(indices.shape[-1])]
    if reduction == "none":
        data[tuple(columns)] = updates
    else:
        _COMBINATIONS[reduction].at(data, tuple(columns), updates)  # an index may occur several times
    return data


@folds("CumSum", since=11)
def cum_sum(node: OnnxNode, _: Graph) -> Array:
    """Running sums along an axis."""
    data = node.constant(0)
    axis = node.axis(int(node.scalar(1)), data.ndim)
    backwards, exclusive = node.attr("reverse", 0), node.attr("exclusive", 0)
    data = np.flip(data, axis) if backwards else data
    sums = np.cumsum(data, axis, dtype=data.dtype)
    sums = sums - data if exclusive else sums
    return np.ascontiguousarray(np.flip(sums, axis)) if backwards else sums


def _normalize_indices(node: OnnxNode, indices: Array, extent: int) -> Array:
    """Return nonnegative indices; negative indices count from the end."""
    if indices.dtype.kind not in "iu":
        raise node.invalid(f"indices of type {indices.dtype}")
    if indices.size and (int(indices.min()) < -extent or int(indices.max()) >= extent):
        raise node.invalid(f"an index is outside {-extent} to {extent - 1}")
    return np.where(indices < 0, indices + extent, indices)
