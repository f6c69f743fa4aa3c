"""Lowerings that change scale or type: requantize, quantize, dequantize, cast, shifts."""

from __future__ import annotations

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.onnx_model.integers import (
    add_constant,
    round_half_away,
    round_shift,
    saturate,
    widen,
)
from tpuconvert.exporters.onnx_model.lowering import Lowering
from tpuconvert.exporters.onnx_model.registry import lowers
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.per_channel import along_channels
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32Mode, RequantFp32ToInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticPcShift, ArithmeticShift, RoundingShift
from tpuconvert.schema.types import Array, DType


def largest_magnitude(value: Value) -> int:
    """Largest magnitude of an integer type."""
    return max(value.dtype.max, -value.dtype.min)


@lowers(RequantInt32)
def requantize(op: RequantInt32, node: Node, d: Lowering) -> None:
    """Lower a requantization to INT64 arithmetic: multiply, shift, add, saturate."""
    x, y = node.inputs[0], node.output
    assert x is not None
    multiplier, shift, offset = (
        along_channels(vector if is_per_channel else number, np.int64, x.rank)
        for is_per_channel, vector, number in (
            (op.is_mul_shift_pc, op.multiplier_vec, op.multiplier_val),
            (op.is_mul_shift_pc, op.shift_vec, op.shift_val),
            (op.is_offset_pc, op.offset_vec, op.offset_val),
        )
    )
    if op.mode is RequantMode.MULTIPLIER_SHIFT:
        result = _one_rounding(d, x, multiplier, shift, op.round_mode)
    else:
        result = _two_roundings(d, x, multiplier, shift)
    d.define(y, saturate(d, add_constant(d, result, offset), y.dtype))


def _product(d: Lowering, x: Value, multiplier: Array) -> str:
    wide = widen(d, x)
    return wide if (multiplier == 1).all() else d.add("Mul", wide, multiplier)


def _one_rounding(d: Lowering, x: Value, multiplier: Array, shift: Array, mode: RoundingMode) -> str:
    """``x * multiplier * 2^shift``, rounded once."""
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    right = np.where(multiplier == 0, 0, right)  # 0 in every mode
    factors = [int(m) << int(s) for m, s in zip(*(a.flat for a in np.broadcast_arrays(multiplier, left)), strict=True)]
    largest = largest_magnitude(x) * max(map(abs, factors))
    if largest > 1 << 62:
        raise NoExactForm(f"a product has {largest.bit_length()} bits, expected at most 62")
    shape = np.broadcast_shapes(multiplier.shape, left.shape)
    product = _product(d, x, np.array(factors, np.int64).reshape(shape))
    return round_shift(d, product, right, mode, largest) if right.any() else product


def _two_roundings(d: Lowering, x: Value, multiplier: Array, shift: Array) -> str:
    """Round half up by 31 bits less a positive shift, saturate to INT32, then round half away by a negative shift."""
    first = 31 - np.maximum(shift, 0)
    largest = largest_magnitude(x) * int(np.abs(multiplier).max())
    high = round_shift(d, _product(d, x, multiplier), first, RoundingMode.HALF_UP, largest)
    high = widen(d, saturate(d, high, DType.INT32))
    second = np.clip(-shift, 0, 40)  # a shift of INT32 by more bits gives 0 as well
    return round_shift(d, high, second, RoundingMode.HALF_AWAY_FROM_ZERO, 1 << 31)


@lowers(RequantFp32ToInt)
def quantize(op: RequantFp32ToInt, node: Node, d: Lowering) -> None:
    """Lower ``round(x * scale) + offset``, or ``round(x * scale + offset)``, in float32."""
    x, y = node.inputs[0], node.output
    assert x is not None
    d.check_exact(x)
    is_integer = x.dtype.is_integer
    scale = along_channels(op.scale_vec if op.is_scale_pc else op.scale_val, np.float32, x.rank)
    scaled = d.add("Mul", d.add("Cast", x, to=np.float32) if is_integer else x, scale)
    if op.mode is RequantFp32Mode.SCALE_OFFSET_ROUND:
        term = along_channels(op.offset_fp_vec if op.is_offset_pc else op.offset_fp_val, np.float32, x.rank)
        scaled = d.add("Add", scaled, term)
        offset: Array = np.zeros((), np.int64)
    else:
        offset = along_channels(op.offset_vec if op.is_offset_pc else op.offset_val, np.int64, x.rank)
    d.define(y, round_half_away(d, scaled, y.dtype, offset, may_be_nan=True))


@lowers(DequantIntToFp32)
def dequantize(op: DequantIntToFp32, node: Node, d: Lowering) -> None:
    """Lower ``(x - offset) * scale``: an exact difference, rounded to float32, and a float32 multiplication."""
    x, y = node.inputs[0], node.output
    assert x is not None
    scale = along_channels(op.scale_vec if op.is_scale_pc else op.scale_val, np.float32, x.rank)
    offset = along_channels(op.offset_vec if op.is_offset_pc else op.offset_val, np.int64, x.rank)
    difference: str | Value = d.add("Sub", widen(d, x), offset) if offset.any() else x
    d.define(y, d.add("Mul", d.add("Cast", difference, to=np.float32), scale))


@lowers(Cast)
def cast(op: Cast, node: Node, d: Lowering) -> None:
    """Lower a conversion: to floats, from floats with ties away from zero, or between integers with saturation."""
    x, y = node.inputs[0], node.output
    assert x is not None
    if y.dtype.is_float:
        wide = d.add("Cast", x, to=np.float32)
        d.define(y, wide if y.dtype is DType.FLOAT32 else d.add("Cast", wide, to=y.dtype.numpy))
    elif x.dtype.is_float:
        d.check_exact(x)
        d.define(y, round_half_away(d, x, y.dtype, np.zeros((), np.int64), may_be_nan=True))
    else:
        d.define(y, saturate(d, widen(d, x), y.dtype))


@lowers(ArithmeticShift, ArithmeticPcShift)
def arithmetic_shift(op: RoundingShift, node: Node, d: Lowering) -> None:
    """Lower a shift with rounding and saturation, by one constant amount or one per index of an axis."""
    x, y = node.inputs[0], node.output
    assert x is not None
    amount: Array
    if isinstance(op, ArithmeticShift):
        amount = np.asarray(op.shift, np.int64)
    else:
        assert isinstance(op, ArithmeticPcShift)
        amounts = node.inputs[1]
        assert amounts is not None
        if not amounts.is_constant:
            raise NoExactForm(f"its amounts '{amounts.name}' are computed, expected a constant")
        shape = [1] * x.rank
        shape[op.shift_axis] = -1
        amount = amounts.array.astype(np.int64).reshape(shape)
    wide = widen(d, x)
    right = np.minimum(np.maximum(-amount, 0), 62)  # |x| < 2^32: further bits do not change a rounding
    if amount.max() > 0:  # shifts of 32-bit integers by 31 bits stay below 2^63
        wide = d.add("Mul", wide, np.int64(1) << np.clip(amount, 0, 31))
    d.define(y, saturate(d, round_shift(d, wide, right, op.rounding_mode, 1 << 62), y.dtype))
