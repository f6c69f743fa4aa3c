"""Packing of the data block in a page: the same content in fewer characters. ``core.js`` unpacks it.

docs/guides/report.md describes the packed forms of a column and of the histograms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

PREFIX_BASE = len(_DIGITS)
"""Base of the length of a common prefix."""

PREFIX_DIGITS = 2
"""Number of digits of the length of a common prefix."""

_LONGEST_PREFIX = PREFIX_BASE**PREFIX_DIGITS - 1
"""Longest common prefix of two texts that is used."""

LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
"""Digits of the levels of a histogram."""

_STEPS = 2.0
"""Levels per factor 2 of a count."""

_KEY = 4
"""Number of characters by which the text with a common prefix is selected, such as the names of the source operator."""

_KEYS = 20
"""Characters of the keys of a packed column."""


def pack_block(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block with packed columns of nodes and packed histograms."""
    return {**block, "models": [_pack_model(model) for model in block["models"]]}


def _pack_model(model: Mapping[str, Any]) -> dict[str, Any]:
    packed = {**model, "nodes": {name: pack_column(column) for name, column in model["nodes"].items()}}
    if "histograms" in model:
        histograms = model["histograms"]
        levels = [pack_counts(counts) for counts in histograms["counts"]]
        packed["histograms"] = {name: column for name, column in histograms.items() if name != "counts"}
        packed["histograms"]["levels"] = levels
    return packed


def pack_column(column: list[Any]) -> Any:
    """Return a column in its shortest form.

    ``{"values": [...], "at": [...]}`` has the different entries, and for each node the index of its entry.

    ``{"front": [...], "key": N}`` has for each text its first N characters, the length of the prefix that it shares
    with the last text that has the same ones, in two digits of base 36, and the rest. With ``lists``, the lines of a
    text are the entries of a list.
    """
    texts = list(map(repr, column))  # repr is about as long as JSON, and faster
    forms: list[tuple[int, Any]] = [(sum(map(len, texts)), column)]
    values = dict(zip(texts, column, strict=True))
    has_few = 2 * len(values) < len(column)
    if has_few:
        index_of = {text: number for number, text in enumerate(values)}
        at = [index_of[text] for text in texts]
        size = sum(map(len, values)) + sum(map(len, map(str, at)))
        forms.append((size + _KEYS, {"values": list(values.values()), "at": at}))
    lines, has_lists = (None, False) if has_few else _lines(column)
    if lines is not None:
        shortest = min(len(text) for text in lines if text is not None)
        for key in (0, _KEY) if shortest >= _KEY else (0,):
            front = _front_coded(lines, key)
            size = sum(len(text) + 2 if text is not None else 4 for text in front)
            forms.append((size + _KEYS, {"front": front, "key": key, **({"lists": True} if has_lists else {})}))
    return min(forms, key=lambda form: form[0])[1]


def _lines(column: Sequence[Any]) -> tuple[list[str | None] | None, bool]:
    """Return a column of texts, or of lists of texts as lines; None for other entries."""
    kinds = {type(entry) for entry in column} - {type(None)}
    if kinds == {str}:
        lines = list(column)
    elif kinds == {list} and all(isinstance(part, str) for entry in column for part in entry or ()):
        if [] in column or any("\n" in part for entry in column for part in entry or ()):
            return None, False
        lines = [None if entry is None else "\n".join(entry) for entry in column]
    else:
        return None, False
    # JavaScript counts a character beyond the first 65,536 as two.
    is_plain = all(text is None or text.isascii() or max(text) <= "\uffff" for text in lines)
    return (lines, kinds == {list}) if is_plain else (None, False)


def _front_coded(texts: Sequence[str | None], key: int) -> list[str | None]:
    coded: list[str | None] = []
    last: dict[str, str] = {}
    for text in texts:
        if text is None:
            coded.append(None)
            continue
        start = text[:key]
        length = min(_common_prefix(last.get(start, start), text), _LONGEST_PREFIX)
        coded.append(f"{start}{_DIGITS[length // PREFIX_BASE]}{_DIGITS[length % PREFIX_BASE]}{text[length:]}")
        last[start] = text
    return coded


def _common_prefix(first: str, second: str) -> int:
    """Return the length of the common prefix, by bisection: most texts of a model are long and alike."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def pack_counts(counts: Sequence[int]) -> str:
    """Return one character per bin: ``2 * log2(1 + count)``, rounded, as a digit of base 64."""
    return "".join(map(_level, counts))


@lru_cache(1 << 12)
def _level(count: int) -> str:
    return LEVELS[min(round(_STEPS * math.log2(1 + count)), len(LEVELS) - 1)]
