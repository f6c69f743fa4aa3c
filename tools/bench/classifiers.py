"""ResNet18, ResNet50 v1.5, VGG16 and MobileNetV2 with random weights."""

from __future__ import annotations

from tools.bench.blocks import batch_norm, classifier, convolution, linear, relu, relu6
from tools.bench.builder import NetworkBuilder, Tensor

CLASSES = 1000


def resnet18(g: NetworkBuilder, x: Tensor) -> Tensor:
    """He et al., 2015: two 3x3 convolutions per block."""
    x = relu(g, batch_norm(g, convolution(g, x, 64, 7, stride=2)))
    x = g.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for stage in range(4):
        for block in range(2):
            x = _basic_block(g, x, 64 << stage, stride=2 if stage and not block else 1)
    return classifier(g, x, CLASSES)


def _basic_block(g: NetworkBuilder, x: Tensor, width: int, stride: int) -> Tensor:
    y = relu(g, batch_norm(g, convolution(g, x, width, 3, stride=stride)))
    y = batch_norm(g, convolution(g, y, width, 3), gain=0.5)
    if stride != 1 or x.channels != width:
        x = batch_norm(g, convolution(g, x, width, 1, stride=stride))
    return relu(g, g.add("Add", y, x))


def vgg16(g: NetworkBuilder, x: Tensor) -> Tensor:
    """Simonyan and Zisserman, 2014, configuration D, without normalization."""
    for layers, channels in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(layers):
            x = relu(g, convolution(g, x, channels, 3, bias=True))
        x = g.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4)
    x = g.add("Flatten", x, axis=1)
    for width in (4096, 4096):
        x = relu(g, linear(g, x, width))
    return linear(g, x, CLASSES)


def resnet50(g: NetworkBuilder, x: Tensor) -> Tensor:
    """He et al., 2015, with the stride on the 3x3 convolution (v1.5)."""
    x = relu(g, batch_norm(g, convolution(g, x, 64, 7, stride=2)))
    x = g.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            x = _bottleneck(g, x, 64 << stage, stride=2 if stage and not block else 1)
    return classifier(g, x, CLASSES)


def _bottleneck(g: NetworkBuilder, x: Tensor, width: int, stride: int) -> Tensor:
    y = relu(g, batch_norm(g, convolution(g, x, width, 1)))
    y = relu(g, batch_norm(g, convolution(g, y, width, 3, stride=stride)))
    y = batch_norm(g, convolution(g, y, 4 * width, 1), gain=0.5)
    if x.channels != y.channels:
        x = batch_norm(g, convolution(g, x, 4 * width, 1, stride=stride))
    return relu(g, g.add("Add", y, x))


def mobilenet_v2(g: NetworkBuilder, x: Tensor) -> Tensor:
    """Sandler et al., 2018, width 1.0."""
    x = relu6(g, batch_norm(g, convolution(g, x, 32, 3, stride=2)))
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, channels, blocks, stride in stages:
        for block in range(blocks):
            x = _inverted_residual(g, x, expansion, channels, 1 if block else stride)
    x = relu6(g, batch_norm(g, convolution(g, x, 1280, 1)))
    return classifier(g, x, CLASSES)


def _inverted_residual(g: NetworkBuilder, x: Tensor, expansion: int, channels: int, stride: int) -> Tensor:
    y = x
    if expansion != 1:
        y = relu6(g, batch_norm(g, convolution(g, y, expansion * x.channels, 1)))
    y = relu6(g, batch_norm(g, convolution(g, y, y.channels, 3, stride=stride, groups=y.channels)))
    y = batch_norm(g, convolution(g, y, channels, 1), gain=0.7)
    return g.add("Add", x, y) if stride == 1 and x.channels == channels else y
