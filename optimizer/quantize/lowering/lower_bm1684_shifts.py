"""Lowerings for BM1684 in the forms of the vendor's compiler (mode ``shifts_only`` of ``quantize``).

Linear operators have one right shift per layer and an INT16 bias; averages, sums and products have 7-bit multipliers
and a right shift. All results have 8 bits and zero point 0.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tpuconvert.optimizer.engine.node_properties import operand, operands
from tpuconvert.optimizer.quantize.lowering.lower_shared import geometry, lower_maximum, result_params
from tpuconvert.optimizer.quantize.lowering.lowering import Declined, Lowered, Lowering, Product, lowers, params_of
from tpuconvert.optimizer.quantize.traits import is_average_pool, whole_window
from tpuconvert.optimizer.quantize.weights.weights import shift_weights
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.convolution.conv import Conv, QCalMode
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.shifts.shift_arithmetic import MulsShift
from tpuconvert.schema.types import I8, I16, Chip, DType, Scalar

CHIP = (Chip.BM1684,)
SHIFT_MODE = QCalMode.LowPrecisionSymmetric
"""Calculation mode whose result is the rounded right shift of the accumulator if the scale is a power of two."""

_MOST_SHIFT = 31


@lowers("conv", "matrix_mul", chips=CHIP, shifts_only=True)
def product(node: Node, lowering: Lowering) -> Lowered:
    """Lower to conv or matrix_mul with a power of two as scale, and an INT16 bias."""
    x, w, *biases = operands(node)
    own, params = params_of(x), result_params(node)
    if own.dtype.bits != 8 or params.dtype.bits != 8:
        return Declined("its operand and result do not have 8 bits")
    if not w.is_constant:
        return Declined("its weights are computed while the model runs")
    if w.stored is not None:
        return Declined("the scales of the source are not powers of two")
    shifted = shift_weights(node, params.scale[0])
    if shifted is None:
        return Declined("its bias does not fit 16 bits at any right shift")
    weights, shift = shifted
    columns = w.array.shape[1 if isinstance(node.op, MatrixMul) else 0]
    inputs = [lowering.quantized_value(x), lowering.g.constant(weights.stored, w.name, weights.params)]
    if biases:
        inputs.append(lowering.g.constant(weights.integer_bias(biases[0], I16), biases[0].name))
    else:
        shape = (1, columns) if isinstance(node.op, MatrixMul) else (1, columns, 1, 1)
        inputs.append(lowering.g.constant(np.zeros(shape, np.int16), f"{node.name}:bias"))
    op: Op = MatrixMul() if isinstance(node.op, MatrixMul) else Conv(**geometry(node.op))
    op = dataclasses.replace(op, scale=2.0**-shift, mode=SHIFT_MODE, out_dtype=params.dtype)
    y = lowering.g.add(op, *inputs, name=node.name)
    lowering.products[y] = Product(node.name, weights.unrounded)
    return (y,)


@lowers("pool", chips=CHIP, shifts_only=True)
def pool(node: Node, lowering: Lowering) -> Lowered:
    """Lower max pooling at the same scale. Averages of whole windows become a depthwise conv with equal weights."""
    if not is_average_pool(node.op):
        return lower_maximum(node, lowering)
    x, params, window = operand(node), result_params(node), whole_window(node)
    if window is None:
        return Declined("the vendor's compiler has no exact average over windows that are cut at the border")
    factor = seven_bits(params_of(x).scale[0] / (params.scale[0] * window[0] * window[1]))
    if factor is None:
        return Declined("the scales of operand and result are too far apart")
    multiplier, shift = factor
    channels, op = x.shape[1], node.op
    assert isinstance(channels, int) and isinstance(op, Pool)
    strides = (1, 1) if op.is_global_pooling else (op.stride_h, op.stride_w)
    conv = Conv(
        stride_h=strides[0],
        stride_w=strides[1],
        groups=channels,
        scale=2.0**-shift,
        mode=SHIFT_MODE,
        out_dtype=params.dtype,
    )
    weights = lowering.g.constant(np.full((channels, 1, *window), multiplier, np.int8), f"{node.name}:weights")
    bias = lowering.g.constant(np.zeros((1, channels, 1, 1), np.int16), f"{node.name}:bias")
    return (lowering.g.add(conv, lowering.quantized_value(x), weights, bias, name=node.name),)


@lowers("add", "sub", chips=CHIP, shifts_only=True)
def add(node: Node, lowering: Lowering) -> Lowered:
    """Rescale both operands to the scale of the result, each with one rounding, then add them."""
    name, params = node.outputs[0].name, result_params(node)
    terms = []
    for index, value in enumerate(operands(node)):
        integer = lowering.quantized_value(value)
        factor = params_of(integer).scale[0] / params.scale[0]
        term = _rescale(lowering, integer, factor, I16, f"{name}:int16.{index}")
        if isinstance(term, Declined):
            return term
        terms.append(term)
    kind = Add if node.op.name == "add" else Sub
    return (lowering.g.add(kind(out_dtype=params.dtype), *terms, name=name),)


@lowers("mul", chips=CHIP, shifts_only=True)
def mul(node: Node, lowering: Lowering) -> Lowered:
    """Multiply exactly in 16 bits, then rescale."""
    name, params = node.outputs[0].name, result_params(node)
    a, b = (lowering.quantized_value(value) for value in operands(node))
    if params.dtype is not I8 or not (a.dtype.is_signed or b.dtype.is_signed):
        return Declined("a product of tensors has an exact form only for a signed operand and a signed result")
    exact = lowering.g.add(Mul(out_dtype=I16), a, b, name=f"{name}:int16")
    factor = params_of(a).scale[0] * params_of(b).scale[0] / params.scale[0]
    result = _rescale(lowering, exact, factor, params.dtype, name)
    return result if isinstance(result, Declined) else (result,)


def _rescale(lowering: Lowering, x: Value, factor: float, dtype: DType, name: str) -> Value | Declined:
    """Multiply integers by a factor that is rounded to 7 significant bits."""
    factor_and_shift = seven_bits(factor)
    if factor_and_shift is None:
        return Declined("the scales of operands and result are too far apart")
    multiplier, shift = factor_and_shift
    return lowering.g.add(MulsShift(scalar=Scalar(I8, multiplier), shift=shift, out_dtype=dtype), x, name=name)


def seven_bits(factor: float) -> tuple[int, int] | None:
    """Return the multiplier in 64..127 and right shift nearest to a factor; None if the shift is not in 0..31."""
    fraction, exponent = math.frexp(factor)
    multiplier = round(fraction * 128)
    if multiplier == 128:
        multiplier, exponent = 64, exponent + 1
    shift = 7 - exponent
    return (multiplier, shift) if 0 <= shift <= _MOST_SHIFT else None
