"""Convert the operands of STRIDED_SLICE to a NumPy index."""

from __future__ import annotations

from tpuconvert.frontends.tflite.node import TfliteNode
from tpuconvert.schema.errors import INVALID_NODE

Index = tuple[slice | int | None, ...]


def strided_index(node: TfliteNode) -> Index:
    """NumPy index of a strided slice: a slice or integer per axis of the input, and None for each new axis.

    An integer removes its axis. Slice bounds are clamped to the extent; a slice with a negative step that includes
    index 0 has the end None.

    Raises:
        CannotConvertError: begin, end and strides do not fit each other or the input.
    """
    shape = node.shape(0)
    begin, end, strides = node.ints(1), node.ints(2), node.ints(3)
    if not len(begin) == len(end) == len(strides):
        raise node.fail(
            INVALID_NODE, f"begin {list(begin)}, end {list(end)} and strides {list(strides)} differ in length"
        )
    if 0 in strides:
        raise node.fail(INVALID_NODE, "a stride is 0")
    begin_mask, end_mask, new_mask = node.option("begin_mask"), node.option("end_mask"), node.option("new_axis_mask")
    shrink_mask, ellipsis_mask = node.option("shrink_axis_mask"), node.option("ellipsis_mask")
    is_offset = bool(node.option("offset"))
    if ellipsis_mask & (ellipsis_mask - 1):
        raise node.fail(INVALID_NODE, "more than one ellipsis")
    bits = [1 << position for position in range(len(begin))]
    consumed = sum(1 for bit in bits if not (new_mask | ellipsis_mask) & bit)
    if consumed > len(shape):
        raise node.fail(INVALID_NODE, f"{consumed} slices for rank {len(shape)}")
    index: list[slice | int | None] = []
    axis = 0
    for bit, first, last, step in zip(bits, begin, end, strides, strict=True):
        if ellipsis_mask & bit:
            skipped = len(shape) - consumed
            index += [slice(0, extent, 1) for extent in shape[axis : axis + skipped]]
            axis += skipped
        elif new_mask & bit:
            index.append(None)
        else:
            extent = shape[axis]
            start = None if begin_mask & bit else first
            if shrink_mask & bit:
                index.append(_position(node, 0 if start is None else start, extent))
            else:
                stop = None if end_mask & bit else (first + last if is_offset else last)
                bounds = slice(start, stop, step).indices(extent)
                index.append(slice(bounds[0], None if bounds[1] < 0 else bounds[1], step))
            axis += 1
    index += [slice(0, extent, 1) for extent in shape[axis:]]
    return tuple(index)


def _position(node: TfliteNode, position: int, extent: int) -> int:
    index = position + extent if position < 0 else position
    if not 0 <= index < extent:
        raise node.fail(INVALID_NODE, f"position {position} is outside the extent {extent}")
    return index
