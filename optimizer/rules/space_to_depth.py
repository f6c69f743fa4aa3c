"""Folding of space to depth, and of space_to_batch and batch_to_space, into the convolution next to them.

Space to depth with blocks of b computes channel (dy, dx, c) of element (i, j) from x[c, b * i + dy, b * j + dx], with
the channels in any order. Exporters write it as reshape, permute and reshape, or as a concat of b * b slices with steps
of b. A convolution of it with kernel k, stride s and padding p reads the same elements of x with the same weights as
one with kernel b * k, stride b * s and padding b * p:

    w'[o, c, b * ky + dy, b * kx + dx] = w[o, (dy, dx, c), ky, kx].

With blocks of (a, b), every sample that space_to_batch produces consists of every a-th row and b-th column of the
image. The kernel therefore has dilations of a and b in the image. The zeros that space_to_batch adds become padding of
the convolution, less the rows and columns that batch_to_space crops.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tpuconvert.optimizer.engine.annotations import rounds
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import operand, operands
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.optimizer.rules.strided_view import View
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.space_to_batch import BatchToSpace, SpaceToBatch
from tpuconvert.schema.types import Array

_LONGEST = 5


class _Blocks(NamedTuple):
    """A space to depth: its operand, the block size, and the position of the first element of every channel."""

    x: Value
    size: int
    begin: Array


def _blocks(value: Value) -> _Blocks | None:
    node = value.producer
    if node is None or not _is_image(value):
        return None
    if isinstance(node.op, Concat) and node.op.axis % 4 != 1:
        return None
    parts = [_part(item) for item in (operands(node) if isinstance(node.op, Concat) else [value])]
    known_parts = [part for part in parts if part is not None]
    if len(known_parts) != len(parts) or any(
        part.x is not known_parts[0].x or part.size != known_parts[0].size for part in known_parts
    ):
        return None
    x, size = known_parts[0].x, known_parts[0].size
    begin = np.concatenate([part.begin for part in known_parts])
    samples, channels, height, width = x.type.static_shape
    if value.shape != (samples, channels * size * size, height // size, width // size):
        return None
    plane = np.add.outer(np.arange(size) * width, np.arange(size)).reshape(-1)
    expected = np.add.outer(np.arange(channels) * height * width, plane).reshape(-1)
    return _Blocks(x, size, begin) if np.array_equal(np.sort(begin), expected) else None


def _is_image(value: Value) -> bool:
    return value.rank == 4 and value.type.is_static and 0 not in value.shape


def _part(value: Value) -> _Blocks | None:
    """Find a tensor above ``value`` of which each channel of ``value`` has every ``size``-th row and column."""
    nodes: list[Node] = []
    while (node := value.producer) is not None and len(nodes) < _LONGEST:
        if Trait.VIEWS not in node.op.traits or rounds(node):
            break
        nodes.insert(0, node)
        value = operand(node)
        seen = _seen_from(value, nodes)
        if seen is not None:
            return seen
    return None


def _seen_from(x: Value, nodes: Sequence[Node]) -> _Blocks | None:
    view = View.after_all(x.type.static_shape, nodes) if _is_image(x) else None
    if view is None or len(view.axes) != 4:
        return None
    samples, channels, height, width = x.type.static_shape
    sizes = {height // view.shape[2], width // view.shape[3]}
    size = max(sizes)
    if len(sizes) != 1 or size < 2 or height % size or width % size or view.shape[0] != samples:
        return None
    sample, row, column = (samples, channels * height * width), (height // size, size * width), (width // size, size)
    if [view.axes[k] for k in (0, 2, 3)] != [() if digit[0] == 1 else (digit,) for digit in (sample, row, column)]:
        return None
    begin = np.array([view.offset])
    for extent, stride in view.axes[1]:
        begin = np.add.outer(begin, np.arange(extent) * stride).reshape(-1)
    return _Blocks(x, size, begin)


def _reads_blocks(node: Node) -> bool:
    return operand(node).dtype.is_float and _blocks(operand(node)) is not None


@rule(p(Conv, p((Concat, Permute, Reshape), name="blocks"), "W", name="conv", where=_reads_blocks), stage="fold")
def fold_space_to_depth_into_conv(graph: Graph, m: Match) -> Replacement:
    """``conv(space_to_depth(x)) -> conv(x)`` with a larger kernel and stride."""
    op, block_order = m.conv.op, _blocks(m.blocks.output)
    assert block_order is not None
    if op.groups != 1 or (op.dh, op.dw) != (1, 1):
        return Skip("the conv has groups or dilations")
    if m.W.stored is not None or m.blocks.output.quant is not None:
        return Skip("the source file quantizes it")
    size = block_order.size
    _, channels, height, width = block_order.x.type.static_shape
    old: Array = m.W.array
    outputs, _, rows, columns = old.shape
    w = np.zeros((outputs, channels, size * rows, size * columns), old.dtype)
    for channel, begin in enumerate(block_order.begin.tolist()):
        c, (y, x) = begin // (height * width), divmod(begin % (height * width), width)
        for ky, kx in itertools.product(range(rows), range(columns)):
            w[:, c, size * ky + y, size * kx + x] = old[:, channel, ky, kx]
    larger = dataclasses.replace(
        op,
        stride_h=size * op.stride_h,
        stride_w=size * op.stride_w,
        pad_h_t=size * op.pad_h_t,
        pad_h_b=size * op.pad_h_b,
        pad_w_l=size * op.pad_w_l,
        pad_w_r=size * op.pad_w_r,
    )
    return graph.add(larger, block_order.x, graph.constant(w, m.W.name), *m.conv.inputs[2:])


BLOCKS = p(SpaceToBatch, "x", name="blocks", sole_user=True)


@rule(
    p(BatchToSpace, p(Conv, BLOCKS, "W", name="conv", sole_user=True), name="space"),
    stage="fold",
    sees_annotations=True,
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
