"""Updates at constant positions: SPARSE_TO_DENSE, DYNAMIC_UPDATE_SLICE, segments of rows and STABLEHLO_SCATTER.

To replace rows, each row of the result is gathered from the concatenation of data and updates. To combine rows (by sum,
product, maximum or minimum), updates are gathered and combined with the data in rounds, of which each contains at most
one update per position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.lowering import expand, reshape
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.frontends.tflite.operators.gather import gather_at
from tpuconvert.frontends.tflite.subgraph_functions import combination_of
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import INVALID_NODE, TOO_LARGE
from tpuconvert.schema.graph.graph import Graph, Value, static
from tpuconvert.schema.ops.arithmetic import Add, Max, Min, Mul
from tpuconvert.schema.ops.reduce import ReduceMethodType
from tpuconvert.schema.types import Array, DType


class Combination(NamedTuple):
    """A function that combines updates: binary operator, neutral element, and the equivalent reduction method."""

    op: Op
    neutral: float
    method: ReduceMethodType


COMBINATIONS = {
    "ADD": Combination(Add(), 0.0, ReduceMethodType.REDUCE_SUM),
    "MUL": Combination(Mul(), 1.0, ReduceMethodType.REDUCE_PROD),
    "MAXIMUM": Combination(Max(), -math.inf, ReduceMethodType.REDUCE_MAX),
    "MINIMUM": Combination(Min(), math.inf, ReduceMethodType.REDUCE_MIN),
}

Order = tuple[int, ...]

_LARGEST = float(np.finfo(np.float32).max)
_SEGMENTS = {
    "UNSORTED_SEGMENT_PROD": (ReduceMethodType.REDUCE_PROD, 1.0),
    "UNSORTED_SEGMENT_MAX": (ReduceMethodType.REDUCE_MAX, -_LARGEST),
    "UNSORTED_SEGMENT_MIN": (ReduceMethodType.REDUCE_MIN, _LARGEST),
}


def neutral_row(node: TfliteNode, number: float, width: int, dtype: DType) -> Value:
    """Constant row [1, width] filled with a number, which is clamped to the range of an integer type."""
    node.check_size([width])
    bounded = number if dtype.is_float else min(max(number, float(dtype.min)), float(dtype.max))
    kind = dtype.numpy
    row = np.full((1, width), int(bounded) if dtype.is_integer else bounded, kind)
    return node.graph.constant(row, "neutral")


def replace_rows(node: TfliteNode, data: Value, updates: Value, targets: Array) -> Value:
    """Replace rows of ``data`` [M, W] by the rows of ``updates`` [K, W]; the last update of a row is kept."""
    node.check_size(data.type.static_shape[:1])
    source = np.arange(static(data.shape)[0])
    source[targets] = source.size + np.arange(targets.size)
    return gather_at(node, emit.concat(node.graph, [data, updates], 0), 0, source)


def combine_rows(node: TfliteNode, data: Value, updates: Value, targets: Array, function: str) -> Value:
    """Combine rows of ``data`` [M, W] at constant positions with the rows of ``updates`` [K, W]."""
    g, (op, number, _) = node.graph, COMBINATIONS[function]
    order = np.argsort(targets, kind="stable")
    turn = np.empty(targets.size, np.int64)
    turn[order] = np.arange(targets.size) - np.searchsorted(targets[order], targets[order])
    rounds = int(turn.max(initial=-1)) + 1
    if rounds > node.tensors.file.limits.max_unrolled_nodes:
        raise node.fail(TOO_LARGE, f"{rounds} updates of one position")
    rows, width = static(data.shape)
    node.check_size([rows])
    candidates = emit.concat(g, [neutral_row(node, number, width, data.dtype), updates], 0)
    for number_of_round in range(rounds):
        source = np.zeros(rows, np.int64)
        numbers = np.flatnonzero(turn == number_of_round)
        source[targets[numbers]] = 1 + numbers
        data = g.add(op, data, gather_at(node, candidates, 0, source))
    return data


@tflite_op("SPARSE_TO_DENSE", kind=Kind.FOLDED, limits="constant indices")
def sparse_to_dense(node: TfliteNode, g: Graph) -> Value:
    """Create a tensor filled with one value, and write updates at constant positions."""
    node.ignore_option("validate_indices")  # constant indices are always checked
    shape = node.ints(1)
    indices = node.constant(0)
    targets = indices.reshape(-1, len(shape)) if indices.size and len(shape) else np.zeros((0, 1), np.int64)
    if not shape or min(shape) < 1 or (indices.size and indices.size % len(shape)):
        raise node.fail(INVALID_NODE, f"indices {list(indices.shape)} into {list(shape)}")
    flat = flat_indices(node, targets, shape)
    node.check_size(shape)
    base = reshape(g, expand(node.graph, reshape(g, node.input(3), (1,) * len(shape)), shape), (math.prod(shape), 1))
    if not flat.size:
        return reshape(g, base, shape)
    updates = expand(node.graph, reshape(g, node.input(2), (math.prod(node.shape(2)), 1)), (flat.size, 1))
    return reshape(g, replace_rows(node, base, updates, flat), shape)


def flat_indices(node: TfliteNode, targets: Array, extents: tuple[int, ...]) -> Array:
    """Convert index tuples [K, rank] to positions in the flattened tensor."""
    if targets.size and (int(targets.min()) < 0 or (targets >= np.asarray(extents)).any()):
        raise node.fail(INVALID_NODE, f"an index is outside the shape {list(extents)}")
    steps = [math.prod(extents[axis + 1 :]) for axis in range(len(extents))]
    result: Array = targets.astype(np.int64) @ np.asarray(steps, dtype=np.int64)
    return result


@tflite_op("DYNAMIC_UPDATE_SLICE", "STABLEHLO_DYNAMIC_UPDATE_SLICE", limits="constant start")
def dynamic_update_slice(node: TfliteNode, g: Graph) -> Value:
    """Replace a box of the first input by the second; its constant start is clamped so that the box fits.

    StableHLO has one input per coordinate of the start.
    """
    if node.op_type == "DYNAMIC_UPDATE_SLICE":
        corner = node.ints(2)
    else:
        corner = tuple(node.one_int(index) for index in range(2, node.input_count))
    shape, box = node.shape(0), node.shape(1)
    if not len(shape) == len(box) == len(corner) or any(b > extent for b, extent in zip(box, shape, strict=True)):
        raise node.fail(INVALID_NODE, f"a box {list(box)} at {list(corner)} in {list(shape)}")
    if 0 in box:
        return node.input(0)
    if not shape or box == shape:
        return node.input(1)
    starts = [min(max(c, 0), extent - b) for c, b, extent in zip(corner, box, shape, strict=True)]
    leading = 1 + max(axis for axis, extent in enumerate(shape) if box[axis] != extent)
    node.check_size(shape[:leading])
    grid = np.indices(box[:leading]).reshape(leading, -1).T + np.asarray(starts[:leading])
    targets = flat_indices(node, grid, shape[:leading])
    width = math.prod(shape[leading:])
    data = reshape(g, node.input(0), (math.prod(shape[:leading]), width))
    updates = reshape(g, node.input(1), (targets.size, width))
    return reshape(g, replace_rows(node, data, updates, targets), shape)


@tflite_op(*_SEGMENTS, limits="constant segment numbers")
def unsorted_segment(node: TfliteNode, g: Graph) -> Value:
    """Product, maximum or minimum of the rows of each segment; the result for an empty segment is neutral."""
    method, number = _SEGMENTS[node.op_type]
    numbers, shape, count = np.asarray(node.ints(1), np.int64), node.shape(0), node.one_int(2)
    leading = len(node.shape(1))
    if node.shape(1) != shape[:leading] or count < 1 or int(numbers.max(initial=-1)) >= count or 0 in shape[leading:]:
        raise node.fail(INVALID_NODE, f"segment numbers {list(node.shape(1))} for {list(shape)}, {count} segments")
    flat = numbers.reshape(-1)
    in_segment = np.flatnonzero(flat >= 0)
    order = in_segment[np.argsort(flat[in_segment], kind="stable")]
    turn = np.arange(order.size) - np.searchsorted(flat[order], flat[order])  # per row, its index in its segment
    longest = int(turn.max(initial=0)) + 1
    node.check_size([count, longest])
    source = np.zeros((count, longest), np.int64)
    source[flat[order], turn] = 1 + order
    width = math.prod(shape[leading:])
    x = node.input(0)
    rows = [neutral_row(node, number, width, x.dtype)]
    rows += [reshape(g, x, (numbers.size, width))] if numbers.size else []
    table = gather_at(node, emit.concat(g, rows, 0), 0, source)
    grouped = emit.as_float(g, reshape(g, table, (count, longest, width)))
    result = emit.cast(g, emit.reduce(g, method, grouped, (1,), keep_dims=False), x.dtype)
    return reshape(g, result, (count, *shape[leading:]))


@tflite_op("STABLEHLO_SCATTER", limits="constant indices; a body of one sum, product or extreme, or the second input")
def stablehlo_scatter(node: TfliteNode, g: Graph) -> Value:
    """Replace or combine windows at constant positions with updates; updates outside the tensor are dropped."""
    node.ignore_option("indices_are_sorted", "unique_indices")  # hints about the indices, which are constant
    function = combination_of(node, node.option("update_computation_subgraph_index"), may_replace=True)
    targets, numbers = _scatter_indices(node)
    x, shape = node.input(0), node.shape(0)
    data = reshape(g, x, (math.prod(shape), 1))
    updates = reshape(g, node.input(2), (math.prod(node.shape(2)), 1))
    if not numbers.size:
        return x
    if numbers.size != math.prod(node.shape(2)):
        updates = gather_at(node, updates, 0, numbers)
    if function == "REPLACE":
        return reshape(g, replace_rows(node, data, updates, targets), shape)
    return reshape(g, combine_rows(node, data, updates, targets, function), shape)


def _scatter_indices(node: TfliteNode) -> tuple[Array, Array]:
    """Flat indices into the data, and flat indices of the corresponding updates, without updates outside the data."""
    shape, update_shape, indices = node.shape(0), node.shape(2), node.constant(1)
    window, inserted = node.option("update_window_dims", ()), node.option("inserted_window_dims", ())
    axes, vector = node.option("scatter_dims_to_operand_dims", ()), node.option("index_vector_dim")
    table = index_tuples(indices, vector)
    batch = [axis for axis in range(len(update_shape)) if axis not in window]
    window_axes = [axis for axis in range(len(shape)) if axis not in inserted]
    fits = table.shape[-1] == len(axes) and tuple(update_shape[axis] for axis in batch) == table.shape[:-1]
    fits_window = len(window) == len(window_axes) and all(0 <= axis < len(update_shape) for axis in window)
    if not fits or not fits_window or any(not 0 <= axis < len(shape) for axis in axes):
        raise node.fail(INVALID_NODE, f"indices {list(indices.shape)}, updates {list(update_shape)}, {list(shape)}")
    node.check_size([len(shape), *update_shape])
    target = box_elements(table, axes, update_shape, batch, dict(zip(window_axes, window, strict=True)), len(shape))
    inside = ((target >= 0) & (target < np.asarray(shape)[:, None])).all(0)
    return flat_indices(node, target[:, inside].T, shape), np.flatnonzero(inside)


def index_tuples(indices: Array, vector: int) -> Array:
    """Move the axis ``vector`` of StableHLO indices, which contains the index tuples, to the end.

    Raises:
        ValueError: if the indices have no such axis, nor is it the one after the last.
    """
    if not 0 <= vector <= indices.ndim:
        raise ValueError(f"index_vector_dim {vector} for indices of the shape {list(indices.shape)}")
    return indices[..., None] if vector == indices.ndim else np.moveaxis(indices, vector, -1)


def box_elements(
    table: Array, axes: Order, extents: Order, batch: Sequence[int], inside: dict[int, int], rank: int
) -> Array:
    """Coordinates [rank, elements] in a tensor, of all elements of the boxes that a gather or scatter accesses.

    Args:
        table: start of each box, as index tuples along the last axis.
        axes: axis of the tensor for each element of an index tuple.
        extents: shape of the tensor that contains all boxes.
        batch: axes of ``extents`` that enumerate the boxes.
        inside: axis of ``extents`` for each axis of the tensor along which boxes extend.
        rank: rank of the tensor.
    """
    positions = np.indices(extents).reshape(len(extents), -1)
    starts = table[tuple(positions[axis] for axis in batch)].astype(np.int64)
    target = np.zeros((rank, positions.shape[1]), np.int64)
    for number, axis in enumerate(axes):
        target[axis] = starts[..., number]
    for axis, position in inside.items():
        target[axis] += positions[position]
    return target
