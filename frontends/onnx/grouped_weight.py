"""Constant weights of a matmul in 4 or 8 bits with one scale per group of the inner axis."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.matmul_group_quantized import GROUPS, MatmulGroupQuantized, pack_codes
from tpuconvert.schema.types import Array


class GroupedWeight(NamedTuple):
    """A weight [N, K] as unsigned integers with a scale per row and group of K.

    Args:
        codes: UINT8 [N, G * group], one integer per element; those for k >= K are ignored.
        scale: [N, G].
        zero: [N, G]: integers in UINT8, or FLOAT32; None for half of the range.
        bits: 4 or 8.
        group: elements of K with one scale.
        depth: K.
        order: positions of K in the operand that the codes multiply; None if they are in order.
    """

    codes: Array
    scale: Array
    zero: Array | None
    bits: int
    group: int
    depth: int
    order: Array | None = None


def pack_grouped_weight(g: Graph, weight: GroupedWeight) -> tuple[int, Value, Value, Value | None]:
    """Add the constants of a weight with a group size of 16 * n. Return the group, codes, scale and zero point."""
    group = next(size for size in reversed(GROUPS) if weight.group % size == 0)
    groups = -(-weight.depth // group)
    repeats = weight.group // group
    scale = np.repeat(weight.scale.astype(np.float32), repeats, axis=1)[:, :groups]
    codes = np.ascontiguousarray(weight.codes[:, : groups * group])
    zero: Value | None = None
    if weight.zero is not None:
        wide = np.ascontiguousarray(np.repeat(weight.zero, repeats, axis=1)[:, :groups])
        is_float = wide.dtype.kind == "f"
        zero = g.constant(wide.astype(np.float32) if is_float else pack_codes(wide, weight.bits), "zero_point")
    packed = g.constant(pack_codes(codes, weight.bits), "codes")
    return group, packed, g.constant(np.ascontiguousarray(scale), "scale"), zero


def group_matmul(g: Graph, x: Value, weight: GroupedWeight, bias: Value | None = None) -> Value:
    """Add a matmul of x [..., K] with a weight whose group size is a multiple of 16."""
    group, codes, scale, zero = pack_grouped_weight(g, weight)
    rows = x if x.rank > 1 else emit.reshape(g, x, (1, weight.depth))
    if weight.order is not None:
        rows = g.add(IndexSelect(dim=rows.rank - 1), rows, g.constant(weight.order.astype(np.int32), "g_idx"))
    y = g.add(MatmulGroupQuantized(weight.bits, group), rows, codes, scale, zero, bias)
    return y if x.rank > 1 else emit.reshape(g, y, (weight.codes.shape[0],))


def grouped_weight(
    data: Array, bits: int, scale: Array, zero: Array | None, axis: int, block: int
) -> GroupedWeight | None:
    """Return a matrix with one scale per block of an axis, which is the inner axis of a matmul; None if not supported.

    Integers of 2 bits are stored in 4.

    Args:
        data: integers of at most ``bits`` bits, signed or unsigned.
        bits: 2, 4 or 8.
        scale: one per block, with the rank of the data.
        zero: zero points, like ``scale``; None for 0.
        axis: the axis that has blocks.
        block: elements of a block.
    """
    if data.ndim != 2 or data.dtype.itemsize != 1 or bits not in (2, 4, 8) or block < 1 or block % GROUPS[0]:
        return None
    groups = -(-data.shape[axis] // block)
    shape = (groups, data.shape[1]) if axis == 0 else (data.shape[0], groups)
    if scale.shape != shape or (zero is not None and zero.shape != shape):
        return None
    offset = 1 << (bits - 1) if data.dtype == np.int8 else 0
    rows, scales = (data.T, scale.T) if axis == 0 else (data, scale)
    codes = np.zeros((len(rows), groups * block), np.uint8)
    codes[:, : rows.shape[1]] = rows.astype(np.int16) + offset
    zeros: Array | None = None
    if zero is not None:
        zeros = ((zero.T if axis == 0 else zero).astype(np.int16) + offset).astype(np.uint8)
    elif not offset or bits == 2:
        zeros = np.full(scales.shape, offset, np.uint8)
    return GroupedWeight(codes, scales, zeros, max(bits, 4), block, rows.shape[1])
