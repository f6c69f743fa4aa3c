"""Weights and biases as integers.

Weights are symmetric INT8: scale = max|w| / 127 per output channel, or one for the tensor where the chip has only one
multiplier per layer. Biases are INT32 with scale s_x * s_w, so that they add to the accumulator as they are.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.types import I8, Array, QuantParams

_BIAS_LIMIT = 2.0**30
"""Half of INT32: the other half is for the sum of products."""


def weight_params(weights: Array, axis: int | None, bias: Array | None, input_scale: float) -> QuantParams:
    """Scales for a weight tensor.

    Args:
        weights: real weights, any shape.
        axis: output-channel axis for one scale per channel, or None for one scale.
        bias: real biases, one per output channel, or None. A channel whose weights are almost zero would give its bias
            a scale so small that it leaves INT32; its weight scale is raised until the bias fits.
        input_scale: scale of the activation that the weights are multiplied with.
    """
    others = tuple(index for index in range(weights.ndim) if index != axis)
    largest = np.abs(weights.astype(np.float64)).max(axis=others if axis is not None else None, initial=0.0)
    scale = np.atleast_1d(largest) / 127.0
    if bias is not None:
        need = np.abs(bias.astype(np.float64).reshape(-1)) / (input_scale * _BIAS_LIMIT)
        scale = np.maximum(scale, need if axis is not None else need.max(initial=0.0))
    scale = np.where(scale > 0, scale, 1.0)  # a channel of zeros is zero at any scale
    rounded = scale.astype(np.float32)
    return QuantParams(tuple(float(item) for item in rounded), (0,) * rounded.size, I8, axis)


def quantize_weights(weights: Array, params: QuantParams) -> Array:
    """Nearest integers, within -127..127 so that the range is symmetric."""
    quantized: Array = np.maximum(params.quantize(weights), np.int8(-127))
    return quantized


def quantize_bias(bias: Array, input_scale: float, weight_scale: tuple[float, ...]) -> Array:
    """INT32 biases in units of the accumulator, halves away from zero, saturated.

    Args:
        bias: real biases, one per output channel in any shape.
        input_scale: of the activation.
        weight_scale: one, or one per output channel.
    """
    exact = bias.astype(np.float64).reshape(-1) / (input_scale * np.asarray(weight_scale))
    rounded = np.copysign(np.floor(np.abs(exact) + 0.5), exact)
    return np.clip(rounded, -(2**31), 2**31 - 1).astype(np.int32).reshape(bias.shape)
