"""ResNet with basic and with bottleneck blocks (He et al., 2015)."""

from functools import partial

from torch import Tensor, nn

from tools.zoo.networks.network import EVERY, ONCE, VARIED, Network, images


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Return a conv without bias and a batch normalization."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """A residual block; the shortcut is a 1x1 conv where the shape changes."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outputs = width * 4 if bottleneck else width
        if bottleneck:
            parts = [conv_norm(inputs, width, 1), nn.ReLU(inplace=True), conv_norm(width, width, 3, stride)]
            parts += [nn.ReLU(inplace=True), conv_norm(width, outputs, 1)]
        else:
            parts = [conv_norm(inputs, width, 3, stride), nn.ReLU(inplace=True), conv_norm(width, outputs, 3)]
        self.body = nn.Sequential(*parts)
        is_same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if is_same else conv_norm(inputs, outputs, 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of body and shortcut after a ReLU."""
        return self.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Stem, three stages of two blocks, mean, classifier."""

    def __init__(self, bottleneck: bool, width: int = 8, classes: int = 10) -> None:
        super().__init__()
        factor = 4 if bottleneck else 1
        self.stem = nn.Sequential(conv_norm(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        stages, inputs = [], width
        for stage in range(3):
            outputs = width << stage
            stages.append(Block(inputs, outputs, 2 if stage else 1, bottleneck))
            stages.append(Block(outputs * factor, outputs, 1, bottleneck))
            inputs = outputs * factor
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(inputs, classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the feature map before the mean."""
        return self.stages(self.stem(x))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.classifier(self.pool(self.features(x)).flatten(1))


TRAINING = tuple(("torchscript", opset, "fixed") for opset in (13, 14, 15, 17)) + ONCE
"""BatchNormalization selects training by the number of its outputs before opset 14, and by an attribute since then."""


def network(name: str, is_deep: bool, exports: tuple[tuple[str, int, str], ...], is_training: bool = False) -> Network:
    """Return a ResNet with its name and exports."""
    build, inputs = partial(ResNet, is_deep), images(3, 64, 64)
    return Network(name, build, inputs, ("image",), ("logits",), {}, "resnet", "", exports, is_training)


NETWORKS = [
    network("resnet_basic", False, EVERY + VARIED),
    network("resnet_bottleneck", True, ONCE),
    network("resnet_training", False, TRAINING, is_training=True),
]
