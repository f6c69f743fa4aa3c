"""Helpers for data movement: gather, slice, pad, and insertion of constants between elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.tflite.lowering import reshape
from tpuconvert.frontends.tflite.node import TfliteNode
from tpuconvert.schema.graph.graph import Graph, Value, static
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.types import I32, Array, Scalar


def gather(g: Graph, x: Value, indices: Value, axis: int) -> Value:
    """Gather slices along an axis by a 1-D index tensor. Integers are cast to FLOAT32, which is exact below 2^24."""
    return emit.cast(g, g.add(IndexSelect(dim=axis), emit.as_float(g, x), indices), x.dtype)


def gather_at(node: TfliteNode, x: Value, axis: int, positions: Array) -> Value:
    """Gather slices along an axis at constant positions."""
    node.check_size([positions.size])
    g = node.graph
    return gather(g, x, g.constant(positions.reshape(-1).astype(np.int32), "positions"), axis)


def slice_box(g: Graph, x: Value, ranges: Sequence[range]) -> Value:
    """Slice a range of every axis; return the value itself if the ranges cover it.

    Raises:
        ValueError: a range is empty; the importer reports it as a problem of the operator.
    """
    if not all(ranges):
        raise ValueError(f"the slice of {list(static(x.shape))} is empty")
    if all(positions == range(extent) for positions, extent in zip(ranges, static(x.shape), strict=True)):
        return x
    start = tuple(positions[0] for positions in ranges)
    end = tuple(positions[-1] + 1 for positions in ranges)
    return g.add(Extract(start=start, end=end, stride=tuple(positions.step for positions in ranges)), x)


def number_like(x: Value, number: float) -> Scalar:
    """Create a scalar with the data type of a tensor.

    Raises:
        ValueError: an integer type cannot represent the number; the importer reports it as a problem of the operator.
    """
    if x.dtype.is_float:
        return Scalar.f32(number)
    if not math.isfinite(number):
        raise ValueError(f"{number} does not fit {x.dtype.value}")
    return Scalar(x.dtype, int(number))


def pad_or_crop(g: Graph, x: Value, low: Sequence[int], high: Sequence[int], number: float) -> Value:
    """Pad with a constant; negative pads crop."""
    if any(pad > 0 for pad in (*low, *high)):
        value = number_like(x, number)
        pads = tuple(max(n, 0) for pair in zip(low, high, strict=True) for n in pair)
        x = g.add(Pad(pad_val=value, paddings=pads), x)
    ends = [extent + min(n, 0) for extent, n in zip(static(x.shape), high, strict=True)]
    return slice_box(g, x, [range(max(-n, 0), end) for n, end in zip(low, ends, strict=True)])


def insert_between(g: Graph, x: Value, factors: Sequence[int], number: float = 0.0) -> Value:
    """Insert ``factor - 1`` copies of a constant between adjacent elements along each axis, with separate factors."""
    for axis, factor in enumerate(factors):
        shape = static(x.shape)
        if factor == 1 or shape[axis] == 1:
            continue
        column = reshape(g, x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
        none = [0] * column.rank
        after = list(none)
        after[axis + 1] = factor - 1
        grown = reshape(
            g, pad_or_crop(g, column, none, after, number), (*shape[:axis], shape[axis] * factor, *shape[axis + 1 :])
        )
        ranges = [range(extent) for extent in static(grown.shape)]
        ranges[axis] = range((shape[axis] - 1) * factor + 1)
        x = slice_box(g, grown, ranges)
    return x


def clamp_indices(g: Graph, starts: Value, highest: int, length: int = 1) -> Value:
    """Clamp indices to the range from 0 to ``highest``; with ``length``, expand a start to consecutive indices."""
    inside = g.add(Clamp(Scalar.f32(0), Scalar.f32(highest)), emit.as_float(g, starts))
    if length > 1:
        steps = g.constant(np.arange(length, dtype=np.float32), "steps")
        inside = g.add(Add(), inside, steps)
    return g.add(Cast(I32), inside)
