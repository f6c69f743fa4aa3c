"""ConvNeXt (Liu et al., 2022)."""

import torch
from torch import Tensor, nn

from tools.zoo.networks.network import ONCE, VARIED, Network, images


class ChannelNorm(nn.LayerNorm):
    """Layer normalization over the channels of an image."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized image; the axes are permuted to channels-last and back."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    """Depthwise 7x7 conv, layer normalization, two linear layers with GELU, layer scale, residual add."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))
        self.scale = nn.Parameter(torch.empty(channels).uniform_(0.5, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the image and the result of the block."""
        change = self.scale * self.mlp(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        return x + change.permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    """Return a ConvNeXt of three stages."""
    parts: list[nn.Module] = [nn.Conv2d(3, 16, 4, 4), ChannelNorm(16, eps=1e-6)]
    for channels in (16, 32):
        parts += [Block(channels), Block(channels), ChannelNorm(channels, eps=1e-6)]
        parts.append(nn.Conv2d(channels, 2 * channels, 2, 2))
    head = [nn.AdaptiveAvgPool2d(1), ChannelNorm(64, eps=1e-6), nn.Flatten(1), nn.Linear(64, 10)]
    return nn.Sequential(*parts, Block(64), *head)


NETWORKS = [Network("convnext", convnext, images(3, 64, 64), ("image",), ("logits",), exports=ONCE + VARIED)]
