"""A border of constants before a convolution or a pooling becomes its own padding.

- A border around a border of the same number is one border.
- conv and an average that counts padding see zeros in their padding: a border of zeros is the same.
- The maximum passes over its padding. A border of the lowest numbers is the same; a border of zeros is where no element
  is negative. In both cases every window must hold an element of the image.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.optimizer.value_properties import is_never_negative
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType

_LOWEST = float(np.finfo(np.float32).min)


def _is_constant_border(node: Node) -> bool:
    return isinstance(node.op, Pad) and node.op.pad_mode is PadType.PAD_CONSTANT and node.outputs[0].dtype.is_float


BORDER = p(Pad, "x", name="pad", where=_is_constant_border)


@rule(
    p(Conv, BORDER, name="conv"),
    p(Conv, p(Permute, BORDER, name="permute", sole_user=True), name="conv"),
    stage="fold",
    formerly="merge_pad_into_convolution",
)
def fold_pad_into_conv(graph: Graph, m: Match) -> Replacement:
    """conv(pad(x)) is a conv with more padding; a permute may stand between."""
    paddings, pad, op = m.pad.op.paddings, m.pad.op, m.conv.op
    if m.binds("permute"):
        order = m.permute.op.order
        paddings = tuple(paddings[2 * axis + side] for axis in order for side in (0, 1))
    if pad.pad_val.value != 0:
        return Skip("the border is not zero")
    if any(paddings[:4]):
        return Skip("it pads samples or channels")
    x = m.x
    if m.binds("permute"):
        x = graph.add(m.permute.op, x, name=f"{m.permute.output.name}:unpadded")
        x.quant = m.x.quant
    top, bottom, left, right = paddings[4:]
    padded = dataclasses.replace(
        op,
        pad_h_t=op.pad_h_t + top,
        pad_h_b=op.pad_h_b + bottom,
        pad_w_l=op.pad_w_l + left,
        pad_w_r=op.pad_w_r + right,
    )
    return graph.add(padded, x, *m.conv.inputs[1:])


@rule(p(Pad, p(Pad, "x", name="inner", where=_is_constant_border, sole_user=True), name="outer"), stage="canonicalize")
def merge_pads(graph: Graph, m: Match) -> Replacement:
    """pad(pad(x)) with one number is one border."""
    inner, outer = m.inner.op, m.outer.op
    if outer.pad_mode is not PadType.PAD_CONSTANT or outer.pad_val != inner.pad_val:
        return Skip("the borders hold different numbers")
    paddings = tuple(a + b for a, b in zip(inner.paddings, outer.paddings, strict=True))
    return graph.add(dataclasses.replace(outer, paddings=paddings), m.x)


@rule(p(Pool, BORDER, name="pool"), stage="fold", formerly="merge_pad_into_pooling")
def fold_pad_into_pool(graph: Graph, m: Match) -> Replacement:
    """pool(pad(x)) is a pool with padding, where both see the same numbers."""
    op, pad = m.pool.op, m.pad.op
    if any(pad.paddings[:4]):
        return Skip("it pads samples or channels")
    if op.is_global_pooling or op.is_ceil_mode or op.ensure_pool_image:
        return Skip("the windows of the pooling depend on what is padding")
    if any((op.pad_h, op.pad_w, op.pad_h_offset, op.pad_w_offset)):
        return Skip("the pooling has padding of its own")
    declined = _differs_in_average(m) if op.pooling_type == PoolType.AVE else _differs_in_maximum(m)
    if declined:
        return Skip(declined)
    top, bottom, left, right = pad.paddings[4:]
    padded: Op = dataclasses.replace(
        op,
        pad_h=top,
        pad_w=left,
        pad_h_offset=bottom - top,
        pad_w_offset=right - left,
        is_ave_count_zero_pad=True,
    )
    return graph.add(padded, m.x)


def _differs_in_average(m: Match) -> str:
    return "" if m.pad.op.pad_val.value == 0 else "the border is not zero"


def _differs_in_maximum(m: Match) -> str:
    op, value = m.pool.op, m.pad.op.pad_val.value
    top, bottom, left, right = m.pad.op.paddings[4:]
    if max(top, bottom) >= op.kernel_h or max(left, right) >= op.kernel_w:
        return "a window can lie in the border"
    if value <= _LOWEST or (value == 0 and is_never_negative(m.x)):
        return ""
    return "the border can be larger than the image"
