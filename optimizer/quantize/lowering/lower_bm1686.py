"""Lowerings for BM1686: linear operators with zero points and INT32 results, then per-channel requantization."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from tpuconvert.optimizer.engine.node_properties import operand, operands
from tpuconvert.optimizer.quantize.lowering.exact_sums import exact_sum
from tpuconvert.optimizer.quantize.lowering.lower_shared import (
    average_then_rescale,
    geometry,
    global_average,
    lower_maximum,
    result_params,
    sum_windows,
    unary,
)
from tpuconvert.optimizer.quantize.lowering.lower_wide import (
    lower_wide_function,
    lower_wide_linear,
    lower_wide_maximum,
    lower_wide_product,
    lower_wide_sum,
)
from tpuconvert.optimizer.quantize.lowering.lowering import (
    ONNX,
    Declined,
    Lowered,
    Lowering,
    Product,
    int32_params,
    lowers,
    params_of,
    ratios,
    with_quant,
)
from tpuconvert.optimizer.quantize.lowering.prelu import lower_prelu
from tpuconvert.optimizer.quantize.traits import (
    has_constant_weight,
    is_average_pool,
    whole_window,
    why_no_runtime_product,
)
from tpuconvert.optimizer.quantize.weights.weights import integer_weights
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.arithmetic import Mul
from tpuconvert.schema.ops.convolution.conv3d import Conv3d
from tpuconvert.schema.ops.convolution.conv3d_v2 import Conv3dV2
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.convolution.convolution_params import ConvolutionGeometry
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.global_average_int import AverageForm, average_pool
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.pool_int import PoolInt
from tpuconvert.schema.ops.softmax_int import SoftmaxInt
from tpuconvert.schema.types import I16, I32, U16, Chip

CHIP = (Chip.BM1686,)
_SUM_SHIFT = {8: 20, 16: 15}
"""Fraction bits of the common scale of a sum, by operand width: 2^20 * 2 * 255 and 2^15 * 2 * 2^15 are below 2^31."""


@lowers("conv", "deconv", chips=CHIP)
def convolution(node: Node, lowering: Lowering) -> Lowered:
    """Lower to conv_v2 or deconv_v2, then per-channel requant_int32."""
    kind = ConvV2 if node.op.name == "conv" else DeconvV2
    return _lower_linear(node, lowering, kind(**geometry(node.op)), "izp", "kzp")


@lowers("conv3d", chips=CHIP)
def volume_convolution(node: Node, lowering: Lowering) -> Lowered:
    """Lower to conv3d_v2, then per-channel requant_int32."""
    assert isinstance(node.op, Conv3d)
    return _lower_linear(node, lowering, Conv3dV2(**_volume_geometry(node.op.geometry)), "izp", "kzp")


def _volume_geometry(window: ConvolutionGeometry) -> dict[str, Any]:
    """Return the attributes of a conv3d_v2."""
    attributes: dict[str, Any] = {"groups": window.groups}
    for axis, dilation, stride, pads in zip("thw", window.dilations, window.strides, window.pads, strict=True):
        attributes |= {f"d{axis}": dilation, f"stride_{axis}": stride}
        attributes |= {f"pad_{axis}_{side}": pad for side, pad in enumerate(pads)}
    return attributes


def _zero_points(name: str, zeros: tuple[int, ...]) -> dict[str, Any]:
    """Return the attributes for one zero point, or for one per channel."""
    if len(set(zeros)) == 1:
        return {f"{name}_val": zeros[0]}
    return {f"is_{name}_const": False, f"{name}_vec": zeros}


@lowers("matrix_mul", chips=CHIP)
def matrix_product(node: Node, lowering: Lowering) -> Lowered:
    """Lower to matrix_mul_v2, then requant_int32: per column, or per tensor for two computed operands."""
    if not has_constant_weight(node):
        return runtime_product(node, lowering)
    return _lower_linear(node, lowering, MatrixMulV2(), "lzp", "rzp")


@lowers("batch_matmul", chips=CHIP)
def runtime_product(node: Node, lowering: Lowering) -> Lowered:
    """Lower a matmul of two computed operands. Leading axes become batches of matrix_mul_v2, a transpose a flag."""
    if lowering.rescale not in ("", ONNX):
        return Declined("the source does not specify the rounding of a matmul of two computed operands")
    if reason := why_no_runtime_product(node, lowering.chip):
        return Declined(reason)
    values = [lowering.quantized_value(value) for value in operands(node)]
    left, right = map(params_of, values)
    if any(params.dtype.bits != 8 or len(params.scale) > 1 for params in (left, right)):
        return Declined("its operands do not have 8 bits and one scale each")
    attributes = node.op.attributes()
    op = MatrixMulV2(
        is_left_trans=bool(attributes.get("left_transpose", False)),
        is_right_trans=bool(attributes.get("right_transpose", False)),
        lzp_val=left.zero_point[0],
        rzp_val=right.zero_point[0],
    )
    name, params = node.outputs[0].name, result_params(node)
    unit = left.scale[0] * right.scale[0]
    accumulator = with_quant(lowering.g.add(op, *values, name=f"{name}:int32"), int32_params([unit]))
    return (lowering.requantize_product(accumulator, (unit,), params, name),)


def _lower_linear(
    node: Node, lowering: Lowering, op: ConvV2 | Conv3dV2 | DeconvV2 | MatrixMulV2, x_zero: str, w_zero: str
) -> Lowered:
    """Lower to ``op`` with zero points and bias, then requant_int32."""
    x, w, *biases = operands(node)
    own = params_of(x)
    if node.name in lowering.plan.readers:
        return lower_wide_linear(node, lowering, op, x_zero)
    if own.dtype.bits != 8:
        return Declined("its operand is not quantized to 8 bits")
    weights = integer_weights(node, per_channel=node.name not in lowering.per_tensor)
    if weights is None:
        return Declined("its weights are computed while the model runs")
    # Zero points per channel are part of the bias.
    own_zero = own.zero_point[0] if weights.shift is None else 0
    zero_points = {f"{x_zero}_val": own_zero, **_zero_points(w_zero, weights.params.zero_point)}
    op = dataclasses.replace(op, has_bias=bool(biases), **zero_points)
    name, params = node.outputs[0].name, result_params(node)
    inputs = [lowering.quantized_value(x), lowering.g.constant(weights.stored, w.name, weights.params)]
    shape = (-1,) if isinstance(op, MatrixMulV2) else (1, -1, *(1,) * (w.rank - 2))
    inputs += [lowering.g.constant(weights.integer_bias(bias).reshape(shape), bias.name) for bias in biases]
    accumulator = lowering.g.add(op, *inputs, name=f"{name}:int32")
    lowering.products[accumulator] = Product(name, weights.unrounded)
    accumulator.quant = int32_params(weights.units)
    # TFLite's reference kernels round a convolution twice and a fully connected layer once.
    twice = lowering.rescale == "tflite" and not isinstance(op, MatrixMulV2)
    return (lowering.requantize_product(accumulator, weights.units, params, name, twice=twice),)


@lowers(Trait.LUT, chips=CHIP)
def function(node: Node, lowering: Lowering) -> Lowered:
    """Lower to a clamp of integers or a lookup table; for 16 bits, to the float form of the function."""
    lowered = unary(node, lowering)
    if isinstance(lowered, Declined) and node.name in lowering.plan.readers:
        return lower_wide_function(node, lowering)
    return lowered


@lowers("pool", chips=CHIP)
def pool(node: Node, lowering: Lowering) -> Lowered:
    """Lower max pooling at the same scale. For averages of whole windows, the divisor includes the change of scale.

    If there are zero points or the result has more bits, the exact sums of the windows are requantized instead: two
    roundings, the first at the scale of the operand, would lose what an average gains.
    """
    if not is_average_pool(node.op):
        is_wide = not lowering.rescale and result_params(node).dtype is I16
        return (lower_wide_maximum if is_wide else lower_maximum)(node, lowering)
    own, params, window = params_of(node.inputs[0]), result_params(node), whole_window(node)
    assert isinstance(node.op, Pool)
    symmetric = not any((*own.zero_point, *params.zero_point))
    same = params == own
    grows = own.dtype.bits == 8 and params.dtype is I16
    if window is not None and not same and (grows or not symmetric) and not lowering.rescale:
        total = sum_windows(node, lowering, ConvV2(izp_val=own.zero_point[0]), window, f"{node.name}:int32")
        factors = ratios(own.scale, [params.scale[0] * math.prod(window)])
        return (lowering.requantize(total, factors, params, node.name),)
    if window is None and node.op.is_global_pooling and not same and not lowering.rescale:
        form = AverageForm.SUMS if grows or not symmetric else AverageForm.POOL
        return (global_average(node, lowering, form),)
    if window is None or (not same and not (symmetric and params.dtype == own.dtype)):
        return average_then_rescale(node, lowering)
    strides = node.op.stride_h, node.op.stride_w
    if same:
        op = PoolInt(
            stride_h=strides[0], stride_w=strides[1], kernel_h=window[0], kernel_w=window[1], is_avg_pooling=True
        )
    else:
        # All channels share one divisor. Their ratio of result scale to operand scale is the same.
        try:
            op = average_pool(max(own.scale) / (max(params.scale) * window[0] * window[1]), *window, strides)
        except ValueError:
            return Declined("the scales of operand and result are too far apart")
    return (lowering.g.add(op, lowering.quantized_value(operand(node)), name=node.name),)


@lowers("add", "sub", chips=CHIP)
def add(node: Node, lowering: Lowering) -> Lowered:
    """Rescale both operands to INT32 with a common fine scale, add them, and requantize the result.

    For a quantized source the common scale is 2 * max(s1, s2) / 2^20, exactly as in TFLite's reference. For
    calibrated scales ``exact_sums`` needs fewer operators and rounds less often. An add that is part of a PReLU is
    lowered by ``prelu``.
    """
    if not lowering.rescale:
        return lower_prelu(node, lowering) or (lower_wide_sum if _has_16_bits(node) else exact_sum)(node, lowering)
    name, params = node.outputs[0].name, result_params(node)
    values = [lowering.quantized_value(value) for value in operands(node)]
    bits = max(value.dtype.bits for value in values)
    if bits not in _SUM_SHIFT:
        return Declined(f"an operand has {bits} bits")
    shift = _SUM_SHIFT[bits]
    scales = [params_of(value).scale for value in values]
    twice = 2 * max(map(max, scales))
    terms = []
    for index, (value, own) in enumerate(zip(values, scales, strict=True)):
        wide = lowering.widen(value, shift, f"{name}:operand{index}")
        terms.append(lowering.scale_int32(wide, ratios(own, (twice,)), f"{name}:scaled{index}"))
    unit = twice / 2**shift
    total = with_quant(lowering.g.add(node.op, *terms, name=f"{name}:int32"), int32_params([unit]))
    return (lowering.requantize(total, ratios((unit,), params.scale), params, name),)


@lowers("mul", chips=CHIP)
def mul(node: Node, lowering: Lowering) -> Lowered:
    """Multiply the integers exactly, in 16 bits without zero points or in 32 bits with them, then rescale."""
    if not lowering.rescale and _has_16_bits(node):
        return lower_wide_product(node, lowering)
    name, params = node.outputs[0].name, result_params(node)
    a, b = (lowering.quantized_value(value) for value in operands(node))
    factor = params_of(a).scale[0] * params_of(b).scale[0] / params.scale[0]
    if params_of(a).zero_point == params_of(b).zero_point == (0,) and not lowering.rescale:
        unsigned = not a.dtype.is_signed and not b.dtype.is_signed
        product = lowering.g.add(Mul(out_dtype=U16 if unsigned else I16), a, b, name=f"{name}:int16")
    else:
        wide = [lowering.widen(value, 0, f"{name}:operand{index}") for index, value in enumerate((a, b))]
        product = lowering.g.add(Mul(out_dtype=I32), *wide, name=f"{name}:int32")
    return (lowering.requantize(product, [factor], params, name),)


def _has_16_bits(node: Node) -> bool:
    """Return True if an operand has 16 bits."""
    return any(value.quant is not None and value.quant.dtype.bits == 16 for value in operands(node))


@lowers("softmax", chips=CHIP)
def softmax(node: Node, lowering: Lowering) -> Lowered:
    """Lower to softmax_int over axis 1 with the parameters of a quantized source."""
    x, params = operand(node), result_params(node)
    own = params_of(x)
    if x.rank not in (2, 4) or node.op.attributes()["axis"] % x.rank != 1:
        return Declined("softmax_int works on axis 1 of two or four axes")
    if params.dtype != own.dtype or params.dtype.bits != 8:
        return Declined("softmax_int needs one integer type of 8 bits")
    table = tuple(float(np.float32(math.exp(-step * own.scale[0]))) for step in range(256))
    op = SoftmaxInt(table=table, scale=float(np.float32(1.0 / params.scale[0])), zero_point=params.zero_point[0])
    return (lowering.g.add(op, lowering.quantized_value(x), name=node.outputs[0].name),)
