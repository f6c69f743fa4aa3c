"""Operators with a data-dependent number of results: WHERE and NON_MAX_SUPPRESSION."""

from __future__ import annotations

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.lowering import reshape
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.frontends.tflite.operators.gather import gather
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.generation import ShapeFetch
from tpuconvert.schema.ops.nms import NmsV2
from tpuconvert.schema.ops.selection import Where
from tpuconvert.schema.types import Scalar


@tflite_op("WHERE", kind=Kind.DIRECT, limits="the number of results depends on data, so only CAST can read them")
def where(node: TfliteNode, g: Graph) -> Value:
    """Coordinates of the elements that are not 0, one row per element."""
    return g.add(Where(), emit.as_float(g, node.input(0)))


@tflite_op("NON_MAX_SUPPRESSION_V4", kind=Kind.DIRECT, limits="constant limits and thresholds")
def non_max_suppression_v4(node: TfliteNode, g: Graph) -> tuple[Value, ...]:
    """Indices of the selected boxes, padded with zeros, and their number."""
    taken = selected_boxes(node, g, node.input(0), node.input(1))
    return pad_items(node, taken, node.one_int(2)), count_items(g, taken)


@tflite_op("NON_MAX_SUPPRESSION_V5", limits="constant limits and thresholds; no soft suppression")
def non_max_suppression_v5(node: TfliteNode, g: Graph) -> tuple[Value, ...]:
    """NON_MAX_SUPPRESSION_V4 with the scores of the selected boxes; soft suppression is not supported."""
    if node.has_input(5) and node.scalar(5) != 0.0:
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"soft_nms_sigma={node.scalar(5)}", "supported: 0")
    scores = node.input(1)
    taken = selected_boxes(node, g, node.input(0), scores)
    limit = node.one_int(2)
    own = gather(g, scores, taken, 0)
    return pad_items(node, taken, limit), pad_items(node, own, limit), count_items(g, taken)


def selected_boxes(node: TfliteNode, g: Graph, boxes: Value, scores: Value) -> Value:
    """Indices of the boxes that non-maximum suppression selects.

    TFLite suppresses boxes whose IoU is equal to the threshold, the TPU operator keeps them. Therefore the operator
    gets the next smaller float as its threshold.
    """
    if node.rank(0) != 2 or node.rank(1) != 1 or node.shape(0) != (node.shape(1)[0], 4):
        raise node.fail(INVALID_NODE, f"boxes {list(node.shape(0))} and scores {list(node.shape(1))}")
    limit, overlap, score = node.one_int(2), node.scalar(3), node.scalar(4)
    if limit < 1:
        raise node.fail(INVALID_NODE, f"at most {limit} boxes")
    below = float(np.nextafter(np.float32(overlap), np.float32(-np.inf)))
    op = NmsV2(Scalar.f32(below), Scalar.f32(score), min(limit, node.shape(1)[0]))
    return g.add(op, *(g.add(Constdata(), value) if value.is_constant else value for value in (boxes, scores)))


def pad_items(node: TfliteNode, items: Value, length: int, fill: int = 0, name: str = "zeros") -> Value:
    """Pad the data-dependent first axis with the constant ``fill`` to a static length."""
    g = node.graph
    node.check_size([length])
    rest = g.constant(np.full(length, fill, items.dtype.numpy), name)
    every = g.add(Concat(axis=0), items, rest)
    return gather(g, every, g.constant(np.arange(length, dtype=np.int32), "positions"), 0)


def count_items(g: Graph, items: Value) -> Value:
    """Extent of the data-dependent first axis, as a tensor of shape [1]."""
    return reshape(g, g.add(ShapeFetch(begin_axis=0, end_axis=1), items), (1,))
