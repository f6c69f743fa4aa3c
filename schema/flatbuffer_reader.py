"""Reading a FlatBuffers file that nobody has verified: everything is proved in the moment in which it is read.

The same proofs as in ``flatbuffer_verifier.py``, for formats without unions and structs whose tables cannot hold
themselves, so that nesting has a bound. What a vtable says is proved once, and then describes all tables with that
vtable: one call of ``struct`` reads all numbers and offsets of such a table.

Source: FlatBuffers internals, https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tpuconvert.schema.flatbuffer_verifier import Field, FlatBufferError, Kind, Schema, Table
from tpuconvert.schema.light_dataclass import dataclass

_U16 = struct.Struct("<H").unpack_from
_U32 = struct.Struct("<I").unpack_from
_I32 = struct.Struct("<i").unpack_from
_CODES = {
    **{"bool": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q"},
    **{"f32": "f", "f64": "d"},
}


def read(
    buffer: memoryview,
    schema: Schema,
    root: str,
    identifier: bytes,
    classes: Mapping[str, type],
    enums: Mapping[tuple[str, str], type[enum.IntEnum]],
) -> Any:
    """The root table of a buffer, with everything it holds.

    Args:
        buffer: the whole file.
        schema: description of the tables.
        root: name of the root table.
        identifier: the four bytes at offset 4.
        classes: by table name, what is made of a table: objects whose attributes are its fields.
        enums: by table and field name, what is made of a number.

    Raises:
        FlatBufferError: the first offence, and where it is.
        ValueError: an enum number that does not exist.
    """
    if len(buffer) < 8:
        raise FlatBufferError(f"{len(buffer)} bytes are too few for a FlatBuffers file")
    if buffer[4:8] != identifier:
        raise FlatBufferError(f"the file identifier is {bytes(buffer[4:8])!r}, expected {identifier!r}")
    reading = _Reading(buffer, schema, classes, enums)
    try:
        return reading.table(reading.target(0), schema.tables[root])
    except _Offence as offence:
        path = "".join(reversed(offence.path)).lstrip(".")
        raise FlatBufferError(offence.reason, path) from None


class _Offence(Exception):
    """A finding on its way up; every level adds its part of the path, innermost first."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = [path] if path else []


class _Members(dict[int, enum.IntEnum]):
    """The members of an enum by their numbers, found faster than by calling the enum."""

    def __init__(self, kind: type[enum.IntEnum]) -> None:
        super().__init__((member.value, member) for member in kind)
        self._kind = kind

    def __missing__(self, number: int) -> enum.IntEnum:
        return self._kind(number)  # which says that it has no such member


@dataclass(frozen=True)
class _Layout:
    """What one vtable says about one kind of table.

    Attributes:
        size: bytes of the table.
        unpack: gives its numbers and offsets in the order in which they lie in the table.
        remainder: what its eight-byte fields leave when divided by eight; -1 when there is none.
        absent: the values of fields that are not stored.
        numbers: place among what ``unpack`` gives, name, and what makes the number another type, if anything.
        followed: place, name, offset in the table, the method that reads what is referred to, and its argument.
    """

    size: int
    unpack: Callable[[memoryview, int], tuple[Any, ...]]
    remainder: int
    absent: dict[str, Any]
    numbers: tuple[tuple[int, str, _Members | None], ...]
    followed: tuple[tuple[int, str, int, Callable[[int, Any], Any], Any], ...]


