"""MobileNetV3 (Howard et al., 2019) and EfficientNet (Tan and Le, 2019)."""

import torch
from torch import Tensor, nn

from tools.zoo.networks.network import EVERY, ONCE, VARIED, Network, images


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Return a conv without bias and a batch normalization."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class SqueezeExcite(nn.Module):
    """Squeeze-and-excitation: per-channel scale computed from the channel means."""

    def __init__(self, channels: int, squeezed: int, inner: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce, self.expand = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
        self.inner, self.gate = inner, gate

    def forward(self, x: Tensor) -> Tensor:
        """Return the input multiplied by the per-channel scale."""
        return x * self.gate(self.expand(self.inner(self.reduce(self.pool(x)))))


class InvertedResidual(nn.Module):
    """Expand, depthwise conv, squeeze and excite, project; with a residual add where the shape is kept."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, active: type[nn.Module], excite: nn.Module | None
    ) -> None:
        super().__init__()
        wide = inputs * 4
        parts = [*conv_norm(inputs, wide, 1), active(), *conv_norm(wide, wide, kernel, stride, wide), active()]
        if excite is not None:
            parts.append(excite)
        self.body = nn.Sequential(*parts, *conv_norm(wide, outputs, 1))
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return the body's result, with the input added where the shapes are equal."""
        return x + self.body(x) if self.has_shortcut else self.body(x)


def mobilenet_v3() -> nn.Module:
    """Return a MobileNetV3: ReLU blocks first, then hard swish; squeeze and excite with a hard sigmoid."""

    def excite(channels: int) -> nn.Module:
        return SqueezeExcite(channels, 8, nn.ReLU(), nn.Hardsigmoid())

    return nn.Sequential(
        *conv_norm(3, 8, 3, 2),
        nn.Hardswish(),
        InvertedResidual(8, 8, 3, 1, nn.ReLU, excite(32)),
        InvertedResidual(8, 16, 3, 2, nn.ReLU, None),
        InvertedResidual(16, 16, 5, 1, nn.Hardswish, excite(64)),
        InvertedResidual(16, 24, 5, 2, nn.Hardswish, excite(64)),
        *conv_norm(24, 64, 1),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(1),
        nn.Linear(64, 32),
        nn.Hardswish(),
        nn.Dropout(0.2),
        nn.Linear(32, 10),
    )


class StochasticDepth(nn.Module):
    """Stochastic depth: drop a residual branch at random during training; identity in evaluation mode."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the input, multiplied by a random 0 or 1 per sample during training."""
        return x * torch.empty(x.shape[0], 1, 1, 1).bernoulli_(0.9) if self.training else x


def efficientnet() -> nn.Module:
    """Return an EfficientNet: SiLU everywhere, squeeze and excite with a sigmoid."""

    def excite(channels: int) -> nn.Module:
        return SqueezeExcite(channels, 4, nn.SiLU(), nn.Sigmoid())

    return nn.Sequential(
        *conv_norm(3, 8, 3, 2),
        nn.SiLU(),
        InvertedResidual(8, 16, 3, 2, nn.SiLU, excite(32)),
        InvertedResidual(16, 16, 3, 1, nn.SiLU, excite(64)),
        StochasticDepth(),
        InvertedResidual(16, 24, 5, 2, nn.SiLU, excite(64)),
        InvertedResidual(24, 24, 5, 1, nn.SiLU, excite(96)),
        *conv_norm(24, 64, 1),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(1),
        nn.Dropout(0.2),
        nn.Linear(64, 10),
    )


NETWORKS = [
    Network("mobilenet_v3", mobilenet_v3, images(3, 64, 64), ("image",), ("logits",), exports=EVERY + VARIED),
    Network("efficientnet", efficientnet, images(3, 64, 64), ("image",), ("logits",), exports=ONCE + VARIED),
]
