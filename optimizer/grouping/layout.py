"""Layout of tensors in on-chip memory: channels are distributed over lanes, planes begin at aligned addresses.

A lane has a plane of H * W elements for every index of axis 0 and every channel assigned to it. Filters of a
convolution are distributed over the lanes by output channel, each contiguous. Filters that are not resident are loaded
one per lane, used, and replaced by the next ones.

The functions accept integers, or NumPy arrays of integers to compute many sizes at once.
"""

from __future__ import annotations

import math
from typing import Any

from tpuconvert.schema.convolution_params import ConvolutionParams
from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.hardware import LocalMemory


def shape4(value: Value) -> tuple[int, int, int, int]:
    """Extents along N, C and H, and the product of the other extents."""
    shape = value.type.static_shape
    n, c, h = (*shape[:3], 1, 1)[:3]
    return n, c, h, math.prod(shape[3:])


def size_of(value: Value) -> int:
    """Bytes of one element."""
    return value.dtype.bits // 8


def bytes_of(value: Value) -> int:
    """Bytes of the whole tensor in global memory."""
    return math.prod(value.type.static_shape) * size_of(value)


def lane_bytes(memory: LocalMemory, n: Any, c: Any, plane: Any) -> Any:
    """Bytes of one lane for n * c planes of ``plane`` bytes each."""
    return lane_planes(memory, n, c) * plane_bytes(memory, plane)


def lane_planes(memory: LocalMemory, n: Any, c: Any) -> Any:
    """Planes in one lane, out of n * c."""
    return n * -(-c // memory.lanes)


def plane_bytes(memory: LocalMemory, plane: Any) -> Any:
    """Bytes of a plane, rounded up to a multiple of the memory row."""
    row = memory.row_bytes
    return -(-plane // row) * row


def filters_of(node: Node, index: int) -> tuple[int, int] | None:
    """Filter axis of a convolution weight, and number of filters per index; None for other operands."""
    if index != 1 or not isinstance(node.op, ConvolutionParams):
        return None
    return (0, 1) if node.op.weight_layout == "OIHW" else (1, node.op.groups)


def constant_lane_bytes(
    memory: LocalMemory,
    extents: tuple[int, int, int, int],
    filters: tuple[int, int] | None,
    lengths: tuple[Any, Any, Any],
    stays: bool,
) -> Any:
    """Bytes of one lane for a tile of a constant operand.

    Args:
        memory: on-chip memory.
        extents: extents of the operand along N, C and H, and bytes of one row.
        filters: result of ``filters_of``.
        lengths: extents of the tile along the operand's first three axes.
        stays: whether it is resident for all tiles; otherwise it is in memory only while the node runs.
    """
    n, c, h = lengths
    if filters is None:
        return lane_bytes(memory, n, c, h * extents[3])
    axis, times = filters
    count = extents[axis] * times
    return lane_bytes(memory, 1, lengths[axis] * times if stays else 1, math.prod(extents) // max(count, 1))
