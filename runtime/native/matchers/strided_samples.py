"""Strided samples of tensors, and tensors that follow from shapes and scalars."""

from __future__ import annotations

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.views import View
from tpuconvert.runtime.native.matchers.matcher import computes, first_operand
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.generation import NumberLike, ShapeFetch
from tpuconvert.schema.ops.stride_arithmetic import SampledCopy


@computes("copy")
def sampled_copy(builder: Builder, node: Node, op: SampledCopy) -> None:
    """Copy every n-th element of each axis."""
    stored = builder.memory_of(first_operand(node))
    source = View.of(stored)
    for axis, (first, count, step) in enumerate(zip(op.offsets, builder.shape(node.output), op.stride, strict=True)):
        source = source.slice_axis(axis, first, count, step)
    builder.copy(source, View.of(builder.write(node.output, stored.order)))


@computes("copy")
def number_like(builder: Builder, node: Node, op: NumberLike) -> None:
    """Fill a tensor with a number."""
    builder.fill(View.of(builder.write(node.output)), op.scalar_i)


@computes("copy")
def shape_fetch(builder: Builder, node: Node, op: ShapeFetch) -> None:
    """Store extents, which a plan knows."""
    x = first_operand(node)
    (extents,) = op.reference(np.broadcast_to(np.zeros(1, x.dtype.numpy), builder.shape(x)))
    builder.copy(View.of(builder.constant(extents)), View.of(builder.write(node.output)))
