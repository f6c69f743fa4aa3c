"""Plain values of dataclasses, as JSON documents have them. ``tools/pages/json_schemas.py`` makes their schemas."""

from __future__ import annotations

import dataclasses
import enum
import math
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeAlias


@dataclasses.dataclass(frozen=True)
class Keyword:
    """A keyword of the JSON Schema of a value, in ``Annotated``."""

    name: str
    value: str | int | tuple[str, ...]


Unbounded: TypeAlias = Annotated[float, Keyword("type", ("number", "null"))]
"""A float that may be NaN or infinite, which JSON cannot represent: it becomes null."""

Count: TypeAlias = Annotated[int, Keyword("minimum", 0)]
Seconds: TypeAlias = Annotated[float, Keyword("minimum", 0)]

MERGED = "*"
"""Key of an attribute whose own keys are added to the keys of the object."""


class Plain:
    """Base of dataclasses whose plain values are their fields with other names, or more than their fields.

    Args:
        hidden: fields without a key, in addition to those that begin with an underscore.
        added: properties and methods without arguments that are keys too.
        keys: field, property or method -> its key. :data:`MERGED` adds the keys of the value to the keys of the object;
            a key that ends in ``?`` is absent without a value.
    """

    _keys: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(
        cls, *, hidden: Sequence[str] = (), added: Sequence[str] = (), keys: Mapping[str, str] | None = None
    ) -> None:
        super().__init_subclass__()
        cls._keys = {**cls._keys, **dict.fromkeys(hidden, ""), **{name: name for name in added}, **(keys or {})}

    @classmethod
    def plain_keys(cls) -> dict[str, str]:
        """Return attribute -> key of the plain values."""
        names = [item.name for item in dataclasses.fields(cls)]  # type: ignore[arg-type]  # of a dataclass
        keys = {**{name: name for name in names if not name.startswith("_")}, **cls._keys}
        return {name: key for name, key in keys.items() if key}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as in the JSON document of the command."""
        values: dict[str, Any] = {}
        for name, key in self.plain_keys().items():
            item = getattr(self, name)
            value = to_plain(item() if callable(item) else item)
            if key == MERGED:
                values |= value
            elif value or not key.endswith("?"):
                values[key.removesuffix("?")] = value
        return values


def to_plain(value: Any) -> Any:
    """Return mappings, lists, strings and numbers for a value. Infinities and NaN become None."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return {item.name: to_plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
