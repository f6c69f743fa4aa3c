"""Lowerings for BM1686: linear operators with zero points and INT32 results, then per-channel requantization."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.quantize.exact_sums import exact_sum
from tpuconvert.optimizer.quantize.lower_shared import (
    average_then_rescale,
    geometry,
    names_of,
    result_params,
    with_params,
)
from tpuconvert.optimizer.quantize.lowering import ONNX, Declined, Lowered, Lowering, Product, lowers, ratios
from tpuconvert.optimizer.quantize.prelu import lower_prelu
from tpuconvert.optimizer.quantize.traits import (
    has_constant_weight,
    is_average_pool,
    whole_window,
    why_no_runtime_product,
)
from tpuconvert.optimizer.quantize.weights import IntegerWeights, integer_weights, quantize_bias
from tpuconvert.schema.fixed_point import multiplier_shift
from tpuconvert.schema.graph import Node
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.arithmetic import Mul
from tpuconvert.schema.ops.conv3d import Conv3d
from tpuconvert.schema.ops.conv3d_v2 import Conv3dV2
from tpuconvert.schema.ops.conv_v2 import ConvV2
from tpuconvert.schema.ops.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.pool_int import PoolInt, PoolQuantMode
from tpuconvert.schema.ops.softmax_int import SoftmaxInt
from tpuconvert.schema.types import I16, I32, U16, Chip, QuantParams

CHIP = (Chip.BM1686,)
_SUM_SHIFT = {8: 20, 16: 15}
"""Fraction bits of a sum of two operands, by their width: 2^20 * 2 * 255 and 2^15 * 2 * 2^15 stay below 2^31."""


@lowers("conv", "deconv", chips=CHIP)
def convolution(node: Node, lowering: Lowering) -> Lowered:
    """Lower to conv_v2 or deconv_v2, then per-channel requant_int32."""
    weights = _weights(node)
    if isinstance(weights, Declined):
        return weights
    zeros = weights.params.zero_point
    one_zero = len(set(zeros)) == 1
    kind = ConvV2 if node.op.name == "conv" else DeconvV2
    op = kind(
        **geometry(node.op),
        has_bias=_has_bias(node),
        izp_val=_operand_params(node).zero_point[0],
        is_kzp_const=one_zero,
        kzp_val=zeros[0] if one_zero else 0,
        kzp_vec=() if one_zero else zeros,
    )
    return _product(node, lowering, op, weights)


@lowers("conv3d", chips=CHIP)
def volume_convolution(node: Node, lowering: Lowering) -> Lowered:
    """Lower to conv3d_v2, then per-channel requant_int32."""
    weights = _weights(node)
    if isinstance(weights, Declined):
        return weights
    assert isinstance(node.op, Conv3d)
    zeros = weights.params.zero_point
    one_zero = len(set(zeros)) == 1
    found = node.op.geometry
    (dt, dh, dw), (stride_t, stride_h, stride_w) = found.dilations, found.strides
    (front, back), (top, bottom), (left, right) = found.pads
    op = Conv3dV2(
        dt=dt,
        dh=dh,
        dw=dw,
        pad_t_0=front,
        pad_t_1=back,
        pad_h_0=top,
        pad_h_1=bottom,
        pad_w_0=left,
        pad_w_1=right,
        stride_t=stride_t,
        stride_h=stride_h,
        stride_w=stride_w,
        groups=found.groups,
        has_bias=_has_bias(node),
        izp_val=_operand_params(node).zero_point[0],
        is_kzp_const=one_zero,
        kzp_val=zeros[0] if one_zero else 0,
        kzp_vec=() if one_zero else zeros,
    )
    return _product(node, lowering, op, weights)


@lowers("matrix_mul", chips=CHIP)
def matrix_product(node: Node, lowering: Lowering) -> Lowered:
    """Lower to matrix_mul_v2, then requant_int32: per column, or per tensor for two computed operands."""
    if not has_constant_weight(node):
        return runtime_product(node, lowering)
    weights = _weights(node)
    if isinstance(weights, Declined):
        return weights
    zeros = weights.params.zero_point
    one_zero = len(set(zeros)) == 1
    op = MatrixMulV2(
        has_bias=_has_bias(node),
        lzp_val=_operand_params(node).zero_point[0],
        is_rzp_const=one_zero,
        rzp_val=zeros[0] if one_zero else 0,
        rzp_vec=() if one_zero else zeros,
    )
    return _product(node, lowering, op, weights)


@lowers("batch_matmul", chips=CHIP)
def runtime_product(node: Node, lowering: Lowering) -> Lowered:
    """Lower a matmul of two computed operands: the leading axes are batches of matrix_mul_v2, a transpose is a flag."""
    if lowering.rescale not in ("", ONNX):
        return Declined("how the source rounds a product of two activations is not stated")
    reason = why_no_runtime_product(node, lowering.chip)
    if reason:
        return Declined(reason)
    left, right = (lowering.quantized(value) for value in node.inputs if value is not None)
    assert left.quant is not None and right.quant is not None
    if left.dtype.bits != 8 or right.dtype.bits != 8 or len(left.quant.scale) > 1 or len(right.quant.scale) > 1:
        return Declined("its operands do not have 8 bits and one scale each")
    attributes = node.op.attributes()
    op = MatrixMulV2(
        is_left_trans=bool(attributes.get("left_transpose", False)),
        is_right_trans=bool(attributes.get("right_transpose", False)),
        lzp_val=left.quant.zero_point[0],
        rzp_val=right.quant.zero_point[0],
    )
    name, params = node.outputs[0].name, result_params(node)
    accumulator = lowering.g.add(op, left, right, name=f"{name}:int32")
    unit = left.quant.scale[0] * right.quant.scale[0]
    accumulator.quant = QuantParams.per_tensor(unit, 0, I32)
    return (lowering.requantize_product(accumulator, (unit,), params, name),)


def _weights(node: Node) -> IntegerWeights | Declined:
    if _operand_params(node).dtype.bits != 8:
        return Declined("its operand is not quantized to 8 bits")
    return integer_weights(node, per_channel=True) or Declined("its weights are computed while the model runs")


def _has_bias(node: Node) -> bool:
    return len(node.inputs) > 2 and node.inputs[2] is not None


def _operand_params(node: Node) -> QuantParams:
    x = node.inputs[0]
    assert x is not None and x.quant is not None
    return x.quant


def _product(node: Node, lowering: Lowering, op: Op, weights: IntegerWeights) -> Lowered:
    x, w, *rest = node.inputs
    assert x is not None and w is not None
    name, params = node.outputs[0].name, result_params(node)
    inputs = [lowering.quantized(x), lowering.g.constant(weights.stored, w.name, weights.params)]
    for bias in filter(None, rest):
        integers = bias.stored if bias.stored is not None else quantize_bias(bias.array, weights.units)
        shape = (-1,) if isinstance(op, MatrixMulV2) else (1, -1, *(1,) * (w.rank - 2))
        inputs.append(lowering.g.constant(integers.reshape(shape), bias.name))
    accumulator = lowering.g.add(op, *inputs, name=f"{name}:int32")
    lowering.products[accumulator] = Product(name, weights.exact)
    accumulator.quant = QuantParams(
        weights.units, (0,) * len(weights.units), I32, axis=1 if len(weights.units) > 1 else None
    )
    # TFLite's reference kernels round a convolution twice and a fully connected layer once.
    twice = lowering.rescale == "tflite" and not isinstance(op, MatrixMulV2)
    return (lowering.requantize_product(accumulator, weights.units, params, name, twice=twice),)


@lowers("pool", chips=CHIP)
def pool(node: Node, lowering: Lowering) -> Lowered:
    """Maxima keep the scale. Averages of whole windows take the change of scale into the divisor."""
    (x,) = node.inputs
    assert x is not None and x.quant is not None and isinstance(node.op, Pool)
    params = result_params(node)
    if not is_average_pool(node.op):
        return with_params(lowering.moves(node.op, lowering.quantized(x, params), names=names_of(node)), params)
    window = whole_window(node)
    symmetric = not any((*x.quant.zero_point, *params.zero_point))
    same = params == x.quant
    if window is None or (not same and not (symmetric and params.dtype == x.quant.dtype)):
        return average_then_rescale(node, lowering)
    kernel_h, kernel_w = window
    scale, shift = 1, 0
    if not same:
        # All channels share one divisor, so the ratio of result to operand scale is the same for all of them.
        scale, exponent = multiplier_shift(max(x.quant.scale) / (max(params.scale) * kernel_h * kernel_w))
        shift = 31 - exponent
        if not 0 <= shift <= 63:
            return Declined("the scales of operand and result are too far apart")
    op = PoolInt(
        stride_h=node.op.stride_h,
        stride_w=node.op.stride_w,
        kernel_h=kernel_h,
        kernel_w=kernel_w,
        is_avg_pooling=True,
        quant_mode=PoolQuantMode.DIVIDE if same else PoolQuantMode.MULTIPLIER_SHIFT,
        scale=scale,
        rshift=shift,
    )
    return with_params((lowering.g.add(op, lowering.quantized(x), name=node.outputs[0].name),), params)


@lowers("add", "sub", chips=CHIP)
def add(node: Node, lowering: Lowering) -> Lowered:
    """Rescale both operands to INT32 with a common fine scale, add them, and requantize the result.

    For a quantized source the common scale is exactly that of TFLite's reference, 2 * max(s1, s2) / 2^20. For
    calibrated scales ``exact_sums`` needs fewer operators and rounds less, and a PReLU needs no add at all.
    """
    if not lowering.rescale:
        return lower_prelu(node, lowering) or exact_sum(node, lowering)
    name, params = node.outputs[0].name, result_params(node)
    values = [lowering.quantized(value) for value in node.inputs if value is not None]
    shift = _SUM_SHIFT[max(value.dtype.bits for value in values)]
    scales = [value.quant.scale for value in values if value.quant is not None]
    twice = 2 * max(map(max, scales))
    terms = []
    for index, (value, own) in enumerate(zip(values, scales, strict=True)):
        wide = lowering.widen(value, shift, f"{name}:operand{index}")
        terms.append(lowering.scale_int32(wide, ratios(own, (twice,)), f"{name}:scaled{index}"))
    total = lowering.g.add(node.op, *terms, name=f"{name}:int32")
    unit = twice / 2**shift
    total.quant = QuantParams.per_tensor(unit, 0, I32)
    return (lowering.requantize(total, ratios((unit,), params.scale), params, name),)


@lowers("mul", chips=CHIP)
def mul(node: Node, lowering: Lowering) -> Lowered:
    """The product of the integers, exact in 16 bits without zero points and in 32 bits with them, then a rescale."""
    name, params = node.outputs[0].name, result_params(node)
    a, b = (lowering.quantized(value) for value in node.inputs if value is not None)
    assert a.quant is not None and b.quant is not None
    factor = a.quant.scale[0] * b.quant.scale[0] / params.scale[0]
    if a.quant.zero_point == b.quant.zero_point == (0,) and not lowering.rescale:
        unsigned = not a.dtype.is_signed and not b.dtype.is_signed
        product = lowering.g.add(Mul(out_dtype=U16 if unsigned else I16), a, b, name=f"{name}:int16")
    else:
        wide = [lowering.widen(value, 0, f"{name}:operand{index}") for index, value in enumerate((a, b))]
        product = lowering.g.add(Mul(out_dtype=I32), *wide, name=f"{name}:int32")
    return (lowering.requantize(product, [factor], params, name),)


@lowers("softmax", chips=CHIP)
def softmax(node: Node, lowering: Lowering) -> Lowered:
    """softmax_int over axis 1, as a quantized source states it."""
    (x,) = node.inputs
    params = result_params(node)
    assert x is not None and x.quant is not None
    if x.rank not in (2, 4) or node.op.attributes()["axis"] % x.rank != 1:
        return Declined("softmax_int works on axis 1 of two or four axes")
    if params.dtype != x.quant.dtype or params.dtype.bits != 8:
        return Declined("softmax_int needs one integer type of 8 bits")
    steps = np.arange(256, dtype=np.float64)
    table = tuple(float(np.float32(math.exp(-step * x.quant.scale[0]))) for step in steps)
    op = SoftmaxInt(table=table, scale=float(np.float32(1.0 / params.scale[0])), zero_point=params.zero_point[0])
    return (lowering.g.add(op, lowering.quantized(x), name=node.outputs[0].name),)
