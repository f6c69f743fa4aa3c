"""Axis orders: the one place where NHWC becomes NCHW and back.

TFLite keeps channels last, the operator set keeps them second. A layout-sensitive operator reads the NCHW twin of its
input (value ``t:nchw`` of tensor ``t``) and leaves the NCHW twin of its result; a Permute between the two forms of one
tensor is made when somebody asks for the other form, once. The optimizer cancels and moves what is left.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from tpuconvert.schema.graph import Value
from tpuconvert.schema.types import Array, QuantParams

NCHW = (0, 3, 1, 2)
"""Order that turns NHWC into NCHW: axis i of the result is axis ``NCHW[i]`` of the source."""

NCDHW = (0, 4, 1, 2, 3)
"""The same for NDHWC."""

_SUFFIXES = {NCHW: "nchw", NCDHW: "ncdhw"}


@dataclass(frozen=True)
class Permuted:
    """A value that holds a source tensor with its axes in another order."""

    value: Value
    order: tuple[int, ...]


def name_suffix(order: tuple[int, ...]) -> str:
    """What stands behind the tensor's name in the name of a value with another axis order."""
    return _SUFFIXES.get(order, "".join(map(str, order)))


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The order that undoes another one."""
    return tuple(int(axis) for axis in np.argsort(order))


def permute_array(array: Array, order: tuple[int, ...]) -> Array:
    """The elements in another axis order, contiguous."""
    return np.ascontiguousarray(array.transpose(order))


def permute_quant(quant: QuantParams | None, order: tuple[int, ...]) -> QuantParams | None:
    """The same parameters for the tensor in another axis order."""
    if quant is None or quant.axis is None:
        return quant
    return dataclasses.replace(quant, axis=order.index(quant.axis))
