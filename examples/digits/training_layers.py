"""Layers for training: ``forward`` stores the values that ``backward`` needs, ``backward`` returns the input gradient.

A layer computes in the type of its parameters (float32 to train, float64 to check the gradients).
"""

import numpy as np
import numpy.typing as npt
from digits_network import (
    CLASSES,
    CONV1,
    CONV2,
    CONV_LAYERS,
    DEPTHWISE,
    EPSILON,
    FC_INPUTS,
    POINTWISE,
    Array,
    ConvLayer,
    columns,
    convolve,
    max_pool,
    per_channel,
    softmax,
    weight_matrices,
)

RUNNING_MOMENTUM = 0.9
OVER_PIXELS = (0, 2, 3)  # batch norm has one mean and one variance per channel: over N, H and W of NCHW


class Conv:
    """A convolution without bias."""

    def __init__(self, layer: ConvLayer, parameters: dict[str, Array]) -> None:
        self.layer = layer
        self.parameters = parameters
        self.name = f"{layer.name}/weight"

    def forward(self, x: Array) -> Array:
        """Convolves [N, C, H, W]."""
        n, _, h, w = x.shape
        self.input_shape = x.shape
        self.seen = columns(x, self.layer)
        return convolve(self.seen, self.parameters[self.name], self.layer, (n, h, w))

    def backward(self, dy: Array, gradients: dict[str, Array]) -> Array:
        """Stores the weight gradient in ``gradients``. Adds the gradient of each im2col element to its input pixel."""
        layer = self.layer
        n, c, h, w = self.input_shape
        g, k, pad = layer.groups, layer.kernel, layer.pad
        rows = dy.reshape(n, g, layer.out_channels // g, h, w).transpose(1, 0, 3, 4, 2)
        rows = rows.reshape(g, n * h * w, layer.out_channels // g)
        dw = np.matmul(rows.transpose(0, 2, 1), self.seen)
        gradients[self.name] = dw.reshape(layer.weight_shape)
        d_seen = np.matmul(rows, weight_matrices(self.parameters[self.name], layer).transpose(0, 2, 1))
        d_windows = d_seen.reshape(g, n, h, w, c // g, k, k).transpose(1, 0, 4, 2, 3, 5, 6).reshape(n, c, h, w, k, k)
        d_padded = np.zeros((n, c, h + 2 * pad, w + 2 * pad), dy.dtype)
        for row in range(k):
            for column in range(k):
                d_padded[:, :, row : row + h, column : column + w] += d_windows[..., row, column]
        return d_padded[:, :, pad : pad + h, pad : pad + w]


class BatchNorm:
    """y = (x - mean) / sqrt(variance + epsilon) * scale + shift with the batch's own mean and variance."""

    def __init__(self, name: str, parameters: dict[str, Array], running: dict[str, Array]) -> None:
        self.name = name
        self.parameters = parameters
        self.running = running

    def forward(self, x: Array) -> Array:
        """Normalizes [N, C, H, W] and updates the running mean and variance, which inference uses."""
        mean, variance = x.mean(axis=OVER_PIXELS), x.var(axis=OVER_PIXELS)
        for part, value in (("mean", mean), ("variance", variance)):
            name = f"{self.name}/{part}"
            self.running[name] = RUNNING_MOMENTUM * self.running[name] + (1 - RUNNING_MOMENTUM) * value
        self.inverse_deviation = 1 / np.sqrt(variance + EPSILON)
        self.normal: Array = (x - per_channel(mean)) * per_channel(self.inverse_deviation)
        scale, shift = (self.parameters[f"{self.name}/{part}"] for part in ("scale", "shift"))
        y: Array = self.normal * per_channel(scale) + per_channel(shift)
        return y

    def backward(self, dy: Array, gradients: dict[str, Array]) -> Array:
        """Subtracts from the gradient the parts that come through mean and variance, which depend on x."""
        d_shift, d_scale = dy.sum(axis=OVER_PIXELS), (dy * self.normal).sum(axis=OVER_PIXELS)
        gradients[f"{self.name}/shift"], gradients[f"{self.name}/scale"] = d_shift, d_scale
        count = dy.size // dy.shape[1]
        centred = dy - per_channel(d_shift / count) - self.normal * per_channel(d_scale / count)
        dx: Array = centred * per_channel(self.parameters[f"{self.name}/scale"] * self.inverse_deviation)
        return dx


class Relu:
    """y = max(x, 0)."""

    def forward(self, x: Array) -> Array:
        """Stores the mask of positive elements for ``backward``."""
        self.positive = x > 0
        return x * self.positive

    def backward(self, dy: Array) -> Array:
        """Returns the gradient where x was positive, else 0."""
        return dy * self.positive


class MaxPool:
    """Maximum over 2x2 pixels, stride 2."""

    def forward(self, x: Array) -> Array:
        """Stores which pixels are the maximum of their window for ``backward``."""
        y = max_pool(x)
        self.chosen: Array = x == y.repeat(2, axis=2).repeat(2, axis=3)
        n, c, h, w = y.shape
        ties = self.chosen.reshape(n, c, h, 2, w, 2).sum(axis=(3, 5))
        self.share: Array = (1 / ties).astype(x.dtype)
        return y

    def backward(self, dy: Array) -> Array:
        """Divides the gradient equally among pixels that tie for the maximum, such as zeros after ReLU."""
        return (dy * self.share).repeat(2, axis=2).repeat(2, axis=3) * self.chosen


class TrainingNetwork:
    """The network of ``digits_network`` with gradients."""

    def __init__(self, seed: int, dtype: npt.DTypeLike = np.float32) -> None:
        """Draws the weights: normal, variance 2 / inputs (He et al. 2015)."""
        random = np.random.RandomState(seed)  # the legacy generator: its stream is frozen for all NumPy versions
        self.parameters: dict[str, Array] = {}
        self.running: dict[str, Array] = {}
        for layer in CONV_LAYERS:
            inputs = int(np.prod(layer.weight_shape[1:]))
            weight = random.standard_normal(layer.weight_shape) * np.sqrt(2 / inputs)
            self.parameters[f"{layer.name}/weight"] = weight.astype(dtype)
            self.parameters[f"{layer.name}/scale"] = np.ones(layer.out_channels, dtype)
            self.parameters[f"{layer.name}/shift"] = np.zeros(layer.out_channels, dtype)
            self.running[f"{layer.name}/mean"] = np.zeros(layer.out_channels, dtype)
            self.running[f"{layer.name}/variance"] = np.ones(layer.out_channels, dtype)
        weight = random.standard_normal((CLASSES, FC_INPUTS)) * np.sqrt(2 / FC_INPUTS)
        self.parameters["fc/weight"] = weight.astype(dtype)
        self.parameters["fc/bias"] = np.zeros(CLASSES, dtype)
        self.convs = {layer: Conv(layer, self.parameters) for layer in CONV_LAYERS}
        self.norms = {layer: BatchNorm(layer.name, self.parameters, self.running) for layer in CONV_LAYERS}
        self.relus = {name: Relu() for name in ("conv1", "depthwise", "add", "conv2")}
        self.pool = MaxPool()

    def _conv_norm(self, x: Array, layer: ConvLayer) -> Array:
        return self.norms[layer].forward(self.convs[layer].forward(x))

    def _conv_norm_backward(self, dy: Array, layer: ConvLayer, gradients: dict[str, Array]) -> Array:
        return self.convs[layer].backward(self.norms[layer].backward(dy, gradients), gradients)

    def loss_and_gradients(self, images: Array, labels: npt.NDArray[np.uint8]) -> tuple[float, dict[str, Array]]:
        """Runs forward and backward once.

        Returns:
            The mean cross entropy and its gradient with respect to every parameter, by name.
        """
        n = len(images)
        first = self.relus["conv1"].forward(self._conv_norm(images, CONV1))
        spatial = self.relus["depthwise"].forward(self._conv_norm(first, DEPTHWISE))
        joined = self.relus["add"].forward(self._conv_norm(spatial, POINTWISE) + first)
        pooled = self.pool.forward(self.relus["conv2"].forward(self._conv_norm(joined, CONV2)))
        flat = pooled.reshape(n, FC_INPUTS)
        probability = softmax(flat @ self.parameters["fc/weight"].T + self.parameters["fc/bias"])
        loss = -float(np.log(probability[np.arange(n), labels]).mean())

        gradients: dict[str, Array] = {}
        dz = probability.copy()  # gradient of cross entropy after softmax: (probability - one_hot) / n
        dz[np.arange(n), labels] -= 1
        dz /= n
        gradients["fc/weight"], gradients["fc/bias"] = dz.T @ flat, dz.sum(axis=0)
        d_pooled = (dz @ self.parameters["fc/weight"]).reshape(pooled.shape)
        d_conv2 = self.relus["conv2"].backward(self.pool.backward(d_pooled))
        d_sum = self.relus["add"].backward(self._conv_norm_backward(d_conv2, CONV2, gradients))
        d_spatial = self._conv_norm_backward(d_sum, POINTWISE, gradients)
        d_depthwise = self.relus["depthwise"].backward(d_spatial)
        d_first = d_sum + self._conv_norm_backward(d_depthwise, DEPTHWISE, gradients)
        self._conv_norm_backward(self.relus["conv1"].backward(d_first), CONV1, gradients)
        return loss, gradients

    def weights(self) -> dict[str, Array]:
        """Contents of ``weights.npz``: the parameters and the running means and variances, float32."""
        return {name: value.astype(np.float32) for name, value in {**self.parameters, **self.running}.items()}
