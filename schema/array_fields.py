"""Tuple fields of dataclasses that are kept as arrays until the tuple is accessed.

A per-channel parameter is a tuple with thousands of elements. Files store it as an array and kernels use it as an
array, and creating the tuple takes longer than reading the rest of the file. ``make_with_arrays`` therefore keeps the
array and creates the tuple at the first access of the field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LONG = 32
"""Length above which a tuple field is kept as an array."""

Made = TypeVar("Made")

_ARRAYS = "_arrays"
_DEFAULTS: dict[type, dict[str, Any]] = {}


def make_with_arrays(cls: type[Made], values: Mapping[str, Any], arrays: Mapping[str, Array]) -> Made:
    """Create the object that ``cls(**values, **arrays)`` would create with tuples instead of arrays.

    Args:
        cls: a dataclass.
        values: values of fields. A field without a default must be in ``values`` or ``arrays``.
        arrays: elements of tuple fields. They must not be modified afterwards.
    """
    if cls not in _DEFAULTS:
        _DEFAULTS[cls] = _defaults(cls)
    instance = object.__new__(cls)
    fields = instance.__dict__
    fields.update(_DEFAULTS[cls])
    fields.update(values)
    for name in arrays:
        fields.pop(name, None)
        if type(cls.__dict__.get(name)) is not _LongField:
            setattr(cls, name, _LongField(name, getattr(cls, name, dataclasses.MISSING)))
    fields[_ARRAYS] = arrays
    check = getattr(instance, "__post_init__", None)
    if check is not None:
        check()
    return instance


def _defaults(cls: Any) -> dict[str, Any]:
    items = dataclasses.fields(cls)
    assert all(item.default_factory is dataclasses.MISSING for item in items), "default factories are not supported"
    return {item.name: item.default for item in items if item.default is not dataclasses.MISSING}


def has_arrays(item: object) -> bool:
    """Return True if the object was created by ``make_with_arrays``."""
    return _ARRAYS in item.__dict__


def numbers_of(item: object, name: str) -> Array | tuple[Any, ...]:
    """Return the array of a tuple field if it is kept as an array, otherwise the tuple."""
    arrays = item.__dict__.get(_ARRAYS)
    numbers: Array | tuple[Any, ...] = getattr(item, name) if arrays is None or name not in arrays else arrays[name]
    return numbers


def range_of(item: object, name: str) -> tuple[Any, Any]:
    """Return the minimum and maximum of a field that is a tuple of integers, or (0, 0) if it is empty."""
    numbers = numbers_of(item, name)
    if not len(numbers):
        return 0, 0
    if isinstance(numbers, tuple):
        return min(numbers), max(numbers)
    return int(np.minimum.reduce(numbers)), int(np.maximum.reduce(numbers))  # faster than the array methods


class _LongField:
    """Descriptor of a field: create the tuple from the array at the first access, or return the default.

    Python calls it only if the object itself does not have the attribute.
    """

    def __init__(self, name: str, default: object) -> None:
        self._name = name
        self._default = default

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is not None:
            array = instance.__dict__.get(_ARRAYS, {}).get(self._name)
            if array is not None:
                value = instance.__dict__[self._name] = tuple(array.tolist())
                return value
        if self._default is dataclasses.MISSING:
            raise AttributeError(f"{owner.__name__} has no default for {self._name}")
        return self._default
