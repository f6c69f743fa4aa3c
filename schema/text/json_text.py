"""JSON of unknown origin."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text: str, *, parse_constant: Callable[[str], Any] | None = None) -> Any:
    r"""Parse JSON that no damage can turn into values that fail later.

    ``json.loads`` accepts an escape like ``"\ud800"``, half of a surrogate pair. Such text cannot be encoded: it can
    neither be written to a file nor printed.

    Args:
        text: the JSON.
        parse_constant: returns the value of ``NaN``, ``Infinity`` or ``-Infinity``. By default these are floats.

    Raises:
        ValueError: the text is not JSON, has a key twice or half of a surrogate pair, or is nested too deeply.
    """
    try:
        content = json.loads(text, parse_constant=parse_constant, object_pairs_hook=_object)
        if _SURROGATE.search(text):
            json.dumps(content, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{error.object[error.start]!a} is half of a surrogate pair") from error
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. By default all values of a key but the last are dropped."""
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!a:.200} occurs twice")
    return content
