"""Largest rank and number of elements of a value of a graph, which are those that a model file can have."""

from __future__ import annotations

import math

from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import MAX_RANK, TensorType, format_shape

MAX_ELEMENTS = 1 << 40
"""Most elements of a value. Its size in bytes and all offsets into it fit into 64 bits."""


def check_size(type_: TensorType, name: str) -> None:
    """Check that a value can be written to a model file and read again.

    Raises:
        ShapeError: the value has too many axes or elements.
    """
    shape = type_.shape
    if len(shape) > MAX_RANK:
        raise ShapeError(f"'{name}' has the shape {format_shape(shape)}: {len(shape)} axes, more than {MAX_RANK}")
    elements = math.prod([extent for extent in shape if isinstance(extent, int)])
    if elements > MAX_ELEMENTS:
        raise ShapeError(f"'{name}' has the shape {format_shape(shape)}: {elements} elements, more than {MAX_ELEMENTS}")
