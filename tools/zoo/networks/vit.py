"""Vision transformer (Dosovitskiy et al., 2020) with PyTorch's own multi-head attention."""

import torch
from torch import Tensor, nn

from tools.zoo.networks.network import EVERY, VARIED, Network, images


class Block(nn.Module):
    """Self-attention and two linear layers, each after a normalization and with a residual add."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(channels, eps=1e-6), nn.LayerNorm(channels, eps=1e-6)
        self.attention = nn.MultiheadAttention(channels, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return the tokens."""
        normal = self.norm1(x)
        x = x + self.attention(normal, normal, normal, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    """Patches, class token, position embedding, encoder, classifier."""

    def __init__(self, channels: int = 32, patches: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, channels, 16, 16)
        self.token = nn.Parameter(torch.randn(1, 1, channels))
        self.positions = nn.Parameter(torch.randn(1, patches + 1, channels) * 0.3)
        self.blocks = nn.Sequential(*(Block(channels) for _ in range(3)))
        self.norm, self.classifier = nn.LayerNorm(channels, eps=1e-6), nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        batch = x.shape[0]
        tokens = self.patches(x).reshape(batch, self.token.shape[-1], -1).permute(0, 2, 1)
        tokens = torch.cat([self.token.expand(batch, -1, -1), tokens], 1) + self.positions
        return self.classifier(self.norm(self.blocks(tokens))[:, 0])


NETWORKS = [Network("vit", Vit, images(3, 64, 64), ("image",), ("logits",), exports=EVERY + VARIED)]
