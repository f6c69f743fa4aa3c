"""Blocks of images moved to the batch axis and back: strided copies."""

from __future__ import annotations

from itertools import product
from math import prod

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.views import View
from tpuconvert.runtime.native.matchers.matcher import computes, first_operand
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.space_to_batch import BatchToSpace, SpaceToBatch
from tpuconvert.schema.types import Scalar


def _matching(blocks: int, step: int, shift: int, extent: int) -> tuple[int, int]:
    """Return the first and the number of the blocks k for which ``k * step + shift`` is inside ``0..extent - 1``."""
    first = min(max(-(shift // step), 0), blocks)
    last = min((extent - 1 - shift) // step + 1, blocks)
    return first, max(last - first, 0)


@computes("copy")
def space_to_batch(builder: Builder, node: Node, op: SpaceToBatch) -> None:
    """Copy the elements with the same position in their blocks to one part of the batch; padding is 0."""
    stored = builder.memory_of(first_operand(node))
    image, target = View.of(stored), View.of(builder.write(node.output, stored.order))
    if any(op.pad):
        builder.fill(target, Scalar(node.output.dtype, 0))
    for source, target_part in _pairs(image, target, op.block_size, (op.pad[0], op.pad[2])):
        builder.copy(source, target_part)


@computes("copy")
def batch_to_space(builder: Builder, node: Node, op: BatchToSpace) -> None:
    """Copy each part of the batch to its position in the blocks of the image."""
    stored = builder.memory_of(first_operand(node))
    image = View.of(builder.write(node.output, stored.order))
    for target_part, source in _pairs(image, View.of(stored), op.block_size, (op.crop_size[0], op.crop_size[2])):
        builder.copy(source, target_part)


def _pairs(image: View, blocks: View, size: tuple[int, int], edges: tuple[int, int]) -> list[tuple[View, View]]:
    """Return views of an image [N, C, H, W] and of its blocks [bh * bw * N, C, H / bh, W / bw] with equal elements.

    ``edges`` are the rows and columns of the first blocks that are outside of the image, on the top and on the left.
    """
    pairs = []
    batch = blocks.shape[0] // prod(size)
    if batch < 1:
        raise ValueError(f"{prod(size)} blocks for {blocks.shape[0]} images")
    for number, offsets in enumerate(product(*map(range, size))):
        part, plane = blocks.slice_axis(0, number * batch, batch), image
        for axis, (step, inside, edge) in enumerate(zip(size, offsets, edges, strict=True), start=2):
            shift = inside - edge  # block k has the row k * step + shift of the image
            first, count = _matching(blocks.shape[axis], step, shift, image.shape[axis])
            part = part.slice_axis(axis, first, count)
            plane = plane.slice_axis(axis, first * step + shift, count, step)
        pairs.append((plane, part))
    return pairs
