"""Integer steps of the bit-exact lowerings of TFLite operators on BM1686."""

from __future__ import annotations

import hashlib

import numpy as np

from tpuconvert.optimizer.quantize.lowering.lowering import Lowering, requant_int32
from tpuconvert.schema.arithmetic.fixed_point import power_of_two
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node, Value, static
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.bit_logic import BitAnds
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.quantization.requant_int32 import RequantMode
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift, RoundingMode
from tpuconvert.schema.types import I8, I16, I32, U8, Array, DType, QuantParams, Scalar

TFLITE, TFLITE_ONCE = "tflite", "tflite-single"
"""``Graph.rescale`` of TFLite sources: rounding as in the reference kernels (twice), or as in engines that round
once."""


def inner_node(value: Value | None, *operators: type[Op]) -> Node | None:
    """Node with one of the operators that computes a value inside of a kernel, where it is not rounded; else None."""
    node = None if value is None or value.quant is not None else value.producer
    return node if node is not None and isinstance(node.op, operators) else None


def table(lowering: Lowering, x: Value, entries: Array, params: QuantParams, name: str) -> Value:
    """Look up the results of a unary function, given for every integer of the operand's dtype in ascending order.

    8 bits use one lookup table. 16 bits gather from 65,536 numbers.
    """
    if x.dtype.bits > 8:
        return wide_table(lowering, x, entries, params, name, lowest=x.dtype.min)
    # The bit patterns of -128..-1 come after the pattern of 127.
    by_pattern = entries if x.dtype is U8 else np.roll(entries, 128)
    result = lowering.g.add(Lut(), x, lowering.g.constant(by_pattern, f"{name}:table"), name=name)
    result.quant = params
    return result


def wide_table(lowering: Lowering, x: Value, entries: Array, params: QuantParams, name: str, *, lowest: int) -> Value:
    """Look up the results of a unary function, given for the integers of the operand from ``lowest``, ascending.

    They are gathered from a FLOAT32 constant of exact integers.
    """
    index = plain_rescale(lowering, x, *power_of_two(), f"{name}:place", I32, offset=-lowest)
    result = _gather_numbers(lowering, index, entries, params, name)
    result.quant = params
    return result


def table_of_pairs(lowering: Lowering, a: Value, b: Value, entries: Array, params: QuantParams, name: str) -> Value:
    """Look up the results of a binary function of 8-bit integers, which broadcast.

    ``entries`` [256, 256] has a row for every integer of ``a`` and a column for every integer of ``b``, ascending.
    """
    row = _index(lowering, a, 8, f"{name}:row")
    column = _index(lowering, b, 0, f"{name}:column")
    index = lowering.g.add(Add(), row, column, name=f"{name}:place")
    result = _gather_numbers(lowering, index, entries.reshape(-1), params, name)
    result.quant = params
    return result


def _index(lowering: Lowering, x: Value, left_shift: int, name: str) -> Value:
    """Return ``(x - lowest) * 2^left_shift`` as INT32."""
    op = requant_int32([power_of_two(left_shift)], RequantMode.TFLITE_LSHIFT, I32, [-x.dtype.min << left_shift])
    return lowering.g.add(op, x, name=name)


def _gather_numbers(lowering: Lowering, positions: Value, entries: Array, params: QuantParams, name: str) -> Value:
    """Gather integers by INT32 positions, through FLOAT32, which represents them exactly."""
    flat = lowering.g.add(Reshape(reshape_param=(-1,)), positions, name=f"{name}:flat")
    numbers = _shared_numbers(lowering, entries.astype(np.float32))
    chosen = lowering.g.add(IndexSelect(dim=0), numbers, flat, name=f"{name}:chosen")
    integers = lowering.g.add(Cast(out_dtype=params.dtype), chosen, name=f"{name}:whole")
    return lowering.g.add(Reshape(reshape_param=static(positions.shape)), integers, name=name)


def _shared_numbers(lowering: Lowering, numbers: Array) -> Value:
    """Return a constant of 16-bit results. A name derived from its hash lets the steps of a sequence share it."""
    name = f"table:{hashlib.sha256(numbers.tobytes()).hexdigest()[:16]}"
    return lowering.g.find(name) or lowering.g.constant(numbers, name)


def plain_rescale(
    lowering: Lowering, x: Value, multiplier: int, shift: int, name: str, dtype: DType, *, offset: int = 0
) -> Value:
    """Rescale by x * multiplier * 2^(shift - 31) + offset, with two roundings, or one for ``TFLITE_ONCE``.

    Results of 32 bits and operands of 8 bits always have two roundings.
    """
    once = lowering.rescale == TFLITE_ONCE and dtype is not I32 and x.dtype.bits > 8
    narrow = dtype is U8 and not once
    mode = RequantMode.MULTIPLIER_SHIFT if once else RequantMode.TFLITE_LSHIFT
    op = requant_int32([(multiplier, shift - 31 if once else shift)], mode, I16 if narrow else dtype, [offset])
    result = lowering.g.add(op, x, name=f"{name}:int16" if narrow else name)
    return lowering.g.add(Cast(out_dtype=U8), result, name=name) if narrow else result


def narrow(lowering: Lowering, x: Value, params: QuantParams, name: str) -> Value:
    """Add the zero point to INT32 and saturate to the dtype of the result."""
    result = plain_rescale(lowering, x, *power_of_two(), name, params.dtype, offset=params.zero_point[0])
    result.quant = params
    return result


def divided_by_power(lowering: Lowering, x: Value, shift: int, name: str, dtype: DType) -> Value:
    """``x / 2^shift``; ties round away from zero."""
    op = ArithmeticShift(-shift, RoundingMode.HALF_AWAY_FROM_ZERO, out_dtype=dtype)
    return lowering.g.add(op, x, name=name)


def split_bytes(lowering: Lowering, x: Value, name: str) -> tuple[Value, Value]:
    """Split INT16 into bytes: x = 256 * high + low, high signed and low unsigned."""
    high = lowering.g.add(ArithmeticShift(-8, RoundingMode.DOWN, out_dtype=I8), x, name=f"{name}:high")
    rest = lowering.g.add(BitAnds(Scalar(I16, 255)), x, name=f"{name}:rest")
    return high, lowering.g.add(Cast(out_dtype=U8), rest, name=f"{name}:low")


def join_bytes(lowering: Lowering, high: Value, low: Value, name: str) -> Value:
    """Return ``256 * high + low`` of two INT32 values."""
    grown = lowering.g.add(ArithmeticShift(8, RoundingMode.DOWN), high, name=f"{name}:grown")
    return lowering.g.add(Add(), grown, low, name=name)


def integers_to_float(lowering: Lowering, x: Value, name: str) -> Value:
    """Convert integers to FLOAT32 exactly, with the zero point included."""
    return lowering.g.add(DequantIntToFp32(scale_val=1.0, offset_val=0), x, name=name)


def float_to_int32(lowering: Lowering, x: Value, name: str) -> Value:
    """Convert integral FLOAT32 values to INT32."""
    return lowering.g.add(Cast(out_dtype=I32), x, name=name)


def one_scale_each(*values: Value) -> bool:
    """Return True if every value is annotated with a per-tensor scale."""
    return all(value.quant is not None and value.quant.axis is None for value in values)
