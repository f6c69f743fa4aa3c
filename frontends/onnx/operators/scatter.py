"""ScatterND, ScatterElements, TensorScatter, ReverseSequence.

The host writes to computed indices. With constant indices, data and updates are flattened to rows, and each row of the
result is gathered from one of them. A reduction gathers the updates to combine with the data, in as many rounds as one
row has updates.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.file.element_types import SMALL
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.data_movement import gather_slices, has_to_be
from tpuconvert.frontends.onnx.operators.gather import from_front, row_strides
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.small_integers import small_product, small_sum
from tpuconvert.schema.errors import TOO_LARGE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.host.expand import HostExpand
from tpuconvert.schema.ops.host.scatter import HostScatterElements, HostScatterNd, Reduction
from tpuconvert.schema.types import Array, DType

_NEUTRAL = {"add": 0, "mul": 1}
"""Neutral element by reduction."""


def _reduction(node: OnnxNode) -> str:
    since = {"none": 11, "add": 16, "mul": 16, "max": 18, "min": 18}
    return node.choice("reduction", "none", [name for name, version in since.items() if version <= node.version])


def scatter_rows(node: OnnxNode, g: Graph, data: Value, position: Array, updates: Value, reduction: str) -> Value:
    """Write the rows of ``updates`` [K, R] to constant positions of ``data`` [M, R], or combine them."""
    node.budget(emit.extents(data)[:1], 8, "index")
    if reduction == "none":  # the last update of a row is kept
        rows = emit.extents(data)[0]
        source = np.arange(rows)
        source[position] = rows + np.arange(position.size)
        return gather_slices(g, emit.concat(g, [data, updates], 0), 0, source)
    rounds = _rounds(position)
    if len(rounds) > node.limits.max_unrolled_nodes:
        raise node.fail(TOO_LARGE, f"{len(rounds)} updates of one element")
    rows, width = emit.extents(data)
    if reduction in ("max", "min"):  # a row without an update is combined with itself
        unchanged, first, candidates = np.arange(rows), rows, [data, updates]
    else:
        node.budget((width,), 8, "neutral row")
        neutral = np.full((1, width), _NEUTRAL[reduction]).astype(data.dtype.numpy)
        unchanged, first, candidates = np.zeros(rows, np.int64), 1, [g.constant(neutral, name="neutral"), updates]
    joined = emit.concat(g, candidates, 0)
    for number in rounds:
        source = unchanged.copy()
        source[position[number]] = first + number
        data = _combine(g, reduction, data, gather_slices(g, joined, 0, source))
    return data


def _combine(g: Graph, reduction: str, a: Value, b: Value) -> Value:
    if a.dtype in SMALL and reduction in ("add", "mul"):  # small integers wrap around
        return small_sum(g, reduction, a, b) if reduction == "add" else small_product(g, a, b)
    return emit.binary(g, reduction, a, b)


def _rounds(position: Array) -> list[Array]:
    """Divide the updates into rounds in which no position occurs twice; updates of one position keep their order."""
    order = np.argsort(position, kind="stable")
    sorted_places = position[order]
    first = np.searchsorted(sorted_places, sorted_places, side="left")
    turn = np.empty(position.size, np.int64)
    turn[order] = np.arange(position.size) - first
    return [np.flatnonzero(turn == number) for number in range(int(turn.max(initial=-1)) + 1)]


def _scatter_on_host(node: OnnxNode, g: Graph, op: HostScatterNd | HostScatterElements) -> Result:
    indices = node.input(1)
    if indices.dtype is not DType.INT32:
        raise node.invalid(f"its indices are {node.element(1)}")
    element = node.element(0)
    is_wider = element.graph is DType.INT32 and element is not element_types.INT32
    if is_wider and op.reduction in (Reduction.ADD, Reduction.MUL):
        g.note_deviation(f"results beyond 32 bits wrap around in INT32, {element} has more bits")
    return node.result(g.add(op, node.input(0), indices, node.input(2)))


@onnx_op("ScatterND", since=11, limits="the host writes to computed indices")
def scatter_nd(node: OnnxNode, g: Graph) -> Result:
    """Replace slices by updates, or combine them."""
    reduction = _reduction(node) if node.version >= 16 else "none"
    if not node.is_constant(1):
        return _scatter_on_host(node, g, HostScatterNd(Reduction(reduction)))
    shape, index = node.shape(0), node.constant(1)
    depth = node.shape(1)[-1]
    table = index.reshape(-1, depth)
    if depth > len(shape) or node.shape(2) != index.shape[:-1] + shape[depth:]:
        raise node.invalid(f"indices {list(index.shape)} and updates {list(node.shape(2))}")
    strides = row_strides(shape[:depth])
    position = sum(from_front(node, table[:, k], shape[k]) * strides[k] for k in range(depth))
    if not table.size:
        return node.result(node.input(0))
    width = math.prod(shape[depth:])
    data = emit.reshape(g, node.input(0), (math.prod(shape[:depth]), width))
    updates = emit.reshape(g, node.input(2), (len(table), width))
    y = scatter_rows(node, g, data, np.asarray(position), updates, reduction)
    return node.result(emit.reshape(g, y, shape))


@onnx_op("ScatterElements", "Scatter", since=9, limits="the host writes to computed indices")
def scatter_elements(node: OnnxNode, g: Graph) -> Result:
    """Replace elements by updates, or combine them."""
    reduction = _reduction(node) if node.version >= 16 else "none"
    if not node.is_constant(1):
        axis = node.axis(node.attr("axis", 0), node.rank(0))
        return _scatter_on_host(node, g, HostScatterElements(Reduction(reduction), axis))
    shape, index = node.shape(0), node.constant(1)
    axis = node.axis(node.attr("axis", 0), len(shape))
    new_elements = node.input(2)
    if has_to_be(node.shape(2), index.shape):
        new_elements = g.add(HostExpand(index.shape), new_elements)
    elif node.shape(2) != index.shape or index.ndim != len(shape):
        raise node.invalid(f"indices {list(index.shape)} and updates {list(node.shape(2))}")
    if not index.size:
        return node.result(node.input(0))
    grids: list[Array] = [grid.reshape(-1) for grid in np.indices(index.shape)]
    grids[axis] = from_front(node, index, shape[axis]).reshape(-1)
    position = np.ravel_multi_index(tuple(grids), shape)
    data = emit.reshape(g, node.input(0), (math.prod(shape), 1))
    updates = emit.reshape(g, new_elements, (index.size, 1))
    return node.result(emit.reshape(g, scatter_rows(node, g, data, position, updates, reduction), shape))


def _as_rows(g: Graph, x: Value, first: int, second: int) -> Value:
    """Permute two axes to the front, and reshape to [extents of these axes, extents of the others]."""
    shape = emit.extents(x)
    order = [first, second, *(k for k in range(len(shape)) if k not in (first, second))]
    count = shape[first] * shape[second]
    return emit.reshape(g, emit.permute(g, x, order), (count, math.prod(shape) // count))


def _from_rows(g: Graph, rows: Value, shape: tuple[int, ...], first: int, second: int) -> Value:
    """The inverse of ``_as_rows``."""
    order = [first, second, *(k for k in range(len(shape)) if k not in (first, second))]
    y = emit.reshape(g, rows, tuple(shape[k] for k in order))
    return emit.permute(g, y, [order.index(k) for k in range(len(shape))])


@onnx_op("TensorScatter", since=24)
def tensor_scatter(node: OnnxNode, g: Graph) -> Result:
    """Write new entries to a cache, from a constant index in every sample."""
    shape, new = node.shape(0), node.shape(1)
    axis = node.axis(node.attr("axis", -2), len(shape))
    if (
        axis == 0
        or len(new) != len(shape)
        or any(a != b for k, (a, b) in enumerate(zip(shape, new, strict=True)) if k != axis)
    ):
        raise node.invalid(f"an update {list(new)} of a cache {list(shape)} along axis {axis}")
    node.budget((shape[0], new[axis]), 8, "index")
    starts = node.constant(2).reshape(-1).astype(np.int64) if node.has_input(2) else np.zeros(shape[0], np.int64)
    entries = starts[:, None] + np.arange(new[axis])
    if node.choice("mode", "linear", ("linear", "circular")) == "circular":
        entries %= shape[axis]
    if starts.size != shape[0] or entries.min(initial=0) < 0 or entries.max(initial=0) >= shape[axis]:
        raise node.invalid(f"writes at {starts.tolist()[:8]}, past the end of the {shape[axis]} entries")
    position = (entries + np.arange(shape[0])[:, None] * shape[axis]).reshape(-1)
    cache, update = (_as_rows(g, node.input(index), 0, axis) for index in (0, 1))
    return node.result(_from_rows(g, scatter_rows(node, g, cache, position, update, "none"), shape, 0, axis))


@onnx_op("ReverseSequence", since=10, kind=Kind.DIRECT, limits="constant lengths")
def reverse_sequence(node: OnnxNode, g: Graph) -> Result:
    """Reverse the first entries of every sample; the lengths are constant."""
    shape, lengths = node.shape(0), node.ints(1)
    batch, time = node.attr("batch_axis", 1), node.attr("time_axis", 0)
    if {batch, time} != {0, 1} or len(shape) < 2 or len(lengths) != shape[batch]:
        raise node.invalid(f"batch_axis={batch}, time_axis={time}, {len(lengths)} lengths for {list(shape)}")
    if any(not 0 <= length <= shape[time] for length in lengths):
        raise node.invalid(f"a length outside 0 to {shape[time]}")
    node.budget((shape[batch], shape[time]), 8, "index")
    steps, ends = np.arange(shape[time])[None, :], np.array(lengths)[:, None]
    index = np.where(steps < ends, ends - 1 - steps, steps) + np.arange(shape[batch])[:, None] * shape[time]
    rows = _as_rows(g, node.input(0), batch, time)
    return node.result(_from_rows(g, gather_slices(g, rows, 0, index.reshape(-1)), shape, batch, time))
