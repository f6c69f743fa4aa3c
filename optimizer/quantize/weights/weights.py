"""Quantization of weights and biases.

Weights are symmetric INT8: scale = max|w| / 127 per output channel, or one per tensor if the chip has only one
multiplier per layer. Biases are INT32 with scale s_x * s_w, so that they can be added to the accumulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tpuconvert.optimizer.engine.node_properties import operand, operands
from tpuconvert.schema.arithmetic.fixed_point import rhaz, saturate
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv3d import Conv3d
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import I8, I32, Array, DType, QuantParams

_BIAS_LIMIT = 2.0**30
"""Limit of a quantized bias: half of the INT32 range. The other half is for the accumulator without bias."""

_SHORT_BIAS_LIMIT = 30000
"""Limit of a quantized INT16 bias. The rest of the range is for the bias correction of the refinement."""

_MOST_SHIFT = 31
"""Largest right shift of a linear operator on BM1684."""


def weight_params(weights: Array, axis: int | None, bias: Array | None, input_scale: float) -> QuantParams:
    """Quantization parameters of a weight tensor.

    Args:
        weights: float weights, any shape.
        axis: output-channel axis for per-channel scales, or None for one scale.
        bias: float biases, one per output channel, or None. If the weights of a channel are almost zero, the scale of
            its bias would be so small that the bias overflows INT32; the scale of the weights is then increased until
            the bias fits.
        input_scale: scale of the activation operand.
    """
    others = None if axis is None else tuple(index for index in range(weights.ndim) if index != axis)
    largest = np.maximum(weights.max(axis=others, initial=0.0), -weights.min(axis=others, initial=0.0))
    largest = largest.astype(np.float64)
    scale = np.atleast_1d(largest) / 127.0
    if bias is not None:
        need = np.abs(bias.astype(np.float64).reshape(-1)) / (input_scale * _BIAS_LIMIT)
        scale = np.maximum(scale, need if axis is not None else need.max(initial=0.0))
    # Channels with smaller scales contain only zeros, which any scale represents.
    scale = np.where(scale > np.finfo(np.float32).tiny, scale, 1.0)
    rounded = scale.astype(np.float32)
    return QuantParams(tuple(float(item) for item in rounded), (0,) * rounded.size, I8, axis)


@dataclass(frozen=True)
class IntegerWeights:
    """Integer weights of a linear operator.

    Args:
        stored: integers in the layout of the operator.
        params: their quantization parameters, relative to ``input_scale``.
        input_scale: scale of the activation operand. If it has per-channel scales, this is their maximum, and the
            ratios to it are folded into the weights.
        unrounded: computes the weights divided by their scales, before rounding. They are not stored, because the
            values of all operators would take twice the memory of the float weights.
        shift: added to the float bias: the effect of the zero points, if the operand has one per channel.
    """

    stored: Array
    params: QuantParams
    input_scale: float
    unrounded: Callable[[], Array]
    shift: Array | None = None

    @property
    def units(self) -> tuple[float, ...]:
        """Scale of the accumulator: one per output channel, or one per tensor."""
        return tuple(self.input_scale * scale for scale in self.params.scale)

    def integer_bias(self, bias: Value, dtype: DType = I32) -> Array:
        """Return the bias: the integers of the source file, or quantized floats."""
        if bias.stored is not None:
            return bias.stored
        return quantize_bias(_shifted(bias.array, self.shift), self.units, dtype)


def integer_weights(node: Node, per_channel: bool, one_multiplier: bool = False) -> IntegerWeights | None:
    """Return integer weights: the weights of the source file, or floats quantized for the scale of the activation.

    If the result has per-channel scales, but only one multiplier applies to the accumulator, the weights of an output
    channel are divided by the ratio of its scale to the largest one. Their per-channel scales are multiples of it.

    Args:
        node: conv, deconv or matrix_mul of an annotated graph.
        per_channel: use per-channel instead of per-tensor scales.
        one_multiplier: whether all output channels are requantized by one multiplier.

    Returns:
        The weights; None if they are not constant.
    """
    x, w, *biases = operands(node)
    assert x.quant is not None
    if not w.is_constant:
        return None
    if w.quant is not None and w.stored is not None:
        stored = w.stored
        return IntegerWeights(stored, w.quant, x.quant.scale[0], lambda: stored)
    scales = np.asarray(x.quant.scale)
    input_scale = float(np.float32(scales.max()))
    factors = None if x.quant.axis is None else along_inputs(node, w.array, scales / input_scale)
    result = node.outputs[0].quant
    ratios: Array | None = None
    shift = _effect_of_zero_points(node, w.array)
    bias = _shifted(biases[0].array, shift) if biases else None
    if one_multiplier and result is not None and result.axis is not None:
        ratios = np.asarray(result.scale) / max(result.scale)
        bias = None if bias is None else bias.reshape(-1) / ratios
    axis = output_channel_axis(node)

    def scaled() -> Array:
        weights = w.array.astype(np.float64)
        return weights if factors is None else weights * factors

    weights = scaled()
    if ratios is not None:
        shape = [-1 if index == axis else 1 for index in range(weights.ndim)]
        params = weight_params(weights / ratios.reshape(shape), None, bias, input_scale)
        each = tuple(float(params.scale[0] * ratio) for ratio in ratios)
        params = QuantParams(each, (0,) * len(each), I8, axis)
    else:
        params = weight_params(weights, axis if per_channel else None, bias, input_scale)
    units = _along_outputs(weights, params)
    return IntegerWeights(quantize_weights(weights, params), params, input_scale, lambda: scaled() / units, shift)


def _effect_of_zero_points(node: Node, weights: Array) -> Array | None:
    """Result of a linear operator for the values that the zero points per channel of its operand represent, or None.

    The exact weights are used: the error of the integer weights is then multiplied by values around 0.
    """
    x = operand(node)
    assert x.quant is not None
    if x.quant.axis is None or not any(x.quant.zero_point):
        return None
    axis = output_channel_axis(node)
    values = along_inputs(node, weights, -np.asarray(x.quant.zero_point, np.float64) * np.asarray(x.quant.scale))
    others = tuple(index for index in range(weights.ndim) if index != axis)
    effect: Array = np.sum(weights.astype(np.float64) * values, axis=others)
    return effect


def _shifted(bias: Array, shift: Array | None) -> Array:
    """Return a float bias plus the effect of zero points."""
    return bias if shift is None else bias.astype(np.float64) + shift.reshape(bias.shape)


def shift_weights(node: Node, result_scale: float) -> tuple[IntegerWeights, int] | None:
    """Return weights whose scale makes the requantization a right shift, and the shift.

    The scale of the weights is ``result_scale * 2^-shift / input scale``. Of the shifts for which the bias fits INT16,
    the one with the smallest squared error of the weights is chosen; this can saturate a few large weights.

    Args:
        node: conv or matrix_mul of an annotated graph, with constant float weights and per-tensor scales.
        result_scale: scale of the result.

    Returns:
        Weights and shift; None if no shift fits.
    """
    x, w, *biases = operands(node)
    assert x.quant is not None
    weights, input_scale = w.array.astype(np.float64), x.quant.scale[0]
    largest_bias = max((float(np.abs(bias.array).max(initial=0.0)) for bias in biases), default=0.0)
    best: tuple[float, IntegerWeights, int] | None = None
    for shift in range(_MOST_SHIFT + 1):
        scale = float(np.float32(result_scale * 2.0**-shift / input_scale))
        if scale < np.finfo(np.float32).tiny or largest_bias > _SHORT_BIAS_LIMIT * input_scale * scale:
            break
        params = QuantParams.per_tensor(scale, 0, I8)
        stored = quantize_weights(weights, params)
        error = float(np.square(weights - stored.astype(np.float64) * scale).sum())
        if best is None or error < best[0]:
            best = error, IntegerWeights(stored, params, input_scale, partial(_divide, w, scale)), shift
    return None if best is None else best[1:]


def _divide(weights: Value, scale: float) -> Array:
    quotients: Array = weights.array.astype(np.float64) / scale
    return quotients


def along_inputs(node: Node, weights: Array, factors: Array) -> Array:
    """Return the factors of the input channels, in a shape that broadcasts with the weights."""
    if isinstance(node.op, (Conv, Conv3d)):
        # Depthwise weights are [C * m, 1, kh, kw]: the m output channels of an input channel are adjacent.
        depthwise, spatial = node.op.groups > 1, (1,) * (weights.ndim - 2)
        shape = (-1, 1, *spatial) if depthwise else (1, -1, *spatial)
        along: Array = np.repeat(factors, weights.shape[0] // factors.size if depthwise else 1).reshape(shape)
        return along
    rows: Array = np.reshape(factors, (-1,) + (1,) * (weights.ndim - 1))
    return rows


def _along_outputs(weights: Array, params: QuantParams) -> Array:
    """Return the scales in a shape that broadcasts with the weights."""
    return np.reshape(params.scale, [-1 if axis == params.axis else 1 for axis in range(weights.ndim)])


def output_channel_axis(node: Node) -> int | None:
    """Axis of the output channels of a constant weight; None if groups spread them over two axes."""
    if isinstance(node.op, MatrixMul):
        return 1
    if isinstance(node.op, (Conv, Conv3d)):
        return 0
    assert isinstance(node.op, Deconv)
    if node.op.groups == 1:
        return 1
    weight = node.inputs[1]
    depthwise = weight is not None and weight.shape[0] == node.op.groups and weight.shape[1] == 1
    return 0 if depthwise else None


def quantize_weights(weights: Array, params: QuantParams) -> Array:
    """Round to nearest and clip to -127..127, so that the range is symmetric."""
    quantized: Array = np.maximum(params.quantize(weights), np.int8(-127))
    return quantized


def quantize_bias(bias: Array, units: tuple[float, ...], dtype: DType = I32) -> Array:
    """Quantize biases with the scale of the accumulator: ties round away from zero, saturated.

    Args:
        bias: float biases, one per output channel in any shape.
        units: one scale of the accumulator, or one per output channel.
        dtype: integer type of the result.
    """
    exact = bias.astype(np.float64).reshape(-1) / np.asarray(units)
    return saturate(rhaz(exact), dtype).reshape(bias.shape)
