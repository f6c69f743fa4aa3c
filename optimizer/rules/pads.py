"""Folding of constant pads into convolutions and poolings.

- Nested pads with equal pad values are merged.
- Convolutions, and averages that count padding, treat their padding as zeros: a pad with zeros is folded into it.
- Max pooling ignores its padding. A pad with the lowest number is equivalent to it, and so is a pad with zeros if no
  element is negative. In both cases every window must contain an element of the image.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.optimizer.rules.value_properties import is_never_negative
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType

_LOWEST = float(np.finfo(np.float32).min)


def _is_constant_pad(node: Node) -> bool:
    return isinstance(node.op, Pad) and node.op.pad_mode is PadType.PAD_CONSTANT and node.outputs[0].dtype.is_float


PAD = p(Pad, "x", name="pad", where=_is_constant_pad)


@rule(p(Conv, PAD, name="conv"), p(Conv, p(Permute, PAD, name="permute", sole_user=True), name="conv"), stage="fold")
def fold_pad_into_conv(graph: Graph, m: Match) -> Replacement:
    """``conv(pad(x)) -> conv(x)`` with more padding. A permute may be in between."""
    paddings, pad, op = m.pad.op.paddings, m.pad.op, m.conv.op
    if m.binds("permute"):
        order = m.permute.op.order
        paddings = tuple(paddings[2 * axis + side] for axis in order for side in (0, 1))
    if pad.pad_val.value != 0:
        return Skip("the pad value is not zero")
    if any(paddings[:4]):
        return Skip("it pads the batch or channel axis")
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


@rule(p(Pad, p(Pad, "x", name="inner", where=_is_constant_pad, sole_user=True), name="outer"), stage="canonicalize")
def merge_pads(graph: Graph, m: Match) -> Replacement:
    """``pad(pad(x)) -> pad(x)`` if the pad values are equal."""
    inner, outer = m.inner.op, m.outer.op
    if outer.pad_mode is not PadType.PAD_CONSTANT or outer.pad_val != inner.pad_val:
        return Skip("the pad values differ")
    paddings = tuple(a + b for a, b in zip(inner.paddings, outer.paddings, strict=True))
    return graph.add(dataclasses.replace(outer, paddings=paddings), m.x)


@rule(p(Pool, PAD, name="pool"), stage="fold")
def fold_pad_into_pool(graph: Graph, m: Match) -> Replacement:
    """``pool(pad(x)) -> pool(x)`` with padding, if the result is the same."""
    op, pad = m.pool.op, m.pad.op
    if any(pad.paddings[:4]):
        return Skip("it pads the batch or channel axis")
    if op.is_global_pooling or op.is_ceil_mode or op.ensure_pool_image:
        return Skip("the pooling result depends on which elements are padding")
    if any((op.pad_h, op.pad_w, op.pad_h_offset, op.pad_w_offset)):
        return Skip("the pooling itself pads")
    if reason := _why_different(m):
        return Skip(reason)
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


def _why_different(m: Match) -> str:
    """Return the reason why padding of the pool would give a different result from the pad, or an empty string."""
    op, value = m.pool.op, m.pad.op.pad_val.value
    if op.pooling_type == PoolType.AVE:
        return "" if value == 0 else "the pad value is not zero"
    top, bottom, left, right = m.pad.op.paddings[4:]
    if max(top, bottom) >= op.kernel_h or max(left, right) >= op.kernel_w:
        return "a window can be entirely in the padding"
    if value <= _LOWEST or (value == 0 and is_never_negative(m.x)):
        return ""
    return "the padding can be larger than the image"
