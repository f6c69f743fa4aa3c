"""Nodes of a description: their indices, and selections of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tpuconvert.model.description import Description

T = TypeVar("T")


def node_indices(description: Description) -> dict[str, int]:
    """Return the index of the node that computes each tensor, by the name of the tensor."""
    return {value["name"]: layer["index"] for layer in description["layers"] for value in layer["outputs"]}


def thin(items: Sequence[T], limit: int, weight: Callable[[T], float]) -> list[T]:
    """Return at most ``limit`` items: the one with the largest weight of each run of adjacent items of equal length."""
    if len(items) <= limit:
        return list(items)
    length = -(-len(items) // limit)
    return [max(items[start : start + length], key=weight) for start in range(0, len(items), length)]
