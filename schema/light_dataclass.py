"""``@dataclass(frozen=True)`` without generated source code.

The standard decorator writes six methods as text and compiles them: nearly a millisecond for each of hundreds of
operators, which is longer than converting a small network. What it makes behaves the same here (``fields``,
``replace``, ``asdict``, equality, hash, representation, ``FrozenInstanceError``), but the methods are shared by all
classes and walk over the names of the fields. Type checkers see the standard decorator.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool, eq: bool = True, kw_only: bool = False):
        """As the decorator of the standard library, for classes that do not change.

        A field that is set in ``__post_init__`` is set with ``object.__setattr__``, as there.

        Args:
            frozen: true; said as it is in the standard library.
            eq: whether objects are equal when their fields are, instead of only to themselves.
            kw_only: whether fields can only be given by name.

        """
        assert frozen, "an operator does not change"

        def decorate(cls: type) -> type:
            made = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
            items = dataclasses.fields(made)
            made.__field_names__ = tuple(item.name for item in items if item.repr)
            made.__compared__ = staticmethod(_getter(tuple(item.name for item in items if item.compare)))
            made.__init__ = _init_of(items, hasattr(made, "__post_init__"))
            for name, method in _METHODS.items():  # what a class says itself stays
                if name not in cls.__dict__ and (eq or name not in ("__eq__", "__hash__")):
                    setattr(made, name, method)
            return made

        return decorate


def _init_of(items: tuple[dataclasses.Field[Any], ...], has_post_init: bool) -> Any:
    """The ``__init__`` of a class with these fields."""
    missing = dataclasses.MISSING
    names = frozenset(item.name for item in items)
    positional = tuple(item.name for item in items if not item.kw_only)
    defaults = {item.name: item.default for item in items if item.default is not missing}
    factories = {item.name: item.default_factory for item in items if item.default_factory is not missing}
    count, most = len(items), len(positional)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        values = self.__dict__
        if len(args) < count:
            values.update(defaults)
        if args:
            values.update(zip(positional, args, strict=False))
        if kwargs:
            if not names.issuperset(kwargs) or (args and not kwargs.keys().isdisjoint(positional[: len(args)])):
                raise TypeError(f"{type(self).__name__} takes {_listed(items)}; got {_given(args, kwargs)}")
            values.update(kwargs)
        if factories and len(values) < count:
            for name, factory in factories.items():
                if name not in values:
                    values[name] = factory()
        if len(values) != count or len(args) > most:
            raise TypeError(f"{type(self).__name__} takes {_listed(items)}; got {_given(args, kwargs)}")
        if has_post_init:
            self.__post_init__()

    return __init__


def _listed(items: tuple[dataclasses.Field[Any], ...]) -> str:
    return ", ".join(item.name for item in items) or "no arguments"


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])


def _getter(names: tuple[str, ...]) -> Callable[[Any], object]:
    """What gives the values of these attributes, as something to compare and to hash."""
    return operator.attrgetter(*names) if names else lambda _: ()


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self.__compared__(self) == self.__compared__(other)


def _hash(self: Any) -> int:
    return hash(self.__compared__(self))


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.__field_names__)
    return f"{type(self).__qualname__}({shown})"


def _setattr(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


_METHODS = {"__eq__": _eq, "__hash__": _hash, "__repr__": _repr, "__setattr__": _setattr, "__delattr__": _delattr}
