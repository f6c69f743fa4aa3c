"""Scopes of the names of source nodes: ``layer1/0`` of ``layer1/0/conv2``, ``features.3`` of ``features.3.conv.1``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_DEEPEST = 12
"""Number of parts of a name that are used. Names are hostile: one may have as many parts as characters."""


def source_scopes(names: Sequence[str], limit: int, smallest: int) -> list[str | None]:
    """Return for each name its largest scope with at most ``limit`` names, or None if the name has no scope.

    If a scope has a child that is too large, its other children are divided too: all residual blocks of a network
    become blocks, and not only the blocks of its long stages. Scopes of less than ``smallest`` names are ignored there.
    """
    paths = [tuple(_path(name)[:-1]) for name in names]
    size: Counter[tuple[str, ...]] = Counter(path[:depth] for path in paths for depth in range(len(path) + 1))
    children: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for scope in size:
        if scope:
            children.setdefault(scope[:-1], []).append(scope)
    largest = {scope: max(size[child] for child in inner) for scope, inner in children.items()}
    divided = {
        scope
        for scope, inner in children.items()
        if scope
        and largest[scope[:-1]] > limit
        and sum(size[child] for child in inner if size[child] >= smallest) > 0.8 * size[scope]
    }
    chosen: list[tuple[str, ...]] = []
    for path in paths:
        scopes = (path[:depth] for depth in range(1, len(path) + 1))
        chosen.append(next((scope for scope in scopes if size[scope] <= limit and scope not in divided), ()))
    common = _common_scope([scope for scope in dict.fromkeys(chosen) if scope and size[scope] >= smallest])
    return [_scope_name(scope, common) if scope else None for scope in chosen]


def _common_scope(scopes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the scope that contains all others, whose name is left out. What remains of each is not only a number."""
    if len(scopes) < 2:
        return ()
    first, last = min(scopes), max(scopes)
    count = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    while count and any(len(scope) <= count or scope[count].isdigit() for scope in scopes):
        count -= 1
    return first[:count]


def _path(name: str) -> list[str]:
    """Return the parts of a source name: ``layer1/0/conv2`` or ``features.3.conv.1``."""
    first = name.split(";")[0]
    return [part for part in re.split("/" if "/" in first else r"\.", first, maxsplit=_DEEPEST) if part]


def _scope_name(scope: tuple[str, ...], common: tuple[str, ...]) -> str:
    """Return a scope as text. PyTorch repeats the parent in the child: ``layer1/layer1.0`` is ``layer1.0``."""
    inside = scope[len(common) :] if scope[: len(common)] == common else scope
    return "/".join(
        part for part, child in zip(inside, (*inside[1:], ""), strict=True) if not child.startswith(part + ".")
    )
