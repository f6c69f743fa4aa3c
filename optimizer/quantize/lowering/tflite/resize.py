"""RESIZE_BILINEAR of integers: INT8 and INT16 with weights of 10 bits, UINT8 in binary32.

Rows and columns are gathered by constant indices; every step of the interpolation equals the step of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tpuconvert.optimizer.quantize.lowering.lower_shared import result_params, with_params
from tpuconvert.optimizer.quantize.lowering.lowering import Lowered, Lowering
from tpuconvert.optimizer.quantize.lowering.tflite.forms import form_of
from tpuconvert.optimizer.quantize.lowering.tflite.steps import (
    divided_by_power,
    float_to_int32,
    integers_to_float,
    plain_rescale,
)
from tpuconvert.schema.arithmetic.fixed_point import power_of_two
from tpuconvert.schema.graph.graph import Node, Value, static
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode
from tpuconvert.schema.ops.quantization.round_to_integer import Floor
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift, RoundingMode
from tpuconvert.schema.types import I8, I16, U8, Array, DType, Scalar


@dataclass(frozen=True)
class _Line:
    """Interpolation along one axis: two source indices per result pixel, with their weights."""

    low: Array
    high: Array
    low_weight: Array
    high_weight: Array


@form_of(Interpolate)
def resize_bilinear(node: Node, lowering: Lowering) -> Lowered | None:
    """RESIZE_BILINEAR: lower a bilinear resize whose quantization does not change."""
    (x,) = node.inputs
    params, op = result_params(node), node.op
    assert isinstance(op, Interpolate)
    if op.method is not InterpolateMode.BILINEAR or x is None or x.quant != params:
        return None
    if params.dtype not in _FORMS or not x.type.is_static:
        return None
    line, form = _FORMS[params.dtype]
    (height, width), (rows, columns) = static(x.shape)[2:], static(node.outputs[0].shape)[2:]
    down, along = line(op, height, rows), line(op, width, columns)
    name = node.outputs[0].name
    real = integers_to_float(lowering, lowering.quantized_value(x), f"{name}:real")
    return with_params((form(lowering, real, down, along, name),), params)


def _whole_line(op: Interpolate, extent: int, result: int) -> _Line:
    ends = 1 if op.align_corners and result > 1 else 0
    ratio = ((extent - ends << 10) + (result - ends) // 2) // (result - ends)
    position = np.arange(result, dtype=np.int64) * ratio
    if op.half_pixel_centers:
        position += ratio // 2 - (1 << 9)
    low = np.maximum(np.trunc(position / 1024).astype(np.int64), 0)
    high = np.minimum(np.trunc((position + 1023) / 1024).astype(np.int64), extent - 1)
    fraction = position - 1024 * low
    return _Line(low, high, 1024 - fraction, fraction)


def _float_line(op: Interpolate, extent: int, result: int) -> _Line:
    ends = 1 if op.align_corners and result > 1 else 0
    ratio = np.float32(extent - ends) / np.float32(result - ends)
    position = np.arange(result, dtype=np.float32)
    position = (position + np.float32(0.5)) * ratio - np.float32(0.5) if op.half_pixel_centers else position * ratio
    low = np.maximum(np.floor(position).astype(np.int64), 0)
    high = np.minimum(np.ceil(position).astype(np.int64), extent - 1)
    fraction = (position - low.astype(np.float32)).astype(np.float32)
    return _Line(low, high, np.float32(1) - fraction, fraction)


def _gather(lowering: Lowering, x: Value, axis: int, places: Array, name: str) -> Value:
    index = lowering.g.constant(places.astype(np.int32), f"{name}:places")
    return lowering.g.add(IndexSelect(dim=axis), x, index, name=name)


def _multiply_weights(lowering: Lowering, x: Value, weights: Array, axis: int, name: str) -> Value:
    shape = [1, 1, 1, 1]
    shape[axis] = weights.size
    return lowering.g.add(Mul(), x, lowering.g.constant(weights.reshape(shape), f"{name}:weights"), name=name)


def _with_whole_weights(lowering: Lowering, x: Value, down: _Line, along: _Line, name: str) -> Value:
    """Interpolate with 10-bit weights: rows in binary32 (below 2^18), columns in INT32, rounded ``half_away``."""

    def row(places: Array, weights: Array, end: str) -> Value:
        chosen = _gather(lowering, x, 2, places, f"{name}:{end}")
        return _multiply_weights(lowering, chosen, weights.astype(np.float32), 2, f"{name}:{end}:weighted")

    rows = lowering.g.add(
        Add(), row(down.low, down.low_weight, "top"), row(down.high, down.high_weight, "bottom"), name=f"{name}:rows"
    )

    def column(places: Array, weights: Array, end: str) -> Value:
        chosen = _gather(lowering, rows, 3, places, f"{name}:{end}")
        integers = float_to_int32(lowering, chosen, f"{name}:{end}:int32")
        return _multiply_weights(lowering, integers, weights.astype(np.int32), 3, f"{name}:{end}:weighted")

    left, right = column(along.low, along.low_weight, "left"), column(along.high, along.high_weight, "right")
    total = lowering.g.add(Add(), left, right, name=f"{name}:int32")
    return divided_by_power(lowering, total, 20, name, I8)


def _corners(down: _Line, along: _Line) -> list[tuple[str, Array, Array, Array, Array]]:
    """Source pixels of a result pixel in the kernel's order: name, row, row weight, column, column weight."""
    return [
        ("top_left", down.low, down.low_weight, along.low, along.low_weight),
        ("bottom_left", down.high, down.high_weight, along.low, along.low_weight),
        ("top_right", down.low, down.low_weight, along.high, along.high_weight),
        ("bottom_right", down.high, down.high_weight, along.high, along.high_weight),
    ]


