"""YAML files that users write: options, manifests, preprocessing and precision rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.bounded_files import read_text
from tpuconvert.schema.system.file_errors import unreadable
from tpuconvert.schema.system.limits import current_limits, exceeded

_MERGE = "tag:yaml.org,2002:merge"
"""Tag of the key ``<<``."""


def read_yaml(path: Path) -> Any:
    """Read a YAML file.

    Raises:
        UsageError: the file cannot be read, or is not YAML.
        ResourceLimitError: the file exceeds the limits of texts.
    """
    try:
        return parse_yaml(read_text(path), str(path))
    except OSError as error:
        raise unreadable(error, path) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not a text: {error}", hint="give a YAML file in UTF-8") from error


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML text. ``where`` is its origin, for errors.

    Raises:
        UsageError: the text is not YAML, or a mapping has a key twice.
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
            _check_duplicates(node, loader, where)
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
        raise UsageError(f"{where}: is not YAML: {error}", hint="mend this line") from error


def _check_expanded(root: Any, where: str) -> None:
    """Count the values of a YAML document as if every alias were a copy, in a time linear in its text.

    Merge keys copy the pairs of the mappings that they name, so that a text of a few lines can take seconds.

    Raises:
        ResourceLimitError: there are more than ``max_text_values``.
        ValueError: a collection contains itself, or a text has half of a surrogate pair.
    """
    limit = current_limits().max_text_values
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
        if counts[id(node)] > limit:
            raise exceeded(
                f"aliases and merge keys that expand to {counts[id(node)]:,} values", "max_text_values", file=where
            )


def _check_duplicates(root: Any, loader: Any, where: str) -> None:
    """Refuse mappings that have a key twice: PyYAML drops all values but the last.

    A key may override a merged one (``<<``), but not a mapping by a mapping that does not merge it in turn: all its
    keys would be lost.

    Raises:
        UsageError: a key occurs twice.
    """
    pending = [root]
    checked: set[int] = set()
    while pending:
        node = pending.pop()
        if id(node) in checked:
            continue
        checked.add(id(node))
        pending += _children(node)
        if node.id == "mapping":
            _check_keys(node, loader, where)


def _check_keys(mapping: Any, loader: Any, where: str) -> None:
    own: dict[Any, Any] = {}
    merged: dict[Any, Any] = {}
    sources: list[Any] | None = None
    for key, value in mapping.value:
        if key.tag == _MERGE:
            if sources is not None:
                raise _duplicate("<<", key, where)
            sources = value.value if value.id == "sequence" else [value]
            continue
        for name in _names(key, loader):
            if own.setdefault(name, value) is not value:
                raise _duplicate(key.value, key, where)
    for name, (key, value) in _merged_pairs(sources or [], loader):
        if merged.setdefault(name, value) is not value:
            raise _duplicate(f"{key.value}' of merged mappings '<<", key, where)
        if name in own and own[name].id == value.id == "mapping" and not _merges(own[name], value):
            hint = f"merge it as well: {key.value}: {{<<: *ANCHOR, ...}}"
            raise _duplicate(f"{key.value}' of a merged mapping '<<", key, where, hint)


def _merges(mapping: Any, other: Any) -> bool:
    return any(key.tag == _MERGE and (value is other or other in value.value) for key, value in mapping.value)


def _merged_pairs(sources: list[Any], loader: Any) -> Iterator[tuple[Any, tuple[Any, Any]]]:
    """Yield the pairs of merged mappings by name. Mappings that these merge in turn are checked where they stand."""
    for source in {id(source): source for source in sources}.values():
        for pair in source.value if source.id == "mapping" else ():
            if pair[0].tag != _MERGE:
                yield from ((name, pair) for name in _names(pair[0], loader))


def _names(key: Any, loader: Any) -> set[Any]:
    """Return a key as value and as text: ``1`` and ``"1"`` name one option, ``1`` and ``1.0`` are equal."""
    if key.id != "scalar":
        return set()  # the constructor refuses it, unless it can be hashed
    value = loader.construct_object(key)
    return {value, str(value)}


def _duplicate(key: str, node: Any, where: str, hint: str = "leave one of them out") -> UsageError:
    return UsageError(f"{where}: the key '{key}' occurs twice, again in line {node.start_mark.line + 1}", hint=hint)


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
