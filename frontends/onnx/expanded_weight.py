"""Integers of weights that a graph computes from packed constants, as exports of GPTQ and AWQ models do.

Such a graph shifts and masks 32-bit integers, subtracts zero points, and multiplies by scales, in a form that depends
on the exporter. All of it is constant, so that the import evaluates it. From the weight of a matmul, this module goes
back to the multiplication by the scales, then applies the reshapes, transposes and gathers after it to the integers
and the scales. The groups are the elements of the inner axis with equal scales, in any order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tpuconvert.frontends.onnx.grouped_weight import GroupedWeight
from tpuconvert.frontends.onnx.node import Folding, OnnxNode, OnnxTensor
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.matmul_group_quantized import GROUPS
from tpuconvert.schema.types import Array

_CASTS = frozenset({"Cast", "CastLike"})
_MOVES = frozenset(
    {"Reshape", "Transpose", "Identity", "Flatten", "Squeeze", "Unsqueeze", "Gather", "GatherND", "Slice"}
)
_SHIFTS = frozenset({"BitShift", "BitwiseAnd"})
_MOST = 255
"""Largest difference of an integer and its zero point."""


class _Integers(NamedTuple):
    """A weight as integers times scales, both of the shape of the weight.

    Args:
        integers: integers minus their zero points.
        scale: scales.
        is_packed: True if they were shifted out of larger integers, or had blocks in the file.
    """

    integers: Array
    scale: Array
    is_packed: bool


def expanded_weight(node: OnnxNode, g: Graph, index: int, axis: int) -> GroupedWeight | None:
    """Return the integers of a constant matrix that the graph computes from integers; None for another input.

    Args:
        node: the matmul.
        g: receives a note if the integers cannot be kept.
        index: input of the weight.
        axis: inner axis of the matmul.
    """
    tensor = node.tensor(index)
    if tensor.array is None or tensor.array.ndim != 2 or tensor.folding is None:
        return None
    parts = _integers_of(tensor, g)
    if parts is None:
        return None
    integers, scale = ((part if axis else part.T) for part in parts[:2])
    weight = _grouped(
        np.ascontiguousarray(integers), np.ascontiguousarray(scale, np.float32), is_packed=parts.is_packed
    )
    if weight is None and parts.is_packed and tensor.grouped is None:
        g.notes.append(
            f"'{node.name}': the integers of its weight '{tensor.name}' are not kept, because their scales have no "
            f"groups of a multiple of {GROUPS[0]} inputs; it is stored in FLOAT32"
        )
    return weight


def _integers_of(tensor: OnnxTensor, g: Graph) -> _Integers | None:
    """Return the integers and scales from which a float constant was computed."""
    if tensor.grouped is not None:
        return _of_blocks(*tensor.grouped)
    folding = tensor.folding
    if folding is None or not tensor.element.is_float:
        return None
    first, *others = folding.node.inputs or (None,)  # a Constant has none
    if folding.node.op_type in _CASTS and first is not None:
        return _integers_of(first, g)
    if folding.node.op_type in _MOVES and first is not None:
        before = _integers_of(first, g)
        if before is None:
            return None
        return before._replace(integers=_move(folding, before.integers, g), scale=_move(folding, before.scale, g))
    if folding.node.op_type != "Mul" or first is None or not others or others[0] is None:
        return None
    for integers, scale in ((first, others[0]), (others[0], first)):
        if _has_small_integers(integers) and integers.array is not None and scale.array is not None:
            arrays = np.broadcast_arrays(integers.array, scale.array)
            return _Integers(arrays[0], arrays[1], _has_shift(integers))
    return None


def _of_blocks(weight: GroupedWeight, axis: int) -> _Integers:
    """Return integers and scales of a constant that had blocks in the file."""
    zero = 1 << (weight.bits - 1) if weight.zero is None else np.repeat(weight.zero, weight.group, axis=1)
    integers = (weight.codes.astype(np.float32) - zero)[:, : weight.depth]
    scale = np.repeat(weight.scale, weight.group, axis=1)[:, : weight.depth]
    return _Integers(integers, scale, True) if axis else _Integers(integers.T, scale.T, True)


def _move(folding: Folding, array: Array, g: Graph) -> Array:
    """Apply an operator that moves elements."""
    node = folding.node
    first = node.inputs[0]
    assert first is not None, "checked by the caller"
    moved = folding.evaluate(
        replace(node, inputs=(replace(first, array=array, shape=array.shape), *node.inputs[1:])), g
    )
    assert isinstance(moved, np.ndarray), "an evaluator of data movement"
    return moved


def _has_small_integers(tensor: OnnxTensor) -> bool:
    """Return True if all elements of a computed constant are small integers."""
    array = tensor.array
    if array is None or array.ndim < 2 or tensor.folding is None or array.dtype.kind not in "iuf" or not array.size:
        return False
    wide = array.astype(np.float32)
    return bool(np.abs(wide).max() <= _MOST and np.array_equal(np.rint(wide), wide))


def _has_shift(tensor: OnnxTensor | None) -> bool:
    """Return True if a constant is computed by shifts or masks of bits."""
    pending, seen = [tensor], set()
    while pending:
        current = pending.pop()
        if current is None or current.folding is None or id(current) in seen:
            continue
        seen.add(id(current))
        if current.folding.node.op_type in _SHIFTS:
            return True
        pending += current.folding.node.inputs
    return False


def _grouped(integers: Array, scale: Array, *, is_packed: bool) -> GroupedWeight | None:
    """Return a weight [N, K] with a scale per group of K. Its order is None if the groups are in order."""
    columns = np.ascontiguousarray(scale.T)
    _, first, group_of = np.unique(
        columns.view(np.dtype((np.void, columns.itemsize * columns.shape[1]))).ravel(),
        return_index=True,
        return_inverse=True,
    )
    if len(first) == 1 and not is_packed:
        return None  # one scale per output: a float matmul can be quantized further
    if int(integers.max()) - int(integers.min()) > _MOST:
        return None  # more than 8 bits
    order = np.argsort(first[group_of], kind="stable")
    sizes = (size for size in reversed(GROUPS) if size <= max(GROUPS[0], len(order)))
    size = next((size for size in sizes if _has_blocks(group_of[order], size)), None)
    if size is None:
        return None
    is_in_order = np.array_equal(order, np.arange(len(order)))
    if not is_in_order:
        integers = integers[:, order]
    return _codes(integers, scale[:, order[::size]], size)._replace(order=None if is_in_order else order)


def _has_blocks(groups: Array, size: int) -> bool:
    """Return True if all elements of each block are in one group."""
    starts = groups[::size]
    return np.array_equal(np.repeat(starts, size)[: len(groups)], groups)


def _codes(integers: Array, scale: Array, size: int) -> GroupedWeight:
    """Return codes of 4 bits if the integers of each group have a range of 16, otherwise of 8 bits."""
    rows, depth = integers.shape
    groups = scale.shape[1]
    padded = np.pad(integers, ((0, 0), (0, groups * size - depth)), mode="edge").astype(np.int16)
    blocks = padded.reshape(rows, groups, size)
    low, high = blocks.min(axis=2), blocks.max(axis=2)
    bits = 4 if (high - low).max() < 16 else 8
    half, most = 1 << (bits - 1), (1 << bits) - 1
    zero: Array | None = None
    offset = np.full(low.shape, half)
    if low.min() < -half or high.max() > most - half:
        # An integer zero point within the range of the codes, or a float one for groups on one side of 0.
        offset = np.clip(half, -low, most - high)
        is_code = offset.min() >= 0 and offset.max() <= most
        zero = offset.astype(np.uint8 if is_code else np.float32)
    codes = (blocks + offset[:, :, None]).astype(np.uint8).reshape(rows, groups * size)
    return GroupedWeight(codes, scale, zero, bits, size, depth)
