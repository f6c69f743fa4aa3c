"""YAML files that users write: options, manifests, preprocessing and precision rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tpuconvert.schema.bounded_files import read_text
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.limits import current_limits, exceeded

_RAISED_BY_CONSTRUCTORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What PyYAML's constructors raise for text that only looks like a number, a date or a collection."""


def read_yaml(path: Path) -> Any:
    """Read a YAML file.

    Raises:
        UsageError: the file cannot be read, or is not YAML.
        ResourceLimitError: the file exceeds the limits of texts.
    """
    try:
        return parse_yaml(read_text(path), str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not YAML: {error}") from error


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML text. ``where`` is its origin, for errors.

    Raises:
        UsageError: the text is not YAML.
        ResourceLimitError: its aliases and merge keys expand to too many values.
    """
    import yaml

    if len(text) > current_limits().max_yaml_bytes:
        raise exceeded(f"{len(text):,} characters of YAML", "max_yaml_bytes", file=where)
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_expanded(node, where)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except (
        yaml.YAMLError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        # PyYAML's constructors of numbers and dates raise the other types for texts that only look like them
        raise UsageError(f"{where}: is not YAML: {error}") from error


def _check_expanded(root: Any, where: str) -> None:
    """Count the values of a YAML document as if every alias were a copy, in a time linear in its text.

    Merge keys copy the pairs of the mappings that they name, so that a text of a few lines can take seconds.

    Raises:
        ResourceLimitError: there are more than ``max_text_values``.
        ValueError: a collection contains itself, or a text has half of a surrogate pair.
    """
    most = current_limits().max_text_values
    counts: dict[int, int] = {}
    pending = [root]
    opened: set[int] = set()
    while pending:
        node = pending[-1]
        if id(node) in counts:
            pending.pop()
            continue
        children = _children(node)
        if not children:
            _check_text(node.value)
        if id(node) not in opened:
            opened.add(id(node))
            pending += children
            if any(id(child) in opened and id(child) not in counts for child in children):
                raise ValueError("a collection contains itself")
            continue
        pending.pop()
        counts[id(node)] = 1 + sum(counts[id(child)] for child in children)
        if counts[id(node)] > most:
            raise exceeded(
                f"aliases and merge keys that expand to {counts[id(node)]:,} values", "max_text_values", file=where
            )


def _check_text(text: Any) -> None:
    r"""Refuse escapes like ``"\ud800"``: such text can neither be written to a file nor printed."""
    try:
        str(text).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{error.object[error.start]!a} is half of a surrogate pair") from error


def _children(node: Any) -> list[Any]:
    if isinstance(node.value, str):
        return []
    return [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
