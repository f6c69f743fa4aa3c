"""Extents that stay names while a model is converted.

A converter computes with extents as with integers. An open one takes part in sums, products and exact quotients, which
give open extents again; whatever can only be answered with its number (a comparison with 5, a loop, the shape of a
constant) ends the converter with an error that names it. So a converter need not know about open extents, and nothing
is decided about them that does not hold for every number from 1 on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn, cast

import numpy as np

from tpuconvert.schema.extents import factorize, plus, times
from tpuconvert.schema.op import Op
from tpuconvert.schema.types import Array, Dim, Shape

FUNCTIONS = frozenset({"max", "ceil"})
"""Functions in the names of computed extents, besides the names that they are computed from."""

_PLAIN_NAME = r"[^\W\d][\w.]*\Z"


class OpenExtentError(Exception):
    """A question about an open extent that only its number answers."""

    def __init__(self, extent: str) -> None:
        super().__init__(f"'{extent}' has to be a number here")
        self.extent = extent


class OpenExtent:
    """One extent: a name, or what was computed from names and numbers."""

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
            return 0 if other.name == self.name else self._ask()
        number = self._dim(other)
        return from_dim(plus(self.name, -number)) if isinstance(number, int) else self._ask()

    def __mul__(self, other: object) -> int | OpenExtent:
        return from_dim(times(self.name, self._dim(other)))

    __rmul__ = __mul__

    def __floordiv__(self, other: object) -> int | OpenExtent:
        found = self._quotient(other)
        return self._ask() if found is None else found

    def __mod__(self, other: object) -> int:
        return self._ask() if self._quotient(other) is None else 0

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (OpenExtent, str)):
            name = str(other)
            return True if name == self.name else self._ask()
        if isinstance(other, (int, np.integer)):
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
        """The smallest number that the extent can be; 0 where that is not known, as for a difference."""
        number, names = factorize((self.name,))
        return number if all(re.match(_PLAIN_NAME, name) for name in names) else 0

    def _quotient(self, other: object) -> int | OpenExtent | None:
        """The exact quotient; None where the division may leave a rest."""
        divisor = self._dim(other)
        number, names = factorize((self.name,))
        by, by_names = factorize((divisor,))
        if by < 1 or number % by or by_names - names:
            return None
        rest = names.copy()
        rest.subtract(by_names)
        return from_dim(times(number // by, *rest.elements()))

    def _dim(self, other: object) -> Dim:
        """The other operand of a sum or product."""
        if isinstance(other, OpenExtent):
            return other.name
        if isinstance(other, (int, np.integer)):
            return int(other)
        if isinstance(other, (float, np.floating)) and float(other).is_integer():
            return int(other)  # a factor of 1.0 leaves an extent alone
        return self._ask()


def from_dim(extent: Dim) -> int | OpenExtent:
    """An extent to compute with."""
    return extent if isinstance(extent, int) else OpenExtent(extent)


def from_shape(shape: Shape) -> tuple[int, ...]:
    """Extents to compute with. Open ones pass as integers, which is what a converter takes them for."""
    if str not in map(type, shape):
        return cast("tuple[int, ...]", shape)
    return tuple([cast(int, from_dim(extent)) for extent in shape])


def to_shape(extents: Sequence[int]) -> tuple[Dim, ...]:
    """Extents that were computed, as a shape."""
    mixed = cast("Sequence[int | OpenExtent]", extents)
    return tuple([extent.name if isinstance(extent, OpenExtent) else int(extent) for extent in mixed])


def is_open(extent: object) -> bool:
    """Return True if an extent is symbolic."""
    return isinstance(extent, OpenExtent)


def is_one(extent: object) -> bool:
    """Return True if an extent is 1. A symbolic one is not: it is never broadcast, even if it is 1 at run time."""
    return not isinstance(extent, OpenExtent) and extent == 1


def extents_array(extents: object) -> Array:
    """Extents as a constant of the source: 64-bit integers, or objects where one is open."""
    array = np.array(extents, object)
    return array if any(map(is_open, array.flat)) else array.astype(np.int64)


def is_shape_tensor(array: Array | None) -> bool:
    """Return True if the elements of a constant are extents of which one is symbolic."""
    return array is not None and array.dtype.kind == "O"


def first_open(array: Array) -> OpenExtent | None:
    """An open extent among the elements of a constant."""
    return next((item for item in array.flat if isinstance(item, OpenExtent)), None) if is_shape_tensor(array) else None


def open_within(item: object) -> str:
    """An open extent in a parameter of an operator, empty where there is none."""
    if isinstance(item, (tuple, list)):
        return next(filter(None, map(open_within, item)), "")
    return item.name if isinstance(item, OpenExtent) else ""


_WITHOUT_EXTENTS = frozenset({bool, int, float, str, type(None)})


def check_parameters(op: Op) -> None:
    """Check that the parameters of a new node's operator are numbers.

    Raises:
        OpenExtentError: a converter wrote an open extent into one.
    """
    for parameter in vars(op).values():
        if parameter.__class__ not in _WITHOUT_EXTENTS and (extent := open_within(parameter)):
            raise OpenExtentError(extent)


def names_in(extent: str) -> set[str]:
    """The names that an extent was computed from."""
    return set(re.findall(r"[^\W\d][\w.]*", extent)) - FUNCTIONS
