"""SOFTMAX of 16 bits as the reference kernel computes it: exp and the reciprocal of the sum from interpolated tables.

exp(x - max) has 15 fraction bits. A shift normalizes the sum to 1 + x in 1..2, the second table gives 1 / (1 + x), and
the products are shifted back.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.optimizer.quantize.lowering.lower_shared import result_params
from tpuconvert.optimizer.quantize.lowering.lowering import Lowered, Lowering
from tpuconvert.optimizer.quantize.lowering.tflite import tables
from tpuconvert.optimizer.quantize.lowering.tflite.forms import form_of
from tpuconvert.optimizer.quantize.lowering.tflite.steps import (
    float_to_int32,
    integers_to_float,
    narrow,
    plain_rescale,
    table,
)
from tpuconvert.optimizer.quantize.lowering.tflite.sums import sum_of_integers
from tpuconvert.schema.arithmetic.fixed_point import multiplier_shift, power_of_two
from tpuconvert.schema.graph.graph import Node, Value, static
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Muls
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.compare import Ges
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.quantization.round_to_integer import Floor
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.shifts.shift_by_amount import ArithRshift, ArithRshifts
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import F32, I16, I32, U8, Array, QuantParams, Scalar

_RANGE = 65535
_LEAST_BITS = 15  # Minimum number of bits of the sum: the largest element alone contributes 2^15 - 1.
_MOST_IN_FLOAT = 512  # Maximum number of elements for which the sum is below 2^24, so that float32 is exact.
_MOST = 65535  # Maximum number of elements for which the sum is below 2^31.
_PLAIN = QuantParams.per_tensor(1.0, 0, I16)


def _entries(step: float, zero: int, function: tables.Function) -> Array:
    """Results of a kernel table for every 16-bit integer. The scale of the results is 2 / 65535."""
    return tables.between_points(tables.points(step, zero, 2.0 / _RANGE, 0, function, np.float64))


@form_of(Softmax)
def softmax_of_16_bits(node: Node, lowering: Lowering) -> Lowered | None:
    """SOFTMAX: lower a 16-bit softmax along an axis of at most 65,535 elements; 8 bits use softmax_int."""
    (x,) = node.inputs
    params, name = result_params(node), node.outputs[0].name
    if not isinstance(node.op, Softmax) or x is None or x.quant is None or params.dtype is not I16:
        return None
    axis = node.op.axis % x.rank
    extent = x.shape[axis]
    if x.quant.dtype is not I16 or any(x.quant.zero_point) or not isinstance(extent, int):
        return None
    if extent > (_MOST if x.type.is_static else _MOST_IN_FLOAT):
        return None
    exps = _exps(lowering, x, axis, name)
    if extent <= _MOST_IN_FLOAT:
        parts = integers_to_float(lowering, exps, f"{name}:exp:real")
        total = _reduce(lowering, ReduceMethodType.REDUCE_SUM, parts, axis, f"{name}:sum")
    else:
        rows = _leading_bits(lowering, sum_of_integers(lowering, exps, [axis], f"{name}:sum"), f"{name}:sum")
        shape = tuple(1 if position == axis else size for position, size in enumerate(static(x.shape)))
        total = lowering.g.add(Reshape(reshape_param=shape), rows, name=f"{name}:total")
    position = _place(lowering, total, (extent * (2**15 - 1)).bit_length(), name)
    reciprocal = _reciprocal(lowering, total, position, name)
    return (_divide(lowering, exps, reciprocal, position, params, name),)


def _reduce(lowering: Lowering, method: ReduceMethodType, x: Value, axis: int, name: str) -> Value:
    return lowering.g.add(Reduce(method=method, axis_list=(axis,), axis_num=1, keep_dims=True), x, name=name)


def _exps(lowering: Lowering, x: Value, axis: int, name: str) -> Value:
    assert x.quant is not None
    real = integers_to_float(lowering, lowering.quantized_value(x), f"{name}:real")
    largest = _reduce(lowering, ReduceMethodType.REDUCE_MAX, real, axis, f"{name}:largest")
    below = lowering.g.add(Sub(), real, largest, name=f"{name}:below")
    difference = float_to_int32(lowering, below, f"{name}:below:int32")
    multiplier, shift = multiplier_shift(float(np.float32(x.quant.scale[0])) / (10.0 / _RANGE))
    scaled = plain_rescale(lowering, difference, multiplier, shift, f"{name}:scaled", I16, offset=2**15 - 1)
    return table(lowering, scaled, _entries(10.0 / _RANGE, 2**15 - 1, np.exp), _PLAIN, f"{name}:exp")


def _leading_bits(lowering: Lowering, total: Value, name: str) -> Value:
    """Sum as FLOAT32 without its last 7 bits from 2^24 on: these do not change the sum rounded to 17 bits."""
    short = lowering.g.add(ArithRshifts(Scalar(I32, 7)), total, name=f"{name}:short")
    coarse = lowering.g.add(Cast(out_dtype=F32), short, name=f"{name}:coarse")
    exact = lowering.g.add(Cast(out_dtype=F32), total, name=f"{name}:real")
    is_large = lowering.g.add(Ges(Scalar.f32(2.0**17)), coarse, name=f"{name}:large")
    wide = lowering.g.add(Muls(Scalar.f32(2.0**7)), coarse, name=f"{name}:wide")
    return lowering.g.add(ConditionSelect(), is_large, wide, exact, name=f"{name}:leading")


def _place(lowering: Lowering, total: Value, bits: int, name: str) -> Value:
    """Number of bits of the sum beyond 15, as UINT8, computed by one comparison per bit of the largest sum."""
    bits_above: Value | None = None
    for bit in range(_LEAST_BITS, max(bits, 24)):
        above = lowering.g.add(Ges(Scalar.f32(2.0**bit)), total, name=f"{name}:bit{bit}")
        bits_above = above if bits_above is None else lowering.g.add(Add(), bits_above, above, name=f"{name}:bits{bit}")
    assert bits_above is not None
    return lowering.g.add(Cast(out_dtype=U8), bits_above, name=f"{name}:place")


def _power(lowering: Lowering, bits: Value, exponents: Array, name: str) -> Value:
    """Look up a power of two, as FLOAT32, by the number of extra bits of the sum."""
    powers = np.ones(256, dtype=np.float32)
    powers[: exponents.size] = 2.0 ** exponents.astype(np.float64)
    return lowering.g.add(Lut(), bits, lowering.g.constant(powers, f"{name}:table"), name=name)


_PLACES = np.arange(17)


def _reciprocal(lowering: Lowering, total: Value, bits: Value, name: str) -> Value:
    """Reciprocal of the sum from the second table.

    The index is the sum rounded to 17 bits (``half_up``), minus the leading bit and the offset 2^15.
    """
    factor = _power(lowering, bits, 2 - _PLACES, f"{name}:factor")
    short = lowering.g.add(Mul(), total, factor, name=f"{name}:short")
    half = lowering.g.add(Adds(Scalar.f32(0.5)), short, name=f"{name}:short:half")
    rounded = lowering.g.add(Floor(), half, name=f"{name}:short:whole")
    centred = lowering.g.add(Adds(Scalar.f32(-(2.0**15 + 2.0**16))), rounded, name=f"{name}:centred")
    index = lowering.g.add(Cast(out_dtype=I16), centred, name=f"{name}:index")
    entries = _entries(1.0 / _RANGE, -(2**15), lambda x: 1.0 / (1.0 + x))
    return table(lowering, index, entries, _PLAIN, f"{name}:reciprocal")


def _divide(lowering: Lowering, exps: Value, reciprocal: Value, bits: Value, params: QuantParams, name: str) -> Value:
    """Multiply exps by the reciprocal, then shift by 14 plus the number of extra bits (``half_up``)."""
    wide = [
        plain_rescale(lowering, value, *power_of_two(), f"{name}:{part}:int32", I32)
        for value, part in ((exps, "exp"), (reciprocal, "reciprocal"))
    ]
    product = lowering.g.add(Mul(), *wide, name=f"{name}:product")
    half = float_to_int32(lowering, _power(lowering, bits, 13 + _PLACES, f"{name}:half"), f"{name}:half:int32")
    nudged = lowering.g.add(Add(), product, half, name=f"{name}:nudged")
    real = lowering.g.add(Cast(out_dtype=F32), bits, name=f"{name}:place:real")
    amount = lowering.g.add(Adds(Scalar.f32(14.0)), real, name=f"{name}:amount")
    shifted = lowering.g.add(
        ArithRshift(), nudged, float_to_int32(lowering, amount, f"{name}:amount:int32"), name=f"{name}:shifted"
    )
    return narrow(lowering, shifted, params, name)
