"""A TFLite file as named tuples, which can be changed and written again."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpuconvert.frontends.sniffing import corrupt_input
from tpuconvert.frontends.tflite.file.reader import ModelFile
from tpuconvert.frontends.tflite.file.schema import IDENTIFIER, SCHEMA
from tpuconvert.schema.file import flatbuffer_reader
from tpuconvert.schema.file.flatbuffer_reader import FlatBufferError
from tpuconvert.schema.file.flatbuffer_schema import Field, Kind
from tpuconvert.schema.file.flatbuffer_writer import FlatBufferWriter
from tpuconvert.schema.types import Array

_BUFFER_ALIGNMENT = 16
"""Alignment of the data of constants in bytes, which kernels of TFLite require."""

_LARGEST_FLATBUFFER = (1 << 32) - 1


def _default(field: Field) -> Any:
    """Value of a field that is not stored."""
    if field.kind is Kind.SCALAR:
        return field.default
    return () if field.kind in (Kind.SCALAR_VECTOR, Kind.STRING_VECTOR, Kind.TABLE_VECTOR) else None


def _row_class(table: str, fields: Sequence[Field]) -> Any:
    names = [field.name for field in fields]
    return collections.namedtuple(table, names, defaults=[_default(field) for field in fields])


ROWS: dict[str, Any] = {name: _row_class(name, table.fields) for name, table in SCHEMA.tables.items()}
"""A named tuple class per table of the format."""

_STORED_BUFFER = _row_class("Buffer", [field for field in SCHEMA.tables["Buffer"].fields if field.name != "data"])
"""A buffer without its data, which are not read as a tuple of integers."""


def read_rows(file: ModelFile) -> Any:
    """Return the model table of a verified file. Data of buffers are arrays of bytes, also those outside the tables.

    Raises:
        CorruptInputError: a string is not UTF-8, or parts of the file overlap.

    """
    rows = {**ROWS, "Buffer": _STORED_BUFFER}
    try:
        model = flatbuffer_reader.read(
            file.view[:_LARGEST_FLATBUFFER], SCHEMA, "Model", IDENTIFIER, rows, allow_unknown_union_tags=True
        )
    except (FlatBufferError, ValueError) as error:
        raise corrupt_input(file.path, "tflite", str(error)) from error
    buffers = [ROWS["Buffer"](data=_bytes(file.buffer(index))) for index in range(len(model.buffers))]
    subgraphs = [
        subgraph._replace(operators=tuple(_with_options(*pair) for pair in zip(subgraph.operators, own, strict=True)))
        for subgraph, own in zip(model.subgraphs, (each.operators for each in file.subgraphs), strict=True)
    ]
    return model._replace(buffers=tuple(buffers), subgraphs=tuple(subgraphs))


def _bytes(content: memoryview | None) -> Array:
    return np.frombuffer(b"" if content is None else content, np.uint8)


def _with_options(row: Any, operator: Any) -> Any:
    """Return an operator with its custom options in the table, which may be outside in the file."""
    if row.large_custom_options_offset <= 1:
        return row
    custom = tuple(operator.options.custom)
    return row._replace(custom_options=custom, large_custom_options_offset=0, large_custom_options_size=0)


def write_rows(model: Any) -> bytes:
    """Return the content of a file.

    Raises:
        OverflowError: the file would be larger than 2 GiB.

    """
    writer = FlatBufferWriter(SCHEMA, {("Buffer", "data"): _BUFFER_ALIGNMENT})
    return writer.finish(writer.row(model), IDENTIFIER)
