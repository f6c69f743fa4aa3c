"""``@dataclass`` without generated source code.

The standard decorator writes six methods as text and compiles them: nearly a millisecond for each of hundreds of
operators, which is longer than converting a small network. What it makes behaves the same here (``fields``,
``replace``, ``asdict``, equality, hash, representation, ``FrozenInstanceError``), but the methods are shared by all
classes and walk over the names of the fields. What a class needs for that is found when its first object is made. The
standard decorator itself runs when somebody asks for what only it makes, as ``dataclasses.fields`` does; ``fields`` and
``replace`` here need nothing of it. Type checkers see the standard library's.
"""

from __future__ import annotations

import dataclasses
import operator
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import fields as fields
    from dataclasses import replace as replace
else:

    def dataclass(*, frozen: bool = False, eq: bool = True, kw_only: bool = False):
        """As the decorator of the standard library.

        A field of a frozen class that is set in ``__post_init__`` is set with ``object.__setattr__``, as there.

        Args:
            frozen: whether objects do not change.
            eq: whether objects are equal when their fields are, instead of only to themselves.
            kw_only: whether fields can only be given by name.

        """
        methods = {"__repr__": _repr}
        if eq:
            methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
        if frozen:
            methods |= {"__setattr__": _setattr, "__delattr__": _delattr}

        def decorate(cls: type) -> type:
            cls.__stated__ = _stated(cls, kw_only)
            for later in _LATER:
                setattr(cls, later.name, later)
            own = cls.__dict__
            if "__init__" not in own:  # what a class says itself stays
                cls.__init__ = _first_init(cls)
            for name, method in methods.items():
                if name not in own and getattr(cls, name) is not method:
                    setattr(cls, name, method)
            return cls

        return decorate

    def fields(item: object) -> Iterable[_Item | Field]:
        """As the function of the standard library: the fields of a class or of an object, in their order."""
        cls = item if isinstance(item, type) else type(item)
        return cls.__items__.values() if "__items__" in cls.__dict__ else dataclasses.fields(cls)

    def replace(item: Any, **changes: Any):
        """As the function of the standard library: an object like this one, with some fields changed."""
        if "__items__" not in type(item).__dict__:
            return dataclasses.replace(item, **changes)
        return type(item)(**{name: getattr(item, name) for name in type(item).__items__} | changes)


class _Stated:
    """What a decorator was told, and the fields that the class gave more than a default."""

    __slots__ = ("given", "kw_only")

    def __init__(self, kw_only: bool, given: dict[str, Field[Any]]) -> None:
        self.kw_only = kw_only
        self.given = given


_SHARED = (list, dict, set)
"""Types of defaults that all objects would share."""


def _stated(cls: Any, kw_only: bool) -> _Stated:
    """Note what a class says about itself; defaults take the place of the fields that they stand in."""
    given: dict[str, Field[Any]] = {}
    for name, hint in cls.__annotations__.items():
        value = cls.__dict__.get(name)
        if isinstance(value, Field):
            given[name] = value
            if value.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, value.default)
        elif value.__class__ in _SHARED and not _is_class_variable(hint):
            raise ValueError(f"mutable default {value.__class__} for field {name} is not allowed: use default_factory")
    return _Stated(kw_only, given)


def _is_class_variable(hint: object) -> bool:
    return str(hint).startswith(("ClassVar[", "typing.ClassVar["))


class _Later:
    """An attribute of every class that is found when somebody looks at it: most classes are not used."""

    __slots__ = ("_find", "name")

    def __init__(self, name: str, find: Callable[[Any], object]) -> None:
        self.name = name
        self._find = find

    def __get__(self, instance: object, owner: type) -> Any:
        cls = next(base for base in owner.__mro__ if base.__dict__.get(self.name) is self)
        setattr(cls, self.name, self._find(cls))
        return getattr(cls, self.name)


class _Item:
    """What is needed of a field to make and to compare objects: the attributes of ``dataclasses.Field``."""

    __slots__ = ("compare", "default", "default_factory", "kw_only", "name", "repr", "type")

    def __init__(self, name: str, hint: Any, default: object, kw_only: bool) -> None:
        self.name = name
        self.type = hint
        self.default = default
        self.default_factory: Any = MISSING
        self.kw_only = kw_only
        self.compare = self.repr = True

    def take(self, given: Field[Any]) -> bool:
        """Take over what a class gave as a field; whether that is all of it."""
        self.default_factory = given.default_factory
        self.compare, self.repr = given.compare, given.repr
        return given.init and given.hash is None and given.kw_only is MISSING and not given.metadata


