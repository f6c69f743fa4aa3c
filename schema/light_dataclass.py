"""``@dataclass`` without generated source code.

The standard decorator writes six methods as text and compiles them: nearly a millisecond for each of hundreds of
operators, which is longer than converting a small network. What it makes behaves the same here (``fields``,
``replace``, ``asdict``, equality, hash, representation, ``FrozenInstanceError``), but the methods are shared by all
classes and walk over the names of the fields. What a class needs for that is found when its first object is made. The
standard decorator itself runs when somebody asks for what only it makes, such as ``fields``. Type checkers see the
standard decorator.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool = False, eq: bool = True, kw_only: bool = False):
        """As the decorator of the standard library.

        A field of a frozen class that is set in ``__post_init__`` is set with ``object.__setattr__``, as there.

        Args:
            frozen: whether objects do not change.
            eq: whether objects are equal when their fields are, instead of only to themselves.
            kw_only: whether fields can only be given by name.

        """

        def decorate(cls: type) -> type:
            standard = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)

            def find_items(cls: type) -> _Items:
                items = _plain_items(cls, kw_only)
                return _standard_items(standard(cls)) if items is None else items

            if _cannot_wait(cls):
                cls.__items__ = _standard_items(standard(cls))
            else:
                cls.__items__ = _Later(cls, "__items__", find_items)
                cls.__dataclass_fields__ = _Later(cls, "__dataclass_fields__", lambda cls: _fields(standard(cls)))
                cls.__match_args__ = _Later(cls, "__match_args__", _positional)
            cls.__field_names__ = _Later(cls, "__field_names__", _shown)
            cls.__compared__ = _Later(cls, "__compared__", _compared)
            methods = {"__init__": _first_init(cls), "__repr__": _repr}
            if eq:
                methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
            if frozen:
                methods |= {"__setattr__": _setattr, "__delattr__": _delattr}
            for name, method in methods.items():  # what a class says itself stays
                if name not in cls.__dict__ and getattr(cls, name) is not method:
                    setattr(cls, name, method)
            return cls

        return decorate


class _Later:
    """An attribute of a class that is found when somebody looks at it: most classes are not used."""

    __slots__ = ("_cls", "_find", "_name")

    def __init__(self, cls: type, name: str, find: Callable[[type], object]) -> None:
        self._cls = cls
        self._name = name
        self._find = find

    def __get__(self, instance: object, owner: type) -> Any:
        setattr(self._cls, self._name, self._find(self._cls))
        return getattr(self._cls, self._name)


_AT_ONCE = (dataclasses.Field, list, dict, set)
"""What has to be replaced, or refused as a default that objects would share, when a class is made."""


def _cannot_wait(cls: type) -> bool:
    return any(isinstance(value, _AT_ONCE) and name != "__annotations__" for name, value in cls.__dict__.items())


class _Item:
    """What is needed of a field to make and to compare objects: the attributes of ``dataclasses.Field``."""

    __slots__ = ("compare", "default", "default_factory", "kw_only", "name", "repr")

    def __init__(self, name: str, default: object, kw_only: bool) -> None:
        self.name = name
        self.default = default
        self.default_factory: Any = dataclasses.MISSING
        self.kw_only = kw_only
        self.compare = self.repr = True


_Items = dict[str, "_Item | dataclasses.Field[Any]"]


def _plain_items(cls: type, kw_only: bool) -> _Items | None:
    """The fields of a class by name, inherited ones first; None where only the standard decorator understands them."""
    items: _Items = {}
    for base in reversed(cls.__mro__[1:]):
        if "__items__" in base.__dict__:
            items.update(base.__items__)  # type: ignore[attr-defined]  # which is there
        elif "__dataclass_fields__" in base.__dict__:
            return None
    for name, hint in inspect.get_annotations(cls).items():
        if str(hint).startswith(("ClassVar[", "typing.ClassVar[")):
            continue
        default = getattr(cls, name, dataclasses.MISSING)
        is_shared = default.__class__.__hash__ is None or isinstance(default, types.MemberDescriptorType)
        if is_shared or any(word in str(hint) for word in ("ClassVar", "InitVar", "KW_ONLY")):
            return None
        items[name] = _Item(name, default, kw_only)
    return items


def _fields(cls: Any) -> dict[str, dataclasses.Field[Any]]:
    """What the standard decorator has put into a class."""
    fields: dict[str, dataclasses.Field[Any]] = cls.__dict__["__dataclass_fields__"]
    return fields


def _standard_items(cls: Any) -> _Items:
    return {item.name: item for item in dataclasses.fields(cls)}


def _positional(cls: Any) -> tuple[str, ...]:
    return tuple(item.name for item in cls.__items__.values() if not item.kw_only)


def _shown(cls: Any) -> tuple[str, ...]:
    return tuple(item.name for item in cls.__items__.values() if item.repr)


def _compared(cls: Any) -> object:
    return staticmethod(_getter(tuple(item.name for item in cls.__items__.values() if item.compare)))


def _first_init(cls: Any) -> Any:
    """An ``__init__`` that makes the one of the class when the first object is made."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init = _init_of(tuple(cls.__items__.values()), hasattr(cls, "__post_init__"))
        if cls.__init__ is __init__:
            cls.__init__ = init
        init(self, *args, **kwargs)

    return __init__


def _init_of(items: tuple[_Item | dataclasses.Field[Any], ...], has_post_init: bool) -> Any:
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


def _listed(items: tuple[_Item | dataclasses.Field[Any], ...]) -> str:
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
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__field_names__)
    return f"{type(self).__qualname__}({shown})"


def _setattr(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
