"""RESIZE_BILINEAR of integers: INT8 with weights of 10 bits, UINT8 in binary32.

Rows and columns are selected by constant indices; the arithmetic between them is that of the kernels, step by step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpuconvert.optimizer.quantize.lower_shared import result_params, with_params
from tpuconvert.optimizer.quantize.lowering import Lowered, Lowering
from tpuconvert.optimizer.quantize.tflite.forms import form_of
from tpuconvert.optimizer.quantize.tflite.steps import as_real_integers, divided_by_power, from_real_integers
from tpuconvert.schema.graph import Node, Value, static
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode
from tpuconvert.schema.ops.round_to_integer import Floor
from tpuconvert.schema.types import I8, U8, Array, Scalar


@dataclass(frozen=True)
class _Line:
    """Where the pixels of a result line come from: two source pixels each, with their weights."""

    low: Array
    high: Array
    low_weight: Array
    high_weight: Array


@form_of("RESIZE_BILINEAR")
def resize_bilinear(node: Node, lowering: Lowering) -> Lowered | None:
    """Bilinear resizing of 8-bit pictures whose scale does not change."""
    (x,) = node.inputs
    params, op = result_params(node), node.op
    if not isinstance(op, Interpolate) or op.method is not InterpolateMode.BILINEAR or x is None or x.quant != params:
        return None
    if params.dtype not in (I8, U8) or not x.type.is_static:
        return None
    line = _whole_line if params.dtype is I8 else _real_line
    (height, width), (rows, columns) = static(x.shape)[2:], static(node.outputs[0].shape)[2:]
    down, along = line(op, height, rows), line(op, width, columns)
    name = node.outputs[0].name
    real = as_real_integers(lowering, lowering.quantized(x), f"{name}:real", with_zero_point=True)
    form = _with_whole_weights if params.dtype is I8 else _with_real_weights
    return with_params((form(lowering, real, down, along, name),), params)


def _whole_line(op: Interpolate, extent: int, result: int) -> _Line:
    ends = 1 if op.align_corners and result > 1 else 0
    ratio = ((extent - ends << 10) + (result - ends) // 2) // (result - ends)
    place = np.arange(result, dtype=np.int64) * ratio
    if op.half_pixel_centers:
        place += ratio // 2 - (1 << 9)
    low = np.maximum(np.trunc(place / 1024).astype(np.int64), 0)
    high = np.minimum(np.trunc((place + 1023) / 1024).astype(np.int64), extent - 1)
    fraction = place - 1024 * low
    return _Line(low, high, 1024 - fraction, fraction)


def _real_line(op: Interpolate, extent: int, result: int) -> _Line:
    ends = 1 if op.align_corners and result > 1 else 0
    ratio = np.float32(extent - ends) / np.float32(result - ends)
    place = np.arange(result, dtype=np.float32)
    place = (place + np.float32(0.5)) * ratio - np.float32(0.5) if op.half_pixel_centers else place * ratio
    low = np.maximum(np.floor(place).astype(np.int64), 0)
    high = np.minimum(np.ceil(place).astype(np.int64), extent - 1)
    fraction = (place - low.astype(np.float32)).astype(np.float32)
    return _Line(low, high, np.float32(1) - fraction, fraction)


def _selected(lowering: Lowering, x: Value, axis: int, places: Array, name: str) -> Value:
    index = lowering.g.constant(places.astype(np.int32), f"{name}:places")
    return lowering.g.add(IndexSelect(dim=axis), x, index, name=name)


def _weighted(lowering: Lowering, x: Value, weights: Array, axis: int, name: str) -> Value:
    shape = [1, 1, 1, 1]
    shape[axis] = weights.size
    return lowering.g.add(Mul(), x, lowering.g.constant(weights.reshape(shape), f"{name}:weights"), name=name)


def _with_whole_weights(lowering: Lowering, x: Value, down: _Line, along: _Line, name: str) -> Value:
    """Sums of products with 10-bit weights: rows in binary32 (below 2^18), columns in INT32, rounded half away."""

    def row(places: Array, weights: Array, end: str) -> Value:
        chosen = _selected(lowering, x, 2, places, f"{name}:{end}")
        return _weighted(lowering, chosen, weights.astype(np.float32), 2, f"{name}:{end}:weighted")

    rows = lowering.g.add(
        Add(), row(down.low, down.low_weight, "top"), row(down.high, down.high_weight, "bottom"), name=f"{name}:rows"
    )

    def column(places: Array, weights: Array, end: str) -> Value:
        chosen = _selected(lowering, rows, 3, places, f"{name}:{end}")
        whole = from_real_integers(lowering, chosen, f"{name}:{end}:int32")
        return _weighted(lowering, whole, weights.astype(np.int32), 3, f"{name}:{end}:weighted")

    left, right = column(along.low, along.low_weight, "left"), column(along.high, along.high_weight, "right")
    total = lowering.g.add(Add(), left, right, name=f"{name}:int32")
    return divided_by_power(lowering, total, 20, name, I8)


def _with_real_weights(lowering: Lowering, x: Value, down: _Line, along: _Line, name: str) -> Value:
    """Four weighted pixels, added one by one in the kernel's order, plus one half, cut off."""
    total: Value | None = None
    for places, weights, other_places, other_weights, corner in (
        (down.low, down.low_weight, along.low, along.low_weight, "top_left"),
        (down.high, down.high_weight, along.low, along.low_weight, "bottom_left"),
        (down.low, down.low_weight, along.high, along.high_weight, "top_right"),
        (down.high, down.high_weight, along.high, along.high_weight, "bottom_right"),
    ):
        part = _selected(lowering, x, 2, places, f"{name}:{corner}:row")
        part = _selected(lowering, part, 3, other_places, f"{name}:{corner}")
        part = _weighted(lowering, part, weights, 2, f"{name}:{corner}:by_row")
        part = _weighted(lowering, part, other_weights, 3, f"{name}:{corner}:weighted")
        total = part if total is None else lowering.g.add(Add(), total, part, name=f"{name}:{corner}:sum")
    assert total is not None
    half = lowering.g.add(Adds(Scalar.f32(0.5)), total, name=f"{name}:half")
    whole = lowering.g.add(Floor(), half, name=f"{name}:whole")
    return lowering.g.add(Cast(out_dtype=U8), whole, name=name)
