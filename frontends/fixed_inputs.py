"""Checks of graph inputs that the caller replaces by constants; all frontends use them."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.input_types import convert_input
from tpuconvert.schema.text.spelling import did_you_mean
from tpuconvert.schema.types import Array, Dim, format_shape


def check_names(fixed: Iterable[str], inputs: Iterable[str], shapes: Container[str], file: str) -> None:
    """Check that all fixed inputs exist, and that the caller does not also give their shapes.

    Raises:
        UsageError: a name does not exist, or has a shape too; for the former, the hint lists the inputs.
    """
    input_names = list(inputs)
    for name in fixed:
        if name not in input_names:
            hint = did_you_mean(name, input_names) or f"its inputs: {', '.join(input_names) or 'none'}"
            raise UsageError(f"fix_inputs: the model has no input '{name}'", file=file, hint=hint)
        if name in shapes:
            hint = f"leave --input-shapes of '{name}' out: its value has a shape"
            raise UsageError(f"input '{name}' has a fixed value and a shape", file=file, hint=hint)


def completed_shape(array: Array, declared: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the declared shape, with each unknown extent (-1) replaced by the extent of the value."""
    if array.ndim != len(declared):
        return tuple(1 if extent == -1 else extent for extent in declared)
    return tuple(have if extent == -1 else extent for have, extent in zip(array.shape, declared, strict=True))


def as_constant(array: Array, name: str, shape: tuple[Dim, ...], element: np.dtype[Any], file: str) -> Array:
    """Convert the value of a fixed input to the shape and type that the model declares.

    A scalar is accepted for every shape with one element.

    Raises:
        UsageError: the value has another shape, or cannot be converted to the type.
    """
    extents = tuple(1 if isinstance(extent, str) else extent for extent in shape)
    if array.ndim == 0 and math.prod(extents) == 1:
        array = array.reshape(extents)
    if array.shape != shape:
        actual = "one number" if array.ndim == 0 else f"shape {format_shape(array.shape)}"
        raise UsageError(
            f"fix_inputs: '{name}' has {actual}, the model takes {element}{format_shape(shape)}",
            file=file,
            hint=f"give all elements: --fix-input {name}=[...] or {name}=FILE.npy",
        )
    try:
        return convert_input(array, element, name)
    except UsageError as error:
        kind = array.dtype.name.rstrip("0123456789")
        raise UsageError(
            f"fix_inputs: {error.message}", file=file, hint=f"'{name}' takes {element}, not {kind}"
        ) from error
