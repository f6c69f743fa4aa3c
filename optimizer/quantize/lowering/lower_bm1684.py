"""Lowerings for BM1684: linear operators with fused per-layer requantization, and rounding-shift arithmetic.

All zero points are 0, because the high-precision symmetric mode has none.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tpuconvert.optimizer.engine.node_properties import operands
from tpuconvert.optimizer.quantize.lowering.lower_shared import (
    average_then_rescale,
    geometry,
    global_average,
    lower_maximum,
    result_params,
    sum_windows,
)
from tpuconvert.optimizer.quantize.lowering.lowering import Declined, Lowered, Lowering, Product, lowers, params_of
from tpuconvert.optimizer.quantize.traits import is_average_pool, whole_window
from tpuconvert.optimizer.quantize.weights.two_term_weights import FINE_STEPS, second_term
from tpuconvert.optimizer.quantize.weights.weights import IntegerWeights, integer_weights
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.arithmetic import Mul
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.convolution.conv import Conv, QCalMode
from tpuconvert.schema.ops.global_average_int import AverageForm
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.shifts.shift_arithmetic import AddShift, AddsShift, MulsShift, SubShift
from tpuconvert.schema.types import I8, I16, U8, U16, Array, Chip, DType, Scalar

CHIP = (Chip.BM1684,)
_MOST_FRACTION_BITS = 6
_FRACTION_BITS = 4
"""Further bits of a 16-bit result before it is rounded to 8 bits. The accumulator without the bias must fit too: up to
8 times the range of an unsigned result, 16 times the range of a signed one."""


@lowers("conv", "matrix_mul", chips=CHIP)
def product(node: Node, lowering: Lowering) -> Lowered:
    """Lower to conv or matrix_mul in the high-precision symmetric mode, with an INT32 bias.

    The mode rounds the accumulator to 16 bits, in units of one to two steps of the result, before it scales and rounds
    again. For an 8-bit result, a 16-bit result with four more bits is therefore computed first, and then rounded to 8
    bits: the first rounding has hardly an effect. Depthwise convolutions are not rounded twice.
    """
    x, w, *biases = operands(node)
    own, params = params_of(x), result_params(node)
    if own.dtype.bits != 8:
        return Declined("its operand is not quantized to 8 bits")
    weights = integer_weights(node, per_channel=False, one_multiplier=True)
    if weights is None:
        return Declined("its weights are computed while the model runs")
    if len(weights.units) > 1 and params.axis is None:
        return Declined("BM1684 has one multiplier per layer, the source has one per output channel")
    # Zero points per channel of the operand are part of the bias.
    own_zeros = own.zero_point if weights.shift is None else ()
    if any((*own_zeros, *weights.params.zero_point, *params.zero_point)):
        return Declined("zero points are not 0, which the symmetric mode needs")
    if node.name in lowering.two_terms:
        return _two_terms(node, lowering, weights)
    bits = 0 if params.dtype.bits > 8 or _is_rounded_once(node) else _FRACTION_BITS
    scale = float(np.float32(weights.units[0] * 2**bits / params.scale[0]))
    inputs = [lowering.quantized_value(x), lowering.g.constant(weights.stored, w.name, weights.params)]
    inputs += [lowering.g.constant(weights.integer_bias(bias), bias.name) for bias in biases]
    op: Op = MatrixMul() if isinstance(node.op, MatrixMul) else Conv(**geometry(node.op))
    out = I16 if bits else params.dtype
    op = dataclasses.replace(op, scale=scale, mode=QCalMode.HighPrecisionSymmetric, out_dtype=out)
    y = lowering.g.add(op, *inputs, name=f"{node.name}:int16" if bits else node.name)
    lowering.products[y] = Product(node.name, weights.unrounded)
    if bits:
        y = lowering.g.add(AddsShift(scalar=Scalar(I16, 0), shift=bits, out_dtype=params.dtype), y, name=node.name)
    return (y,)


def _is_rounded_once(node: Node) -> bool:
    """Return True for a depthwise convolution, for which BM1684 has no 16-bit stage."""
    groups = node.op.groups if isinstance(node.op, Conv) else 1
    return groups > 1 and groups == operands(node)[0].shape[1] == node.output.shape[1]


def _two_terms(node: Node, lowering: Lowering, weights: IntegerWeights) -> Lowered:
    """Lower a convolution to two with 16-bit results, and their sum. Their weights are two terms of its weights."""
    x, w, *biases = operands(node)
    params, g = result_params(node), lowering.g
    bits = _MOST_FRACTION_BITS if params.dtype.bits == 8 else 0
    second = second_term(weights.unrounded(), weights.stored)

    def term(part: str, stored: Array, steps: int, bias: list[Value]) -> Value:
        scale = float(np.float32(weights.units[0] / steps * 2**bits / params.scale[0]))
        op = Conv(**geometry(node.op), scale=scale, mode=QCalMode.HighPrecisionSymmetric, out_dtype=I16)
        own = dataclasses.replace(weights.params, scale=tuple(scale / steps for scale in weights.params.scale))
        inputs = [lowering.quantized_value(x), g.constant(stored, f"{w.name}{part}", own), *bias]
        return g.add(op, *inputs, name=f"{node.name}:int16{part}")

    # The refinement needs the accumulator of the second term before it corrects the bias of the first one.
    zeros = g.constant(np.zeros((1, len(second), 1, 1), np.int32), f"{node.name}:zeros")
    fine = term(":fine", second, FINE_STEPS, [zeros])
    coarse = term("", weights.stored, 1, [g.constant(weights.integer_bias(bias), bias.name) for bias in biases])
    y = g.add(AddShift(shift=bits, out_dtype=params.dtype), coarse, fine, name=node.name)
    lowering.products[coarse] = Product(node.name, weights.unrounded, fine, FINE_STEPS)
    return (y,)


@lowers("deconv", chips=CHIP)
def deconvolution(node: Node, lowering: Lowering) -> Lowered:
    """Decline: the node stays float."""
    return Declined("deconv has only the low-precision mode on BM1684, whose scale is a power of two")


@lowers("pool", chips=CHIP)
def pool(node: Node, lowering: Lowering) -> Lowered:
    """Lower max pooling at the same scale. Averages of whole windows become a depthwise conv that rescales."""
    if not is_average_pool(node.op):
        return lower_maximum(node, lowering)
    own, params, window = params_of(node.inputs[0]), result_params(node), whole_window(node)
    assert isinstance(node.op, Pool)
    is_symbolic = window is None and node.op.is_global_pooling
    if (window is None and not is_symbolic) or params == own:
        return average_then_rescale(node, lowering)
    if any((*own.zero_point, *params.zero_point)):
        return Declined("zero points are not 0, which the symmetric mode needs")
    if window is None:
        return (global_average(node, lowering, AverageForm.SCALED_CONV),)
    # Scales per channel of operand and result have the same ratio in all channels.
    scale = float(np.float32(max(own.scale) / (max(params.scale) * window[0] * window[1])))
    op = Conv(scale=scale, mode=QCalMode.HighPrecisionSymmetric, out_dtype=params.dtype)
    return (sum_windows(node, lowering, op, window, node.name),)


@lowers("add", "sub", chips=CHIP)
def add(node: Node, lowering: Lowering) -> Lowered:
    """Convert both operands to 16 bits with common fraction bits, then add them with a rounding shift."""
    name, params = node.outputs[0].name, result_params(node)
    values = [lowering.quantized_value(value) for value in operands(node)]
    operand_params = [params_of(value) for value in values]
    if any(quant.zero_point != (0,) for quant in (*operand_params, params)):
        return Declined("zero points are not 0, which symmetric arithmetic needs")
    if values[0].shape != values[1].shape:
        return Declined("the rounding-shift operators do not broadcast")
    largest = sum(quant.scale[0] * max(-quant.dtype.min, quant.dtype.max) for quant in operand_params) / params.scale[0]
    bits = min(_MOST_FRACTION_BITS, math.floor(math.log2(32767 / largest)))
    if bits < 0:
        return Declined("the scales of operands and result are too far apart for 16 bits")
    terms = []
    for index, (value, quant) in enumerate(zip(values, operand_params, strict=True)):
        term = _rescale(lowering, value, quant.scale[0] / params.scale[0] * 2**bits, I16, f"{name}:int16.{index}")
        if isinstance(term, Declined):
            return term
        terms.append(term)
    if node.op.name == "add":
        return (lowering.g.add(AddShift(shift=bits, out_dtype=params.dtype), *terms, name=name),)
    if params.dtype.is_signed:
        return (lowering.g.add(SubShift(shift=bits, out_dtype=params.dtype), *terms, name=name),)
    # The subtraction has no unsigned result: a cast saturates afterwards.
    signed = lowering.g.add(SubShift(shift=bits, out_dtype=I16), *terms, name=f"{name}:int16")
    return (lowering.g.add(Cast(out_dtype=params.dtype), signed, name=name),)


@lowers("mul", chips=CHIP)
def mul(node: Node, lowering: Lowering) -> Lowered:
    """Multiply exactly in 16 bits, then rescale by a multiplication with a rounding shift."""
    name, params = node.outputs[0].name, result_params(node)
    a, b = (lowering.quantized_value(value) for value in operands(node))
    if any(quant.zero_point != (0,) for quant in (params_of(a), params_of(b), params)):
        return Declined("zero points are not 0, which symmetric arithmetic needs")
    if any(quant.dtype.bits != 8 for quant in (params_of(a), params_of(b))):
        return Declined("an operand has more than 8 bits")
    unsigned = not a.dtype.is_signed and not b.dtype.is_signed
    exact = lowering.g.add(Mul(out_dtype=U16 if unsigned else I16), a, b, name=f"{name}:int16")
    factor = params_of(a).scale[0] * params_of(b).scale[0] / params.scale[0]
    signed_result = unsigned or params.dtype is I8
    result = _rescale(lowering, exact, factor, params.dtype if signed_result else I16, name)
    if isinstance(result, Declined):
        return result
    # The multiplication of signed 16-bit operands has no unsigned result: a cast saturates afterwards.
    if not signed_result:
        result = lowering.g.add(Cast(out_dtype=params.dtype), result, name=f"{name}:saturated")
    return (result,)


def _rescale(lowering: Lowering, x: Value, factor: float, dtype: DType, name: str) -> Value | Declined:
    """Multiply integers by a factor that is rounded to 8 significant bits."""
    fraction, exponent = math.frexp(factor)
    multiplier = round(fraction * 256)
    if multiplier == 256:
        multiplier, exponent = 128, exponent + 1
    shift = 8 - exponent
    if not 0 <= shift <= 31:
        return Declined("the scales of operands and result are too far apart")
    return lowering.g.add(MulsShift(scalar=Scalar(U8, multiplier), shift=shift, out_dtype=dtype), x, name=name)
