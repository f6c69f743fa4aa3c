"""Fusion of a convolution between space_to_batch and batch_to_space into a dilated convolution.

With blocks of (a, b), every sample that space_to_batch produces contains every a-th row and b-th column, so that the
elements of the kernel are a rows and b columns apart in the image. The zeros that space_to_batch adds are padding;
batch_to_space crops the padding that was not needed.
"""

from __future__ import annotations

import dataclasses

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.space_to_batch import BatchToSpace, SpaceToBatch

BLOCKS = p(SpaceToBatch, "x", name="blocks", sole_user=True)


@rule(
    p(BatchToSpace, p(Conv, BLOCKS, "W", name="conv", sole_user=True), name="space"),
    stage="fold",
    sees_annotations=True,
    formerly="fuse_dilated_convolution",
)
def fuse_dilated_conv(graph: Graph, m: Match) -> Replacement:
    """``batch_to_space(conv(space_to_batch(x))) -> conv(x)`` with dilation, for equal blocks."""
    op, blocks, space = m.conv.op, m.blocks.op, m.space.op
    if blocks.block_size != space.block_size:
        return Skip("the blocks differ")
    if (op.stride_h, op.stride_w, op.dh, op.dw) != (1, 1, 1, 1):
        return Skip("the conv itself has strides or dilations")
    if any((op.pad_h_t, op.pad_h_b, op.pad_w_l, op.pad_w_r)):
        return Skip("the conv pads every block")
    if m.blocks.output.quant not in (None, m.x.quant) or m.conv.output.quant not in (None, m.space.output.quant):
        return Skip("the source file changes the quantization between them")
    top, bottom, left, right = (pad - crop for pad, crop in zip(blocks.pad, space.crop_size, strict=True))
    if min(top, bottom, left, right) < 0:
        return Skip("it crops more than was padded")
    dilated = dataclasses.replace(
        op,
        dh=blocks.block_size[0],
        dw=blocks.block_size[1],
        pad_h_t=top,
        pad_h_b=bottom,
        pad_w_l=left,
        pad_w_r=right,
    )
    return graph.add(dilated, m.x, *m.conv.inputs[1:])
