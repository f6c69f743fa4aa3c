"""Per-tensor and per-channel (axis 1) parameters of requantization operators."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tpuconvert.schema.array_fields import numbers_of
from tpuconvert.schema.definition.extents import may_equal
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import Array, TensorType


def check_channels(op: Op, is_per_channel: bool, x: TensorType, *fields: str) -> None:
    """Check that per-channel vectors have one value per channel.

    Raises:
        ShapeError: x has no axis 1, or a vector has another length.
    """
    if not is_per_channel:
        return
    if x.rank < 2:
        raise ShapeError(f"{op.name}: parameters per channel need an axis 1, got {x}")
    for name in fields:
        count = len(numbers_of(op, name))
        if not may_equal(count, x.shape[1]):
            raise ShapeError(f"{op.name}: {count} values in {name} for {x.shape[1]} channels, got {x}")


_BLOCK = 1 << 15
"""Largest number of elements of a block: several INT64 arrays of this size fit into the cache of a core."""


def channel_blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Yield blocks of a tensor along its first two axes. A block exceeds the limit only if one channel does."""
    if len(shape) == 1:
        yield from ((slice(start, start + _BLOCK),) for start in range(0, shape[0], _BLOCK))
        return
    per_channel = max(int(np.prod(shape[2:])), 1)
    channels = min(max(_BLOCK // per_channel, 1), max(shape[1], 1))
    images = max(_BLOCK // (per_channel * channels), 1)
    for image in range(0, shape[0], images):
        for channel in range(0, shape[1], channels):
            yield slice(image, image + images), slice(channel, channel + channels)


def along_channels(values: npt.ArrayLike, dtype: npt.DTypeLike, rank: int) -> Array:
    """Convert a scalar or a per-channel vector to an array that broadcasts along axis 1 of a tensor of this rank."""
    array: Array = np.asarray(values, dtype=dtype)
    return array if array.ndim == 0 else array.reshape(-1, *(1,) * (rank - 2))
