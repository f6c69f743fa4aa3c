"""Blocks of pixels as channels or batches: SPACE_TO_DEPTH, DEPTH_TO_SPACE, SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND."""

from __future__ import annotations

import math

from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.layout import Permuted
from tpuconvert.frontends.tflite.lowering import reshape
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value, static
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.space_to_batch import BatchToSpace, SpaceToBatch
from tpuconvert.schema.types import Array, Scalar


def _plane(node: TfliteNode) -> tuple[int, int, int, int]:
    shape = node.shape(0)
    if len(shape) != 4:
        raise node.fail(INVALID_NODE, f"input {list(shape)} must have rank 4")
    return shape[0], shape[1], shape[2], shape[3]


@tflite_op("SPACE_TO_DEPTH")
def space_to_depth(node: TfliteNode, g: Graph) -> Value:
    """Move each block of pixels to the channels, in the order row, column, channel."""
    n, h, w, c = _plane(node)
    b = node.option("block_size")
    if b < 1 or h % b or w % b:
        raise node.fail(INVALID_NODE, f"block_size {b} does not divide {h} x {w}")
    blocks = reshape(g, node.input(0), (n, h // b, b, w // b, b, c))
    return reshape(g, g.add(Permute(order=(0, 1, 3, 2, 4, 5)), blocks), (n, h // b, w // b, b * b * c))


@tflite_op("DEPTH_TO_SPACE")
def depth_to_space(node: TfliteNode, g: Graph) -> Value:
    """The inverse of SPACE_TO_DEPTH."""
    n, h, w, c = _plane(node)
    b = node.option("block_size")
    if b < 1 or c % (b * b):
        raise node.fail(INVALID_NODE, f"block_size {b} does not divide {c} channels")
    blocks = reshape(g, node.input(0), (n, h, w, b, b, c // (b * b)))
    return reshape(g, g.add(Permute(order=(0, 1, 3, 2, 4, 5)), blocks), (n, h * b, w * b, c // (b * b)))


def _block_and_pads(node: TfliteNode) -> tuple[tuple[int, ...], tuple[int, ...]]:
    block, pads = node.ints(1), node.ints(2)
    if len(pads) != 2 * len(block) or len(block) >= node.rank(0) or min(block, default=0) < 1 or min(pads) < 0:
        raise node.fail(INVALID_NODE, f"block {list(block)} and pads {list(pads)} for {list(node.shape(0))}")
    return block, pads


@tflite_op("SPACE_TO_BATCH_ND", kind=Kind.DIRECT)
def space_to_batch_nd(node: TfliteNode, g: Graph) -> Value | Permuted | Array:
    """Pad, then move each position inside a block to a separate batch."""
    block, pads = _block_and_pads(node)
    shape = node.shape(0)
    extents = [e + pads[2 * i] + pads[2 * i + 1] for i, e in enumerate(shape[1 : len(block) + 1])]
    if any(extent % b for extent, b in zip(extents, block, strict=True)):
        raise node.fail(INVALID_NODE, f"block {list(block)} does not divide {extents}")
    if len(shape) == 4 and len(block) == 2 and not node.is_quantized:
        op = SpaceToBatch(block_size=(block[0], block[1]), pad=(pads[0], pads[1], pads[2], pads[3]))
        return node.nhwc(g.add(op, node.nchw(0)))
    if node.is_empty(0):
        inner_extents = (extent // b for extent, b in zip(extents, block, strict=True))
        return node.empty((shape[0] * math.prod(block), *inner_extents, *shape[len(block) + 1 :]))
    x = node.input(0)
    if any(pads):
        paddings = (0, 0, *pads, *(0, 0) * (len(shape) - 1 - len(block)))
        x = g.add(Pad(pad_val=Scalar(x.dtype, 0), paddings=paddings), x)
        x.quant = node.quant(0)
    rest = shape[len(block) + 1 :]
    split = [part for extent, b in zip(extents, block, strict=True) for part in (extent // b, b)]
    blocks = reshape(g, x, (shape[0], *split, *rest))
    inner = tuple(2 * i + 2 for i in range(len(block)))
    outer = tuple(2 * i + 1 for i in range(len(block)))
    tail = tuple(range(2 * len(block) + 1, 2 * len(block) + 1 + len(rest)))
    moved = g.add(Permute(order=(*inner, 0, *outer, *tail)), blocks)
    return reshape(
        g, moved, (shape[0] * math.prod(block), *(e // b for e, b in zip(extents, block, strict=True)), *rest)
    )


@tflite_op("BATCH_TO_SPACE_ND", kind=Kind.DIRECT)
def batch_to_space_nd(node: TfliteNode, g: Graph) -> Value | Permuted | Array:
    """The inverse of SPACE_TO_BATCH_ND, then crop."""
    block, crops = _block_and_pads(node)
    shape = node.shape(0)
    if shape[0] % math.prod(block):
        raise node.fail(INVALID_NODE, f"block {list(block)} does not divide {shape[0]} batches")
    if len(shape) == 4 and len(block) == 2 and not node.is_quantized:
        op = BatchToSpace(block_size=(block[0], block[1]), crop_size=(crops[0], crops[1], crops[2], crops[3]))
        return node.nhwc(g.add(op, node.nchw(0)))
    count = len(block)
    batches = shape[0] // math.prod(block)
    extents, rest = shape[1 : count + 1], shape[count + 1 :]
    grown = tuple(e * b for e, b in zip(extents, block, strict=True))
    if node.is_empty(0):
        inside = (e - crops[2 * i] - crops[2 * i + 1] for i, e in enumerate(grown))
        return node.empty((batches, *inside, *rest))
    blocks = reshape(g, node.input(0), (*block, batches, *extents, *rest))
    order = [count]
    for i in range(count):
        order += [count + 1 + i, i]
    order += range(2 * count + 1, 2 * count + 1 + len(rest))
    plane = reshape(g, g.add(Permute(order=tuple(order)), blocks), (batches, *grown, *rest))
    if not any(crops):
        return plane
    start = (0, *crops[::2], *(0,) * len(rest))
    end = (batches, *(e - c for e, c in zip(grown, crops[1::2], strict=True)), *rest)
    plane.quant = node.quant(0)
    return g.add(Extract(start=start, end=end, stride=(1,) * len(static(plane.shape))), plane)