_Items = dict[str, "_Item | Field[Any]"]


def _items(cls: Any) -> _Items:
    items = _plain_items(cls)
    return {item.name: item for item in dataclasses.fields(cls)} if items is None else items


def _plain_items(cls: Any) -> _Items | None:
    """The fields of a class by name, inherited ones first; None where only the standard decorator understands them."""
    items: _Items = {}
    for base in reversed(cls.__mro__[1:]):
        if "__items__" in base.__dict__:
            items.update(base.__items__)
        elif "__dataclass_fields__" in base.__dict__:
            return None
    stated: _Stated = cls.__stated__
    for name, hint in cls.__annotations__.items():
        if _is_class_variable(hint):
            continue
        default = getattr(cls, name, MISSING)
        is_shared = default.__class__.__hash__ is None or isinstance(default, types.MemberDescriptorType)
        if is_shared or any(word in str(hint) for word in ("ClassVar", "InitVar", "KW_ONLY")):
            return None
        item = items[name] = _Item(name, hint, default, stated.kw_only)
        if name in stated.given and not item.take(stated.given[name]):
            return None
    return items


def _standard_fields(cls: Any) -> dict[str, Field[Any]]:
    """What the standard decorator puts into a class."""
    stated: _Stated = cls.__stated__
    for name, given in stated.given.items():
        setattr(cls, name, given)
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=stated.kw_only)(cls)
    found: dict[str, Field[Any]] = cls.__dict__["__dataclass_fields__"]
    return found


def _positional(cls: Any) -> tuple[str, ...]:
    return tuple(item.name for item in cls.__items__.values() if not item.kw_only)


def _shown(cls: Any) -> tuple[str, ...]:
    return tuple(item.name for item in cls.__items__.values() if item.repr)


def _compared(cls: Any) -> object:
    return staticmethod(_getter(tuple(item.name for item in cls.__items__.values() if item.compare)))


_LATER = (
    _Later("__items__", _items),
    _Later("__dataclass_fields__", _standard_fields),
    _Later("__match_args__", _positional),
    _Later("__field_names__", _shown),
    _Later("__compared__", _compared),
)


def _first_init(cls: Any) -> Any:
    """An ``__init__`` that makes the one of the class when the first object is made."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        aliases = getattr(cls, "parameter_aliases", None) or {}
        init = _init_of(tuple(cls.__items__.values()), hasattr(cls, "__post_init__"), aliases)
        if cls.__init__ is __init__:
            cls.__init__ = init
        init(self, *args, **kwargs)

    return __init__


def _init_of(items: tuple[_Item | Field[Any], ...], has_post_init: bool, aliases: Mapping[str, str]) -> Any:
    """The ``__init__`` of a class with these fields; ``aliases`` maps further names of arguments to names of fields."""
    names = frozenset(item.name for item in items)
    positional = tuple(item.name for item in items if not item.kw_only)
    defaults = {item.name: item.default for item in items if item.default is not MISSING}
    factories = {item.name: item.default_factory for item in items if item.default_factory is not MISSING}
    count, most = len(items), len(positional)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        values = self.__dict__
        if len(args) < count:
            values.update(defaults)
        if args:
            values.update(zip(positional, args, strict=False))
        if kwargs:
            if aliases and not aliases.keys().isdisjoint(kwargs):
                kwargs = _without_aliases(aliases, kwargs, items)
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


def _without_aliases(
    aliases: Mapping[str, str], given: dict[str, Any], items: tuple[_Item | Field[Any], ...]
) -> dict[str, Any]:
    """The arguments under the names of their fields."""
    renamed = {aliases.get(name, name): value for name, value in given.items()}
    if len(renamed) != len(given):
        twice = next(name for name in given if name in aliases and aliases[name] in given)
        raise TypeError(f"{twice} is another name of {aliases[twice]}, and both are given; fields: {_listed(items)}")
    return renamed


def _listed(items: tuple[_Item | Field[Any], ...]) -> str:
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
