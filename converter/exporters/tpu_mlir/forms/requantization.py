"""Lowerings of requantization and of conversions between element types.

The scale ``multiplier * 2^shift`` is exact. Powers of two are first moved from the multiplier to the shift, which does
not change results that are rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import Tensor, integer_type, quantized_element
from tpuconvert.exporters.tpu_mlir.lowering import (
    PLAIN_ELEMENTS,
    Lowering,
    channel_count,
    reciprocal_scale,
    static_shape,
)
from tpuconvert.exporters.tpu_mlir.registry import lowers
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import Array, DType, QuantParams

_MODES = {
    RequantMode.MULTIPLIER_SHIFT: "MultiplierShift",
    RequantMode.TFLITE_LSHIFT: "TFLite_LShift",
    RequantMode.TFLITE: "TFLite",
}

_ROUND_MODES = {RoundingMode.HALF_UP: "HalfUp", RoundingMode.HALF_AWAY_FROM_ZERO: "HalfAwayFromZero"}


class Rescale(NamedTuple):
    """Parameters of a requantization, one per channel.

    Attributes:
        mode: attribute ``rq_mode`` of the dialect.
        multipliers: multipliers below 2^31 in magnitude.
        shifts: shifts; negative values shift to the right.
        zero_points: zero points, added after the last rounding.
        round_mode: attribute ``round_mode`` of the dialect: rounding of the right shift.
    """

    mode: str
    multipliers: tuple[int, ...]
    shifts: tuple[int, ...]
    zero_points: tuple[int, ...]
    round_mode: str = "HalfUp"


def remove_twos(multiplier: int, shift: int) -> tuple[int, int]:
    """Return an equal ``multiplier * 2^shift`` with an odd multiplier or a shift of 0."""
    while multiplier and multiplier % 2 == 0 and shift < 0:
        multiplier //= 2
        shift += 1
    return multiplier, shift


def round_mode_of(mode: RoundingMode) -> str:
    """Return the attribute ``round_mode`` of the dialect.

    Raises:
        NoExactForm: the dialect's shifts have no such rounding.
    """
    if mode not in _ROUND_MODES:
        raise NoExactForm(f"it rounds {mode.name}, expected {' or '.join(known.name for known in _ROUND_MODES)}")
    return _ROUND_MODES[mode]


def rescale_of(op: RequantInt32, channels: int) -> Rescale:
    """Return the parameters of a ``requant_int32``.

    Raises:
        NoExactForm: a rounding mode that the chip's requantization does not have.
    """
    multipliers = op.multiplier_vec if op.is_mul_shift_pc else (op.multiplier_val,) * channels
    shifts = op.shift_vec if op.is_mul_shift_pc else (op.shift_val,) * channels
    offsets = op.offset_vec if op.is_offset_pc else (op.offset_val,) * channels
    round_mode = "HalfAwayFromZero"
    if op.mode is RequantMode.MULTIPLIER_SHIFT:
        round_mode = round_mode_of(op.round_mode)
        pairs = [remove_twos(*pair) for pair in zip(multipliers, shifts, strict=True)]
        multipliers, shifts = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
    return Rescale(_MODES[op.mode], tuple(multipliers), tuple(shifts), tuple(offsets), round_mode)


def requantize(
    d: Lowering,
    accumulator: Tensor,
    rescale: Rescale,
    value: Value,
    shape: Sequence[int],
    *,
    round_mode: str | None = None,
) -> Tensor:
    """Append the requantization of an int32 tensor along axis 1.

    Args:
        d: the lowering.
        accumulator: operand of rank 4.
        rescale: parameters, one entry per channel.
        value: the value of the result.
        shape: shape of the result, which may be the shape of ``value`` with further unit axes.
        round_mode: rounding of the right shift, by default the rounding of the mode.
    """
    table = d.target.requant_table(rescale.multipliers, rescale.shifts, rescale.zero_points)
    weight = d.module.weight(table, "si32", f"{value.name}_requant")
    element = d.element(value)
    if value.quant is not None and value.dtype is not DType.INT32:
        # The compiler replaces the zero points of the table by the zero point of the result's type, unless the latter
        # is 0.
        zero_points = set(rescale.zero_points)
        zero_point = rescale.zero_points[0] if len(zero_points) == 1 else 0
        element = quantized_element(value.dtype, value.quant, zero_point=zero_point)
    name = value.name if tuple(shape) == value.shape else f"{value.name}_4d"
    if _is_fused_wrong(d, accumulator, rescale, value):
        accumulator = widen(d, accumulator, f"{name}_apart")  # another use of the sums
    return d.module.add(
        "tpu.RequantIntAxis",
        [accumulator, weight],
        shape,
        element,
        name,
        quant_mode=rescale.mode,
        round_mode=round_mode or rescale.round_mode,
    )


def _is_fused_wrong(d: Lowering, accumulator: Tensor, rescale: Rescale, value: Value) -> bool:
    """Return True if the compiler may fuse a requantization into a convolution with a wrong result.

    In the simulator 16-bit results of depthwise convolutions are wrong, with some shapes on BM1684X and with all on
    BM1688, where also unsigned results with a zero point are wrong.
    """
    if value.dtype is DType.UINT8 and any(rescale.zero_points):
        return not d.target.fuses_zero_points
    producer = next((line for line in reversed(d.module.lines) if line.result is accumulator), None)
    is_wide = value.dtype in (DType.INT16, DType.UINT16)
    return is_wide and producer is not None and producer.attributes.get("group", 1) > 1


def shape_4d(value: Value) -> tuple[int, ...]:
    """Return the shape of a value with axis 1 kept and unit axes up to rank 4."""
    shape = static_shape(value)
    match len(shape):
        case 0 | 1:
            return (1, 1, 1, shape[0] if shape else 1)
        case 2 | 3 | 4:
            return (*shape, *(1,) * (4 - len(shape)))
        case _:
            return (*shape[:3], int(np.prod(shape[3:])))


@lowers(RequantInt32)
def requant_int32(op: RequantInt32, node: Node, d: Lowering) -> None:
    """Lower requant_int32: to a narrower type, or to int32 as operand of an exact sum."""
    x, y = node.inputs[0], node.output
    assert x is not None
    channels = channel_count(x)
    if x.dtype is not DType.INT32:
        if y.dtype is DType.INT32 and op.mode is RequantMode.TFLITE_LSHIFT:
            multiply_to_int32(op, node, d)
            return
        source = widen(d, d.tensor(x), y.name)
    else:
        source = d.tensor(x)
    rescale = rescale_of(op, channels)
    result = requantize(d, d.reshape(source, shape_4d(x), f"{y.name}_in"), rescale, y, shape_4d(y))
    d.define(y, d.reshape(result, static_shape(y), y.name))


def widen(d: Lowering, x: Tensor, name: str) -> Tensor:
    """Append the conversion of a narrower integer tensor to int32: a multiplication by 1."""
    one = d.module.weight(np.ones((1,) * len(x.shape), np.int32), "si32", f"{name}_one")
    return binary(d, "Mul", x, one, x.shape, "si32", f"{name}_int32")


def binary(
    d: Lowering, mode: str, a: Tensor, b: Tensor, shape: Sequence[int], element: str, name: str, shift: int = 0
) -> Tensor:
    """Append a saturating ``(a op b) * 2^shift`` on integers, rounded half up."""
    return d.module.add("tpu.BinaryShift", [a, b], shape, element, name, mode=mode, shift=shift)


def multiply_to_int32(op: RequantInt32, node: Node, d: Lowering) -> None:
    """Lower ``x * multiplier * 2^(shift - 31) + offset`` to int32 if the scale is an integer, so without rounding."""
    x, y = node.inputs[0], node.output
    assert x is not None
    rescale = rescale_of(op, channel_count(x))
    factors = [Fraction(m) * Fraction(2) ** (s - 31) for m, s in zip(rescale.multipliers, rescale.shifts, strict=True)]
    if any(factor.denominator > 1 for factor in factors):
        raise NoExactForm("requant_int32 to INT32 rounds, expected multiples of the operand")
    largest = max(map(abs, factors)) * max(abs(x.dtype.min), x.dtype.max)
    if largest >= 2**31:
        raise NoExactForm(f"its product reaches {largest}, expected below 2^31")
    has_offset = any(rescale.zero_points)
    name = f"{y.name}_product" if has_offset else y.name
    factor = d.module.weight(_along_channels(factors, x.rank), "si32", f"{y.name}_factor")
    result = binary(d, "Mul", d.tensor(x), factor, static_shape(y), "si32", name)
    if has_offset:
        offset = d.module.weight(_along_channels(rescale.zero_points, x.rank), "si32", f"{y.name}_offset")
        result = binary(d, "Add", result, offset, static_shape(y), "si32", y.name)
    d.define(y, result)


def _along_channels(numbers: Sequence[Fraction | int], rank: int) -> Array:
    """Return integers as an array [1, channels, 1, ...], with a channel extent of 1 if they are equal."""
    different = [int(number) for number in (numbers if len(set(numbers)) > 1 else numbers[:1])]
    return (
        np.array(different, np.int32).reshape(1, len(different), *(1,) * (rank - 2))
        if rank > 1
        else np.array(different, np.int32)
    )


@lowers(RequantFp32ToInt)
def quantize(op: RequantFp32ToInt, node: Node, d: Lowering) -> None:
    """Lower ``round(x * scale) + zero_point`` to ``tpu.Cast``, which divides by the scale of the result type."""
    x, y = node.inputs[0], node.output
    tensor = d.tensor(x)
    if not tensor.is_exact and d.is_strict:
        raise NoExactForm(
            "its operand is a floating-point result that the device may round differently",
            "keep the operators before it in INT8, or move them to the end of the network",
        )
    if op.mode != 0:
        raise NoExactForm("an offset that is added before the rounding")
    is_one = not op.is_scale_pc and not op.is_offset_pc
    if is_one and y.quant is not None and op.offset_val == y.quant.zero_point[0]:
        element = quantized_element(y.dtype, y.quant, reciprocal_scale(op.scale_val))
        d.define(y, d.cast(d.as_kind(tensor, "f32"), element, y.name))
        return
    scales = op.scale_vec if op.is_scale_pc else (op.scale_val,)
    offsets = op.offset_vec if op.is_offset_pc else (op.offset_val,)
    if max(map(abs, offsets)) >= 2**24:
        raise NoExactForm(f"its offset reaches {max(map(abs, offsets))}, which FLOAT32 sums do not hold exactly")
    # A convolution pads with the zero point of the type, which the cast adds.
    zero_points = set(y.quant.zero_point) if y.quant is not None else {0}
    zero_point = zero_points.pop() if len(zero_points) == 1 else 0
    offsets = tuple(offset - zero_point for offset in offsets)
    scaled = _with_channels(d, "tpu.Mul", d.as_kind(tensor, "f32"), scales, f"{y.name}_scaled")
    if any(offsets):  # they are added after the rounding
        rounded = d.module.add(
            "tpu.Active", [scaled], scaled.shape, "f32", f"{y.name}_rounded", is_exact=scaled.is_exact, mode="ROUND"
        )
        scaled = _with_channels(d, "tpu.Add", rounded, offsets, f"{y.name}_offset")
    quant = y.quant or QuantParams.per_tensor(1.0, 0, y.dtype)
    element = quantized_element(y.dtype, quant, scale=1.0, zero_point=zero_point)
    d.define(y, d.cast(scaled, element, y.name))


def _with_channels(d: Lowering, operation: str, x: Tensor, numbers: Sequence[float], location: str) -> Tensor:
    """Append arithmetic with one number per channel, or one for all: a single rounding, or none for whole numbers."""
    array = np.asarray(numbers, np.float32).reshape(1, -1, *(1,) * (len(x.shape) - 2))
    operands = [x, d.module.float_weight(array, "f32", f"{location}_by")]
    return d.module.add(operation, operands, x.shape, "f32", location, is_exact=x.is_exact)


def _with_element(d: Lowering, x: Tensor, element: str, location: str) -> Tensor:
    """Append a multiplication by 1 that saturates integers to another element type."""
    one = d.module.weight(np.ones((1,) * len(x.shape), np.int8), "si8", f"{location}_one")
    return binary(d, "Mul", x, one, x.shape, element, location)


def _to_floats(d: Lowering, x: Tensor, location: str) -> Tensor:
    """Append the conversion of integers to FLOAT32.

    The compilers apply scale and zero point of the operand's type even without ``with_scale``, so that the type must
    have neither.
    """
    name = integer_type(x.element)
    plain = PLAIN_ELEMENTS[DType.of(name)] if name else x.element
    if x.element != plain:
        x = _with_element(d, x, plain, f"{location}_plain")
    return d.module.add("tpu.Cast", [x], x.shape, "f32", location, with_scale=False)


@lowers(DequantIntToFp32)
def dequantize(op: DequantIntToFp32, node: Node, d: Lowering) -> None:
    """Lower ``(x - zero_point) * scale`` to ``tpu.Cast``."""
    x = node.inputs[0]
    assert x is not None
    if op.is_scale_pc or op.is_offset_pc:
        scales = op.scale_vec if op.is_scale_pc else (op.scale_val,)
        offsets = op.offset_vec if op.is_offset_pc else (op.offset_val,)
        name, tensor = node.output.name, d.tensor(x)
        number = _to_floats(d, tensor, f"{name}_steps")
        if any(offsets):
            number = _with_channels(d, "tpu.Sub", number, offsets, f"{name}_centered")
        d.define(node.output, _with_channels(d, "tpu.Mul", number, scales, name))
        return
    if x.quant is None or op.offset_val != x.quant.zero_point[0]:
        raise NoExactForm(f"its offset {op.offset_val} is not the zero point of '{x.name}'")
    if np.float32(max(x.quant.scale)) != np.float32(op.scale_val):
        raise NoExactForm(f"its scale {op.scale_val} differs from the scale of '{x.name}'")
    # In FLOAT32: a cast of integers with a zero point to 16 bits is up to one step off.
    d.define(node.output, d.module.add("tpu.Cast", [d.tensor(x)], static_shape(node.output), "f32", node.output.name))


@lowers(Cast)
def cast(op: Cast, node: Node, d: Lowering) -> None:
    """Lower a saturating conversion to an integer type, or the conversion of integers to FLOAT32."""
    x, y = node.inputs[0], node.output
    assert x is not None
    tensor = d.tensor(x)
    if x.dtype.is_integer and y.dtype is DType.FLOAT32:
        d.define(y, _to_floats(d, tensor, y.name))
        return
    if not y.dtype.is_integer:
        raise NoExactForm(f"cast of {x.dtype.name} to {y.dtype.name}, expected integers")
    if x.dtype.is_integer:
        d.define(y, _with_element(d, tensor, d.element(y), y.name))
        return
    if x.dtype is not DType.FLOAT32 or (d.is_strict and not tensor.is_exact):
        raise NoExactForm(f"cast of {x.dtype.name}, expected integers or exact FLOAT32")
    d.define(y, d.cast(d.as_kind(tensor, "f32"), PLAIN_ELEMENTS[y.dtype], y.name, with_scale=False))
