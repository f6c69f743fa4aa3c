"""Convert the parameters of operators to attributes of the ``.tpum`` file, and back.

The annotations of the operator's dataclass determine the types. Supported are bool, int (64 bits), float, str, bytes,
``DType``, ``Scalar`` and enums; tuples of these types except bytes and ``Scalar``; and each of these types ``| None``.
A ``Subgraph`` is stored as its index in ``Model.subgraphs``.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import functools
import inspect
import math
import operator
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from tpuconvert.schema.array_fields import LONG, make_with_arrays
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.file import tpum_tables as tpum
from tpuconvert.schema.file.tpum_tables import AttributeKind as Kind
from tpuconvert.schema.graph.control_flow import Subgraph
from tpuconvert.schema.types import Array, DType, Scalar

_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True)
class Form:
    """Type of a field: a value of type ``base``, or a tuple of ``length`` such values (None: any length).

    ``optional`` allows the value None.
    """

    base: type
    is_tuple: bool = False
    length: int | None = None
    optional: bool = False


_FORMS: dict[type[Op], dict[str, Form]] = {}  # cache of ``forms``; mypy does not accept classes in functools.cache


def forms(definition: type[Op]) -> dict[str, Form]:
    """Return the form of every field of an operator definition, in the order of the fields.

    Raises:
        ValueError: the file format cannot store fields of an annotated type.
    """
    if definition not in _FORMS:
        _FORMS[definition] = _forms(definition)
    return _FORMS[definition]


def _forms(definition: type[Op]) -> dict[str, Form]:
    hints = _hints(definition)
    result: dict[str, Form] = {}
    for item in fields(definition):
        try:
            result[item.name] = _form(hints[item.name])
        except ValueError as error:
            raise ValueError(f"{definition.name}.{item.name}: {error}") from None
    return result


def _hints(definition: type[Op]) -> dict[str, Any]:
    """Return the types of the fields of a definition and its bases, except the fields of ``Op``.

    Raises:
        ValueError: an annotation is not a type that can be stored.
    """
    names = {item.name for item in fields(definition)}
    hints: dict[str, Any] = {}
    for base in reversed(definition.__mro__):
        if base is Op:
            continue
        namespace = {**vars(builtins), **getattr(sys.modules.get(base.__module__), "__dict__", {}), **vars(base)}
        for name, annotation in inspect.get_annotations(base).items():
            if name in names:
                try:
                    hints[name] = _resolve(annotation, namespace) if isinstance(annotation, str) else annotation
                except ValueError as error:
                    raise ValueError(f"{definition.name}.{name}: {error}") from None
    return hints


def _resolve(annotation: str, names: Mapping[str, Any]) -> Any:
    """Resolve an annotation of names, attributes, ``tuple[...]`` and ``|``. No code is run, as ``eval`` would.

    Raises:
        ValueError: another kind of expression, or an unknown name.
    """

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Name(name) if name in names:
                return names[name]
            case ast.Attribute(owner, name):
                return getattr(value(owner), name)
            case ast.Constant(constant) if constant is None or constant is Ellipsis:
                return constant
            case ast.BinOp(left, ast.BitOr(), right):
                return value(left) | value(right)
            case ast.Subscript(ast.Name("tuple"), ast.Tuple(parts)):
                return tuple.__class_getitem__(tuple(map(value, parts)))
            case ast.Subscript(ast.Name("tuple"), part):
                return tuple.__class_getitem__((value(part),))
        raise ValueError(f"a field of type {annotation} cannot be stored")

    try:
        return value(ast.parse(annotation, mode="eval").body)
    except (SyntaxError, TypeError, AttributeError):
        raise ValueError(f"a field of type {annotation} cannot be stored") from None


_SINGLE = (bool, int, float, str, bytes, Scalar, Subgraph)
"""Types of fields besides enums."""


def _form(hint: Any) -> Form:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        present = [part for part in typing.get_args(hint) if part is not types.NoneType]
        if len(present) != 1:
            raise ValueError(f"a field of type {hint} cannot be stored")
        return replace(_form(present[0]), optional=True)
    if typing.get_origin(hint) is tuple:
        parts = typing.get_args(hint)
        any_length = len(parts) == 2 and parts[1] is Ellipsis
        bases = {_form(part) for part in (parts[:1] if any_length else parts)}
        base = bases.pop()
        if not bases and not base.is_tuple and not base.optional and base.base not in (Scalar, bytes, Subgraph):
            return Form(base.base, is_tuple=True, length=None if any_length else len(parts))
    elif isinstance(hint, type) and (hint in _SINGLE or issubclass(hint, enum.Enum)):
        return Form(hint)
    raise ValueError(f"a field of type {hint} cannot be stored")


def encode(op: Op, index_of: Callable[[Subgraph], int] | None = None) -> list[tpum.Attribute]:
    """Return the parameters of an operator as attributes, in the order of its fields.

    Args:
        op: the operator.
        index_of: returns the index of a subgraph in ``Model.subgraphs``.

    Raises:
        ValueError: a value does not have the annotated type of its field.
    """
    result = []
    for name, form in forms(type(op)).items():
        try:
            value = getattr(op, name)
            if isinstance(value, Subgraph) and form.base is Subgraph and index_of is not None:
                result.append(tpum.Attribute(name=name, kind=Kind.GRAPH, integer=index_of(value)))
            else:
                result.append(_encode(name, value, form))
        except ValueError as error:
            raise ValueError(f"{op.name}.{name}: {error}") from None
    return result


def _encode(name: str, value: Any, form: Form) -> tpum.Attribute:
    if value is None:
        if not form.optional:
            raise ValueError("None does not fit its type")
        return tpum.Attribute(name=name)
    if form.is_tuple:
        return _encode_tuple(name, tuple(value), form)
    if form.base is Scalar:
        if not isinstance(value, Scalar):
            raise ValueError(f"{value!r} is not a Scalar")
        dtype = tpum.DType[value.dtype.name]
        if value.dtype.is_float:
            return tpum.Attribute(name=name, kind=Kind.SCALAR, dtype=dtype, real=_plain(value.value, float))
        return tpum.Attribute(name=name, kind=Kind.SCALAR, dtype=dtype, integer=_plain(value.value, int))
    if form.base is bytes:
        if not isinstance(value, bytes):
            raise ValueError(f"{value!r} is not of the type bytes")
        return tpum.Attribute(name=name, kind=Kind.BYTES, octets=tuple(value))
    plain = _plain(value, form.base)
    if form.base is DType:
        return tpum.Attribute(name=name, kind=Kind.DTYPE, dtype=tpum.DType[plain])
    if issubclass(form.base, enum.Enum):
        return tpum.Attribute(name=name, kind=Kind.ENUM, string=plain)
    if form.base is bool:
        return tpum.Attribute(name=name, kind=Kind.BOOL, integer=int(plain))
    if form.base is int:
        return tpum.Attribute(name=name, kind=Kind.INT, integer=plain)
    if form.base is float:
        return tpum.Attribute(name=name, kind=Kind.FLOAT, real=plain)
    return tpum.Attribute(name=name, kind=Kind.STRING, string=plain)


def _encode_tuple(name: str, values: tuple[Any, ...], form: Form) -> tpum.Attribute:
    if form.length is not None and len(values) != form.length:
        raise ValueError(f"{len(values)} items, its type has {form.length}")
    items = values if _is_plain(values, form.base) else tuple(_plain(value, form.base) for value in values)
    if form.base in (bool, int):
        return tpum.Attribute(name=name, kind=Kind.INTS, integers=tuple(map(int, items)))
    if form.base is float:
        return tpum.Attribute(name=name, kind=Kind.FLOATS, reals=items)
    return tpum.Attribute(name=name, kind=Kind.STRINGS, strings=items)


def _is_plain(values: tuple[Any, ...], base: type) -> bool:
    """Return True if ``_plain`` would return all values as they are. This takes a tenth of the time."""
    if set(map(type, values)) != {base}:
        return False
    if base is int:
        return min(values) in _INT64 and max(values) in _INT64
    return base is float and not any(map(math.isnan, values))


def _plain(value: Any, base: type) -> Any:
    """Convert a single value to a Python number or string; an enum member to its name."""
    if issubclass(base, enum.Enum):
        if isinstance(value, base):
            return value.name
    elif base is bool:
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
    elif base is int:
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            if int(value) not in _INT64:
                raise ValueError(f"{value} does not fit 64 bits")
            return int(value)
    elif base is float:
        if isinstance(value, (float, int, np.floating, np.integer)) and not isinstance(value, bool):
            return math.nan if value != value else float(value)  # one NaN for all payloads, so that files are equal
    elif isinstance(value, str):
        return str(value)
    raise ValueError(f"{value!r} is not of the type {base.__name__}")


def decode(definition: type[Op], attributes: Sequence[tpum.Attribute], subgraphs: Sequence[Subgraph] = ()) -> Op:
    """Create an operator from its stored parameters. A parameter that is not stored takes its default.

    Args:
        definition: the definition of the operator.
        attributes: the stored parameters.
        subgraphs: the subgraphs that parameters may refer to.

    Raises:
        ValueError: the parameters do not fit the definition.
    """
    if definition not in _DECODERS:
        _DECODERS[definition] = _decoders(definition)
    decoders, required, accepts_arrays = _DECODERS[definition]
    values: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    for attribute in attributes:
        name = attribute.name
        if name not in decoders or name in values:
            raise ValueError(f"operator '{definition.name}' has no parameter {name!r}, or it is given twice")
        is_optional, kind, read = decoders[name]
        try:
            if attribute.kind is kind:
                value = _subgraph(read(attribute), subgraphs) if kind is Kind.GRAPH else read(attribute)
            else:
                _check_absent(attribute, is_optional, kind)
                value = None
        except (ValueError, KeyError) as error:
            raise ValueError(f"parameter {name!r} of '{definition.name}': {error}") from None
        values[name] = value
        if value.__class__ is np.ndarray:
            arrays[name] = value
    for name in required:
        if name not in values:
            raise ValueError(f"operator '{definition.name}' lacks its parameter {name!r}")
    if not arrays:
        return definition(**values)
    if accepts_arrays:
        return make_with_arrays(definition, values, arrays)
    return definition(**{**values, **{name: tuple(array.tolist()) for name, array in arrays.items()}})


_Decoder = Callable[[tpum.Attribute], Any]
_Decoders = tuple[dict[str, tuple[bool, Kind, _Decoder]], tuple[str, ...], bool]
_DECODERS: dict[type[Op], _Decoders] = {}  # cache of ``_decoders``


def _decoders(definition: type[Op]) -> _Decoders:
    """Return the decoders of a definition.

    Returns:
        For each parameter: True if it may be None, the kind of its attribute, and the function that decodes it. Then
        the names of the parameters without a default, and True if long tuples may be kept as arrays.
    """
    missing, items = dataclasses.MISSING, fields(definition)
    required = [item.name for item in items if item.default is missing and item.default_factory is missing]
    decoders = {name: (form.optional, _kind(form), _decoder(form)) for name, form in forms(definition).items()}
    return decoders, tuple(required), all(item.default_factory is missing for item in items)


def _subgraph(index: int, subgraphs: Sequence[Subgraph]) -> Subgraph:
    if not 0 <= index < len(subgraphs):
        raise ValueError(f"it refers to subgraph {index}, but only {len(subgraphs)} are stored before it")
    return subgraphs[index]


def _check_absent(attribute: tpum.Attribute, is_optional: bool, kind: Kind) -> None:
    """Check that an attribute of a kind that differs from its parameter means None, and that None is allowed."""
    if attribute.kind is not Kind.NONE:
        raise ValueError(f"it is stored as {attribute.kind.name}, expected {kind.name}")
    if not is_optional:
        raise ValueError("it has no value")


def _decoder(form: Form) -> _Decoder:
    """Return the function that decodes an attribute to a value of this form."""
    base = form.base
    if form.is_tuple:
        return functools.partial(_decode_tuple, form)
    if base is Scalar:
        return _decode_scalar
    if base is DType:
        return lambda attribute: DType[attribute.dtype.name]
    if issubclass(base, enum.Enum):
        return lambda attribute: base[attribute.string]
    plain: dict[type, _Decoder] = {
        bool: lambda attribute: _bool(attribute.integer),
        int: operator.attrgetter("integer"),
        float: operator.attrgetter("real"),
        str: operator.attrgetter("string"),
        bytes: lambda attribute: bytes(attribute.octets),
        Subgraph: operator.attrgetter("integer"),
    }
    return plain[base]


def _decode_scalar(attribute: tpum.Attribute) -> Scalar:
    dtype = DType[attribute.dtype.name]
    return Scalar(dtype, attribute.real if dtype.is_float else attribute.integer)


def _kind(form: Form) -> Kind:
    """Return the kind of attribute that stores a value of this form."""
    if form.is_tuple:
        return {bool: Kind.INTS, int: Kind.INTS, float: Kind.FLOATS}.get(form.base, Kind.STRINGS)
    if form.base is DType:
        return Kind.DTYPE
    if issubclass(form.base, enum.Enum):
        return Kind.ENUM
    return _KINDS[form.base]


_KINDS = {
    bool: Kind.BOOL,
    int: Kind.INT,
    float: Kind.FLOAT,
    str: Kind.STRING,
    bytes: Kind.BYTES,
    Scalar: Kind.SCALAR,
    Subgraph: Kind.GRAPH,
}


def _decode_tuple(form: Form, attribute: tpum.Attribute) -> tuple[Any, ...] | Array:
    items: tuple[Any, ...] | Array
    if form.base is bool:
        items = tuple(map(_bool, attribute.integers))
    elif form.base is int:
        items = attribute.integers if len(attribute.integers) > LONG else tuple(attribute.integers)
    elif form.base is float:
        items = attribute.reals if len(attribute.reals) > LONG else tuple(attribute.reals)
    elif form.base is str:
        items = attribute.strings
    else:
        members = typing.cast(type[enum.Enum], form.base)
        items = tuple(members[text] for text in attribute.strings)
    if form.length is not None and len(items) != form.length:
        raise ValueError(f"it has {len(items)} items, expected {form.length}")
    return items


def _bool(number: int) -> bool:
    if number not in (0, 1):
        raise ValueError(f"{number} is neither true nor false")
    return bool(number)
