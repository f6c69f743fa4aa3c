"""Updates written at known places: SPARSE_TO_DENSE, DYNAMIC_UPDATE_SLICE, segments of rows and STABLEHLO_SCATTER.

Data and updates are rows behind each other, and every row of the result is picked from one of them. A combination
(sum, product, extreme) picks what is to be combined with the data, in as many rounds as one place has updates.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.gather import gather_at, joined
from tpuconvert.frontends.tflite.lowering import expand, reshape
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.frontends.tflite.subgraph_functions import combination_of
from tpuconvert.schema.errors import INVALID_NODE, TOO_LARGE
from tpuconvert.schema.graph import Graph, Value, static
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.arithmetic import Add, Max, Min, Mul
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.types import Array, DType

COMBINATIONS: dict[str, tuple[Op, float]] = {
    **{"ADD": (Add(), 0.0), "MUL": (Mul(), 1.0), "MAXIMUM": (Max(), -math.inf), "MINIMUM": (Min(), math.inf)}
}
"""How two numbers become one, and the number that changes nothing."""

_LARGEST = float(np.finfo(np.float32).max)
_SEGMENTS = {
    "UNSORTED_SEGMENT_PROD": (ReduceMethodType.REDUCE_PROD, 1.0),
    "UNSORTED_SEGMENT_MAX": (ReduceMethodType.REDUCE_MAX, -_LARGEST),
    "UNSORTED_SEGMENT_MIN": (ReduceMethodType.REDUCE_MIN, _LARGEST),
}


def neutral_row(g: Graph, number: float, width: int, dtype: DType) -> Value:
    """A row of one number; an infinite or huge one is the end of an integer type."""
    bounded = number if dtype.is_float else min(max(number, float(dtype.min)), float(dtype.max))
    kind = dtype.numpy
    row = np.full((1, width), int(bounded) if dtype.is_integer else bounded, kind)
    return g.constant(row, "neutral")


def replace_rows(node: TfliteNode, data: Value, updates: Value, places: Array) -> Value:
    """Rows [M, W] with the rows of ``updates`` [K, W] at known places; later ones win."""
    source = np.arange(static(data.shape)[0])
    source[places] = source.size + np.arange(places.size)
    return gather_at(node, joined(node.graph, [data, updates], 0), 0, source)


def combine_rows(node: TfliteNode, data: Value, updates: Value, places: Array, function: str) -> Value:
    """Rows [M, W] combined with the rows of ``updates`` [K, W] at known places."""
    g, (op, number) = node.graph, COMBINATIONS[function]
    order = np.argsort(places, kind="stable")
    turn = np.empty(places.size, np.int64)
    turn[order] = np.arange(places.size) - np.searchsorted(places[order], places[order])
    rounds = int(turn.max(initial=-1)) + 1
    if rounds > node.tensors.file.limits.max_unrolled_nodes:
        raise node.fail(TOO_LARGE, f"{rounds} updates of one place")
    rows, width = static(data.shape)
    candidates = joined(g, [neutral_row(g, number, width, data.dtype), updates], 0)
    for number_of_round in range(rounds):
        source = np.zeros(rows, np.int64)
        numbers = np.flatnonzero(turn == number_of_round)
        source[places[numbers]] = 1 + numbers
        data = g.add(op, data, gather_at(node, candidates, 0, source))
    return data


@tflite_op("SPARSE_TO_DENSE", kind=Kind.FOLDED, limits="constant indices")
def sparse_to_dense(node: TfliteNode, g: Graph) -> Value:
    """A tensor of one number with others at known places."""
    node.ignore_option("validate_indices")  # they are known now and always checked
    shape = node.ints(1)
    indices = node.constant(0)
    places = indices.reshape(-1, len(shape)) if indices.size and len(shape) else np.zeros((0, 1), np.int64)
    if not shape or min(shape) < 1 or (indices.size and indices.size % len(shape)):
        raise node.fail(INVALID_NODE, f"indices {list(indices.shape)} into {list(shape)}")
    flat = flat_indices(node, places, shape)
    node.check_size(shape)
    base = reshape(g, expand(node.graph, reshape(g, node.input(3), (1,) * len(shape)), shape), (math.prod(shape), 1))
    if not flat.size:
        return reshape(g, base, shape)
    updates = expand(node.graph, reshape(g, node.input(2), (math.prod(node.shape(2)), 1)), (flat.size, 1))
    return reshape(g, replace_rows(node, base, updates, flat), shape)


def flat_indices(node: TfliteNode, places: Array, extents: tuple[int, ...]) -> Array:
    """Index tuples [K, rank] as positions in the flattened extents."""
    if places.size and (int(places.min()) < 0 or (places >= np.asarray(extents)).any()):
        raise node.fail(INVALID_NODE, f"an index lies outside the shape {list(extents)}")
    steps = [math.prod(extents[axis + 1 :]) for axis in range(len(extents))]
    result: Array = places.astype(np.int64) @ np.asarray(steps, dtype=np.int64)
    return result


@tflite_op("DYNAMIC_UPDATE_SLICE", limits="constant start")
def dynamic_update_slice(node: TfliteNode, g: Graph) -> Value:
    """A box of the first input replaced by the second; its known corner is moved so that the box fits."""
    return _replace_box(node, node.ints(2))


@tflite_op("STABLEHLO_DYNAMIC_UPDATE_SLICE", limits="constant start")
def stablehlo_dynamic_update_slice(node: TfliteNode, g: Graph) -> Value:
    """As DYNAMIC_UPDATE_SLICE, with one corner coordinate per input."""
    return _replace_box(node, tuple(node.one_int(index) for index in range(2, node.input_count)))


def _replace_box(node: TfliteNode, corner: tuple[int, ...]) -> Value:
    shape, box = node.shape(0), node.shape(1)
    if not len(shape) == len(box) == len(corner) or any(b > extent for b, extent in zip(box, shape, strict=True)):
        raise node.fail(INVALID_NODE, f"a box {list(box)} at {list(corner)} in {list(shape)}")
    if not shape or box == shape:
        return node.input(1)
    starts = [min(max(c, 0), extent - b) for c, b, extent in zip(corner, box, shape, strict=True)]
    leading = 1 + max(axis for axis, extent in enumerate(shape) if box[axis] != extent)
    node.check_size(shape[:leading])
    grid = np.indices(box[:leading]).reshape(leading, -1).T + np.asarray(starts[:leading])
    places = flat_indices(node, grid, shape[:leading])
    width = math.prod(shape[leading:])
    data = reshape(node.graph, node.input(0), (math.prod(shape[:leading]), width))
    updates = reshape(node.graph, node.input(1), (places.size, width))
    return reshape(node.graph, replace_rows(node, data, updates, places), shape)


@tflite_op(*_SEGMENTS, limits="constant segment numbers")
def unsorted_segment(node: TfliteNode, g: Graph) -> Value:
    """Rows of one known number multiplied, or their extremes; an empty segment has the number that changes nothing."""
    method, number = _SEGMENTS[node.op_type]
    numbers, shape, count = np.asarray(node.ints(1), np.int64), node.shape(0), node.one_int(2)
    leading = len(node.shape(1))
    if node.shape(1) != shape[:leading] or not numbers.size or count < 1 or int(numbers.max()) >= count:
        raise node.fail(INVALID_NODE, f"segment numbers {list(node.shape(1))} for {list(shape)}, {count} segments")
    flat = numbers.reshape(-1)
    kept = np.flatnonzero(flat >= 0)
    order = kept[np.argsort(flat[kept], kind="stable")]
    turn = np.arange(order.size) - np.searchsorted(flat[order], flat[order])  # how many of its segment stand before it
    most = int(turn.max(initial=0)) + 1
    node.check_size([count, most])
    source = np.zeros((count, most), np.int64)
    source[flat[order], turn] = 1 + order
    width = math.prod(shape[leading:])
    x = node.input(0)
    rows_of_x = reshape(g, x, (numbers.size, width))
    table = gather_at(node, joined(g, [neutral_row(g, number, width, x.dtype), rows_of_x], 0), 0, source)
    grouped = emit.as_float(g, reshape(g, table, (count, most, width)))
    result = emit.cast(g, g.add(Reduce(method=method, axis_list=(1,), axis_num=1, keep_dims=False), grouped), x.dtype)
    return reshape(g, result, (count, *shape[leading:]))


@tflite_op("STABLEHLO_SCATTER", limits="constant indices; a body of one sum, product or extreme, or the second input")
def stablehlo_scatter(node: TfliteNode, g: Graph) -> Value:
    """Windows of updates written at, or combined with those at, known places; what falls outside is left out."""
    node.ignore_option("indices_are_sorted", "unique_indices")  # promises about the indices, which are known
    function = combination_of(node, node.option("update_computation_subgraph_index"), may_replace=True)
    places, numbers = _scatter_indices(node)
    x, shape = node.input(0), node.shape(0)
    data = reshape(g, x, (math.prod(shape), 1))
    updates = reshape(g, node.input(2), (math.prod(node.shape(2)), 1))
    if not numbers.size:
        return x
    if numbers.size != math.prod(node.shape(2)):
        updates = gather_at(node, updates, 0, numbers)
    if function == "REPLACE":
        return reshape(g, replace_rows(node, data, updates, places), shape)
    return reshape(g, combine_rows(node, data, updates, places, function), shape)


def _scatter_indices(node: TfliteNode) -> tuple[Array, Array]:
    """Where every update goes in the flattened data, and the flat numbers of the updates that go somewhere."""
    shape, update_shape, indices = node.shape(0), node.shape(2), node.constant(1)
    window, inserted = node.option("update_window_dims", ()), node.option("inserted_window_dims", ())
    axes, vector = node.option("scatter_dims_to_operand_dims", ()), node.option("index_vector_dim")
    table = indices[..., None] if vector == indices.ndim else np.moveaxis(indices, vector, -1)
    batch = [axis for axis in range(len(update_shape)) if axis not in window]
    kept = [axis for axis in range(len(shape)) if axis not in inserted]
    fits = table.shape[-1] == len(axes) and tuple(update_shape[axis] for axis in batch) == table.shape[:-1]
    inside_updates = all(0 <= axis < len(update_shape) for axis in window)
    if not fits or not inside_updates or len(window) != len(kept) or any(not 0 <= axis < len(shape) for axis in axes):
        raise node.fail(INVALID_NODE, f"indices {list(indices.shape)}, updates {list(update_shape)}, {list(shape)}")
    node.check_size([len(shape), *update_shape])
    positions = np.indices(update_shape).reshape(len(update_shape), -1)
    starts = table[tuple(positions[axis] for axis in batch)].astype(np.int64)
    target = np.zeros((len(shape), positions.shape[1]), np.int64)
    for number, axis in enumerate(axes):
        target[axis] = starts[..., number]
    for axis, update_axis in zip(kept, window, strict=True):
        target[axis] += positions[update_axis]
    inside = ((target >= 0) & (target < np.asarray(shape)[:, None])).all(0)
    return flat_indices(node, target[:, inside].T, shape), np.flatnonzero(inside)
