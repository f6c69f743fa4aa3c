"""A detector of the shape of YOLOv5n: partial blocks, a pooled pyramid, a two-way feature pyramid, three heads."""

from __future__ import annotations

import numpy as np

from tools.bench.blocks import batch_norm, convolution, reshape, silu, transpose
from tools.bench.builder import NetworkBuilder, Tensor

ANCHORS = 3
CLASSES = 80


def yolov5n(g: NetworkBuilder, x: Tensor) -> Tensor:
    """All predictions of the three heads. Shape: [1, predictions, 5 + CLASSES]."""
    x = _unit(g, x, 16, 6, stride=2, pad=2)
    x = _partial(g, _unit(g, x, 32, 3, stride=2), 32, 1)
    fine = _partial(g, _unit(g, x, 64, 3, stride=2), 64, 2)
    middle = _partial(g, _unit(g, fine, 128, 3, stride=2), 128, 3)
    coarse = _partial(g, _unit(g, middle, 256, 3, stride=2), 256, 1)
    coarse = _pooled_pyramid(g, coarse, 256)

    top = _unit(g, coarse, 128, 1)
    merged = _partial(g, _join(g, _twice(g, top), middle), 128, 1, residual=False)
    side = _unit(g, merged, 64, 1)
    small = _partial(g, _join(g, _twice(g, side), fine), 64, 1, residual=False)
    medium = _partial(g, _join(g, _unit(g, small, 64, 3, stride=2), side), 128, 1, residual=False)
    large = _partial(g, _join(g, _unit(g, medium, 128, 3, stride=2), top), 256, 1, residual=False)
    return g.add("Concat", *(_head(g, level) for level in (small, medium, large)), axis=1)


def _unit(g: NetworkBuilder, x: Tensor, channels: int, kernel: int, stride: int = 1, pad: int | None = None) -> Tensor:
    return silu(g, batch_norm(g, convolution(g, x, channels, kernel, stride=stride, pad=pad)))


def _partial(g: NetworkBuilder, x: Tensor, channels: int, depth: int, *, residual: bool = True) -> Tensor:
    inner = _unit(g, x, channels // 2, 1)
    for _ in range(depth):
        y = _unit(g, _unit(g, inner, channels // 2, 1), channels // 2, 3)
        inner = g.add("Add", inner, y) if residual else y
    return _unit(g, _join(g, inner, _unit(g, x, channels // 2, 1)), channels, 1)


def _pooled_pyramid(g: NetworkBuilder, x: Tensor, channels: int) -> Tensor:
    levels = [_unit(g, x, x.channels // 2, 1)]
    for _ in range(3):
        levels.append(g.add("MaxPool", levels[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4))
    return _unit(g, _join(g, *levels), channels, 1)


def _join(g: NetworkBuilder, *parts: Tensor) -> Tensor:
    return g.add("Concat", *parts, axis=1)


def _twice(g: NetworkBuilder, x: Tensor) -> Tensor:
    factors = g.constant(np.array([1, 1, 2, 2], np.float32), "factors")
    how = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    return g.add("Resize", x, None, factors, **how)


def _head(g: NetworkBuilder, x: Tensor) -> Tensor:
    width = 5 + CLASSES
    height, across = x.samples.shape[2:]
    y = convolution(g, x, ANCHORS * width, 1, bias=True)
    y = transpose(g, reshape(g, y, 0, ANCHORS, width, height, across), 0, 1, 3, 4, 2)
    return reshape(g, g.add("Sigmoid", y), 0, ANCHORS * height * across, width)
