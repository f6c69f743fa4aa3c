"""Language models whose keys and values are inputs and outputs: GPT-2 (2019) and Llama (2023)."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.zoo.networks.network import EVERY, Network

CHANNELS, HEADS, WORDS, CONTEXT, LAYERS = 32, 4, 60, 24, 2
SIZE = CHANNELS // HEADS
GROUPS = 2
PAST, NEW = 6, 3


class GptAttention(nn.Module):
    """Attention with one linear layer for queries, keys and values, and a stored causal mask."""

    causal: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        causal = torch.tril(torch.ones(CONTEXT, CONTEXT, dtype=torch.bool)).view(1, 1, CONTEXT, CONTEXT)
        self.register_buffer("causal", causal)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor], mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the state, and all keys and values."""
        q, k, v = (
            part.view(part.shape[0], part.shape[1], HEADS, SIZE).permute(0, 2, 1, 3)
            for part in self.qkv(x).split(CHANNELS, dim=2)
        )
        k, v = torch.cat((past[0], k), -2), torch.cat((past[1], v), -2)
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(SIZE)
        new, every = q.shape[-2], k.shape[-2]
        is_seen = self.causal[:, :, every - new : every, :every]
        scores = torch.where(is_seen, scores, torch.full([], torch.finfo(scores.dtype).min)) + mask
        heads = torch.matmul(functional.softmax(scores, -1), v)
        return self.out(heads.permute(0, 2, 1, 3).reshape(x.shape)), k, v


class GptBlock(nn.Module):
    """Attention and two linear layers with GELU in tanh approximation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(CHANNELS), nn.LayerNorm(CHANNELS), GptAttention()
        gelu = nn.GELU(approximate="tanh")
        self.mlp = nn.Sequential(nn.Linear(CHANNELS, 4 * CHANNELS), gelu, nn.Linear(4 * CHANNELS, CHANNELS))

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor], mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the state, and all keys and values."""
        attended, k, v = self.attention(self.norm1(x), past, mask)
        x = x + attended
        return x + self.mlp(self.norm2(x)), k, v


