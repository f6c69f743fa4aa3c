"""Layer groups: nodes whose intermediate tensors stay in on-chip memory.

A group consists of consecutive nodes in the topological order of the graph, so that no path leaves it and returns. It
is computed tile by tile: results are divided along N, C and H, and all nodes of the group process one tile before the
next tile begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tpuconvert.schema.definition.hardware import LocalMemory

MAX_PARTS = 128
"""Largest number of tiles along one axis."""


class Tiles(NamedTuple):
    """Number of tiles along axes 0, 1 and 2 of every result of the group."""

    n: int = 1
    c: int = 1
    h: int = 1

    def __str__(self) -> str:
        return " x ".join(f"{count} {name}" for name, count in zip("NCH", self, strict=True) if count > 1) or "whole"


@dataclass(frozen=True)
class Group:
    """Consecutive nodes that run tile by tile.

    Args:
        first: index of the first node in the graph's order.
        count: number of nodes.
        tiles: number of tiles per axis.
        keeps_constants: keep constants in on-chip memory for all tiles; otherwise each is loaded when its node runs,
            once per tile.
    """

    first: int
    count: int
    tiles: Tiles = field(default_factory=Tiles)
    keeps_constants: bool = False

    @property
    def stop(self) -> int:
        """Index after the last node."""
        return self.first + self.count


@dataclass(frozen=True)
class Grouping:
    """All groups of a graph in the order of its nodes, and the local memory for which they were planned."""

    memory: LocalMemory
    groups: tuple[Group, ...] = ()