class _Reading:
    """One buffer.

    ``left`` bounds the memory that reading takes: in an honest buffer everything but strings and vtables is referred to
    once, so all that is read is never longer than the buffer. A hostile one may refer to one long vector from
    thousands of tables.
    """

    def __init__(
        self,
        view: memoryview,
        schema: Schema,
        classes: Mapping[str, type],
        enums: Mapping[tuple[str, str], type[enum.IntEnum]],
    ) -> None:
        self.view = view
        self.end = len(view)
        self.left = len(view)
        self.schema = schema
        self.classes = classes
        self.enums = enums
        self.layouts: dict[tuple[int, str], _Layout] = {}
        self.strings: dict[int, str] = {}

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise _Offence("parts of the metadata overlap")

    def target(self, position: int) -> int:
        """Follow the unsigned offset that stands at ``position``."""
        return self.checked_target(position, _U32(self.view, position)[0])

    def checked_target(self, position: int, offset: int) -> int:
        """Where an offset leads; at least four bytes lie behind that place."""
        target = position + offset
        if offset == 0 or target + 4 > self.end:
            raise _Offence(f"offset {offset} at byte {position} leaves the file of {self.end} bytes")
        if target & 3:
            raise _Offence(f"offset {offset} at byte {position} leads to byte {target}, which is not aligned to 4")
        return target

    def table(self, position: int, table: Table) -> Any:
        vtable = position - _I32(self.view, position)[0]
        layout = self.layouts.get((vtable, table.name))
        if layout is None:
            layout = self.layouts[vtable, table.name] = self.layout(vtable, table)
        self.spend(layout.size)
        end = self.end
        if position + layout.size > end:
            raise _Offence(f"table of {layout.size} bytes at byte {position} leaves the file of {self.end} bytes")
        if layout.remainder >= 0 and (position + layout.remainder) & 7:
            raise _Offence(f"a field of the table at byte {position} is not aligned to 8")
        read = layout.unpack(self.view, position)
        item: Any = object.__new__(self.classes[table.name])
        values = item.__dict__
        values.update(layout.absent)
        for place, name, kind in layout.numbers:
            values[name] = read[place] if kind is None else kind[read[place]]
        name = ""
        try:
            for place, name, offset, follow, argument in layout.followed:
                target = position + offset + read[place]
                if target & 3 or target + 4 > end or not read[place]:
                    self.checked_target(position + offset, read[place])
                values[name] = follow(target, argument)
        except _Offence as offence:
            offence.path.append(f".{name}")
            raise
        return item

    def layout(self, vtable: int, table: Table) -> _Layout:
        view = self.view
        if vtable < 0 or vtable + 4 > self.end or vtable & 1:
            raise _Offence(f"vtable at byte {vtable} is outside the file or not aligned to 2")
        (vtable_size,), (table_size,) = _U16(view, vtable), _U16(view, vtable + 2)
        if vtable_size < 4 or vtable_size & 1 or vtable + vtable_size > self.end or table_size < 4:
            raise _Offence(f"vtable at byte {vtable} has the sizes {vtable_size} and {table_size}")
        stored: list[tuple[int, Field]] = []
        absent: dict[str, Any] = {}
        for field in table.fields:
            entry = 4 + 2 * field.slot
            offset = _U16(view, vtable + entry)[0] if entry + 2 <= vtable_size else 0
            if offset:
                _check_place(field, offset, table_size)
                stored.append((offset, field))
            elif field.required:
                raise _Offence("required, but missing", f".{field.name}")
            else:
                absent[field.name] = self.default(table, field)
        return self.described(table, table_size, sorted(stored, key=lambda item: item[0]), absent)

    def described(
        self, table: Table, size: int, stored: Sequence[tuple[int, Field]], absent: dict[str, Any]
    ) -> _Layout:
        codes, position = "<", 0
        remainder = -1
        numbers: list[tuple[int, str, _Members | None]] = []
        followed: list[tuple[int, str, int, Callable[[int, Any], Any], Any]] = []
        for place, (offset, field) in enumerate(stored):
            if offset < position:
                raise _Offence("two fields overlap", f".{field.name}")
            is_number = field.kind is Kind.SCALAR
            codes += f"{offset - position}x" + (_CODES[field.type] if is_number else "I")
            position = offset + (field.size if is_number else 4)
            if is_number:
                kind = self.enums.get((table.name, field.name))
                numbers.append((place, field.name, None if kind is None else _Members(kind)))
                if field.alignment == 8:
                    if remainder not in (-1, offset & 7):
                        raise _Offence(f"offset {offset} in its table is not aligned to 8", f".{field.name}")
                    remainder = offset & 7
            else:
                followed.append((place, field.name, offset, *self.way(field)))
        unpack = struct.Struct(codes).unpack_from
        return _Layout(size, unpack, remainder, absent, tuple(numbers), tuple(followed))

    def default(self, table: Table, field: Field) -> Any:
        """The value of a field that is not stored."""
        if field.kind is Kind.SCALAR:
            kind = self.enums.get((table.name, field.name))
            return field.default if kind is None else kind(int(field.default))
        if field.kind is Kind.STRING:
            return ""
        return None if field.kind is Kind.TABLE else ()

    def way(self, field: Field) -> tuple[Callable[[int, Any], Any], Any]:
        """How to read what a field refers to: a method and its second argument."""
        if field.kind is Kind.STRING:
            return self.string, None
        if field.kind is Kind.TABLE:
            return self.table, self.schema.tables[field.type]
        if field.kind is Kind.SCALAR_VECTOR:
            return self.numbers, (_CODES[field.type], field.size)
        if field.kind is Kind.STRING_VECTOR:
            return self.vector, (self.string, None)
        if field.kind is Kind.TABLE_VECTOR:
            return self.vector, (self.table, self.schema.tables[field.type])
        raise ValueError(f"{field.name}: a {field.kind.value} cannot be read here")

    def length(self, target: int, size: int, alignment: int) -> int:
        """Length of a vector of elements of that size, which lie inside the file."""
        length: int = _U32(self.view, target)[0]
        if target + 4 + length * size > self.end:
            raise _Offence(f"{length} elements of {size} bytes at byte {target} leave the file of {self.end} bytes")
        if length and (target + 4) % alignment:
            raise _Offence(f"elements at byte {target + 4} are not aligned to {alignment}")
        self.spend(length * size)
        return length

    def string(self, target: int, _: None) -> str:
        known = self.strings.get(target)
        if known is None:
            after = target + 4 + self.length(target, 1, 1)
            if after >= self.end or self.view[after] != 0:
                raise _Offence(f"string at byte {target} does not end with a zero byte")
            try:
                known = str(self.view[target + 4 : after], "utf-8")
            except UnicodeDecodeError as error:
                raise _Offence(f"string at byte {target} is not UTF-8: {error.reason}") from None
            self.strings[target] = known
        return known

    def numbers(self, target: int, kind: tuple[str, int]) -> tuple[Any, ...]:
        code, size = kind
        length = self.length(target, size, size)
        return struct.unpack_from(f"<{length}{code}", self.view, target + 4)

    def vector(self, target: int, way: tuple[Callable[[int, Any], Any], Any]) -> tuple[Any, ...]:
        """Strings or tables: one offset per element."""
        read, argument = way
        length = self.length(target, 4, 4)
        items = []
        position = target + 4
        try:
            for offset in struct.unpack_from(f"<{length}I", self.view, position):
                items.append(read(self.checked_target(position, offset), argument))
                position += 4
        except _Offence as offence:
            offence.path.append(f"[{len(items)}]")
            raise
        return tuple(items)


def _check_place(field: Field, offset: int, table_size: int) -> None:
    """Whether a field lies inside its table, aligned as far as that is the table's doing."""
    size, alignment = (field.size, field.alignment) if field.kind is Kind.SCALAR else (4, 4)
    if offset < 4 or offset + size > table_size:
        raise _Offence(f"offset {offset} lies outside its table of {table_size} bytes", f".{field.name}")
    if alignment <= 4 and offset % alignment:
        raise _Offence(f"offset {offset} in its table is not aligned to {alignment}", f".{field.name}")
