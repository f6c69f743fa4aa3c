"""Labels of the classes in the metadata of an ONNX file.

``names`` is written by Ultralytics as text of a Python dict, ``{0: 'person', 1: 'bicycle'}``. ``character`` is written
by RapidOCR: the characters of a text recognizer, or the labels of a classifier, one per line.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from onnx import ModelProto

_MOST_BYTES = 1 << 20
"""Longest text that is read."""

_ENTRY = re.compile(r"""(\d{1,7})\s*:\s*('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")""")
"""A key and a string of a Python dict."""


def read_metadata(proto: ModelProto) -> dict[str, Any]:
    """Return ``{"labels": [...]}``, or an empty dict if the file has no labels in a known form."""
    entries = {item.key: item.value for item in proto.metadata_props if isinstance(item.value, str)}
    for key, parse in (("names", _from_dict), ("character", _from_lines)):
        labels = parse(entries[key]) if 0 < len(entries.get(key, "")) <= _MOST_BYTES else []
        if labels:
            return {"labels": labels}
    return {}


def _from_dict(text: str) -> list[str]:
    """Return the labels of a dict with the keys 0, 1, ... in any order; empty for another text."""
    try:
        names = {int(number): str(ast.literal_eval(string)) for number, string in _ENTRY.findall(text)}
    except (SyntaxError, ValueError):  # an escape that Python does not have
        return []
    rest = _ENTRY.sub("", text).translate(str.maketrans("", "", "{}, \n"))
    return [names[number] for number in range(len(names))] if not rest and set(names) == set(range(len(names))) else []


def _from_lines(text: str) -> list[str]:
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
