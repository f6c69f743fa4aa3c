"""Axis orders; no other module converts between NHWC and NCHW.

TFLite keeps channels last, the TPU operator set keeps them second. A layout-sensitive operator reads the NCHW copy of
its input (value ``t:nchw`` of tensor ``t``) and returns an NCHW result. A Permute between two layouts of a tensor is
added once, when an operator needs the other layout. The optimizer moves and cancels them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.types import QuantParams

NCHW = (0, 3, 1, 2)
"""Permutation from NHWC to NCHW: axis i of the result is axis ``NCHW[i]`` of the source."""

NCDHW = (0, 4, 1, 2, 3)
"""Permutation from NDHWC to NCDHW."""

_SUFFIXES = {NCHW: "nchw", NCDHW: "ncdhw"}


@dataclass(frozen=True)
class Permuted:
    """A source tensor with permuted axes: its value, and the permutation."""

    value: Value
    order: tuple[int, ...]


def name_suffix(order: tuple[int, ...]) -> str:
    """Suffix of the name of a value with permuted axes."""
    return _SUFFIXES.get(order, "".join(map(str, order)))


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """Inverse of a permutation."""
    return tuple(int(axis) for axis in np.argsort(order))


def permute_quant(quant: QuantParams | None, order: tuple[int, ...]) -> QuantParams | None:
    """Quantization parameters of the permuted tensor."""
    if quant is None or quant.axis is None:
        return quant
    return dataclasses.replace(quant, axis=order.index(quant.axis))
