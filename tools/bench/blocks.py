"""The parts that networks repeat: convolution, normalization, activations, linear layers."""

from __future__ import annotations

import math

import numpy as np

from tools.bench.builder import NetworkBuilder, Tensor
from tpuconvert.schema.types import Array

CHANNEL_SPREAD = 0.3
"""Standard deviation of the logarithm of per-channel weight scales: channels of trained networks differ in range."""

BATCH_NORM_EPSILON = 1e-5


def convolution(
    g: NetworkBuilder,
    x: Tensor,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    pad: int | None = None,
    groups: int = 1,
    bias: bool = False,
) -> Tensor:
    """Convolution with a square kernel; without ``pad`` the extents are divided by the stride."""
    inputs = x.channels // groups
    weight = g.random.standard_normal((channels, inputs, kernel, kernel)) * math.sqrt(2 / (inputs * kernel * kernel))
    weight *= np.exp(g.random.normal(0, CHANNEL_SPREAD, (channels, 1, 1, 1)))
    operands = [x, g.constant(weight.astype(np.float32), "weight")]
    if bias:
        operands.append(g.constant(_normal(g, channels, 0.1), "bias"))
    around = kernel // 2 if pad is None else pad
    return g.add(
        "Conv",
        *operands,
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[around] * 4,
        dilations=[1, 1],
        group=groups,
    )


def batch_norm(g: NetworkBuilder, x: Tensor, gain: float = 1.0) -> Tensor:
    """Batch norm with the statistics of the samples, a random scale around ``gain`` and a random bias."""
    axes = (0, 2, 3)
    parts = {
        "scale": gain * g.random.uniform(0.6, 1.4, x.channels),
        "shift": g.random.normal(0, 0.2, x.channels),
        "mean": x.samples.mean(axis=axes, dtype=np.float64),
        "variance": x.samples.var(axis=axes, dtype=np.float64),
    }
    constants = (g.constant(array.astype(np.float32), label) for label, array in parts.items())
    return g.add("BatchNormalization", x, *constants, epsilon=BATCH_NORM_EPSILON)


def relu(g: NetworkBuilder, x: Tensor) -> Tensor:
    """ReLU: ``max(x, 0)``."""
    return g.add("Relu", x)


def relu6(g: NetworkBuilder, x: Tensor) -> Tensor:
    """ReLU6: ``min(max(x, 0), 6)``."""
    return g.add("Clip", x, scalar(g, 0.0), scalar(g, 6.0))


def silu(g: NetworkBuilder, x: Tensor) -> Tensor:
    """SiLU: ``x * sigmoid(x)``."""
    return g.add("Mul", x, g.add("Sigmoid", x))


def gelu(g: NetworkBuilder, x: Tensor) -> Tensor:
    """GELU: ``x * (1 + erf(x / sqrt(2))) / 2``, decomposed as exporters do."""
    inner = g.add("Erf", g.add("Div", x, scalar(g, math.sqrt(2))))
    return g.add("Mul", g.add("Mul", x, g.add("Add", inner, scalar(g, 1.0))), scalar(g, 0.5))


def linear(g: NetworkBuilder, x: Tensor, width: int, gain: float = 1.0) -> Tensor:
    """Matmul with constant weights and a bias over the last axis."""
    inputs = x.samples.shape[-1]
    weight = g.random.standard_normal((inputs, width)) * (gain / math.sqrt(inputs))
    spread = np.exp(g.random.normal(0, CHANNEL_SPREAD, width))
    product = g.add("MatMul", x, g.constant((weight * spread).astype(np.float32), "weight"))
    return g.add("Add", product, g.constant(_normal(g, width, 0.05), "bias"))


def layer_norm(g: NetworkBuilder, x: Tensor, epsilon: float) -> Tensor:
    """Layer normalization over the last axis."""
    width = int(x.samples.shape[-1])
    scale = g.constant(g.random.uniform(0.7, 1.3, width).astype(np.float32), "scale")
    shift = g.constant(_normal(g, width, 0.1), "shift")
    return g.add("LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)


def classifier(g: NetworkBuilder, x: Tensor, classes: int) -> Tensor:
    """Global average pooling and a linear layer."""
    flat = g.add("Flatten", g.add("GlobalAveragePool", x), axis=1)
    inputs = flat.channels
    weight = g.constant((g.random.standard_normal((classes, inputs)) / math.sqrt(inputs)).astype(np.float32), "weight")
    return g.add("Gemm", flat, weight, g.constant(_normal(g, classes, 0.1), "bias"), transB=1)


def reshape(g: NetworkBuilder, x: Tensor, *shape: int) -> Tensor:
    """Reshape; 0 keeps an extent, -1 is inferred."""
    return g.add("Reshape", x, g.constant(np.array(shape, np.int64), "shape"))


def transpose(g: NetworkBuilder, x: Tensor, *order: int) -> Tensor:
    """Permute the axes."""
    return g.add("Transpose", x, perm=list(order))


def scalar(g: NetworkBuilder, number: float) -> Tensor:
    """A constant of rank 0."""
    return g.constant(np.array(number, np.float32), "number")


def _normal(g: NetworkBuilder, size: int, deviation: float) -> Array:
    return g.random.normal(0, deviation, size).astype(np.float32)
