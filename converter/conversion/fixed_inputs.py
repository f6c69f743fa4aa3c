"""Inputs that a conversion fixes to a value: ``--fix-input sr=16000``, ``fix_inputs={"sr": 16000}``.

A fixed input becomes a constant before conversion, so that ``If``, ``Loop`` and shapes that depend on it are evaluated.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.samples.array_files import load_arrays
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.text.json_text import parse_json

MOST_ELEMENTS = 1 << 14
"""Largest number of elements of a fixed input. Its value is stored as text in the recipe of the model file."""

EXAMPLE = "--fix-input NAME=16000, NAME=true, NAME=[1,2,3] or NAME=FILE.npy"


def parse_fixed(texts: Iterable[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` texts: a number, ``true`` or ``false``, a list as in JSON, or the name of an .npy file.

    Raises:
        UsageError: a text has another form, or a name is given twice.

    """
    values: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.rpartition("=")
        if not separator or not name or not value:
            raise UsageError(f"--fix-input '{text}' is not NAME=VALUE", hint=EXAMPLE)
        if name in values:
            raise UsageError(f"the input '{name}' is fixed twice", hint="give one value for it")
        values[name] = value
    return values


def read_fixed(values: Mapping[str, Any], folder: str | os.PathLike[str] = "") -> dict[str, Any]:
    """Convert the values of fixed inputs to numbers or nested tuples of numbers, by input name.

    Args:
        values: numbers, lists, arrays, or texts as returned by :func:`parse_fixed`.
        folder: base folder for relative names of .npy files.

    Raises:
        UsageError: a value has another type, or too many elements.
        CorruptInputError: a file is not a valid .npy file.

    """
    return {str(name): _plain(str(name), value, folder) for name, value in values.items()}


def _plain(name: str, value: Any, folder: str | os.PathLike[str]) -> Any:
    if isinstance(value, str):
        value = _from_text(name, value, folder)
    try:
        array = np.asarray(value)
    except ValueError:  # nested lists of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise UsageError(f"input '{name}' is fixed to {value!r}, expected numbers", hint=EXAMPLE)
    if array.size > MOST_ELEMENTS:
        raise UsageError(
            f"input '{name}' is fixed to {array.size} elements, expected at most {MOST_ELEMENTS}",
            hint="store larger data in the source model, as a constant",
        )
    if not array.size:
        raise UsageError(f"input '{name}' is fixed to an array without elements", hint=EXAMPLE)
    return _tuples(array.tolist())


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _from_text(name: str, text: str, folder: str | os.PathLike[str]) -> Any:
    if text.lower().endswith(".npy"):
        path = Path(folder) / text
        arrays = load_arrays(path)
        if "" not in arrays:
            raise CorruptInputError("an .npz archive with the name of an .npy file", file=str(path), hint=EXAMPLE)
        return arrays[""]
    lower = {"True": "true", "False": "false"}.get(text.strip(), text)
    for form in (lower, f"[{lower}]"):  # the second form accepts 1,2,3
        try:
            return parse_json(form)
        except ValueError:
            continue
    raise UsageError(f"input '{name}' is fixed to '{text}', expected numbers", hint=EXAMPLE)
