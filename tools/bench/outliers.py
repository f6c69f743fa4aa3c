"""Small transformers with outlier channels: the same few channels are 20 to 100 times larger than all others.

Trained transformers have them in the residual stream and in the results of layer normalizations, for all tokens
(Bondarenko et al., Understanding and Overcoming the Challenges of Efficient Transformer Quantization, 2021). The
weights that read them have the size of all other weights, and the biases compensate for the mean of the channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tools.bench.blocks import convolution, gelu, reshape, scalar, transpose
from tools.bench.builder import NetworkBuilder, Tensor
from tpuconvert.schema.types import Array

WIDTH, HEADS, DEPTH, CLASSES = 64, 4, 3, 10
OUTLIERS = 3
"""Number of outlier channels."""

LEAST, MOST = 20.0, 100.0
"""Size of the outlier channels relative to the others."""

_FITTED_ON = 8
"""Number of inputs from which normalizations and biases are computed."""

Feeds = list[dict[str, Array]]


@dataclass(frozen=True)
class Outliers:
    """Outlier channels of a network.

    Args:
        factor: multiplies their size; 0 leaves them out.
        norms: indices of the normalizations that have them; None for all.
        variation: standard deviation of an outlier channel over the tokens, as a share of its size.
        scores: gain of queries and keys. With much larger scores, attention selects single tokens, and any error
            selects others.
    """

    factor: float = 1.0
    norms: Collection[int] | None = None
    variation: float = 0.03
    scores: float = 0.7


HARD = Outliers(variation=0.05, scores=1.0)
"""Outlier channels with a larger part that no zero point removes, and attention that amplifies errors."""


@dataclass(frozen=True)
class OutlierNetwork:
    """A transformer with outlier channels.

    Args:
        name: name in tables.
        build: adds the nodes of the network for sample inputs, and returns its outputs.
        samples: function of (count, seed) that returns inputs.
    """

    name: str
    build: Callable[[NetworkBuilder, Sequence[Tensor], Outliers], list[Tensor]]
    samples: Callable[[int, int], dict[str, Array]]

    def write(self, path: Path, seed: int = 0, outliers: Outliers = Outliers()) -> None:
        """Write the ONNX file."""
        g = NetworkBuilder(self.name, 17, seed)
        inputs = [g.input(name, array) for name, array in self.samples(_FITTED_ON, seed + 1).items()]
        g.save(path, *self.build(g, inputs, outliers))

    def feeds(self, count: int, seed: int) -> Feeds:
        """Return inputs, one sample per feed."""
        arrays = self.samples(count, seed)
        return [{name: array[index : index + 1] for name, array in arrays.items()} for index in range(count)]


class _Layers:
    """The layers of one network.

    Args:
        g: receives the nodes.
        outliers: the outlier channels.
    """

    def __init__(self, g: NetworkBuilder, outliers: Outliers) -> None:
        self._g = g
        self._random = g.random
        self._channels = g.random.choice(WIDTH, OUTLIERS, replace=False)
        size = np.exp(g.random.uniform(math.log(LEAST), math.log(MOST), OUTLIERS)) * g.random.choice([-1, 1], OUTLIERS)
        self._sizes = outliers.factor * size
        self._outliers = outliers
        self._norms = 0

    def stream(self, x: Tensor) -> Tensor:
        """Add large constants to the outlier channels of the residual stream."""
        shift = self._random.normal(0, 0.1, WIDTH)
        shift[self._channels] += self._sizes
        return self._g.add("Add", x, self._g.constant(shift.astype(np.float32), "shift"))

    def linear(self, x: Tensor, width: int, gain: float = 1.0) -> Tensor:
        """Matmul with a bias that makes the mean of every output channel small."""
        inputs = x.samples.shape[-1]
        weight = (self._random.standard_normal((inputs, width)) * (gain / math.sqrt(inputs))).astype(np.float32)
        product = self._g.add("MatMul", x, self._g.constant(weight, "weight"))
        means = product.samples.reshape(-1, width).mean(axis=0, dtype=np.float64)
        bias = (self._random.normal(0, 0.1, width) - means).astype(np.float32)
        return self._g.add("Add", product, self._g.constant(bias, "bias"))

    def norm(self, x: Tensor) -> Tensor:
        """Layer normalization with outlier channels in the result."""
        y = x.samples.reshape(-1, WIDTH).astype(np.float64)
        y = y - y.mean(axis=1, keepdims=True)
        y = y / np.sqrt(np.square(y).mean(axis=1, keepdims=True) + 1e-6)
        deviations, means = self._random.uniform(0.6, 1.4, WIDTH), self._random.normal(0, 0.2, WIDTH)
        has_outliers = self._sizes.any() and (self._outliers.norms is None or self._norms in self._outliers.norms)
        self._norms += 1
        if has_outliers:
            deviations[self._channels] = self._outliers.variation * np.abs(self._sizes)
            means[self._channels] = self._sizes
        scale = deviations / y.std(axis=0)
        constants = {"scale": scale, "shift": means - scale * y.mean(axis=0)}
        operands = [self._g.constant(array.astype(np.float32), label) for label, array in constants.items()]
        return self._g.add("LayerNormalization", x, *operands, axis=-1, epsilon=1e-6)

    def attention(self, x: Tensor, mask: Callable[[Tensor], Tensor] = lambda scores: scores) -> Tensor:
        """Attention of several heads. ``mask`` adds nodes that hide scores."""
        g, tokens, size = self._g, x.samples.shape[1], WIDTH // HEADS
        scores = self._outliers.scores
        parts = [self.linear(x, WIDTH, gain) for gain in (scores, scores, 1.0)]
        query, key, value = (reshape(g, part, 0, tokens, HEADS, size) for part in parts)
        products = g.add("MatMul", transpose(g, query, 0, 2, 1, 3), transpose(g, key, 0, 2, 3, 1))
        products = g.add("Mul", products, scalar(g, 1 / math.sqrt(size)))
        weights = g.add("Softmax", mask(products), axis=-1)
        mixed = transpose(g, g.add("MatMul", weights, transpose(g, value, 0, 2, 1, 3)), 0, 2, 1, 3)
        return self.linear(reshape(g, mixed, 0, tokens, WIDTH), WIDTH)

    def feed_forward(self, x: Tensor) -> Tensor:
        """Two matmuls with GELU between them."""
        return self.linear(gelu(self._g, self.linear(x, 4 * WIDTH)), WIDTH)


def _vit(g: NetworkBuilder, inputs: Sequence[Tensor], outliers: Outliers) -> list[Tensor]:
    """Normalization before each residual; the first token is classified."""
    layers = _Layers(g, outliers)
    x = convolution(g, inputs[0], WIDTH, 8, stride=8, pad=0, bias=True)
    tokens = x.samples.shape[2] * x.samples.shape[3]
    x = transpose(g, reshape(g, x, 0, WIDTH, tokens), 0, 2, 1)
    x = g.add("Concat", g.add("ReduceMean", x, axes=[1], keepdims=1), x, axis=1)
    places = g.constant(g.random.normal(0, 0.3, (1, tokens + 1, WIDTH)).astype(np.float32), "positions")
    x = layers.stream(g.add("Add", x, places))
    for _ in range(DEPTH):
        x = g.add("Add", x, layers.attention(layers.norm(x)))
        x = g.add("Add", x, layers.feed_forward(layers.norm(x)))
    token = g.add("Gather", layers.norm(x), g.constant(np.array(0, np.int64), "first"), axis=1)
    return [layers.linear(token, CLASSES)]


def _bert(hidden: float, g: NetworkBuilder, inputs: Sequence[Tensor], outliers: Outliers) -> list[Tensor]:
    """Normalization after each residual. Tokens beyond the length of a text are masked by the number ``hidden``."""
    layers = _Layers(g, outliers)
    x, lengths_mask = inputs
    lengths_mask = reshape(g, lengths_mask, 0, 1, 1, lengths_mask.samples.shape[1])
    if math.isinf(hidden):
        is_given = g.add("Greater", lengths_mask, scalar(g, 0.5))
        mask = partial(_select, g, is_given, scalar(g, hidden))
    else:
        mask = partial(g.add, "Add", g.add("Mul", g.add("Sub", scalar(g, 1.0), lengths_mask), scalar(g, hidden)))
    x = layers.norm(layers.stream(x))
    for _ in range(DEPTH):
        x = layers.norm(g.add("Add", x, layers.attention(x, mask)))
        x = layers.norm(g.add("Add", x, layers.feed_forward(x)))
    token = g.add("Gather", x, g.constant(np.array(0, np.int64), "first"), axis=1)
    return [layers.linear(x, 8), layers.linear(token, CLASSES)]


def _select(g: NetworkBuilder, condition: Tensor, otherwise: Tensor, x: Tensor) -> Tensor:
    return g.add("Where", condition, x, otherwise)


def _images(count: int, seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    coarse = random.normal(size=(count, 3, 8, 8)).repeat(4, axis=2).repeat(4, axis=3)
    return {"image": (coarse + 0.3 * random.normal(size=(count, 3, 32, 32))).astype(np.float32)}


def _texts(count: int, seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    tokens = 24
    token_mask = (np.arange(tokens) < random.integers(tokens // 2, tokens + 1, (count, 1))).astype(np.float32)
    return {"hidden": random.normal(size=(count, tokens, WIDTH)).astype(np.float32), "mask": token_mask}


OUTLIER_NETWORKS = {
    network.name: network
    for network in (
        OutlierNetwork("vit", _vit, _images),
        OutlierNetwork("bert", partial(_bert, -10000.0), _texts),
        OutlierNetwork("bert_infinite_mask", partial(_bert, -math.inf), _texts),
    )
}
