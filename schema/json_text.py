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
        ValueError: the text is not JSON, is nested too deeply, or has half of a surrogate pair.
    """
    try:
        content = json.loads(text, parse_constant=parse_constant)
        if _SURROGATE.search(text):
            json.dumps(content, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{error.object[error.start]!a} is half of a surrogate pair") from error
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error
    return content
