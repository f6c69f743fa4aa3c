"""Fields that are thousands of numbers, one per channel: arrays until somebody asks for the tuple.

A file holds such numbers as an array, and whoever computes with them wants one. A tuple of them takes longer to make
than all else that is read with it, so it is made when the field is looked at; then it is what it always was. Objects
that are made with tuples know nothing of all this.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tpuconvert.schema.types import Array

LONG = 32
"""Numbers. Fewer are as well a tuple from the beginning."""

Made = TypeVar("Made")

_ARRAYS = "_arrays"
_DEFAULTS: dict[type, dict[str, Any]] = {}


def make_with_arrays(cls: type[Made], values: Mapping[str, Any], arrays: Mapping[str, Array]) -> Made:
    """As ``cls(**values, **arrays)``, if the arrays were tuples.

    Args:
        cls: a dataclass; every field that has no default is given.
        values: of fields.
        arrays: of fields that are tuples of numbers; nobody may change them afterwards.
    """
    if cls not in _DEFAULTS:
        _DEFAULTS[cls] = _defaults(cls)
    made = object.__new__(cls)
    fields = made.__dict__
    fields.update(_DEFAULTS[cls])
    fields.update(values)
    for name in arrays:
        fields.pop(name, None)
        if type(cls.__dict__.get(name)) is not _LongField:
            setattr(cls, name, _LongField(name, getattr(cls, name, dataclasses.MISSING)))
    fields[_ARRAYS] = arrays
    check = getattr(made, "__post_init__", None)
    if check is not None:
        check()
    return made


def _defaults(cls: Any) -> dict[str, Any]:
    items = dataclasses.fields(cls)
    assert all(item.default_factory is dataclasses.MISSING for item in items), "defaults that are made anew each time"
    return {item.name: item.default for item in items if item.default is not dataclasses.MISSING}


def has_arrays(item: object) -> bool:
    """Whether a field of an object may still be an array."""
    return _ARRAYS in item.__dict__


def numbers_of(item: object, name: str) -> Array | tuple[Any, ...]:
    """The numbers of a field as they are at hand, without making a tuple of them."""
    arrays = item.__dict__.get(_ARRAYS)
    found: Array | tuple[Any, ...] = getattr(item, name) if arrays is None or name not in arrays else arrays[name]
    return found


def range_of(item: object, name: str) -> tuple[Any, Any]:
    """The least and the greatest integer of a field; two zeros where there are none."""
    numbers = numbers_of(item, name)
    if not len(numbers):
        return 0, 0
    return (min(numbers), max(numbers)) if isinstance(numbers, tuple) else (int(numbers.min()), int(numbers.max()))


class _LongField:
    """Stands in the class where a field's default stands; asked only while an object has no value of its own."""

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
