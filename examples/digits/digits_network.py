"""The network of the example: its layers, its weights and what it computes, in plain NumPy.

    image [N, 1, 8, 8]
      conv1      3x3, 16 channels, batch norm, relu ----+
      depthwise  3x3, 16 groups,   batch norm, relu     |
      pointwise  1x1, 16 channels, batch norm           |
      add <---------------------------------------------+  relu
      conv2      3x3, 32 channels, batch norm, relu
      pool       maximum over 2x2, stride 2
      fc         512 to 10
      softmax    probability [N, 10]

Every convolution keeps the size (stride 1, zero pads) and has no bias: batch norm has one. Weights are
OIHW, the rows of ``fc`` follow the NCHW order of the pooled values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Weights = Mapping[str, Array]

CLASSES = 10
IMAGE_SIZE = 8
EPSILON = 1e-5  # of every batch norm; the default of all three formats
WEIGHTS_FILE = Path(__file__).parent / "weights.npz"


@dataclass(frozen=True)
class ConvLayer:
    """A convolution and the batch norm after it; weights are [out_channels, in_channels / groups, kernel, kernel]."""

    name: str
    in_channels: int
    out_channels: int
    kernel: int
    groups: int = 1

    @property
    def pad(self) -> int:
        """Number of zero pixels on every side, so that the output is as large as the input."""
        return self.kernel // 2

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """Shape of the weights, OIHW."""
        return (self.out_channels, self.in_channels // self.groups, self.kernel, self.kernel)


CONV1 = ConvLayer("conv1", 1, 16, 3)
DEPTHWISE = ConvLayer("depthwise", 16, 16, 3, groups=16)
POINTWISE = ConvLayer("pointwise", 16, 16, 1)
CONV2 = ConvLayer("conv2", 16, 32, 3)
CONV_LAYERS = (CONV1, DEPTHWISE, POINTWISE, CONV2)
POOLED_SIZE = IMAGE_SIZE // 2
FC_INPUTS = CONV2.out_channels * POOLED_SIZE * POOLED_SIZE


def weight_names() -> list[str]:
    """Return the names of the arrays in ``weights.npz``, in the order of the layers."""
    names = [
        f"{layer.name}/{part}" for layer in CONV_LAYERS for part in ("weight", "scale", "shift", "mean", "variance")
    ]
    return [*names, "fc/weight", "fc/bias"]


def load_weights(path: Path = WEIGHTS_FILE) -> dict[str, Array]:
    """Reads the trained weights, float32, by name."""
    with np.load(path) as archive:
        return {name: archive[name] for name in weight_names()}


def columns(x: Array, layer: ConvLayer) -> Array:
    """Extracts the input window of every output pixel of a convolution (im2col).

    Shapes: x [N, C, H, W], result [groups, N*H*W, C/groups * kernel*kernel].
    """
    n, c, h, w = x.shape
    g, k, pad = layer.groups, layer.kernel, layer.pad
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(2, 3))  # N C H W k k
    grouped = windows.reshape(n, g, c // g, h, w, k, k).transpose(1, 0, 3, 4, 2, 5, 6)
    return grouped.reshape(g, n * h * w, c // g * k * k)


def weight_matrices(weight: Array, layer: ConvLayer) -> Array:
    """Reshapes OIHW weights to one matrix per group: [groups, I*kernel*kernel, O/groups]."""
    return weight.reshape(layer.groups, layer.out_channels // layer.groups, -1).transpose(0, 2, 1)


def convolve(seen: Array, weight: Array, layer: ConvLayer, shape: tuple[int, int, int]) -> Array:
    """Multiplies the result of ``columns`` by the weights; ``shape`` is (N, H, W) of the result [N, O, H, W]."""
    n, h, w = shape
    product = np.matmul(seen, weight_matrices(weight, layer))
    grouped = product.reshape(layer.groups, n, h, w, layer.out_channels // layer.groups)
    y: Array = grouped.transpose(1, 0, 4, 2, 3).reshape(n, layer.out_channels, h, w)
    return y


def per_channel(values: Array) -> Array:
    """Reshapes an array of shape [C] so that it broadcasts over NCHW."""
    return values[:, None, None]


def fold_batch_norm(weights: Weights, layer: ConvLayer) -> tuple[Array, Array]:
    """Folds the batch norm into the weights and bias of its convolution.

    With k = scale / sqrt(variance + epsilon): scale * (conv(x, w) - mean) / sqrt(variance + epsilon) + shift
    = conv(x, w * k) + (shift - mean * k).

    Returns:
        Weight (OIHW) and bias in float64.
    """
    weight, scale, shift, mean, variance = (
        weights[f"{layer.name}/{part}"].astype(np.float64) for part in ("weight", "scale", "shift", "mean", "variance")
    )
    factor = scale / np.sqrt(variance + EPSILON)
    return weight * factor[:, None, None, None], shift - mean * factor


def max_pool(x: Array) -> Array:
    """Maximum over 2x2 pixels, stride 2."""
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))  # type: ignore[no-any-return]  # NumPy: max of Any


def softmax(x: Array) -> Array:
    """exp(x) / sum(exp(x)) along the last axis."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)  # type: ignore[no-any-return]  # NumPy: sum of Any


def predict(weights: Weights, images: Array) -> Array:
    """Runs the trained network in float64.

    Shapes: images [N, 1, 8, 8] (0 to 1), result [N, 10], probabilities.
    """

    def conv_norm(x: Array, layer: ConvLayer) -> Array:
        """Computes batch norm separately, so that the result does not depend on ``fold_batch_norm``."""
        n, _, h, w = x.shape
        weight, scale, shift, mean, variance = (
            weights[f"{layer.name}/{part}"].astype(np.float64)
            for part in ("weight", "scale", "shift", "mean", "variance")
        )
        y = convolve(columns(x, layer), weight, layer, (n, h, w))
        centred = (y - per_channel(mean)) / per_channel(np.sqrt(variance + EPSILON))
        return centred * per_channel(scale) + per_channel(shift)

    x = images.astype(np.float64)
    first = np.maximum(conv_norm(x, CONV1), 0)
    spatial = np.maximum(conv_norm(first, DEPTHWISE), 0)
    joined = np.maximum(conv_norm(spatial, POINTWISE) + first, 0)
    pooled = max_pool(np.maximum(conv_norm(joined, CONV2), 0))
    flat = pooled.reshape(len(pooled), FC_INPUTS)
    return softmax(flat @ weights["fc/weight"].astype(np.float64).T + weights["fc/bias"])
