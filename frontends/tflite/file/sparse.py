"""Convert sparse constants to dense arrays.

A sparse tensor is stored in levels: one per axis of the tensor and per axis of its blocks, in storage order. A level is
dense, or lists the stored indices along its axis for each stored position of the levels before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import tflite

from tpuconvert.frontends.tflite.file.schema import integers
from tpuconvert.schema.types import Array

_SPARSE = 1
Refuse = Callable[[str], NoReturn]
"""Function that raises an error with the given reason."""


def densify_tensor(values: Array, shape: tuple[int, ...], sparsity: Any, refuse: Refuse) -> Array:
    """Convert the stored elements of a sparse constant to a dense array.

    Args:
        values: the stored elements, rank 1.
        shape: shape of the dense array, which the caller has checked against the limits.
        sparsity: accessor of the SparsityParameters.
        refuse: raises an error; called with the reason if the parameters are invalid.
    """
    rank, order = len(shape), integers(sparsity, "TraversalOrder")
    blocks = integers(sparsity, "BlockMap")
    levels = len(order)
    if sorted(order) != list(range(rank + len(blocks))) or levels != sparsity.DimMetadataLength():
        refuse(f"a traversal order {list(order)} over {rank} axes and {len(blocks)} blocks")
    if any(not 0 <= axis < rank for axis in blocks) or len(set(blocks)) != len(blocks):
        refuse(f"blocks of the axes {list(blocks)}")
    sizes = [sparsity.DimMetadata(level).DenseSize() for level in range(levels)]
    block_of = {axis: sizes[order.index(rank + number)] for number, axis in enumerate(blocks)}
    if any(size < 1 for size in block_of.values()) or any(shape[axis] % size for axis, size in block_of.items()):
        refuse(f"blocks of {list(block_of.values())} elements in {list(shape)}")
    extents = [
        *(extent // block_of.get(axis, 1) for axis, extent in enumerate(shape)),
        *map(block_of.__getitem__, blocks),
    ]
    where = np.zeros(1, np.int64)  # storage position of each element of the levels so far
    coordinates = np.zeros((rank + len(blocks), 1), np.int64)
    for level, axis in enumerate(order):
        metadata, extent = sparsity.DimMetadata(level), extents[axis]
        if metadata.Format() == _SPARSE:
            parents, index, where = _children(metadata, where, extent, values.size, refuse)
        else:
            if sizes[level] != extent or where.size * extent > values.size:
                refuse(f"a dense level of {sizes[level]} for {extent} places")
            parents, index = np.repeat(np.arange(where.size), extent), np.tile(np.arange(extent), where.size)
            where = (where[:, None] * extent + np.arange(extent)).reshape(-1)
        coordinates = coordinates[:, parents]
        coordinates[axis] = index
    if where.size != values.size:
        refuse(f"{values.size} stored elements for {where.size} places")
    target = coordinates[:rank].copy()
    for number, axis in enumerate(blocks):
        target[axis] = target[axis] * block_of[axis] + coordinates[rank + number]
    dense = np.zeros(shape, values.dtype)
    dense[tuple(target)] = values[where]
    return dense


def _children(metadata: Any, where: Array, extent: int, limit: int, refuse: Refuse) -> tuple[Array, Array, Array]:
    """Return parent, index along the axis and storage position of every element of a sparse level.

    The parent of an element is the index of its element in ``where``, which has the positions of the level before.
    """
    segments, indices = _sparse_vector(metadata, "ArraySegments"), _sparse_vector(metadata, "ArrayIndices")
    if not segments.size or int(where.max(initial=-1)) + 1 >= segments.size or (np.diff(segments) < 0).any():
        refuse("a sparse level whose segments do not rise or are too few")
    if int(segments[0]) < 0 or int(segments[-1]) > indices.size or indices.size > limit:
        refuse("a sparse level whose segments leave its indices")
    if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= extent):
        refuse(f"a sparse level with an index outside of {extent} places")
    counts = segments[where + 1] - segments[where]
    parents = np.repeat(np.arange(where.size), counts)
    offsets = np.arange(parents.size) - np.repeat(np.cumsum(counts) - counts, counts)
    positions = segments[where][parents] + offsets
    return parents, indices[positions], positions


def _sparse_vector(metadata: Any, name: str) -> Array:
    """Elements of a field that is a union of vectors of 8-, 16- and 32-bit integers."""
    classes = {1: tflite.Int32Vector, 2: tflite.Uint16Vector, 3: tflite.Uint8Vector}
    kind, stored = getattr(metadata, f"{name}Type")(), getattr(metadata, name)()
    if stored is None or kind not in classes:
        return np.zeros(0, np.int64)
    vector = classes[kind]()
    vector.Init(stored.Bytes, stored.Pos)
    return np.zeros(0, np.int64) if vector.ValuesIsNone() else vector.ValuesAsNumpy().astype(np.int64)
