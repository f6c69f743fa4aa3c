"""Verify a FlatBuffers file against a description of its tables, and read it into named tuples.

Generated FlatBuffers accessors follow offsets without checks. The walk of this module visits every table that can be
reached from the root by the described fields. It checks that each offset, vtable, vector and string is aligned and
inside the buffer, that required fields are present, and that nesting depth and number of visits stay within limits.
Afterwards accessors of the same tables cannot read outside the buffer. A size that the file states is compared with
these limits before memory is allocated.

For speed, all tables that the same field refers to are processed at once, as arrays of their positions in the buffer.

Source: FlatBuffers internals, https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import contextlib
import enum
import functools
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tpuconvert.schema.array_fields import LONG
from tpuconvert.schema.file.flatbuffer_schema import SCALAR_CODES, Field, Kind, Schema, Table
from tpuconvert.schema.types import Array

_ARRAY_TYPES = {"i64": "<i8", "u64": "<u8", "f64": "<f8"}


class FlatBufferError(ValueError):
    """The buffer is not a valid FlatBuffers file of the expected schema.

    Attributes:
        path: location of the error, such as ``subgraphs[0].operators[3].inputs``; empty for the whole file.
        reason: description of the error.
        limit: name of the field of ``Limits`` that a file exceeds, which may be well formed; otherwise empty.
    """

    def __init__(self, reason: str, path: str = "", *, limit: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason = reason
        self.path = path
        self.limit = limit


class Limits(NamedTuple):
    """Limits of a walk, which also bound its memory.

    Attributes:
        max_depth: largest nesting depth of tables.
        max_visits: largest number of visited tables, strings and vectors; an object that two fields share counts twice.
    """

    max_depth: int = 64
    max_visits: int = 2_000_000


USUAL_LIMITS = Limits()


def verify(
    buffer: bytes | memoryview,
    schema: Schema,
    root: str,
    identifier: bytes | None = None,
    limits: Limits = USUAL_LIMITS,
    *,
    allow_unknown_union_tags: bool = False,
) -> None:
    """Check that every field which ``schema`` describes can be read within the bounds of ``buffer``.

    Args:
        buffer: the whole file; its first four bytes are the offset of the root table.
        schema: description of the tables.
        root: name of the root table.
        identifier: the four bytes at offset 4, or None when the format has none.
        limits: depth and number of visits.
        allow_unknown_union_tags: accept a union that has a value although its tag is 0 or unknown (a file of a later
            schema); the value is not verified and must not be read. A tag without a value is always legal unless the
            field is required.

    Raises:
        FlatBufferError: the buffer is not valid; the message contains the path of the first error.
    """
    _Walk(buffer, schema, limits, allow_unknown_union_tags).root(root, identifier)


def read(
    buffer: bytes | memoryview,
    schema: Schema,
    root: str,
    identifier: bytes,
    rows: Mapping[str, Any],
    enums: Mapping[tuple[str, str], type[enum.IntEnum]] | None = None,
    limits: Limits | None = None,
    *,
    allow_unknown_union_tags: bool = False,
) -> Any:
    """Verify a buffer and return its root table with everything below it. The result does not refer to a memory view.

    Strings must be UTF-8. The sum of the sizes of all tables, strings and vectors must not exceed the size of the
    buffer; a string counts once. Otherwise a hostile file could refer to one long vector from thousands of tables and
    exhaust the memory. Valid writers share only strings and vtables.

    Args:
        buffer: the whole file. A memory view is copied; long vectors are views of bytes.
        schema: description of the tables.
        root: name of the root table.
        identifier: the four bytes at offset 4.
        rows: a named tuple class per table. Fields of the table that the class lacks are not read. A scalar that is not
            stored has the default of the schema, another field the default of the class; a vector without a default is
            empty. Vectors are tuples; long vectors of 64-bit elements are arrays.
        enums: the enum of a scalar field, by table and field name.
        limits: limits of the walk. The default allows one visit per byte, which suffices for every buffer without
            shared tables because each visit follows an offset of four bytes.
        allow_unknown_union_tags: read a union with an unknown tag as a union that is not stored.

    Raises:
        FlatBufferError: the buffer is not valid.
        ValueError: a stored value is not a member of its enum, or parts of the buffer overlap.
    """
    limits = limits or Limits(max_visits=len(buffer))
    walk = _Walk(bytes(buffer), schema, limits, allow_unknown_union_tags, rows, enums or {})
    return walk.root(root, identifier)[0]


class _Offence(Exception):
    """The first error that was found.

    Attributes:
        index: index of the wrong item among the items that are processed at once; None if a limit was exceeded.
        limit: name of this limit.
        path: parts of the location, innermost first.
    """

    def __init__(self, reason: str, index: int | None = None, *, limit: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.index = index
        self.limit = limit
        self.path: list[str] = []


@contextlib.contextmanager
def _inside(part: str, owners: Array, elements: Array | None = None) -> Iterator[None]:
    """Add a part to the path of an error.

    Args:
        part: name of the field.
        owners: for each item that the block reads, the index of the item that refers to it.
        elements: for each item, its index in the vector; None if the field is not a vector.
    """
    try:
        yield
    except _Offence as offence:
        if offence.index is not None:
            offence.path.append(part if elements is None else f"[{elements[offence.index]}]")
            offence.index = int(owners[offence.index])
        else:
            offence.path.append(part)
        raise


def _scatter(values: list[Any], places: Array, result: list[Any]) -> list[Any]:
    for index, value in zip(places.tolist(), values, strict=True):
        result[index] = value
    return result


class _Tables(NamedTuple):
    """Positions and sizes of some tables and of their vtables, in bytes."""

    positions: Array
    sizes: Array
    vtables: Array
    vtable_sizes: Array


_FEW_TABLES = 1 << 12


@functools.lru_cache(1 << 10)
def _entries_of(table: Table) -> tuple[Array, Array, Array]:
    """Positions of the fields of a table in its vtable, their sizes, and True for required ones; as columns."""
    entries = [(4 + 2 * field.slot, _size_of(field), field.required) for field in table.fields]
    positions, sizes, required = np.array(entries, np.int64).reshape(-1, 3).T[:, :, np.newaxis]
    return positions, sizes, required != 0


def _size_of(field: Field) -> int:
    """Number of bytes of a field in its table: the size of the scalar, or of an offset."""
    return field.size if field.kind is Kind.SCALAR else 4


class _Walk:
    """Walk through one buffer. Methods return lists of the values that they read; empty lists if they only verify."""

    def __init__(
        self,
        content: bytes | memoryview,
        schema: Schema,
        limits: Limits,
        allow_unknown_union_tags: bool,
        rows: Mapping[str, Any] | None = None,
        enums: Mapping[tuple[str, str], type[enum.IntEnum]] | None = None,
    ) -> None:
        self._content = content
        self._end = len(content)
        self._schema = schema
        self._limits = limits
        self._visits_left = limits.max_visits
        self._allow_unknown_union_tags = allow_unknown_union_tags
        self._rows = rows or {}
        self._enums = enums or {}
        self._bytes_left: float = self._end if rows else math.inf
        self._texts: dict[int, str] = {}

    def root(self, table: str, identifier: bytes | None) -> list[Any]:
        if self._end < 8:
            raise FlatBufferError(f"{self._end} bytes are too few for a FlatBuffers file")
        stored_identifier = bytes(self._content[4:8])
        if identifier is not None and stored_identifier != identifier:
            raise FlatBufferError(f"the file identifier is {stored_identifier!r}, expected {identifier!r}")
        try:
            position = self._follow(np.zeros(1, np.int64))
            return self._read_tables(position, self._schema.tables[table], 1, bool(self._rows))
        except _Offence as offence:
            path = "".join(reversed(offence.path)).lstrip(".")
            raise FlatBufferError(offence.reason, path, limit=offence.limit) from None

    def _load(self, code: str, positions: Array) -> Array:
        """Load the scalar at each position. Positions are aligned and inside the buffer."""
        dtype = np.dtype("<" + code)
        loaded: Array = np.frombuffer(self._content, dtype, self._end // dtype.itemsize)[positions // dtype.itemsize]
        return loaded

    def _load_sizes(self, code: str, positions: Array) -> Array:
        return self._load(code, positions).astype(np.int64)

    def _refuse(self, is_wrong: Array, reason: Callable[[int], str], part: str = "") -> None:
        """Raise an error for the first item whose flag in ``is_wrong`` is set, if any."""
        if np.count_nonzero(is_wrong):  # takes a fifth of the time of the method any()
            index = int(is_wrong.argmax())
            offence = _Offence(reason(index), index)
            offence.path.append(part)
            raise offence

    def _visit(self, count: int) -> None:
        self._visits_left -= count
        if self._visits_left < 0:
            raise _Offence(f"more than {self._limits.max_visits} tables, strings and vectors", limit="max_visits")

    def _spend(self, size: int) -> None:
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise ValueError("parts of the metadata overlap")

    def _follow(self, positions: Array) -> Array:
        """Follow the offset at each position and check that four bytes can be read at the target."""
        end, offsets = self._end, self._load_sizes("I", positions)
        targets = positions + offsets
        self._refuse(
            (offsets == 0) | (targets + 4 > end),
            lambda i: f"offset {offsets[i]} at byte {positions[i]} leaves the file of {end} bytes",
        )
        self._refuse(
            targets % 4 != 0,
            lambda i: (
                f"offset {offsets[i]} at byte {positions[i]} leads to byte {targets[i]}, which is not aligned to 4"
            ),
        )
        return targets

    def _read_tables(self, positions: Array, table: Table, depth: int, is_read: bool) -> list[Any]:
        if depth > self._limits.max_depth:
            raise _Offence(f"tables are nested more than {self._limits.max_depth} deep", limit="max_depth")
        tables = self._locate(positions)
        row: Any = self._rows[table.name] if is_read else None
        columns: dict[str, list[Any]] = {}
        valid = self._valid_offsets(tables, table)
        for number, field in enumerate(table.fields):
            offsets = self._offsets(tables, field) if valid is None else valid[number]
            tags = self._tags(tables, field) if field.kind is Kind.UNION else None
            stored = np.flatnonzero(offsets)
            is_column = is_read and field.name in row._fields
            values: list[Any] = []
            if len(stored):
                at = (positions + offsets)[stored]
                with _inside(f".{field.name}", stored):
                    if tags is None:
                        values = self._read_field(field, at, depth, is_column)
                    else:
                        values = self._read_unions(field, at, tags[stored], depth, is_column)
            if is_column:
                default = field.default if field.kind is Kind.SCALAR else row._field_defaults.get(field.name, ())
                if len(stored) < len(positions):
                    values = _scatter(values, stored, [default] * len(positions))
                columns[field.name] = self._convert_enums(values, (table.name, field.name))
        if not is_read:
            return []
        return list(map(row, *(columns[name] for name in row._fields))) if columns else [row()] * len(positions)

    def _convert_enums(self, values: list[Any], name: tuple[str, str]) -> list[Any]:
        if name not in self._enums:
            return values
        members = {value: self._enums[name](value) for value in set(values)}
        return [members[value] for value in values]

    def _locate(self, positions: Array) -> _Tables:
        """Check the bounds of tables and their vtables."""
        end = self._end
        self._visit(len(positions))
        vtables = positions - self._load("i", positions)
        self._refuse(
            (vtables < 0) | (vtables + 4 > end) | (vtables % 2 != 0),
            lambda i: f"vtable at byte {vtables[i]} is outside the file or not aligned to 2",
        )
        vtable_sizes, sizes = self._load_sizes("H", vtables), self._load_sizes("H", vtables + 2)
        self._refuse(
            (vtable_sizes < 4) | (vtable_sizes % 2 != 0) | (vtables + vtable_sizes > end) | (sizes < 4),
            lambda i: f"vtable at byte {vtables[i]} has the sizes {vtable_sizes[i]} and {sizes[i]}",
        )
        self._refuse(
            positions + sizes > end,
            lambda i: f"table of {sizes[i]} bytes at byte {positions[i]} leaves the file of {end} bytes",
        )
        self._spend(int(sizes.sum()))
        return _Tables(positions, sizes, vtables, vtable_sizes)

    def _valid_offsets(self, tables: _Tables, table: Table) -> Array | None:
        """Return the offsets of all fields, by field and table, or None if ``_offsets`` would refuse one of them.

        None also for many tables, where the time per call of NumPy does not matter and the memory would.
        """
        if len(tables.positions) > _FEW_TABLES:
            return None
        entries, sizes, required = _entries_of(table)
        has_entry = entries + 2 <= tables.vtable_sizes
        offsets = self._load_sizes("H", (tables.vtables + entries) * has_entry) * has_entry
        ends, positions = offsets + sizes, tables.positions + offsets
        is_wrong = (offsets != 0) & ((offsets < 4) | (ends > tables.sizes) | (positions % sizes != 0))
        is_missing = required & (offsets == 0)
        return None if np.count_nonzero(is_wrong) or np.count_nonzero(is_missing) else offsets

    def _offsets(self, tables: _Tables, field: Field) -> Array:
        """Return the offset of a field in each table, or 0 if the table does not store it."""
        entry, size = 4 + 2 * field.slot, _size_of(field)
        has_entry = entry + 2 <= tables.vtable_sizes
        offsets = self._load_sizes("H", (tables.vtables + entry) * has_entry) * has_entry
        self._refuse(
            (offsets != 0) & ((offsets < 4) | (offsets + size > tables.sizes)),
            lambda i: f"offset {offsets[i]} lies outside its table of {tables.sizes[i]} bytes",
            f".{field.name}",
        )
        if field.required:
            self._refuse(offsets == 0, lambda i: "required, but missing", f".{field.name}")
        self._refuse(
            (offsets != 0) & ((tables.positions + offsets) % size != 0),
            lambda i: f"byte {tables.positions[i] + offsets[i]} is not aligned to {size}",
            f".{field.name}",
        )
        return offsets

    def _tags(self, tables: _Tables, field: Field) -> Array:
        """Return the tag of a union in each table."""
        offsets = self._offsets(tables, Field(f"{field.name}_type", field.slot - 1, Kind.SCALAR, "u8", 1))
        tags: Array = self._load("B", tables.positions + offsets) * (offsets != 0)
        return tags

    def _read_field(self, field: Field, at: Array, depth: int, is_read: bool) -> list[Any]:
        """Read a field, not a union, of some tables. ``at`` contains the position of the field in each of them."""
        if field.kind is Kind.SCALAR:
            return self._load(SCALAR_CODES[field.type], at).tolist() if is_read else []
        targets = self._follow(at)
        if field.kind is Kind.SCALAR_VECTOR:
            return self._read_scalars(field, targets, is_read)
        if field.kind in (Kind.STRING_VECTOR, Kind.TABLE_VECTOR):
            return self._read_vectors(field, targets, depth, is_read)
        return self._read_targets(field, targets, depth, is_read)

    def _read_targets(self, field: Field, targets: Array, depth: int, is_read: bool) -> list[Any]:
        if field.kind in (Kind.STRING, Kind.STRING_VECTOR):
            return self._read_strings(targets)
        return self._read_tables(targets, self._schema.tables[field.type], depth + 1, is_read)

    def _read_unions(self, field: Field, at: Array, tags: Array, depth: int, is_read: bool) -> list[Any]:
        members = self._schema.unions[field.type]
        is_known = (tags > 0) & (tags <= len(members))
        if not self._allow_unknown_union_tags:
            self._refuse(
                ~is_known,
                lambda i: f"tag {tags[i]} of the union {field.type}, which has the members 1 to {len(members)}",
            )
        values: list[Any] = [None] * len(at)
        for tag in set(tags[is_known].tolist()):
            chosen = np.flatnonzero(tags == tag)
            with _inside("", chosen):
                table = self._schema.tables[members[tag - 1]]
                read = self._read_tables(self._follow(at[chosen]), table, depth + 1, is_read)
            values = _scatter(read, chosen, values) if is_read else values
        return values

    def _lengths(self, starts: Array, size: int) -> Array:
        """Check the bounds of vectors and return their lengths."""
        self._visit(len(starts))
        lengths = self._load_sizes("I", starts)
        self._refuse(
            starts + 4 + lengths * size > self._end,
            lambda i: f"{lengths[i]} elements of {size} bytes at byte {starts[i]} leave the file of {self._end} bytes",
        )
        self._refuse(
            (lengths != 0) & ((starts + 4) % size != 0),
            lambda i: f"elements at byte {starts[i] + 4} are not aligned to {size}",
        )
        return lengths

    def _read_strings(self, starts: Array) -> list[Any]:
        ends = starts + 4 + self._lengths(starts, 1)
        self._refuse(
            (ends >= self._end) | (self._load("B", np.minimum(ends, self._end - 1)) != 0),
            lambda i: f"string at byte {starts[i]} does not end with a zero byte",
        )
        if not self._rows:
            return []
        texts = []
        for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            text = self._texts.get(start)
            if text is None:
                self._spend(end - start - 4)
                try:
                    text = self._texts[start] = str(self._content[start + 4 : end], "utf-8")
                except UnicodeDecodeError as error:
                    raise _Offence(f"string at byte {start} is not UTF-8: {error.reason}", index) from None
            texts.append(text)
        return texts

    def _read_scalars(self, field: Field, starts: Array, is_read: bool) -> list[Any]:
        lengths = self._lengths(starts, field.size)
        self._spend(field.size * int(lengths.sum()))
        if not is_read:
            return []
        code, vectors = SCALAR_CODES[field.type], list[Any]()
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            if length > LONG and field.type in _ARRAY_TYPES:
                vectors.append(np.frombuffer(self._content, _ARRAY_TYPES[field.type], length, start + 4))
            else:
                vectors.append(struct.unpack_from(f"<{length}{code}", self._content, start + 4))
        return vectors

    def _read_vectors(self, field: Field, starts: Array, depth: int, is_read: bool) -> list[Any]:
        """Read vectors of strings or tables: one offset per element."""
        lengths = self._lengths(starts, 4)
        total = int(lengths.sum())
        self._spend(4 * total)
        if total > self._visits_left:  # before arrays of this size are allocated
            self._visit(total)
        ends = np.cumsum(lengths)
        owners = np.repeat(np.arange(len(starts)), lengths)
        elements = np.arange(total) - (ends - lengths)[owners]
        with _inside("", owners, elements):
            items = self._read_targets(field, self._follow(starts[owners] + 4 + 4 * elements), depth, is_read)
        if not is_read:
            return []
        return [tuple(items[end - length : end]) for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]