def _corner(lowering: Lowering, x: Value, rows: Array, columns: Array, name: str) -> Value:
    return _gather(lowering, _gather(lowering, x, 2, rows, f"{name}:row"), 3, columns, name)


def _with_wide_weights(lowering: Lowering, x: Value, down: _Line, along: _Line, name: str) -> Value:
    """Interpolate 16-bit integers, whose sums have up to 36 bits.

    With rows r = 256 h + l (l in 0..255), and A and B the weighted sums of h and l, the result is A / 2^12, rounded
    down, + (256 (A mod 2^12) + B) / 2^20. The second term is in 0..2. A tie is rounded up if the total is positive,
    else down.
    """
    rows: dict[str, Value] = {}
    for corner, row, weights, column, _ in _corners(down, along):
        chosen = float_to_int32(
            lowering, _corner(lowering, x, row, column, f"{name}:{corner}"), f"{name}:{corner}:int32"
        )
        part = _multiply_weights(lowering, chosen, weights.astype(np.int32), 2, f"{name}:{corner}:weighted")
        side = corner.split("_")[1]
        rows[side] = part if side not in rows else lowering.g.add(Add(), rows[side], part, name=f"{name}:{side}")
    upper: list[Value] = []
    lower: list[Value] = []
    for side, weights in (("left", along.low_weight), ("right", along.high_weight)):
        high = _shift(lowering, rows[side], -8, RoundingMode.DOWN, f"{name}:{side}:high")
        high_byte = _shift(lowering, high, 8, RoundingMode.DOWN, f"{name}:{side}:whole")
        low = lowering.g.add(Sub(), rows[side], high_byte, name=f"{name}:{side}:low")
        upper.append(_multiply_weights(lowering, high, weights.astype(np.int32), 3, f"{name}:{side}:high:weighted"))
        lower.append(_multiply_weights(lowering, low, weights.astype(np.int32), 3, f"{name}:{side}:low:weighted"))
    total, rest = (lowering.g.add(Add(), *pair, name=f"{name}:{end}") for pair, end in ((upper, "A"), (lower, "B")))
    first = _shift(lowering, total, -12, RoundingMode.DOWN, f"{name}:first")
    cut = _shift(lowering, first, 12, RoundingMode.DOWN, f"{name}:first:whole")
    remainder = lowering.g.add(Sub(), total, cut, name=f"{name}:kept")
    grown = _shift(lowering, remainder, 8, RoundingMode.DOWN, f"{name}:kept:grown")
    second = lowering.g.add(Add(), grown, rest, name=f"{name}:second")
    down_rounded = _shift(lowering, second, -20, RoundingMode.HALF_DOWN, f"{name}:half_down")
    up_rounded = _shift(lowering, second, -20, RoundingMode.HALF_UP, f"{name}:half_up")
    base = lowering.g.add(Add(), first, down_rounded, name=f"{name}:base")
    tie = lowering.g.add(Sub(), up_rounded, down_rounded, name=f"{name}:tie")
    sign = _shift(lowering, base, -31, RoundingMode.DOWN, f"{name}:sign")  # -1 for negative sums, else 0
    undone = lowering.g.add(Mul(), tie, sign, name=f"{name}:undone")
    rounded = lowering.g.add(Add(), lowering.g.add(Add(), base, tie, name=f"{name}:up"), undone, name=f"{name}:int32")
    return plain_rescale(lowering, rounded, *power_of_two(), name, I16)


def _shift(lowering: Lowering, x: Value, shift: int, mode: RoundingMode, name: str) -> Value:
    return lowering.g.add(ArithmeticShift(shift, mode), x, name=name)


def _with_float_weights(lowering: Lowering, x: Value, down: _Line, along: _Line, name: str) -> Value:
    """Interpolate in binary32: add four weighted pixels in the kernel's order and 0.5, then truncate."""
    total: Value | None = None
    for corner, row, row_weights, column, column_weights in _corners(down, along):
        part = _corner(lowering, x, row, column, f"{name}:{corner}")
        part = _multiply_weights(lowering, part, row_weights, 2, f"{name}:{corner}:by_row")
        part = _multiply_weights(lowering, part, column_weights, 3, f"{name}:{corner}:weighted")
        total = part if total is None else lowering.g.add(Add(), total, part, name=f"{name}:{corner}:sum")
    assert total is not None
    half = lowering.g.add(Adds(Scalar.f32(0.5)), total, name=f"{name}:half")
    rounded = lowering.g.add(Floor(), half, name=f"{name}:whole")
    return lowering.g.add(Cast(out_dtype=U8), rounded, name=name)


_Form = Callable[[Lowering, Value, _Line, _Line, str], Value]

_FORMS: dict[DType, tuple[Callable[[Interpolate, int, int], _Line], _Form]] = {
    I8: (_whole_line, _with_whole_weights),
    I16: (_whole_line, _with_wide_weights),
    U8: (_float_line, _with_float_weights),
}
