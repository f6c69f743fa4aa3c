"""Operators with data-dependent shapes: NonZero, Compress, NonMaxSuppression."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.node import Folded, OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.data_movement import movement_result
from tpuconvert.frontends.open_extents import is_open
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import TOO_LARGE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.nms import NmsV2
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.selection import MaskedSelect, Where
from tpuconvert.schema.ops.shape_change import ExpandDims, Squeeze
from tpuconvert.schema.types import Scalar


def _make_computed(g: Graph, x: Value) -> Value:
    """Return the value as a computed FLOAT32 value: these operators do not accept constants."""
    return g.add(Constdata(), emit.float_constant(g, x.array, x.name)) if x.is_constant else emit.as_float(g, x)


@onnx_op("NonZero", since=9, kind=Kind.DIRECT, limits="the number of results depends on data")
def non_zero(node: OnnxNode, g: Graph) -> Result:
    """Coordinates of the elements that are not 0, one row per axis."""
    x = emit.as_float(g, node.input(0))
    # Exporters repeat the node for every tensor that a mask selects from; all results have one number of rows.
    shared = next((user.output for user in x.users if isinstance(user.op, Where)), None)
    return node.result(g.add(Permute((1, 0)), shared or g.add(Where(), x)), element_types.INT64)


@onnx_op("Compress", since=9, limits="the number of results depends on data where the condition is computed")
def compress(node: OnnxNode, g: Graph) -> Result:
    """Slices of one axis, or elements of the flattened tensor, whose condition is true; it may be shorter."""
    x, shape = node.input(0), node.shape(0)
    condition = _make_computed(g, node.input(1))
    axis = node.optional_attr("axis")
    length = math.prod(shape) if axis is None else shape[node.axis(axis, len(shape))]
    count = node.shape(1)[0]
    if node.rank(1) != 1 or count > length:
        raise node.invalid(f"a condition {list(node.shape(1))} for {length} elements")
    data = _make_computed(g, x)
    if axis is None:
        flat = emit.slice_axis(g, emit.reshape(g, data, (length,)), 0, 0, count)
        y = g.add(MaskedSelect(), flat, condition)
    else:
        index = g.add(Squeeze((1,)), g.add(Where(), condition))
        y = g.add(IndexSelect(dim=node.axis(axis, len(shape))), data, index)
    return movement_result(node, emit.cast(g, y, x.dtype))


@onnx_op("NonMaxSuppression", since=10, limits="constant limits and thresholds; the number of results depends on data")
def non_max_suppression(node: OnnxNode, g: Graph) -> Result | Folded:
    """Rows (batch, class, box) of the selected boxes, ordered by batch and class."""
    batches, classes, boxes = node.shape(1)
    if node.shape(0) != (batches, boxes, 4):
        raise node.invalid(f"boxes {list(node.shape(0))} for scores {list(node.shape(1))}")
    limit = int(node.scalar(2)) if node.has_input(2) else 0
    overlap = float(node.scalar(3)) if node.has_input(3) else 0.0
    score = float(node.scalar(4)) if node.has_input(4) else -math.inf
    corners = emit.floats(node.input(0))
    scores = emit.floats(node.input(1))
    if node.attr("center_point_box", 0):
        corners = _from_centres(g, corners)
    if limit <= 0:
        return Folded(np.empty((0, 3), np.int64), element_types.INT64)
    if batches * classes > node.limits.max_unrolled_nodes:
        raise node.fail(TOO_LARGE, f"{batches * classes} separate suppressions")
    limit = min(limit, np.iinfo(np.int32).max if is_open(boxes) else boxes)
    op = NmsV2(Scalar.f32(overlap), Scalar.f32(score), limit)
    rows = []
    for batch in range(batches):
        own = emit.reshape(g, emit.slice_axis(g, corners, 0, batch, batch + 1), (boxes, 4))
        for label in range(classes):
            cut = emit.slice_axis(g, emit.slice_axis(g, scores, 0, batch, batch + 1), 1, label, label + 1)
            taken = g.add(ExpandDims(1), g.add(op, own, emit.reshape(g, cut, (boxes,))))
            none = emit.muls(g, taken, 0)
            rows.append(emit.concat(g, [emit.adds(g, none, batch), emit.adds(g, none, label), taken], 1))
    return node.result(emit.concat(g, rows, 0), element_types.INT64)


def _from_centres(g: Graph, boxes: Value) -> Value:
    """Convert (x, y, width, height) to (y1, x1, y2, x2)."""
    x, y, width, height = (emit.slice_axis(g, boxes, 2, k, k + 1) for k in range(4))
    half_width, half_height = emit.muls(g, width, 0.5), emit.muls(g, height, 0.5)
    parts = (
        emit.sub(g, y, half_height),
        emit.sub(g, x, half_width),
        emit.add(g, y, half_height),
        emit.add(g, x, half_width),
    )
    return emit.concat(g, parts, 2)
