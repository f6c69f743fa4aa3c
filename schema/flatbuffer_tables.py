"""Reading FlatBuffers tables that the verifier has passed; what the generated classes are made with.

Source: FlatBuffers internals, https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import struct
from typing import Any

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")


class ReadBudget:
    """Bounds the memory that unpacking takes, and decodes a shared string once.

    In an honest buffer everything but strings and vtables is referred to once, so all that is read together is never
    longer than the buffer. A hostile one may refer to one long vector from thousands of tables.
    """

    def __init__(self, size: int) -> None:
        self._left = size
        self._strings: dict[int, str] = {}

    def spend(self, size: int) -> None:
        """Take ``size`` bytes from what is left.

        Raises:
            ValueError: when the parts read are together longer than the buffer.

        """
        self._left -= size
        if self._left < 0:
            raise ValueError("parts of the metadata overlap")

    def string(self, buffer: memoryview, position: int) -> str:
        """The string at ``position``.

        Raises:
            ValueError: when it is not UTF-8, or the budget is spent.

        """
        known = self._strings.get(position)
        if known is None:
            (length,) = _U32.unpack_from(buffer, position)
            self.spend(length)
            known = str(buffer[position + 4 : position + 4 + length], "utf-8")
            self._strings[position] = known
        return known


class TableReader:
    """One table of a verified buffer. Fields are addressed by their slot: the place in the schema, from 0."""

    __slots__ = ("_budget", "_buffer", "_position", "_vtable", "_vtable_size")

    def __init__(self, buffer: memoryview, position: int, budget: ReadBudget) -> None:
        self._buffer = buffer
        self._position = position
        self._budget = budget
        self._vtable = position - int(_I32.unpack_from(buffer, position)[0])
        self._vtable_size = int(_U16.unpack_from(buffer, self._vtable)[0])
        budget.spend(_U16.unpack_from(buffer, self._vtable + 2)[0])

    @staticmethod
    def root(buffer: memoryview) -> TableReader:
        """The root table of a buffer that has been verified."""
        return TableReader(buffer, _U32.unpack_from(buffer, 0)[0], ReadBudget(len(buffer)))

    def _field(self, slot: int) -> int:
        """Position of a field, 0 when it is absent."""
        entry = 4 + 2 * slot
        if entry + 2 > self._vtable_size:
            return 0
        offset = int(_U16.unpack_from(self._buffer, self._vtable + entry)[0])
        return self._position + offset if offset else 0

    def _target(self, slot: int) -> int:
        """Position that an offset field points at, 0 when it is absent."""
        field = self._field(slot)
        return field + int(_U32.unpack_from(self._buffer, field)[0]) if field else 0

    def _vector(self, slot: int, item_size: int) -> tuple[int, int]:
        """First item and number of items of a vector field; nothing when it is absent."""
        start = self._target(slot)
        if not start:
            return 0, 0
        (length,) = _U32.unpack_from(self._buffer, start)
        self._budget.spend(length * item_size)
        return start + 4, length

    def scalar(self, slot: int, code: str, default: Any) -> Any:
        """A number, or ``default`` when it is absent. ``code`` is the letter of the struct module."""
        field = self._field(slot)
        return struct.unpack_from("<" + code, self._buffer, field)[0] if field else default

    def string(self, slot: int) -> str:
        """A string, empty when it is absent."""
        start = self._target(slot)
        return self._budget.string(self._buffer, start) if start else ""

    def table(self, slot: int) -> TableReader | None:
        """A table, None when it is absent."""
        start = self._target(slot)
        return TableReader(self._buffer, start, self._budget) if start else None

    def required(self, slot: int) -> TableReader:
        """A table whose presence the verifier has checked."""
        return TableReader(self._buffer, self._target(slot), self._budget)

    def scalars(self, slot: int, code: str) -> tuple[Any, ...]:
        """A vector of numbers, empty when it is absent."""
        start, length = self._vector(slot, struct.calcsize("<" + code))
        return struct.unpack_from(f"<{length}{code}", self._buffer, start)

    def _targets(self, slot: int) -> list[int]:
        start, length = self._vector(slot, 4)
        offsets = struct.unpack_from(f"<{length}I", self._buffer, start)
        return [start + 4 * index + offset for index, offset in enumerate(offsets)]

    def strings(self, slot: int) -> tuple[str, ...]:
        """A vector of strings, empty when it is absent."""
        return tuple(self._budget.string(self._buffer, position) for position in self._targets(slot))

    def tables(self, slot: int) -> list[TableReader]:
        """A vector of tables, empty when it is absent."""
        return [TableReader(self._buffer, position, self._budget) for position in self._targets(slot)]
