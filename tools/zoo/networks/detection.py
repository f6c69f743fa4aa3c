"""DETR (Carion et al., 2020) and a CenterNet head that selects its detections (Zhou et al., 2019)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.zoo.networks.network import Network, images
from tools.zoo.networks.resnet import ResNet


def sine_positions(mask: Tensor, half: int) -> Tensor:
    """Return the position embedding of the positions where the mask is false: [batch, 2 * half, height, width]."""
    present = (~mask).float()
    rows, columns = present.cumsum(1), present.cumsum(2)
    rows = rows / (rows[:, -1:, :] + 1e-6) * 2 * math.pi
    columns = columns / (columns[:, :, -1:] + 1e-6) * 2 * math.pi
    steps = torch.arange(half, dtype=torch.float32)
    steps = 10000 ** (2 * torch.div(steps, 2, rounding_mode="floor") / half)
    parts = []
    for position in (rows, columns):
        angles = position[:, :, :, None] / steps
        pair = torch.stack((angles[:, :, :, 0::2].sin(), angles[:, :, :, 1::2].cos()), 4)
        parts.append(pair.flatten(3))
    return torch.cat(parts, 3).permute(0, 3, 1, 2)


class EncoderLayer(nn.Module):
    """Self-attention with positions added to queries and keys, then an MLP; normalization after each of them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(channels, 4)
        self.mlp = nn.Sequential(nn.Linear(channels, 2 * channels), nn.ReLU(), nn.Linear(2 * channels, channels))
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)

    def forward(self, x: Tensor, positions: Tensor, padding: Tensor) -> Tensor:
        """Return the encoder's result: [positions, batch, channels]."""
        q = x + positions
        x = self.norm1(x + self.attention(q, q, x, key_padding_mask=padding)[0])
        return self.norm2(x + self.mlp(x))


class DecoderLayer(nn.Module):
    """Self-attention of the queries, then cross-attention to the encoder's result."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.attention, self.cross = nn.MultiheadAttention(channels, 4), nn.MultiheadAttention(channels, 4)
        self.mlp = nn.Sequential(nn.Linear(channels, 2 * channels), nn.ReLU(), nn.Linear(2 * channels, channels))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(channels) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, positions: Tensor, queries: Tensor, padding: Tensor) -> Tensor:
        """Return the queries' state: [queries, batch, channels]."""
        q = x + queries
        x = self.norm1(x + self.attention(q, q, x)[0])
        found = self.cross(x + queries, memory + positions, memory, key_padding_mask=padding)[0]
        x = self.norm2(x + found)
        return self.norm3(x + self.mlp(x))


class Detr(nn.Module):
    """ResNet, encoder, decoder with learned queries, heads for classes and boxes."""

    def __init__(self, channels: int = 32, queries: int = 8, classes: int = 5) -> None:
        super().__init__()
        self.backbone = ResNet(False)
        self.project = nn.Conv2d(32, channels, 1)
        self.encoder = nn.ModuleList(EncoderLayer(channels) for _ in range(2))
        self.decoder = nn.ModuleList(DecoderLayer(channels) for _ in range(2))
        self.queries = nn.Embedding(queries, channels)
        self.classes = nn.Linear(channels, classes + 1)
        self.boxes = nn.Sequential(nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, 4))
        self.half = channels // 2

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return class logits and boxes."""
        features = self.backbone.features(x)
        batch, _, height, width = features.shape
        mask = torch.zeros((batch, height, width), dtype=torch.bool)
        positions = sine_positions(mask, self.half).flatten(2).permute(2, 0, 1)
        memory = self.project(features).flatten(2).permute(2, 0, 1)
        padding = mask.flatten(1)
        for layer in self.encoder:
            memory = layer(memory, positions, padding)
        queries = self.queries.weight.unsqueeze(1).repeat(1, batch, 1)
        state = torch.zeros_like(queries)
        for layer in self.decoder:
            state = layer(state, memory, positions, queries, padding)
        state = state.transpose(0, 1)
        return self.classes(state), self.boxes(state).sigmoid()


class CenterNet(nn.Module):
    """Heat maps whose local maxima are the detections. The ``count`` highest maxima are gathered."""

    count = 10

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.backbone = ResNet(False)
        self.heat, self.size = nn.Conv2d(32, classes, 3, padding=1), nn.Conv2d(32, 2, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return boxes, scores and classes."""
        features = self.backbone.features(x)
        heat, size = self.heat(features).sigmoid(), self.size(features)
        batch, _, height, width = heat.shape
        heat = heat * (functional.max_pool2d(heat, 3, 1, 1) == heat).float()
        scores, index = torch.topk(heat.view(batch, -1), self.count)
        classes = torch.div(index, height * width, rounding_mode="floor")
        place = index % (height * width)
        rows, columns = torch.div(place, width, rounding_mode="floor").float(), (place % width).float()
        flat = size.permute(0, 2, 3, 1).reshape(batch, -1, 2)
        sizes = flat.gather(1, place.unsqueeze(2).expand(batch, self.count, 2))
        boxes = torch.cat((columns.unsqueeze(2), rows.unsqueeze(2), sizes), 2)
        return boxes, scores, classes


NETWORKS = [
    Network("detr", Detr, images(3, 64, 64), ("image",), ("logits", "boxes")),
    Network("centernet", CenterNet, images(3, 64, 64), ("image",), ("boxes", "scores", "classes")),
]
