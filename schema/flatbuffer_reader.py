"""Reading a FlatBuffers file that nobody has verified: everything is proved in the moment in which it is read.

The same proofs as in ``flatbuffer_verifier.py``, for formats without unions and structs whose tables cannot hold
themselves, so that nesting has a bound. All tables of one kind that a field leads to are read at once, column by
column: what a vtable says is proved once for all tables with that vtable, and where their fields lie and lead to is
computed and compared by NumPy.

Source: FlatBuffers internals, https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tpuconvert.schema.array_fields import LONG
from tpuconvert.schema.flatbuffer_verifier import Field, FlatBufferError, Kind, Schema, Table
from tpuconvert.schema.types import Array

_TYPES = {
    **{"bool": "?", "i8": "i1", "u8": "u1", "i16": "<i2", "u16": "<u2", "i32": "<i4", "u32": "<u4", "i64": "<i8"},
    **{"u64": "<u8", "f32": "<f4", "f64": "<f8"},
}
_MOST_VTABLES = 1024
"""For one kind of table. A writer makes one for every set of fields that are stored; there are few."""

_LEAST, _MOST, _BITS = np.minimum.reduce, np.maximum.reduce, np.bitwise_or.reduce

Path = Callable[[int], str]
"""Says where the table of a number is, in the words of the schema."""


def read(
    buffer: memoryview,
    schema: Schema,
    root: str,
    identifier: bytes,
    rows: Mapping[str, Any],
    enums: Mapping[tuple[str, str], type[enum.IntEnum]],
) -> Any:
    """The root table of a buffer, with everything it holds. Nothing in it refers to the buffer.

    Args:
        buffer: the whole file.
        schema: description of the tables.
        root: name of the root table.
        identifier: the four bytes at offset 4.
        rows: by table name, a class of named tuples with the names of the table's fields, in any order. Vectors are
            tuples, long ones of 64-bit numbers arrays.
        enums: by table and field name, what is made of a number.

    Raises:
        FlatBufferError: the first offence that was found, and where it is.
        ValueError: an enum number that does not exist.
    """
    if len(buffer) < 8:
        raise FlatBufferError(f"{len(buffer)} bytes are too few for a FlatBuffers file")
    if buffer[4:8] != identifier:
        raise FlatBufferError(f"the file identifier is {bytes(buffer[4:8])!r}, expected {identifier!r}")
    reading = _Reading(bytes(buffer), schema, rows, enums)
    target = reading.targets(np.zeros(1, np.int64), lambda _: "")
    return reading.tables(target, schema.tables[root], lambda _: "")[0]


class _Members(dict[int, enum.IntEnum]):
    """The members of an enum by their numbers, found faster than by calling the enum."""

    def __init__(self, kind: type[enum.IntEnum]) -> None:
        super().__init__((member.value, member) for member in kind)
        self._kind = kind

    def __missing__(self, number: int) -> enum.IntEnum:
        return self._kind(number)  # which says that it has no such member


class _Layout(NamedTuple):
    """What one vtable says about one kind of table: its bytes, and by field where it lies, 0 when it is not stored."""

    size: int
    offsets: tuple[int, ...]


class _Reading:
    """One buffer.

    ``left`` bounds the memory that reading takes: in an honest buffer everything but strings and vtables is referred to
    once, so all that is read is never longer than the buffer. A hostile one may refer to one long vector from
    thousands of tables.
    """

    def __init__(
        self,
        content: bytes,
        schema: Schema,
        rows: Mapping[str, Any],
        enums: Mapping[tuple[str, str], type[enum.IntEnum]],
    ) -> None:
        self.content = content
        self.end = len(content)
        self.left = len(content)
        self.schema = schema
        self.rows = rows
        self.enums = {field: _Members(kind) for field, kind in enums.items()}
        self.strings: dict[int, str] = {}
        self.words = {name: self.view(type_) for name, type_ in _TYPES.items()}

    def view(self, type_: str) -> Array:
        """The whole buffer as numbers of one type."""
        size = np.dtype(type_).itemsize
        return np.frombuffer(self.content, type_, self.end // size)

    def spend(self, size: int, path: Path) -> None:
        self.left -= size
        if self.left < 0:
            raise FlatBufferError("parts of the metadata overlap", path(0))

    def targets(self, places: Array, path: Path) -> Array:
        """Follow the offsets that stand at these places; at least four bytes lie behind where each leads."""
        offsets = self.words["u32"][places >> 2]
        targets: Array = places + offsets
        if targets.size and (not _LEAST(offsets) or _MOST(targets) + 4 > self.end or _BITS(targets) & 3):
            first = int(np.flatnonzero((offsets == 0) | (targets + 4 > self.end) | (targets & 3 != 0))[0])
            offset, place, target = int(offsets[first]), int(places[first]), int(targets[first])
            what = f"offset {offset} at byte {place}"
            if offset and target + 4 <= self.end:
                raise FlatBufferError(f"{what} leads to byte {target}, which is not aligned to 4", path(first))
            raise FlatBufferError(f"{what} leaves the file of {self.end} bytes", path(first))
        return targets

    def tables(self, targets: Array, table: Table, path: Path) -> list[Any]:
        """What is made of the tables at these places."""
        if not targets.size:
            return []
        vtables = targets - self.words["i32"][targets >> 2]
        if _LEAST(vtables) < 0 or _MOST(vtables) + 4 > self.end or _BITS(vtables) & 1:
            bad = (vtables < 0) | (vtables + 4 > self.end) | (vtables & 1 != 0)
            first = int(np.flatnonzero(bad)[0])
            raise FlatBufferError(
                f"vtable at byte {vtables[first]} is outside the file or not aligned to 2", path(first)
            )
        if _LEAST(vtables) == _MOST(vtables):
            return self.alike(targets, table, int(vtables[0]), path)
        distinct, group, counts = np.unique(vtables, return_inverse=True, return_counts=True)
        if distinct.size > _MOST_VTABLES:
            raise FlatBufferError(f"{distinct.size} vtables, more than {_MOST_VTABLES}", path(0))
        made: list[Any] = [None] * targets.size
        members = np.split(np.argsort(group, kind="stable"), np.cumsum(counts)[:-1])
        for vtable, places in zip(distinct.tolist(), members, strict=True):
            rows = self.alike(targets[places], table, vtable, _chosen(path, places))
            for place, row in zip(places.tolist(), rows, strict=True):
                made[place] = row
        return made

    def alike(self, targets: Array, table: Table, vtable: int, path: Path) -> list[Any]:
        """What is made of tables with the same vtable."""
        layout = self.layout(vtable, table, path)
        count = targets.size
        self.spend(layout.size * count, path)
        if _MOST(targets) + layout.size > self.end:
            last = int(targets.argmax())
            reason = f"table of {layout.size} bytes at byte {targets[last]} leaves the file of {self.end} bytes"
            raise FlatBufferError(reason, path(last))
        columns: dict[str, Iterable[Any]] = {}
        for field, offset in zip(table.fields, layout.offsets, strict=True):
            if offset:
                columns[field.name] = self.column(targets + offset, table, field, _inside(path, field.name))
            else:
                columns[field.name] = itertools.repeat(self.default(table, field), count)
        row = self.rows[table.name]
        return list(map(row, *map(columns.__getitem__, row._fields)))

    def layout(self, vtable: int, table: Table, path: Path) -> _Layout:
        words, end = self.words["u16"], self.end
        vtable_size, table_size = int(words[vtable >> 1]), int(words[(vtable >> 1) + 1])
        if vtable_size < 4 or vtable_size & 1 or vtable + vtable_size > end or table_size < 4:
            reason = f"vtable at byte {vtable} has the sizes {vtable_size} and {table_size}"
            raise FlatBufferError(reason, path(0))
        entries = words[(vtable >> 1) + 2 : (vtable + vtable_size) >> 1].tolist()
        offsets = []
        for field in table.fields:
            offset = entries[field.slot] if field.slot < len(entries) else 0
            if offset:
                _check_place(field, offset, table_size, path)
            elif field.required:
                raise FlatBufferError("required, but missing", _inside(path, field.name)(0))
            offsets.append(offset)
        return _Layout(table_size, tuple(offsets))

    def default(self, table: Table, field: Field) -> Any:
        """The value of a field that is not stored."""
        if field.kind is Kind.SCALAR:
            kind = self.enums.get((table.name, field.name))
            return field.default if kind is None else kind[int(field.default)]
        if field.kind is Kind.STRING:
            return ""
        return None if field.kind is Kind.TABLE else ()

    def column(self, places: Array, table: Table, field: Field, path: Path) -> list[Any]:
        """The values of one field, which is stored at these places."""
        if field.kind is Kind.SCALAR:
            if field.size == 8 and _BITS(places) & 7:
                raise FlatBufferError("not aligned to 8", path(int(np.flatnonzero(places & 7)[0])))
            numbers: list[Any] = self.words[field.type][places >> (field.size.bit_length() - 1)].tolist()
            kind = self.enums.get((table.name, field.name))
            return numbers if kind is None else list(map(kind.__getitem__, numbers))
        targets = self.targets(places, path)
        if field.kind is Kind.STRING:
            return self.texts(targets, path)
        if field.kind is Kind.TABLE:
            return self.tables(targets, self.schema.tables[field.type], path)
        if field.kind is Kind.SCALAR_VECTOR:
            return self.numbers(targets, field, path)
        return self.vectors(targets, field, path)

    def lengths(self, targets: Array, size: int, path: Path) -> Array:
        """Lengths of vectors of elements of that size, which lie inside the file."""
        lengths: Array = self.words["u32"][targets >> 2].astype(np.int64)
        starts, ends = targets + 4, targets + 4 + lengths * size
        if not targets.size or (_MOST(ends) <= self.end and (size < 8 or not _BITS(starts) & 7)):
            return lengths
        bad = ends > self.end
        if size == 8:
            bad |= (lengths > 0) & (starts & 7 != 0)
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            what = f"{lengths[first]} elements of {size} bytes at byte {starts[first]}"
            inside = ends[first] <= self.end
            reason = f"{what} are not aligned to 8" if inside else f"{what} leave the file of {self.end} bytes"
            raise FlatBufferError(reason, path(first))
        return lengths

    def texts(self, targets: Array, path: Path) -> list[str]:
        """Strings, each of which is made once, however often it is referred to."""
        ends = targets + 4 + self.lengths(targets, 1, path)
        if targets.size and (_MOST(ends) >= self.end or _MOST(self.words["u8"][ends])):
            first = next(i for i, end in enumerate(ends.tolist()) if end >= self.end or self.content[end])
            raise FlatBufferError(f"string at byte {targets[first]} does not end with a zero byte", path(first))
        content, known, asked = self.content, self.strings, targets.tolist()
        for target, end in zip(asked, ends.tolist(), strict=True):
            if target not in known:
                self.spend(end - target, path)
                try:
                    known[target] = content[target + 4 : end].decode()
                except UnicodeDecodeError as error:
                    reason = f"string at byte {target} is not UTF-8: {error.reason}"
                    raise FlatBufferError(reason, path(asked.index(target))) from None
        return list(map(known.__getitem__, asked))

    def numbers(self, targets: Array, field: Field, path: Path) -> list[Any]:
        """Vectors of numbers: tuples, or arrays where many wide numbers are in them."""
        lengths = self.lengths(targets, field.size, path)
        self.spend(int(lengths.sum()) * field.size, path)
        words = self.words[field.type]
        starts = targets + 4 >> field.size.bit_length() - 1
        if field.size == 8 and targets.size and _MOST(lengths) > LONG:
            places = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
            return [
                words[start:end] if end - start > LONG else tuple(words[start:end].tolist()) for start, end in places
            ]
        items = words[_runs(starts, lengths)].tolist()
        ends = np.cumsum(lengths)
        return [tuple(items[start:end]) for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True)]

    def vectors(self, targets: Array, field: Field, path: Path) -> list[tuple[Any, ...]]:
        """Vectors of strings or tables: one offset per element. Those of all vectors are followed together."""
        lengths = self.lengths(targets, 4, path)
        self.spend(4 * int(lengths.sum()), path)
        ends = np.cumsum(lengths)
        inner = _element(path, ends - lengths, ends)
        found = self.targets(4 * _runs(targets + 4 >> 2, lengths), inner)
        if field.kind is Kind.STRING_VECTOR:
            items: Sequence[Any] = self.texts(found, inner)
        else:
            items = self.tables(found, self.schema.tables[field.type], inner)
        bounds = zip((ends - lengths).tolist(), ends.tolist(), strict=True)
        return [tuple(items[start:end]) for start, end in bounds]


def _check_place(field: Field, offset: int, table_size: int, path: Path) -> None:
    """Whether a field lies inside its table, aligned as far as that is the table's doing."""
    size, alignment = (field.size, field.alignment) if field.kind is Kind.SCALAR else (4, 4)
    if offset < 4 or offset + size > table_size:
        reason = f"offset {offset} lies outside its table of {table_size} bytes"
    elif alignment <= 4 and offset % alignment:
        reason = f"offset {offset} in its table is not aligned to {alignment}"
    else:
        return
    raise FlatBufferError(reason, _inside(path, field.name)(0))


def _runs(starts: Array, lengths: Array) -> Array:
    """The numbers of all runs, which begin at these starts and are so long, one run after the other."""
    ends = np.cumsum(lengths)
    runs: Array = np.repeat(starts - (ends - lengths), lengths)
    runs += np.arange(runs.size)
    return runs


def _inside(path: Path, name: str) -> Path:
    return lambda place: f"{path(place)}.{name}".lstrip(".")


def _chosen(path: Path, places: Array) -> Path:
    return lambda place: path(int(places[place]))


def _element(path: Path, starts: Array, ends: Array) -> Path:
    def where(place: int) -> str:
        owner = int(np.searchsorted(ends, place, side="right"))
        return f"{path(owner)}[{place - int(starts[owner])}]"

    return where
