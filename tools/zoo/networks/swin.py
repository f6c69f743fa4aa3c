"""Swin transformers (Liu et al., 2021): windows, shifted by ``roll`` in every second block."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.zoo.networks.network import Network, images

WINDOW = 4


class WindowAttention(nn.Module):
    """Attention within windows, with a bias per relative position."""

    index: Tensor

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.table = nn.Parameter(torch.randn((2 * WINDOW - 1) ** 2, heads) * 0.5)
        places = torch.stack(torch.meshgrid(torch.arange(WINDOW), torch.arange(WINDOW), indexing="ij")).flatten(1)
        relative = (places[:, :, None] - places[:, None, :]) + WINDOW - 1
        self.register_buffer("index", (relative[0] * (2 * WINDOW - 1) + relative[1]).flatten())

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the windows after attention; ``mask`` is added to the scores of each image's windows."""
        count, places, channels = x.shape
        qkv = self.qkv(x).reshape(count, places, 3, self.heads, channels // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = (q * (channels // self.heads) ** -0.5) @ k.transpose(-2, -1)
        bias = self.table[self.index].view(places, places, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        scores = scores + bias
        if mask is not None:
            windows = mask.shape[0]
            scores = scores.view(count // windows, windows, self.heads, places, places) + mask.unsqueeze(1).unsqueeze(0)
            scores = scores.view(-1, self.heads, places, places)
        return self.proj((functional.softmax(scores, -1) @ v).transpose(1, 2).reshape(count, places, channels))


def shift_mask(height: int, width: int, shift: int, like: Tensor) -> Tensor:
    """Return the mask of shifted windows: -100 for pairs of positions that are not neighbors in the image, else 0."""
    regions = like.new_zeros((height, width))
    edges = ((0, -WINDOW), (-WINDOW, -shift), (-shift, None))
    count = 0
    for top, bottom in edges:
        for left, right in edges:
            regions[top:bottom, left:right] = count
            count += 1
    regions = regions.view(height // WINDOW, WINDOW, width // WINDOW, WINDOW).permute(0, 2, 1, 3)
    regions = regions.reshape(-1, WINDOW * WINDOW)
    differ = regions.unsqueeze(1) - regions.unsqueeze(2)
    return differ.masked_fill(differ != 0, -100.0).masked_fill(differ == 0, 0.0)


class Block(nn.Module):
    """Window attention and two linear layers, each with a residual add.

    Args:
        channels: number of channels of the image.
        side: extent of the image.
        shift: shift of the windows in pixels.
        is_stored: True if the mask is a constant of the module; otherwise ``forward`` computes it.
    """

    mask: Tensor | None

    def __init__(self, channels: int, side: int, shift: int, is_stored: bool) -> None:
        super().__init__()
        self.shift = shift
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.attention = WindowAttention(channels, 2)
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))
        self.is_stored = is_stored
        mask = shift_mask(side, side, shift, torch.zeros(1)) if is_stored and shift else None
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        """Return the image, channels last."""
        return (y := x + self.windows(self.norm1(x))) + self.mlp(self.norm2(y))

    def windows(self, x: Tensor) -> Tensor:
        """Return the image after attention within windows."""
        batch, height, width, channels = x.shape
        if self.shift:
            x = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))
        x = x.view(batch, height // WINDOW, WINDOW, width // WINDOW, WINDOW, channels)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(-1, WINDOW * WINDOW, channels)
        mask = self.mask
        if self.shift and not self.is_stored:
            mask = shift_mask(height, width, self.shift, x)
        x = self.attention(x, mask)
        x = x.view(batch, height // WINDOW, width // WINDOW, WINDOW, WINDOW, channels)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, channels)
        if self.shift:
            x = torch.roll(x, shifts=(self.shift, self.shift), dims=(1, 2))
        return x


class Merge(nn.Module):
    """Patch merging: concatenate four neighboring pixels along the channels; a linear layer halves the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * channels), nn.Linear(4 * channels, 2 * channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the image with half the height and width."""
        parts = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
        return self.reduce(self.norm(torch.cat(parts, -1)))


class Swin(nn.Module):
    """Patches, two stages of a plain and a shifted block, mean, classifier."""

    def __init__(self, is_stored: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.norm = nn.LayerNorm(16)
        shift = WINDOW // 2
        self.stages = nn.Sequential(
            Block(16, 16, 0, is_stored),
            Block(16, 16, shift, is_stored),
            Merge(16),
            Block(32, 8, 0, is_stored),
            Block(32, 8, shift, is_stored),
        )
        self.last, self.classifier = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        x = self.last(self.stages(self.norm(self.patches(x).permute(0, 2, 3, 1))))
        pooled = functional.adaptive_avg_pool2d(x.permute(0, 3, 1, 2), 1)
        return self.classifier(pooled.flatten(1))


NETWORKS = [
    Network(name, partial(Swin, is_stored), images(3, 64, 64), ("image",), ("logits",), family="swin")
    for name, is_stored in (("swin", True), ("swin_mask_computed", False))
]
