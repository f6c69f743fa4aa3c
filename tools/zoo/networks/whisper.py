"""Whisper (Radford et al., 2022): encoder of spectrograms, decoder, and decoder with key and value caches."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.zoo.networks.network import Network

MELS, FRAMES, CHANNELS, HEADS, WORDS, CONTEXT, LAYERS = 16, 40, 32, 4, 50, 16, 2
PAST = 5


class Attention(nn.Module):
    """Multi-head attention; keys have no bias."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.value, self.out = (nn.Linear(CHANNELS, CHANNELS) for _ in range(3))
        self.key = nn.Linear(CHANNELS, CHANNELS, bias=False)

    def heads(self, x: Tensor) -> Tensor:
        """Split the channels into heads: [batch, heads, positions, channels of a head]."""
        return x.view(x.shape[0], x.shape[1], HEADS, CHANNELS // HEADS).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the result of attention with the queries of ``x``; ``k`` and ``v`` are already split into heads."""
        scale = (CHANNELS // HEADS) ** -0.25
        scores = (self.heads(self.query(x)) * scale) @ (k * scale).transpose(2, 3)
        if mask is not None:
            scores = scores + mask[: scores.shape[-2], : scores.shape[-1]]
        found = functional.softmax(scores.float(), -1).to(x.dtype) @ v
        return self.out(found.permute(0, 2, 1, 3).flatten(2))


class Block(nn.Module):
    """Self-attention, optional cross-attention to the encoder, two linear layers."""

    def __init__(self, has_cross: bool) -> None:
        super().__init__()
        self.attention, self.norm1 = Attention(), nn.LayerNorm(CHANNELS)
        self.cross = Attention() if has_cross else None
        self.norm2 = nn.LayerNorm(CHANNELS) if has_cross else None
        self.mlp = nn.Sequential(nn.Linear(CHANNELS, 4 * CHANNELS), nn.GELU(), nn.Linear(4 * CHANNELS, CHANNELS))
        self.norm3 = nn.LayerNorm(CHANNELS)

    def forward(
        self, x: Tensor, audio: Tensor | None, mask: Tensor | None, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the state, and all keys and values of the self-attention."""
        normal = self.norm1(x)
        k, v = self.attention.heads(self.attention.key(normal)), self.attention.heads(self.attention.value(normal))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        x = x + self.attention(normal, k, v, mask)
        if self.cross is not None and self.norm2 is not None and audio is not None:
            cross = self.cross
            x = x + cross(self.norm2(x), cross.heads(cross.key(audio)), cross.heads(cross.value(audio)))
        return x + self.mlp(self.norm3(x)), k, v


class Encoder(nn.Module):
    """Encoder: two convs over time, sinusoidal position embedding, blocks."""

    positions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(MELS, CHANNELS, 3, padding=1)
        self.conv2 = nn.Conv1d(CHANNELS, CHANNELS, 3, 2, 1)
        steps = torch.exp(-math.log(10000) / (CHANNELS // 2 - 1) * torch.arange(CHANNELS // 2))
        angles = torch.arange(FRAMES // 2)[:, None] * steps[None, :]
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], 1))
        self.blocks = nn.ModuleList(Block(False) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(CHANNELS)

    def forward(self, mel: Tensor) -> Tensor:
        """Return the audio features: [batch, frames / 2, channels]."""
        x = functional.gelu(self.conv2(functional.gelu(self.conv1(mel)))).permute(0, 2, 1)
        x = (x + self.positions).to(x.dtype)
        for block in self.blocks:
            x, _, _ = block(x, None, None, None)
        return self.norm(x)


class Decoder(nn.Module):
    """Decoder: token and position embedding, blocks with a causal mask, logits computed with the embedding weights."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(WORDS, CHANNELS)
        self.positions = nn.Parameter(torch.randn(CONTEXT, CHANNELS) * 0.3)
        self.blocks = nn.ModuleList(Block(True) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(CHANNELS)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), -math.inf).triu_(1))

    def forward(self, tokens: Tensor, audio: Tensor, past: Any = None) -> Any:
        """Return logits; with a cache the new keys and values also."""
        offset = past[0][0].shape[2] if past is not None else 0
        x = self.tokens(tokens) + self.positions[offset : offset + tokens.shape[-1]]
        present = []
        for k, block in enumerate(self.blocks):
            x, key, value = block(x, audio, None if past is not None else self.mask, past and past[k])
            present += [key, value]
        logits = self.norm(x) @ self.tokens.weight.transpose(0, 1)
        return (logits, *present) if past is not None else logits


def words(batch: int, count: int) -> Tensor:
    """Return random tokens."""
    return torch.randint(0, WORDS, (batch, count))


def first_step(batch: int) -> tuple[Tensor, Tensor]:
    """Return tokens and audio features."""
    return words(batch, 6), torch.randn(batch, FRAMES // 2, CHANNELS)


def next_step(batch: int) -> tuple[Any, ...]:
    """Return one token, audio features, and the keys and values of earlier tokens."""

    def cache() -> Tensor:
        return torch.randn(batch, HEADS, PAST, CHANNELS // HEADS)

    past = tuple((cache(), cache()) for _ in range(LAYERS))
    return words(batch, 1), torch.randn(batch, FRAMES // 2, CHANNELS), past


CACHE = tuple(f"{what}.{layer}" for layer in range(LAYERS) for what in ("key", "value"))


def spectrogram(batch: int) -> tuple[Tensor]:
    """Return random mel bands."""
    return (torch.randn(batch, MELS, FRAMES),)


NETWORKS = [
    Network("whisper_encoder", Encoder, spectrogram, ("mel",), ("audio",), family="whisper"),
    Network("whisper_decoder", Decoder, first_step, ("tokens", "audio"), ("logits",), family="whisper"),
    Network(
        "whisper_decoder_kv",
        Decoder,
        next_step,
        ("tokens", "audio", *(f"past_{name}" for name in CACHE)),
        ("logits", *(f"present_{name}" for name in CACHE)),
        family="whisper",
    ),
]
