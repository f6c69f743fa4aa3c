"""Groups of nodes whose intermediate tensors stay in on-chip memory, as a model file holds them.

Nodes of a graph stand in an order in which they can run, and a group is a run of consecutive ones: no path can leave it
and come back. It is computed part by part: results are cut into parts along N, C and H, and for every part all nodes of
the group run before the next part begins. What the numbers cost is derived from the graph, not stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tpuconvert.schema.hardware import LocalMemory

MAX_PARTS = 128
"""Along one axis. More is damage."""


class Tiles(NamedTuple):
    """So many parts along axis 0, 1 and 2 of every result that leaves the group."""

    n: int = 1
    c: int = 1
    h: int = 1

    def __str__(self) -> str:
        return " x ".join(f"{count} {name}" for name, count in zip("NCH", self, strict=True) if count > 1) or "whole"


@dataclass(frozen=True)
class Group:
    """Consecutive nodes that run together.

    Args:
        first: place of the first node in the graph's order.
        count: number of nodes.
        tiles: how results are cut.
        keeps_constants: whether constants stay in on-chip memory for all parts; otherwise each is loaded when its node
            runs, and again for the next part.
    """

    first: int
    count: int
    tiles: Tiles = field(default_factory=Tiles)
    keeps_constants: bool = False

    @property
    def stop(self) -> int:
        """The place behind the last node."""
        return self.first + self.count


@dataclass(frozen=True)
class Grouping:
    """All groups of a graph, in its order, and the memory that they were planned for.

    Errors: ValueError for groups that overlap or are not in order, and for parts that are none.
    """

    memory: LocalMemory
    groups: tuple[Group, ...] = ()

    def __post_init__(self) -> None:
        end = 0
        for place, group in enumerate(self.groups):
            if group.count < 1 or group.first < end:
                raise ValueError(f"group {place} of {group.count} nodes from {group.first} on: expected from {end} on")
            if min(group.tiles) < 1 or max(group.tiles) > MAX_PARTS:
                raise ValueError(f"group {place} is cut into {list(group.tiles)} parts")
            end = group.stop

    def check(self, nodes: int) -> None:
        """Check the groups against the number of nodes of the graph.

        Raises:
            ValueError: when one ends behind the last node.
        """
        if self.groups and self.groups[-1].stop > nodes:
            raise ValueError(f"the last group ends at node {self.groups[-1].stop} of {nodes}")
