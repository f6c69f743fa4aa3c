"""Parser of the protobuf text format of prototxt files, which keeps unknown fields.

The parser of the protobuf package either stops at the first unknown field or skips unknown fields silently. Networks
often contain fields of Caffe forks, and all of them are reported together: this parser records each with its line and
content. It bounds the nesting depth; the caller has to bound the size of the text.
"""

import bisect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from google.protobuf.descriptor import FieldDescriptor

Raw = dict[str, list[Any]]
"""Content of an unknown message: a list of values per field. A value is a number, Boolean, string or ``Raw``."""

_SKIPPED = re.compile(r"(?:\s+|#[^\n]*)*")
_TOKEN = re.compile(
    r"""(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fF]?))(?![A-Za-z0-9_.])
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<symbol>[{}<>\[\]:,;-])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_TRUE, _FALSE = ("true", "True", "t", "1"), ("false", "False", "f", "0")
_CLOSING = {"{": "}", "<": ">"}
_MOST_DIGITS = 400


class TextSyntaxError(Exception):
    """The text is malformed; the error message begins with the line and column, counted from 1."""


@dataclass(frozen=True)
class UnknownField:
    """A field that the message type does not have.

    Args:
        path: field names from the outermost message, with indices after repeated ones: ``("layer", 3, "accum_param")``.
        line: line of the field's name.
        value: value of the field, as in ``Raw``.

    """

    path: tuple[str | int, ...]
    line: int
    value: Any


@dataclass
class Parsed:
    """Information about a parsed text besides its message.

    Attributes:
        unknown: fields that the message types do not have.
        lines: line of every repeated message, by path.

    """

    unknown: list[UnknownField] = field(default_factory=list)
    lines: dict[tuple[str | int, ...], int] = field(default_factory=dict)


def parse_text(text: str, message: Any, *, max_depth: int) -> Parsed:
    """Fill ``message`` from ``text``.

    Raises:
        TextSyntaxError: the text is malformed, a value does not fit its field, or messages nest too deeply.

    """
    parser = _Parser(text, max_depth)
    parser.message(message, (), closing="")
    return parser.parsed


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int


class _Parser:
    def __init__(self, text: str, max_depth: int) -> None:
        self._text = text
        self._max_depth = max_depth
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.parsed = Parsed()
        self._token = self._scan(0)

    # Tokens

    def _scan(self, position: int) -> _Token:
        skipped = _SKIPPED.match(self._text, position)
        start = skipped.end() if skipped else position
        if start == len(self._text):
            return _Token("end", "", start)
        match = _TOKEN.match(self._text, start)
        if match is None:
            self._fail(f"unexpected {self._text[start : start + 12].split(chr(10))[0]!r}", start)
        return _Token(match.lastgroup or "", match.group(), start)

    def _next(self) -> _Token:
        token = self._token
        self._token = self._scan(token.start + len(token.text))
        return token

    def _accept(self, symbols: str) -> str:
        if self._token.kind == "symbol" and self._token.text in symbols:
            return self._next().text
        return ""

    def _line(self, position: int) -> int:
        return bisect.bisect_right(self._line_starts, position)

    def _fail(self, message: str, position: int | None = None) -> NoReturn:
        position = self._token.start if position is None else position
        line = self._line(position)
        column = position - self._line_starts[line - 1] + 1
        raise TextSyntaxError(f"line {line}, column {column}: {message}")

    def _describe_token(self) -> str:
        return "the end of the file" if self._token.kind == "end" else f"'{self._token.text}'"

    # Messages

    def message(self, message: Any, path: tuple[str | int, ...], closing: str) -> None:
        """Parse fields into ``message`` up to ``closing``, or to the end of the text if ``closing`` is empty."""
        fields = message.DESCRIPTOR.fields_by_name
        while not self._ends(closing, path):
            name = self._field_name()
            descriptor = fields.get(name.text)
            if descriptor is None:
                value = self._unknown_value(_depth(path) + 1)
                self.parsed.unknown.append(UnknownField((*path, name.text), self._line(name.start), value))
            elif descriptor.message_type is not None:
                self._submessages(message, descriptor, path, name)
            else:
                self._scalars(message, descriptor, name)
            self._accept(",;")

    def _ends(self, closing: str, path: tuple[str | int, ...]) -> bool:
        if self._token.kind == "end":
            if closing:
                self._fail(f"'{path[0]}' of line {self._open_line(path)} is not closed: '{closing}' is missing")
            return True
        return bool(closing and self._accept(closing))

    def _open_line(self, path: tuple[str | int, ...]) -> int:
        return self.parsed.lines.get(path[:2], 1)

    def _field_name(self) -> _Token:
        if self._token.kind != "name":
            self._fail(f"expected the name of a field, found {self._describe_token()}")
        return self._next()

    def _submessages(
        self, message: Any, descriptor: FieldDescriptor, path: tuple[str | int, ...], name: _Token
    ) -> None:
        def read() -> None:
            closing = _CLOSING.get(self._accept("{<"))
            if closing is None:
                self._fail(f"expected '{{' after '{name.text}', found {self._describe_token()}")
            child, child_path = self._child(message, descriptor, path, name)
            self._check_depth(_depth(child_path))
            self.message(child, child_path, closing)

        self._accept(":")
        self._one_or_list(read)

    def _one_or_list(self, read: Callable[[], None]) -> None:
        """Call ``read`` once for a single value, or once per element of a list in brackets."""
        if not self._accept("["):
            read()
        elif not self._accept("]"):
            read()
            while not self._accept("]"):
                if not self._accept(","):
                    self._fail(f"expected ',' or ']', found {self._describe_token()}")
                read()

    def _check_depth(self, depth: int) -> None:
        if depth > self._max_depth:
            self._fail(f"messages nest deeper than {self._max_depth}")

    def _child(
        self, message: Any, descriptor: FieldDescriptor, path: tuple[str | int, ...], name: _Token
    ) -> tuple[Any, tuple[str | int, ...]]:
        if is_repeated(descriptor):
            repeated = getattr(message, name.text)
            child_path = (*path, name.text, len(repeated))
            self.parsed.lines[child_path] = self._line(name.start)
            return repeated.add(), child_path
        self._check_single(message, name)
        child = getattr(message, name.text)
        child.SetInParent()
        return child, (*path, name.text)

    def _check_single(self, message: Any, name: _Token) -> None:
        if message.HasField(name.text):
            self._fail(f"'{name.text}' is given twice", name.start)

    # Values

    def _scalars(self, message: Any, descriptor: FieldDescriptor, name: _Token) -> None:
        if not self._accept(":"):
            self._fail(f"expected ':' after '{name.text}', found {self._describe_token()}")
        if is_repeated(descriptor):
            self._one_or_list(lambda: self._store(message, descriptor, name))
        else:
            self._check_single(message, name)
            self._store(message, descriptor, name)

    def _store(self, message: Any, descriptor: FieldDescriptor, name: _Token) -> None:
        start = self._token.start
        value = self._value(descriptor, name.text)
        try:
            if is_repeated(descriptor):
                getattr(message, name.text).append(value)
            else:
                setattr(message, name.text, value)
        except (ValueError, TypeError) as error:
            self._fail(f"{value!r} is not a value of '{name.text}' ({error})", start)

    def _value(self, descriptor: FieldDescriptor, name: str) -> Any:
        kind = descriptor.cpp_type
        if kind == FieldDescriptor.CPPTYPE_STRING:
            if self._token.kind != "string":
                self._fail(f"'{name}' takes a text in quotes, found {self._describe_token()}")
            return self._string(as_bytes=descriptor.type == FieldDescriptor.TYPE_BYTES)
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            return self._enum(descriptor, name)
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            if self._token.text in _TRUE + _FALSE:
                return self._next().text in _TRUE
            self._fail(f"'{name}' takes true or false, found {self._describe_token()}")
        start = self._token.start
        number = self._number()
        if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
            if number is None:
                self._fail(f"'{name}' takes a number, found {self._describe_token()}")
            return float(number)
        if not isinstance(number, int):
            self._fail(f"'{name}' takes an integer", start)
        return number

    def _enum(self, descriptor: FieldDescriptor, name: str) -> int:
        assert descriptor.enum_type is not None
        values = descriptor.enum_type.values_by_name
        start, text = self._token.start, self._token.text
        if self._token.kind == "name" and text in values:
            self._next()
            return int(values[text].number)
        number = self._number() if self._token.kind != "name" else None
        if isinstance(number, int) and number in descriptor.enum_type.values_by_number:
            return number
        self._fail(f"'{name}' takes one of {', '.join(values)}; found '{text}'", start)

    def _number(self) -> int | float | None:
        """Parse a number; return None and consume nothing if the next token is not a number."""
        negative = self._token.text == "-" and bool(self._accept("-"))
        token = self._token
        if token.kind == "name" and token.text.lower() in ("inf", "infinity", "nan", "inff", "nanf"):
            self._next()
            value: int | float = math.inf if token.text[0] in "iI" else math.nan
        elif token.kind == "number":
            if len(token.text) > _MOST_DIGITS:
                self._fail(f"a number of {len(token.text)} digits")
            self._next()
            value = _read_number(token.text)
        elif negative:
            self._fail(f"expected a number after '-', found {self._describe_token()}")
        else:
            return None
        return -value if negative else value

    def _string(self, as_bytes: bool = False) -> str | bytes:
        """Parse one or more adjacent quoted strings and concatenate them."""
        pieces = []
        while self._token.kind == "string":
            pieces.append(_ESCAPE.sub(_unescape, self._next().text[1:-1]))
        joined = "".join(pieces)
        if not as_bytes:
            return joined
        return b"".join(bytes([ord(c)]) if ord(c) < 256 else c.encode() for c in joined)

    def _unknown_value(self, depth: int) -> Any:
        """Parse the value of a field of unknown type: a number, Boolean, string, ``Raw``, or a list of these."""
        self._accept(":")
        if self._token.text in ("[", "{", "<"):
            self._check_depth(depth)
        if self._accept("["):
            values: list[Any] = []
            while not self._accept("]"):
                values.append(self._unknown_value(depth + 1))
                if not self._accept(",") and self._token.text != "]":
                    self._fail(f"expected ',' or ']', found {self._describe_token()}")
            return values
        closing = _CLOSING.get(self._accept("{<"))
        if closing:
            return self._unknown_message(closing, depth)
        if self._token.kind == "string":
            return self._string()
        number = self._number()
        if number is not None:
            return number
        if self._token.kind == "name":
            text = self._next().text
            return {"true": True, "false": False}.get(text, text)
        self._fail(f"expected a value, found {self._describe_token()}")

    def _unknown_message(self, closing: str, depth: int) -> Raw:
        content: Raw = {}
        while not self._accept(closing):
            if self._token.kind == "end":
                self._fail(f"'{closing}' is missing")
            name = self._field_name().text
            value = self._unknown_value(depth + 1)
            content.setdefault(name, []).extend(value if isinstance(value, list) else [value])
            self._accept(",;")
        return content


def _depth(path: tuple[str | int, ...]) -> int:
    return sum(isinstance(step, str) for step in path)


def is_repeated(descriptor: FieldDescriptor) -> bool:
    """Return True if a field can have several values."""
    try:
        return bool(descriptor.is_repeated)
    except AttributeError:  # protobuf before 6.31 has no is_repeated
        return bool(descriptor.label == FieldDescriptor.LABEL_REPEATED)  # type: ignore[attr-defined]  # not in newer stubs


def _read_number(text: str) -> int | float:
    body = text.lstrip("+-")
    sign = -1 if text.startswith("-") else 1
    if body[:2] in ("0x", "0X"):
        return sign * int(body, 16)
    if body.isdigit():
        octal = len(body) > 1 and body[0] == "0" and not set(body) & set("89")
        return sign * int(body, 8 if octal else 10)
    return sign * float(body.rstrip("fF"))


def _unescape(match: re.Match[str]) -> str:
    octal, hexadecimal, letter = match.groups()
    if octal:
        return chr(int(octal, 8))
    if hexadecimal:
        return chr(int(hexadecimal, 16))
    return _ESCAPED.get(letter, letter)
