"""Write messages as the text of a prototxt, with the fields that the message types do not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from tpuconvert.frontends.caffe.file.text import UnknownField, is_repeated

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_INDENT = "  "


def format_message(message: Any, unknown: Sequence[UnknownField] = (), indent: str = "") -> Iterator[str]:
    """Yield the lines of a message.

    Args:
        message: the message.
        unknown: fields that its type, or the type of a message in it, does not have; with paths relative to the
            message. Those inside a message that is not set are left out.
        indent: blanks before each line.

    """
    for field, value in message.ListFields():
        for index, item in enumerate(value) if is_repeated(field) else [(None, value)]:
            if field.message_type is None:
                yield f"{indent}{field.name}: {_format_scalar(field, item)}"
                continue
            prefix = (field.name,) if index is None else (field.name, index)
            inside = [
                UnknownField(each.path[len(prefix) :], each.line, each.value)
                for each in unknown
                if each.path[: len(prefix)] == prefix and len(each.path) > len(prefix)
            ]
            yield f"{indent}{field.name} {{"
            yield from format_message(item, inside, indent + _INDENT)
            yield f"{indent}}}"
    for each in unknown:
        if len(each.path) == 1:
            yield from _format_unknown(str(each.path[0]), each.value, indent)


def _format_unknown(name: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield f"{indent}{name} {{"
        for inner, values in value.items():
            for each in values:
                yield from _format_unknown(inner, each, indent + _INDENT)
        yield f"{indent}}}"
    elif isinstance(value, list):
        for each in value:
            yield from _format_unknown(name, each, indent)
    elif isinstance(value, bool):
        yield f"{indent}{name}: {str(value).lower()}"
    else:
        # The name of an enumerated value is written as a string: the reader returns the same text for both.
        yield f"{indent}{name}: {quote(value) if isinstance(value, str) else repr(value)}"


def _format_scalar(field: FieldDescriptor, value: Any) -> str:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return quote(value if isinstance(value, str) else value.decode("latin-1"))
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        assert field.enum_type is not None
        return str(field.enum_type.values_by_number[value].name)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return str(bool(value)).lower()
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
        return str(np.float32(value))  # the shortest text that is read as the same number
    return repr(value)


def quote(text: str) -> str:
    """Return a text in quotes, as the reader of prototxt files accepts it."""
    return f'"{text.translate(_ESCAPES)}"'
