"""Lowerings for BM1686 with operands and results of 16 bits, for calibrated scales (precision rule ``int16``).

The integer matmuls take bytes. A 16-bit operand is ``x = 256 * xh + xl`` with signed bytes; operands above 32,639
saturate there. The weights of a 16-bit node have 16 bits too, ``w = 256 * wh + wl``. With sums of products written as
``x * w``:

    x * w = 65536 * (xh * wh) + 256 * (xh * wl + xl * wh) + xl * wl

The last term is left out: its products have both signs and are at most 2^14, the products of x and w at most 2^30.
Three integer matmuls give ``top = xh * wh`` and ``middle = xh * wl + xl * wh + bias``, and the accumulator is ``256 *
top + middle``. An 8-bit operand needs two: ``top = x * wh`` and ``middle = x * wl + bias``. If the accumulator could
exceed 32 bits, it is computed in a unit that is larger by a power of two.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tpuconvert.optimizer.engine.node_properties import operand, operands
from tpuconvert.optimizer.quantize.lowering.lower_shared import names_of, pool_int_of, result_params
from tpuconvert.optimizer.quantize.lowering.lowering import (
    Declined,
    Lowered,
    Lowering,
    int32_params,
    params_of,
    ratios,
    requant_int32,
    with_quant,
)
from tpuconvert.optimizer.quantize.lowering.tflite.steps import join_bytes, wide_table
from tpuconvert.optimizer.quantize.weights.weights import (
    along_inputs,
    output_channel_axis,
    quantize_bias,
    weight_params,
)
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode, multiplier_shift
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.convolution.conv_v2 import ExactConvolution
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.pool_int import PoolInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantMode
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift
from tpuconvert.schema.types import I8, I16, I32, Array, QuantParams

_SHIFTS = (4, 2, 0)
"""Numbers of low bits of an operand that the table of a function can leave out: 4,097 to 65,537 entries."""

_LARGEST_ROUNDING = 16
"""Largest change of a 16-bit result by these bits: a sixteenth of a step of the 8-bit form."""


_BYTE = 256
_SUM_BITS = 14
"""Fraction bits of the common unit of a sum: two terms of 2^15 * 2^14 are below 2^31. Scales become multiples of the
unit, which changes an operand by at most 2^15 / 2 units: a step of the operand with the largest scale."""


def lower_wide_linear(node: Node, lowering: Lowering, op: ExactConvolution | MatrixMulV2, x_zero: str) -> Lowered:
    """Lower a linear operator with constant weights, which get 16 bits.

    Args:
        node: the node.
        lowering: the new graph.
        op: the integer operator without zero points and bias.
        x_zero: prefix of the zero point of its operand.
    """
    x, w, *biases = operands(node)
    name, params, own = node.outputs[0].name, result_params(node), params_of(x)
    is_wide = own.dtype is I16
    step = float(np.float32(max(own.scale))) * (_BYTE if is_wide else 1)  # of the byte that top multiplies
    exact = w.array.astype(np.float64)
    if own.axis is not None:
        exact = exact * along_inputs(node, w.array, np.asarray(own.scale) / max(own.scale))
    axis = output_channel_axis(node) if node.name not in lowering.per_tensor else None
    coarse = weight_params(exact, axis, biases[0].array if biases else None, step / _BYTE)
    fine = dataclasses.replace(coarse, scale=tuple(scale / _BYTE for scale in coarse.scale))
    scales = np.reshape(fine.scale, [-1 if index == axis else 1 for index in range(exact.ndim)])
    integers = np.rint(exact / scales).astype(np.int64)
    upper = np.clip((integers + 128) >> 8, -127, 127)
    lower = np.clip(integers - _BYTE * upper, I8.min, I8.max)
    units = [step * scale for scale in fine.scale]
    bias = [quantize_bias(value.array, tuple(units)) for value in biases]

    shift = _accumulator_shift(node, upper, lower, bias, is_wide=is_wide)
    if shift is None:
        return Declined("the sum of its products may exceed 32 bits")
    high = lowering.g.constant(upper.astype(np.int8), f"{w.name}:high", coarse)
    low = lowering.g.constant(lower.astype(np.int8), f"{w.name}:low", fine)
    shape = (-1,) if isinstance(op, MatrixMulV2) else (1, -1, *(1,) * (w.rank - 2))
    constants = [
        lowering.g.constant(array.reshape(shape), value.name) for array, value in zip(bias, biases, strict=True)
    ]
    value = lowering.quantized_value(x)
    first, rest = _split(lowering, value, name) if is_wide else (value, None)
    zero_point: dict[str, Any] = {f"{x_zero}_val": 0 if is_wide else own.zero_point[0]}
    plain = dataclasses.replace(op, **zero_point)
    biased = dataclasses.replace(plain, has_bias=bool(biases))
    top = lowering.g.add(plain, first, high, name=f"{name}:top")
    middle = lowering.g.add(biased, first, low, *constants, name=f"{name}:middle")
    if rest is not None:
        other = lowering.g.add(plain, rest, high, name=f"{name}:other")
        middle = lowering.g.add(Add(), middle, other, name=f"{name}:sum")
    total = _join(lowering, top, middle, shift, f"{name}:int32")
    units = [unit * 2**shift for unit in units]
    total.quant = int32_params(units)
    return (lowering.requantize(total, ratios(units, params.scale), params, name),)


def _split(lowering: Lowering, x: Value, name: str) -> tuple[Value, Value]:
    """Split INT16 into two signed bytes: ``x = 256 * high + low``."""
    high = lowering.g.add(ArithmeticShift(-8, RoundingMode.HALF_UP, out_dtype=I8), x, name=f"{name}:high")
    grown = lowering.g.add(ArithmeticShift(8, RoundingMode.DOWN, out_dtype=I16), high, name=f"{name}:rounded")
    return high, lowering.g.add(Sub(out_dtype=I8), x, grown, name=f"{name}:low")


def _accumulator_shift(node: Node, upper: Array, lower: Array, bias: list[Array], *, is_wide: bool) -> int | None:
    """Return the smallest right shift for which the accumulator has 32 bits; None if ``middle`` could exceed them."""
    axis = output_channel_axis(node)
    others = None if axis is None else tuple(index for index in range(upper.ndim) if index != axis)
    heavy, light = (int(np.abs(weights).sum(axis=others).max(initial=0)) for weights in (upper, lower))
    largest = 128 if is_wide else 255
    middle = light * largest + (heavy * largest if is_wide else 0)
    middle += max((int(np.abs(array.astype(np.int64)).max(initial=0)) for array in bias), default=0)
    if middle > I32.max:
        return None
    sizes = (heavy * largest * 2 ** (8 - shift) + (middle >> shift) + 1 for shift in range(9))
    return next((shift for shift, size in enumerate(sizes) if size <= I32.max), None)


def _join(lowering: Lowering, top: Value, middle: Value, shift: int, name: str) -> Value:
    """Return ``(256 * top + middle) / 2^shift``."""
    if shift == 0:
        return join_bytes(lowering, top, middle, name)
    grown = top
    if shift < 8:
        grown = lowering.g.add(ArithmeticShift(8 - shift, RoundingMode.DOWN), top, name=f"{name}:grown")
    shrunk = lowering.g.add(ArithmeticShift(-shift, RoundingMode.HALF_UP), middle, name=f"{name}:shrunk")
    return lowering.g.add(Add(), grown, shrunk, name=name)


def lower_wide_sum(node: Node, lowering: Lowering) -> Lowered:
    """Lower an add or sub: multiply both operands by integers, so that they have a common unit, add, and requantize."""
    name, params = node.outputs[0].name, result_params(node)
    scales = [
        float(np.abs(value.array).max(initial=0.0)) / I16.max if value.is_constant else max(params_of(value).scale)
        for value in operands(node)
    ]
    unit = max(scales) / 2**_SUM_BITS
    terms = []
    for index, value in enumerate(operands(node)):
        if value.is_constant:
            integers = np.rint(value.array.astype(np.float64) / unit).astype(np.int32)
            terms.append(lowering.g.constant(integers, value.name, int32_params([unit])))
            continue
        own = params_of(value)
        integer = _without_zero_point(lowering, lowering.quantized_value(value), f"{name}:operand{index}")
        pairs = [multiplier_shift(float(np.rint(scale / unit))) for scale in own.scale]
        op = requant_int32(pairs, RequantMode.TFLITE_LSHIFT, I32)
        terms.append(lowering.g.add(op, integer, name=f"{name}:scaled{index}"))
    total = with_quant(lowering.g.add(node.op, *terms, name=f"{name}:int32"), int32_params([unit]))
    return (lowering.requantize(total, ratios([unit], params.scale), params, name),)


def lower_wide_product(node: Node, lowering: Lowering) -> Lowered:
    """Lower a multiply: the exact product in 32 bits, then requantize. A constant gets 16 bits."""
    name, params = node.outputs[0].name, result_params(node)
    factor, terms = 1.0, []
    for index, value in enumerate(operands(node)):
        if value.is_constant:
            scale = (float(np.abs(value.array).max(initial=0.0)) or 1.0) / I16.max
            integers = np.rint(value.array.astype(np.float64) / scale).astype(np.int32)
            terms.append(lowering.g.constant(integers, value.name, int32_params([scale])))
        else:
            scale = params_of(value).scale[0]
            terms.append(lowering.widen(lowering.quantized_value(value), 0, f"{name}:operand{index}"))
        factor *= scale
    product = lowering.g.add(Mul(out_dtype=I32), *terms, name=f"{name}:int32")
    return (lowering.requantize(product, ratios([factor], params.scale), params, name),)


def lower_wide_function(node: Node, lowering: Lowering) -> Lowered:
    """Lower a unary function: gather from a table, the smallest one that is nearly as exact as one of all integers."""
    x, params, name = operand(node), result_params(node), node.outputs[0].name
    own = params_of(x)
    if len(own.scale) > 1 or not x.type.is_static:
        return Declined("a table for 16 bits needs one scale and known extents")
    value = lowering.quantized_value(x)
    if value.dtype is not I16:
        own = QuantParams.per_tensor(own.scale[0], 0, I16)
        value = lowering.change_params(value, own, f"{name}:operand")
    # One entry more than integers, because the largest ones are rounded up.
    integers = np.arange(I16.min, I16.max + 2, dtype=np.int64)
    with np.errstate(all="ignore"):
        (results,) = node.op.evaluate((integers * float(own.scale[0])).astype(np.float32))
    entries = lowering.integers(np.nan_to_num(results, nan=0.0), params)
    shift = next(shift for shift in _SHIFTS if _rounding_of(entries, shift) <= _LARGEST_ROUNDING)
    if shift:
        coarse = QuantParams.per_tensor(own.scale[0] * (1 << shift), 0, I16)
        value = lowering.change_params(value, coarse, f"{name}:coarse")
    return (wide_table(lowering, value, entries[:: 1 << shift], params, name, lowest=I16.min >> shift),)


def _rounding_of(entries: Array, shift: int) -> int:
    """Largest change of a result if the operand is rounded to a multiple of 2^shift."""
    steps = entries[:: 1 << shift].astype(np.int64)
    nearest = (np.arange(entries.size) + (1 << shift >> 1)) >> shift
    return int(np.abs(entries - steps[nearest]).max())


def lower_wide_maximum(node: Node, lowering: Lowering) -> Lowered:
    """Lower max pooling to pool_int, which takes 16 bits; its second result is not used."""
    pool, x, params = node.op, operand(node), result_params(node)
    assert isinstance(pool, Pool)
    if pool.is_global_pooling:
        height, width = x.shape[2:]
        if not (isinstance(height, int) and isinstance(width, int)):
            return Declined("pool_int needs a window of known size for 16 bits")
        op = PoolInt(stride_h=1, stride_w=1, kernel_h=height, kernel_w=width, is_avg_pooling=False)
    else:
        op = pool_int_of(pool)
    value = lowering.quantized_value(x, params)
    if op.infer(value.type)[0].shape != node.output.shape:
        return Declined("pool_int has other windows at the border")
    result, _ = lowering.g.add_all(op, value, names=[*names_of(node), f"{node.name}:places"])
    return (result,)


def _without_zero_point(lowering: Lowering, x: Value, name: str) -> Value:
    return lowering.widen(x, 0, name) if any(params_of(x).zero_point) else x