class Gpt(nn.Module):
    """GPT-2: positions are counted from the attention mask."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(WORDS, CHANNELS), nn.Embedding(CONTEXT, CHANNELS)
        self.blocks = nn.ModuleList(GptBlock() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(CHANNELS), nn.Linear(CHANNELS, WORDS, bias=False)

    def forward(self, tokens: Tensor, attention_mask: Tensor, past: Any) -> Any:
        """Return logits, and all keys and values of every layer."""
        places = (attention_mask.long().cumsum(-1) - 1).masked_fill(attention_mask == 0, 1)[:, -tokens.shape[1] :]
        mask = (1.0 - attention_mask[:, None, None, :].to(torch.float32)) * torch.finfo(torch.float32).min
        x = self.tokens(tokens) + self.positions(places)
        present = []
        for block, of_layer in zip(self.blocks, past, strict=True):
            x, k, v = block(x, of_layer, mask)
            present += [k, v]
        return (self.head(self.norm(x)), *present)


class RmsNorm(nn.Module):
    """RMS normalization: division by the root of the mean square."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(CHANNELS).uniform_(0.5, 1.5))

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized state."""
        wide = x.to(torch.float32)
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return the rotary position embedding of queries or keys."""
    first, second = x[..., : SIZE // 2], x[..., SIZE // 2 :]
    return x * cos + torch.cat((-second, first), -1) * sin


class LlamaBlock(nn.Module):
    """Grouped-query attention with rotary positions, and the gated linear layers of SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(), RmsNorm()
        self.query, self.out = nn.Linear(CHANNELS, CHANNELS, False), nn.Linear(CHANNELS, CHANNELS, False)
        self.key, self.value = (nn.Linear(CHANNELS, GROUPS * SIZE, False) for _ in range(2))
        self.gate, self.up = (nn.Linear(CHANNELS, 3 * CHANNELS, False) for _ in range(2))
        self.down = nn.Linear(3 * CHANNELS, CHANNELS, False)

    def forward(
        self, x: Tensor, past: tuple[Tensor, Tensor], cos: Tensor, sin: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the state, and all keys and values."""
        batch, new, _ = x.shape
        normal = self.norm1(x)
        q = rotate(self.query(normal).view(batch, new, HEADS, SIZE).transpose(1, 2), cos, sin)
        k = rotate(self.key(normal).view(batch, new, GROUPS, SIZE).transpose(1, 2), cos, sin)
        v = self.value(normal).view(batch, new, GROUPS, SIZE).transpose(1, 2)
        k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        wide = [self.repeat(part) for part in (k, v)]
        heads = functional.scaled_dot_product_attention(q, wide[0], wide[1], attn_mask=mask)
        x = x + self.out(heads.transpose(1, 2).reshape(batch, new, CHANNELS))
        normal = self.norm2(x)
        return x + self.down(functional.silu(self.gate(normal)) * self.up(normal)), k, v

    @staticmethod
    def repeat(x: Tensor) -> Tensor:
        """Return keys or values repeated for all heads of each group."""
        batch, _, length, _ = x.shape
        wide = x[:, :, None, :, :].expand(batch, GROUPS, HEADS // GROUPS, length, SIZE)
        return wide.reshape(batch, HEADS, length, SIZE)


class Llama(nn.Module):
    """Llama: a causal mask with -inf, computed from the positions."""

    inverse: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(WORDS, CHANNELS)
        self.blocks = nn.ModuleList(LlamaBlock() for _ in range(LAYERS))
        self.norm, self.head = RmsNorm(), nn.Linear(CHANNELS, WORDS, bias=False)
        self.register_buffer("inverse", 1.0 / (10000 ** (torch.arange(0, SIZE, 2).float() / SIZE)))

    def forward(self, tokens: Tensor, position_ids: Tensor, past: Any) -> Any:
        """Return logits, and all keys and values of every layer."""
        x = self.tokens(tokens)
        inverse = self.inverse[None, :, None].float().expand(position_ids.shape[0], -1, 1)
        angles = (inverse @ position_ids[:, None, :].float()).transpose(1, 2)
        angles = torch.cat((angles, angles), -1).unsqueeze(1)
        places = torch.arange(past[0][0].shape[2] + tokens.shape[1])
        is_future = places[None, None, None, :] > position_ids[:, None, :, None]
        mask = torch.zeros(is_future.shape).masked_fill(is_future, -math.inf)
        present = []
        for block, of_layer in zip(self.blocks, past, strict=True):
            x, k, v = block(x, of_layer, angles.cos(), angles.sin(), mask)
            present += [k, v]
        return (self.head(self.norm(x)), *present)


def caches(batch: int, heads: int) -> tuple[tuple[Tensor, Tensor], ...]:
    """Return random keys and values of every layer."""
    shape = (batch, heads, PAST, SIZE)
    return tuple((torch.randn(shape), torch.randn(shape)) for _ in range(LAYERS))


def gpt_step(batch: int) -> tuple[Any, ...]:
    """Return tokens, an attention mask whose first positions may be padding, and a cache."""
    mask = (torch.arange(PAST + NEW)[None] >= torch.randint(0, 3, (batch, 1))).long()
    return torch.randint(0, WORDS, (batch, NEW)), mask, caches(batch, HEADS)


def llama_step(batch: int) -> tuple[Any, ...]:
    """Return tokens, their positions, and a cache."""
    places = torch.arange(PAST, PAST + NEW)[None].repeat(batch, 1)
    return torch.randint(0, WORDS, (batch, NEW)), places, caches(batch, GROUPS)


CACHE = tuple(f"{what}.{layer}" for layer in range(LAYERS) for what in ("key", "value"))
PAST_NAMES = tuple(f"past_{name}" for name in CACHE)
OUTPUTS = ("logits", *(f"present_{name}" for name in CACHE))

NETWORKS = [
    Network("gpt", Gpt, gpt_step, ("tokens", "attention_mask", *PAST_NAMES), OUTPUTS),
    Network("llama", Llama, llama_step, ("tokens", "position_ids", *PAST_NAMES), OUTPUTS, exports=EVERY),
]
