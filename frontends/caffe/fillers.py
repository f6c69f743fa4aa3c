"""Fillers: contents of learned tensors that the weight file does not have.

Caffe fills the tensors of such a layer as at the start of training. Only fillers without random numbers are supported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tpuconvert.frontends.caffe.parameters import Parameters
from tpuconvert.schema.types import Array

CONSTANT, BILINEAR = "constant", "bilinear"


@dataclass(frozen=True)
class Filler:
    """A filler of a layer.

    Attributes:
        kind: its type in the prototxt.
        value: value of a constant.
    """

    kind: str
    value: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} {self.value:g}" if self.kind == CONSTANT else self.kind

    def fill(self, shape: tuple[int, ...]) -> Array | None:
        """Return a tensor with the content of this filler; None if it is random, or does not take the shape."""
        if self.kind == CONSTANT:
            return np.full(shape, self.value, np.float32)
        if self.kind != BILINEAR or len(shape) != 4 or shape[2] != shape[3]:
            return None
        factor = math.ceil(shape[3] / 2)
        center = (shape[3] - 1) / (2 * factor)
        line = 1 - np.abs(np.arange(shape[3]) / factor - center)
        plane = np.multiply.outer(line, line).astype(np.float32)
        return np.broadcast_to(plane, shape)


def filler_of(p: Parameters, name: str, default: Filler | None = None) -> Filler | None:
    """Return a filler of a layer, or the default if the prototxt has none.

    Caffe's own default, 0, makes a layer useless: the prototxt belongs to other weights. PReLU passes its own default.
    """
    if not p.has(name):
        return default
    group = p.group(name)
    return Filler(group.text("type"), group.number("value"))
