"""Lowerings of data movement operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.lowering import Lowering, static_shape
from tpuconvert.exporters.tpu_mlir.registry import lowers, lowers_bm1684
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import DType


@lowers(Reshape)
@lowers_bm1684(Reshape)
def reshape(op: Reshape, node: Node, d: Lowering) -> None:
    """Lower a reshape."""
    operands = d.reshape_operands(d.tensor(node.inputs[0]))
    d.add("tpu.Reshape", operands, node.output, shape=static_shape(node.output))


@lowers(Permute)
@lowers_bm1684(Permute)
def permute(op: Permute, node: Node, d: Lowering) -> None:
    """Lower a permutation of axes."""
    d.add("tpu.Permute", [d.tensor(node.inputs[0])], node.output, order=op.order)


@lowers(Concat)
@lowers_bm1684(Concat)
def concat(op: Concat, node: Node, d: Lowering) -> None:
    """Lower a concatenation. Bytes are copied, so that the operands' scales may differ.

    The compiler aborts on a concatenation of rank 2. Therefore two unit axes are appended.
    """
    y = node.output
    axis = op.axis % y.rank
    shape = static_shape(y)
    operands = [d.floats(v) if v is not None and v.dtype is DType.FLOAT32 else d.tensor(v) for v in node.inputs]
    if y.rank >= 3:
        d.add("tpu.Concat", operands, y, axis=axis)
        return
    padded = [d.reshape(tensor, (*tensor.shape, 1, 1), f"{y.name}_operand") for tensor in operands]
    joined = d.module.add(
        "tpu.Concat",
        padded,
        (*shape, 1, 1),
        d.element(y),
        f"{y.name}_4d",
        axis=axis,
    )
    d.define(y, d.reshape(joined, shape, y.name))


def slice_box(
    d: Lowering, x: Value | None, y: Value, start: Sequence[int], end: Sequence[int], step: Sequence[int]
) -> None:
    """Append a slice operation. ``start``, ``end`` and ``step`` have one entry per axis."""
    d.add("tpu.Slice", [d.tensor(x)], y, offset=start, ends=end, steps=step)


@lowers(Extract)
@lowers_bm1684(Extract)
def extract(op: Extract, node: Node, d: Lowering) -> None:
    """Lower a slice with steps."""
    slice_box(d, node.inputs[0], node.output, op.start, op.end, op.stride)


@lowers(Split)
@lowers_bm1684(Split)
def split(op: Split, node: Node, d: Lowering) -> None:
    """Lower a split along an axis to one slice per result."""
    x = node.inputs[0]
    assert x is not None
    axis = op.axis % x.rank
    position = 0
    for y in node.outputs:
        start, end = [0] * x.rank, list(static_shape(x))
        start[axis], end[axis] = position, position + static_shape(y)[axis]
        position = end[axis]
        slice_box(d, x, y, start, end, [1] * x.rank)


@lowers(Upsample)
@lowers_bm1684(Upsample)
def upsample(op: Upsample, node: Node, d: Lowering) -> None:
    """Lower nearest upsampling, which repeats rows and columns."""
    d.add("tpu.Upsample", [d.tensor(node.inputs[0])], node.output, scale_h=op.scale, scale_w=op.scale)


@lowers(Tile)
@lowers_bm1684(Tile)
def tile(op: Tile, node: Node, d: Lowering) -> None:
    """Lower a repetition along axes."""
    x, y = node.inputs[0], node.output
    assert x is not None
    copies = [after // before for before, after in zip(static_shape(x), static_shape(y), strict=True)]
    d.add("tpu.Tile", [d.tensor(x)], y, tile=copies)


@lowers(Pad)
@lowers_bm1684(Pad)
def pad(op: Pad, node: Node, d: Lowering) -> None:
    """Lower padding with a constant, with reflected elements or with edge elements."""
    x = node.inputs[0]
    assert x is not None
    modes = {"PAD_CONSTANT": "constant", "PAD_REFLECT": "reflect", "PAD_SYMMETRIC": "symmetric", "PAD_EDGE": "edge"}
    mode = modes.get(op.pad_mode.name)
    if mode is None:
        raise NoExactForm(f"pad_mode is {op.pad_mode.name}, expected one of {', '.join(modes)}")
    # op.paddings has (before, after) per axis. The dialect takes the paddings before of all axes, then those after.
    before, after = op.paddings[::2], op.paddings[1::2]
    d.add(
        "tpu.Pad",
        [d.tensor(x)],
        node.output,
        paddings=(*before, *after),
        val=float(np.asarray(op.pad_val.value)),
        mode=mode,
    )
