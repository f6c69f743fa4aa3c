"""ViT-Tiny/16, and one encoder layer of the size of BERT-base, with random weights."""

from __future__ import annotations

import math

import numpy as np

from tools.bench.blocks import convolution, gelu, layer_norm, linear, reshape, scalar, transpose
from tools.bench.builder import NetworkBuilder, Tensor

CLASSES = 1000


def vit_tiny(g: NetworkBuilder, x: Tensor) -> Tensor:
    """Dosovitskiy et al., 2020, in the smallest size: width 192, 12 layers, 3 heads, patches of 16 pixels."""
    width, heads, depth, patch = 192, 3, 12, 16
    x = convolution(g, x, width, patch, stride=patch, pad=0, bias=True)
    tokens = x.samples.shape[2] * x.samples.shape[3]
    x = transpose(g, reshape(g, x, 0, width, tokens), 0, 2, 1)
    token = g.constant(g.random.normal(0, 0.5, (1, 1, width)).astype(np.float32), "class_token")
    x = g.add("Concat", token, x, axis=1)
    places = g.constant(g.random.normal(0, 0.3, (1, tokens + 1, width)).astype(np.float32), "positions")
    x = g.add("Add", x, places)
    for _ in range(depth):
        normal = layer_norm(g, x, 1e-6)
        joined = linear(g, normal, 3 * width)
        sizes = g.constant(np.array([width] * 3, np.int64), "sizes")
        x = g.add("Add", x, _attention(g, g.add_all("Split", 3, joined, sizes, axis=-1), heads))
        x = g.add("Add", x, _feed_forward(g, layer_norm(g, x, 1e-6), 4 * width))
    first = g.add("Gather", layer_norm(g, x, 1e-6), g.constant(np.array(0, np.int64), "first"), axis=1)
    return linear(g, first, CLASSES)


def bert_layer(g: NetworkBuilder, x: Tensor) -> Tensor:
    """Devlin et al., 2018: 12 heads, width 768, inner width 3072, normalization after each residual."""
    width, heads = x.samples.shape[-1], 12
    attention = _attention(g, [linear(g, x, width) for _ in range(3)], heads)
    x = layer_norm(g, g.add("Add", x, attention), 1e-12)
    return layer_norm(g, g.add("Add", x, _feed_forward(g, x, 4 * width)), 1e-12)


def _attention(g: NetworkBuilder, parts: list[Tensor], heads: int) -> Tensor:
    tokens, width = parts[0].samples.shape[1:]
    size = width // heads
    query, key, value = (reshape(g, part, 0, tokens, heads, size) for part in parts)
    scores = g.add("MatMul", transpose(g, query, 0, 2, 1, 3), transpose(g, key, 0, 2, 3, 1))
    weights = g.add("Softmax", g.add("Mul", scores, scalar(g, 1 / math.sqrt(size))), axis=-1)
    mixed = transpose(g, g.add("MatMul", weights, transpose(g, value, 0, 2, 1, 3)), 0, 2, 1, 3)
    return linear(g, reshape(g, mixed, 0, tokens, width), width, gain=0.5)


def _feed_forward(g: NetworkBuilder, x: Tensor, inner: int) -> Tensor:
    return linear(g, gelu(g, linear(g, x, inner)), x.samples.shape[-1], gain=0.5)
