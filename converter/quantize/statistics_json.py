"""Statistics of a calibration as plain values for JSON and numeric arrays, from which nothing but data can be loaded.

Objects of a few classes are stored by their fields. Reading compares every field with that of a new object, so that
changed content is an error here and not later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tpuconvert.optimizer.quantize.ranges import RangeCollector
from tpuconvert.samples.array_files import number_type
from tpuconvert.schema.types import Array

Json = Any


def encode(value: Any, arrays: list[Array]) -> Json:
    """Return the JSON form of a value, and append its arrays, which the form refers to by their position.

    Raises:
        TypeError: the value contains an object of another class.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, np.ndarray):
        if value.dtype.isbuiltin == 2:  # a type of ml_dtypes, which NumPy stores without its name
            arrays.append(value.view(f"u{value.itemsize}"))
            return {"typed": [len(arrays) - 1, value.dtype.name]}
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, list):
        return [encode(item, arrays) for item in value]
    if isinstance(value, set):
        return {"set": sorted(value)}
    if isinstance(value, Mapping):
        return {"mapping": [[key, encode(item, arrays)] for key, item in value.items()]}
    if is_known(value):
        if hasattr(value, "digest"):
            value.digest()  # what is buffered is stored with the sums
        return {"fields": {name: encode(item, arrays) for name, item in vars(value).items()}}
    raise TypeError(f"statistics contain an object of class {type(value).__name__}")


def decode(form: Json, like: Any, arrays: Sequence[Array]) -> Any:
    """Return the value with a JSON form.

    Args:
        form: result of ``encode``.
        like: a value of the same type. Objects have its fields, and arrays its element type and its extents that are
            not 0. None accepts plain values, and lists and mappings of them or of arrays.
        arrays: the arrays of the forms.

    Raises:
        ValueError: the form is not that of such a value.
        TypeError: as ``ValueError``, and ``KeyError``, ``IndexError`` and ``AttributeError`` too.
    """
    if is_known(like):
        fields, expected = form["fields"], vars(like)
        if fields.keys() != expected.keys():
            raise ValueError(f"fields {', '.join(fields)} of {type(like).__name__}, expected {', '.join(expected)}")
        value = object.__new__(type(like))
        vars(value).update({name: decode(item, expected[name], arrays) for name, item in fields.items()})
        return value
    value = _decode_plain(form, arrays)
    if like is not None and type(value) is not type(like):
        raise ValueError(f"a {type(value).__name__}, expected a {type(like).__name__}")
    if isinstance(like, np.ndarray):
        fits = all(wanted in (0, extent) for extent, wanted in zip(value.shape, like.shape, strict=True))
        if value.dtype != like.dtype or not fits:
            raise ValueError(f"an array {value.dtype}{list(value.shape)}, expected {like.dtype}{list(like.shape)}")
    return value


def is_known(value: Any) -> bool:
    """Return True for an object that is stored by its fields: a collector and its parts."""
    return type(value) in _CLASSES


def _decode_plain(form: Json, arrays: Sequence[Array]) -> Any:
    if isinstance(form, list):
        return [_decode_plain(item, arrays) for item in form]
    if not isinstance(form, dict):
        return form
    [(kind, content)] = form.items()
    if kind == "float":
        return float.fromhex(content)
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "array":
        return np.array(arrays[content])
    if kind == "typed":
        index, dtype = content
        return np.array(arrays[index]).view(number_type(dtype))
    if kind == "set":
        return set(content)
    if kind == "mapping":
        return {str(key): _decode_plain(item, arrays) for key, item in content}
    raise ValueError(f"a value of kind '{kind}'")


def _classes_of(value: object) -> set[type]:
    """Return the class of an object of this package and those of the objects in its fields."""
    if not type(value).__module__.startswith("tpuconvert."):
        return set()
    return {type(value)}.union(*(_classes_of(item) for item in vars(value).values()))


_CLASSES = _classes_of(RangeCollector("mse"))
