"""Lowerings of data movement operators, for every element type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.onnx_model.lowering import OPEN_EXTENT, Argument, Lowering, extents, scalar
from tpuconvert.exporters.onnx_model.registry import lowers
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.copy import Constdata, Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.ordering import Topk
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape, ShapeChange, Squeeze, reshape_params
from tpuconvert.schema.ops.tile import Repetition, Tile
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import DType


@lowers(Copy, Constdata)
def copy(op: Op, node: Node, d: Lowering) -> None:
    """Lower a copy."""
    d.define(node.output, d.add("Identity", node.inputs[0]))


@lowers(Reshape, Squeeze, ExpandDims)
def reshape(op: ShapeChange, node: Node, d: Lowering) -> None:
    """Lower a change of shape. Symbolic extents are copied or inferred."""
    x, y = node.inputs[0], node.output
    assert x is not None
    if y.type.is_static:
        target: Sequence[int] | None = y.type.static_shape
    else:
        target = op.reshape_param if isinstance(op, Reshape) else reshape_params(x.shape, y.shape)
    if target is None:
        raise NoExactForm(f"'{y.name}' has shape {y.type}, expected numbers", OPEN_EXTENT)
    keeps_zeros = int(y.type.is_static and 0 in y.shape) or None
    d.define(y, d.add("Reshape", x, np.array(target, np.int64), allowzero=keeps_zeros))


@lowers(Permute)
def permute(op: Permute, node: Node, d: Lowering) -> None:
    """Lower a permutation of axes."""
    d.define(node.output, d.add("Transpose", node.inputs[0], perm=op.order))


@lowers(Concat)
def concat(op: Concat, node: Node, d: Lowering) -> None:
    """Lower a concatenation."""
    d.define(node.output, d.add("Concat", *node.inputs, axis=op.axis))


@lowers(Split)
def split(op: Split, node: Node, d: Lowering) -> None:
    """Lower a split along an axis."""
    sizes = [extents(value, op.axis)[0] for value in node.outputs]
    parts = d.add_all("Split", node.inputs[0], np.array(sizes, np.int64), count=len(sizes), axis=op.axis)
    for value, part in zip(node.outputs, parts, strict=True):
        d.define(value, part)


def take(d: Lowering, x: Argument, start: Sequence[int], end: Sequence[int], axes: Sequence[int]) -> str:
    """Append a slice of some axes, without steps."""
    return d.add("Slice", x, *(np.array(item, np.int64) for item in (start, end, axes)))


@lowers(Extract)
def extract(op: Extract, node: Node, d: Lowering) -> None:
    """Lower a slice with steps."""
    limits = [np.array(item, np.int64) for item in (op.start, op.end, range(len(op.start)), op.stride)]
    d.define(node.output, d.add("Slice", node.inputs[0], *limits))


@lowers(Tile)
def tile(op: Repetition, node: Node, d: Lowering) -> None:
    """Lower a repetition along axes."""
    d.define(node.output, d.add("Tile", node.inputs[0], np.array(op.counts, np.int64)))


@lowers(Upsample)
def upsample(op: Upsample, node: Node, d: Lowering) -> None:
    """Lower nearest upsampling."""
    x = node.inputs[0]
    assert x is not None
    factors = np.array([1, 1, op.scale, op.scale], np.float32)
    arguments: tuple[Argument, ...] = (_resizable(d, x), None, factors)
    resized = d.add(
        "Resize", *arguments, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    d.define(node.output, _restored(d, resized, x))


_WITHOUT_KERNEL = (DType.INT16, DType.UINT16)
"""Types for which ONNX Runtime does not implement ``Pad`` and ``Resize``."""


def _resizable(d: Lowering, x: Value) -> Argument:
    return d.add("Cast", x, to=np.int32) if x.dtype in _WITHOUT_KERNEL else x


def _restored(d: Lowering, tensor: str, x: Value) -> str:
    return d.add("Cast", tensor, to=x.dtype.numpy) if x.dtype in _WITHOUT_KERNEL else tensor


@lowers(Pad)
def pad(op: Pad, node: Node, d: Lowering) -> None:
    """Lower padding. Symmetric padding, which ONNX does not have, is lowered to one gather per axis."""
    x, y = node.inputs[0], node.output
    assert x is not None
    if op.pad_mode is PadType.PAD_SYMMETRIC:
        tensor: Argument = x
        for axis, (before, after) in enumerate(zip(op.paddings[::2], op.paddings[1::2], strict=True)):
            if before or after:
                (extent,) = extents(x, axis)
                index = np.pad(np.arange(extent, dtype=np.int64), (before, after), mode="symmetric")
                tensor = d.add("Gather", tensor, index, axis=axis)
        d.define(y, d.add("Identity", tensor))
        return
    mode = {PadType.PAD_CONSTANT: "constant", PadType.PAD_REFLECT: "reflect", PadType.PAD_EDGE: "edge"}[op.pad_mode]
    paddings = np.array((*op.paddings[::2], *op.paddings[1::2]), np.int64)
    stored = DType.INT32 if x.dtype in _WITHOUT_KERNEL else x.dtype
    value = scalar(op.pad_val.value, stored) if mode == "constant" else None
    d.define(y, _restored(d, d.add("Pad", _resizable(d, x), paddings, value, mode=mode), x))


@lowers(Lut)
def look_up(op: Lut, node: Node, d: Lowering) -> None:
    """Lower a lookup table: a gather, indexed by the unsigned byte."""
    x, table = node.inputs
    assert x is not None and table is not None
    index = d.add("Cast", d.add("Cast", x, to=np.uint8) if x.dtype is DType.INT8 else x, to=np.int32)
    entries: Argument = table
    if table.rank > 1:
        entries = table.array.reshape(-1) if table.is_constant else d.add("Reshape", table, np.array([-1], np.int64))
    d.define(node.output, d.add("Gather", entries, index, axis=0))


@lowers(IndexSelect)
def index_select(op: IndexSelect, node: Node, d: Lowering) -> None:
    """Lower a gather along an axis."""
    d.define(node.output, d.add("Gather", node.inputs[0], node.inputs[1], axis=op.dim))


@lowers(Topk)
def topk(op: Topk, node: Node, d: Lowering) -> None:
    """Lower the largest or smallest elements; both operators order equal elements by increasing index."""
    x = node.inputs[0]
    d.check_exact(x)
    settings = {"axis": op.axis, "largest": int(op.descending), "sorted": 1}
    values, indices = d.add_all("TopK", x, np.array([op.k], np.int64), count=2, **settings)
    d.define(node.outputs[0], values)
    d.define(node.outputs[1], d.add("Cast", indices, to=op.index_dtype.numpy))
