"""A short training on a synthetic task: classify images by the texture that lies over a random scene.

In a deep network with batch norms and random weights, the activations of different images hardly differ. The norms
amplify what is left: rounding errors of floats grow by a factor of 100 and more, and INT8 is out of the question. After
some steps of training the activations carry information, as in every network that is in use.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from zoo_networks.scenes import scene

CLASSES = 10
"""Number of textures: five frequencies in two orientations."""

STEPS = 60
BATCH = 32
POOL = 256
"""Number of images, from which each step draws a batch."""


@dataclass(frozen=True)
class Textures:
    """Random images with a class each. An instance is a function from the batch size to the arguments of ``forward``.

    Attributes:
        shape: channels, height and width.
    """

    shape: tuple[int, ...]

    def __call__(self, batch: int) -> tuple[Tensor]:
        """Return a batch of images."""
        return (self.labelled(batch)[0],)

    def labelled(self, batch: int) -> tuple[Tensor, Tensor]:
        """Return a batch of images and their classes."""
        classes = torch.randint(0, CLASSES, (batch,))
        return torch.stack([scene(self.shape) + self._texture(int(k)) for k in classes]), classes

    def _texture(self, class_: int) -> Tensor:
        """Return a plane wave. Its frequency and direction are those of the class, its phase and color are random."""
        channels, height, width = self.shape
        rows, columns = (torch.arange(extent) / extent for extent in (height, width))
        frequency, turn = 2 + 2 * (class_ // 2), class_ % 2 * math.pi / 2 + 0.3 * float(torch.randn(()))
        ways = rows[:, None] * math.sin(turn) + columns[None, :] * math.cos(turn)
        wave = torch.sin(2 * math.pi * (frequency * ways + torch.rand(())))
        return wave * (1 + 0.3 * torch.randn(channels, 1, 1))


def has_batch_norms(module: nn.Module) -> bool:
    """Return True if the module has a batch norm."""
    return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in module.modules())


def train(module: nn.Module, images: Textures, steps: int = STEPS) -> None:
    """Train a module to classify images. Results that are no class scores pass a linear layer that is dropped then."""
    pool, classes = images.labelled(POOL)
    with torch.no_grad():
        module.eval()
        features = flat(module(pool[:2]))
    head = nn.Identity() if features.shape[1] == CLASSES else nn.Linear(features.shape[1], CLASSES)
    weights = [values for values in (*module.parameters(), *head.parameters()) if values.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    module.train()
    for _ in range(steps):
        chosen = torch.randperm(POOL)[:BATCH]
        loss = nn.functional.cross_entropy(head(flat(module(pool[chosen]))), classes[chosen])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 5.0)
        optimizer.step()
        schedule.step()
    module.eval()


def flat(results: object) -> Tensor:
    """Return all floating point results of a module as one matrix, one row per sample."""
    tensors = [leaf for leaf in _pytree.tree_leaves(results) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    return torch.cat([leaf.flatten(1) for leaf in tensors], 1)
