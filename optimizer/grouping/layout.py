"""How tensors lie in on-chip memory: channels are dealt out to lanes, planes begin at aligned places.

One lane holds, for every index of axis 0 and every channel that is its own, a plane of H * W elements. The filters of a
convolution lie with their output channels in the lanes, each in one piece. Filters that do not stay are loaded one per
lane, used, and replaced by the next ones.

The functions take numbers, or NumPy arrays of numbers to lay out many sizes at once.
"""

from __future__ import annotations

import math
from typing import Any

from tpuconvert.schema.convolution_params import ConvolutionParams
from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.hardware import LocalMemory


def shape4(value: Value) -> tuple[int, int, int, int]:
    """The extents along N, C and H, and the product of the others."""
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
    """Planes of one lane, of n * c."""
    return n * -(-c // memory.lanes)


def plane_bytes(memory: LocalMemory, plane: Any) -> Any:
    """Bytes that a plane takes."""
    row = memory.row_bytes
    return -(-plane // row) * row


def filters_of(node: Node, place: int) -> tuple[int, int] | None:
    """Which axis of an operand counts the filters of a convolution, and how many each index has; None for others."""
    if place != 1 or not isinstance(node.op, ConvolutionParams):
        return None
    return (0, 1) if node.op.weight_layout == "OIHW" else (1, node.op.groups)


def constant_lane_bytes(
    memory: LocalMemory,
    extents: tuple[int, int, int, int],
    filters: tuple[int, int] | None,
    lengths: tuple[Any, Any, Any],
    stays: bool,
) -> Any:
    """Bytes of one lane for a part of a constant operand.

    Args:
        memory: of the chip.
        extents: of the operand along N, C and H, and bytes of one row.
        filters: as ``filters_of`` says.
        lengths: of the part along the operand's first three axes.
        stays: whether it stays for all parts; otherwise it is there while the node runs.
    """
    n, c, h = lengths
    if filters is None:
        return lane_bytes(memory, n, c, h * extents[3])
    axis, times = filters
    count = extents[axis] * times
    return lane_bytes(memory, 1, lengths[axis] * times if stays else 1, math.prod(extents) // max(count, 1))
