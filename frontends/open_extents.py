"""Symbolic ("open") extents: extents that have a name instead of a number while a model is converted.

Converters compute with them as with integers. Sums, products and exact quotients of a symbolic extent are symbolic
extents again. Operations that depend on its number (such as a comparison with 5, a loop, or the shape of a constant)
raise an error with its name, which ends the converter. Therefore converters need no special cases for symbolic extents,
and a conversion that succeeds is valid for every positive value of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn, cast

import numpy as np

from tpuconvert.schema.definition.extents import factorize, minus, plus, sum_terms, times
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.types import Array, Dim, Shape

FUNCTIONS = frozenset({"max", "min", "ceil", "floor"})
"""Names of functions in the expression that is the name of a computed extent."""

KEEP = "?"
"""Extent of a shape that the caller gives: as in the file."""

_PLAIN_NAME = r"[^\W\d][\w.]*\Z"
_MOST_TERMS = 16
"""Largest number of terms into which a sum is split."""


class OpenExtentError(Exception):
    """An operation on a symbolic extent requires its number."""

    def __init__(self, extent: str) -> None:
        super().__init__(f"'{extent}' has to be a number here")
        self.extent = extent


class OpenExtent:
    """A symbolic extent; its ``name`` is a name from the model, or an expression of such names and integers."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(self.name)

    def _ask(self, *_: object) -> NoReturn:
        raise OpenExtentError(self.name)

    __index__ = __int__ = __float__ = __bool__ = __neg__ = __rsub__ = __rfloordiv__ = __rmod__ = _ask
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __round__ = __ceil__ = __trunc__ = __divmod__ = _ask

    def __floor__(self) -> OpenExtent:
        return self

    def __abs__(self) -> OpenExtent:
        return self if self._least() else self._ask()

    def __add__(self, other: object) -> int | OpenExtent:
        return from_dim(plus(self.name, self._dim(other)))

    __radd__ = __add__

    def __sub__(self, other: object) -> int | OpenExtent:
        if isinstance(other, OpenExtent):
            if other.name == self.name:
                return 0
            difference = minus(self.name, other.name)
            return self._ask() if difference is None else from_dim(difference)
        number = self._dim(other)
        return from_dim(plus(self.name, -number)) if isinstance(number, int) else self._ask()

    def __mul__(self, other: object) -> int | OpenExtent:
        return from_dim(times(self.name, self._dim(other)))

    __rmul__ = __mul__

    def __floordiv__(self, other: object) -> int | OpenExtent:
        quotient = self._quotient(other)
        return self._ask() if quotient is None else quotient

    def __mod__(self, other: object) -> int:
        return self._ask() if self._quotient(other) is None else 0

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (OpenExtent, str)):
            name = str(other)
            if name == self.name:
                return True
            return False if isinstance(minus(self.name, name), int) else self._ask()
        if isinstance(other, (int, np.integer)):
            if other < 0 and "-" not in self.name:
                return False
            return self._ask() if not self._least() or other >= self._least() else False
        return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: object) -> bool:
        return False if self._is_at_least(other) else self._ask()

    def __ge__(self, other: object) -> bool:
        return True if self._is_at_least(other) else self._ask()

    def __le__(self, other: object) -> bool:
        return False if self._is_at_least(other, 1) else self._ask()

    def __gt__(self, other: object) -> bool:
        return True if self._is_at_least(other, 1) else self._ask()

    def _is_at_least(self, other: object, more: int = 0) -> bool:
        """Return True if the extent is known to be at least ``other + more``."""
        return isinstance(other, (int, np.integer)) and self._least() >= other + more and bool(self._least())

    def _least(self) -> int:
        """Lower bound of a product of names, or of a sum of such products; 0 if none is known.

        The names are positive, so that it is the factor of a product. A sum is at least its number, and at least 1.
        """
        number, names = sum_terms(self.name)
        if number < 0 or min(names.values(), default=-1) < 0:
            return 0
        if not all(re.match(_PLAIN_NAME, factor) for name in names for factor in factorize((name,))[1]):
            return 0
        return max(1, number) if number or len(names) > 1 else next(iter(names.values()))

    def terms(self) -> list[OpenExtent]:
        """The terms of a sum of names; the extent itself if it is not such a sum."""
        number, names = sum_terms(self.name)
        if number or min(names.values(), default=0) < 1 or names.total() > _MOST_TERMS or "?" in self.name:
            return [self]
        is_plain = all(re.match(_PLAIN_NAME, name) for name in names)
        return [OpenExtent(name) for name in names.elements()] if is_plain else [self]

    def _quotient(self, other: object) -> int | OpenExtent | None:
        """Exact quotient; None if the division may have a remainder."""
        divisor = self._dim(other)
        number, names = factorize((self.name,))
        by, by_names = factorize((divisor,))
        if by < 1 or number % by or by_names - names:
            return None
        rest = names.copy()
        rest.subtract(by_names)
        return from_dim(times(number // by, *rest.elements()))

    def _dim(self, other: object) -> Dim:
        """Convert the other operand of an arithmetic operator to an integer or a name."""
        if isinstance(other, OpenExtent):
            return other.name
        if isinstance(other, (int, np.integer)):
            return int(other)
        if isinstance(other, (float, np.floating)) and float(other).is_integer():
            return int(other)  # NumPy code may multiply by a float such as 1.0
        return self._ask()


def from_dim(extent: Dim) -> int | OpenExtent:
    """Convert an entry of a Shape (integer or name) to an extent that supports arithmetic."""
    return extent if isinstance(extent, int) else OpenExtent(extent)


def from_shape(shape: Shape) -> tuple[int, ...]:
    """Convert a Shape to extents that support arithmetic; symbolic extents are typed as ``int`` for converters."""
    if str not in map(type, shape):
        return cast("tuple[int, ...]", shape)
    return tuple([cast(int, from_dim(extent)) for extent in shape])


def to_shape(extents: Sequence[int]) -> tuple[Dim, ...]:
    """Convert extents to a Shape, the inverse of ``from_shape``."""
    mixed = cast("Sequence[int | OpenExtent]", extents)
    return tuple([extent.name if isinstance(extent, OpenExtent) else int(extent) for extent in mixed])


def is_open(extent: object) -> bool:
    """Return True if an extent is symbolic."""
    return isinstance(extent, OpenExtent)


def is_data_dependent(extent: object) -> bool:
    """Return True if an extent is symbolic and is not determined by the shapes of the inputs."""
    return isinstance(extent, OpenExtent) and "?" in extent.name


def is_one(extent: object) -> bool:
    """Return True if an extent is 1; False for symbolic extents, which never broadcast, even if 1 at run time."""
    return not isinstance(extent, OpenExtent) and extent == 1


def has_zero(extents: Sequence[int]) -> bool:
    """Return True if an extent is known to be 0."""
    return any(not is_open(extent) and extent == 0 for extent in extents)


def extents_array(extents: object) -> Array:
    """Array of extents, as a shape constant of the source: int64, or of dtype object if one is symbolic."""
    array = np.array(extents, object)
    return array if any(map(is_open, array.flat)) else array.astype(np.int64)


def is_shape_tensor(array: Array | None) -> bool:
    """Return True if a constant contains extents, of which at least one is symbolic."""
    return array is not None and array.dtype.kind == "O"


def open_within(item: object) -> str:
    """Name of the first symbolic extent in an operator parameter; empty if it has none."""
    if isinstance(item, (tuple, list)):
        return next(filter(None, map(open_within, item)), "")
    return item.name if isinstance(item, OpenExtent) else ""


_WITHOUT_EXTENTS = frozenset({bool, int, float, str, type(None)})


def check_parameters(op: Op) -> None:
    """Check that no parameter of a new node's operator is symbolic.

    Raises:
        OpenExtentError: a parameter is or contains a symbolic extent.
    """
    for parameter in vars(op).values():
        if parameter.__class__ not in _WITHOUT_EXTENTS and (extent := open_within(parameter)):
            raise OpenExtentError(extent)


def names_in(extent: str) -> set[str]:
    """Names of the model's extents in the expression of a computed extent."""
    return set(re.findall(r"[^\W\d][\w.]*\b(?!\()", extent))
