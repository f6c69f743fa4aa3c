"""Cost of a group for many tilings at once. A group grows backwards, node by node.

Results that leave the group are split into equal tiles. The intervals that the tiles need of every value are computed
from the last node backwards. Windows make adjacent intervals overlap; the overlap is loaded and computed again. The
rows that a node has to compute depend only on the nodes after it. Prepending a node therefore does not change the costs
of the later nodes, except that its results are no longer loaded from global memory. The loops over tiles are, from the
outermost: C, N, H.

Channels of a tensor are distributed over the lanes of on-chip memory. A lane has a plane of H * W elements for every
index of axis 0 and every channel assigned to it; planes begin at aligned addresses. Filters of a convolution are
distributed by output channel, each contiguous. Filters that are not resident are loaded one per lane at a time.

Sizes are floating-point numbers: integers up to 2^53 are exact, and larger ones do not overflow.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tpuconvert.optimizer.grouping.groups import Tiles
from tpuconvert.optimizer.grouping.intervals import Axis, Intervals
from tpuconvert.optimizer.grouping.node_facts import Facts, NodeKind, Operand, Shape
from tpuconvert.optimizer.grouping.slicing import AXES, C, H
from tpuconvert.schema.definition.hardware import LocalMemory
from tpuconvert.schema.graph.graph import Value

Tiling = tuple[Tiles, bool]
"""Number of tiles per axis, and whether constants are resident (``Group.keeps_constants``)."""

Sizes = Any
"""Array with one element per tiling, or a Python number if there is only one tiling."""

Tile = tuple[Intervals, ...]
"""Intervals along N, C and H that a value needs."""


class NodeCost(NamedTuple):
    """Memory and cost of a node that computes a tile of its results. Most nodes have no constants and can be tiled.

    Attributes:
        operands: needed tile of each operand that is not a constant.
        lanes: bytes in one lane for the results and for the constants that are reloaded for each tile.
        resident: bytes in one lane for the constants if they are resident; None if there are no constants.
        moved: bytes of the constants that are loaded, plus the cost of recomputation in bytes; None if both are 0.
        is_possible: mask of the tilings that split only axes with a tiling rule; None if every axis has a rule.
    """

    operands: tuple[Tile, ...]
    lanes: Sizes
    resident: Sizes
    moved: Sizes
    is_possible: Sizes


class Tilings:
    """Tilings with cached sizes of tiles.

    Sizes are arrays with one element per tiling. With only one, they are Python numbers, which are faster.
    """

    def __init__(self, tilings: Sequence[Tiling], memory: LocalMemory) -> None:
        self.tilings = tilings
        self.memory = memory
        self._keeps = np.array([keeps for _, keeps in tilings])
        self.axes = [Axis(np.array([tiles[axis] for tiles, _ in tilings])) for axis in AXES]
        is_single = len(tilings) == 1
        self._numbers: Callable[[Any], Any] = (lambda sizes: sizes.item()) if is_single else np.asarray
        self.maximum: Callable[[list[Any]], Any] = max if is_single else np.maximum.reduce
        # The caches live as long as the plan.
        self.size = functools.cache(self._size)
        self.node_cost = functools.cache(self._node_cost)
        self.constants = functools.cache(self._constants)
        self.is_possible = functools.cache(self._is_possible)
        self.has_tiles = functools.cache(self._has_tiles)

    def _has_tiles(self, shape: Shape) -> Sizes:
        """Mask of the tilings in which no tile of a result that leaves the group is empty."""
        n, c, h = (axis.counts <= extent for axis, extent in zip(self.axes, shape, strict=False))
        return self._numbers(n & c & h)

    def equal_tile(self, shape: Shape) -> Tile:
        """Split a result that leaves the group into equal tiles."""
        return tuple(axis.equal(extent) for axis, extent in zip(self.axes, shape, strict=False))

    def union(self, one: Tile | None, other: Tile, shape: Shape) -> Tile:
        """Smallest tile that contains two tiles of a value."""
        if one is None or one == other:
            return other
        return tuple(axis.union(*item) for axis, *item in zip(self.axes, one, other, shape, strict=False))

    def align_rows(self, tile: Tile, multiple: int, shape: Shape) -> Tile:
        """Extend a tile so that it begins and ends at a multiple of ``multiple`` rows."""
        return tile if multiple == 1 else (*tile[:H], self.axes[H].round_to_multiple(tile[H], multiple, shape.h))

    def _lane_bytes(self, n: Any, c: Any, plane: Any) -> Any:
        """Bytes that n * c planes of ``plane`` bytes each occupy in one lane."""
        row = self.memory.row_bytes
        return n * -(-c // self.memory.lanes) * (-(-plane // row) * row)

    def _size(self, tile: Tile, shape: Shape) -> tuple[Sizes, Sizes]:
        """Bytes that a tile of a value occupies in one lane, and total bytes of all tiles."""
        n, c, h = tile
        lanes = self._lane_bytes(n.longest, c.longest, h.longest * shape.row)
        return self._numbers(lanes), self._numbers(n.total * c.total * h.total * shape.row)

    def _node_cost(self, kind: NodeKind, tile: Tile) -> NodeCost:
        lanes = self.size(tile, kind.results[0])[0]
        for shape in kind.results[1:]:
            lanes = lanes + self.size(tile, shape)[0]
        resident = moved = None
        if kind.constants:
            reloaded, resident, moved = self.constants(kind, tuple(itertools.compress(tile, kind.cuts_constants)))
            lanes = lanes + reloaded
        if kind.mac_bytes:
            elements = math.prod(kind.results[0])
            repeated = self.size(tile, kind.results[0])[1] * (kind.mac_bytes / max(elements, 1)) - kind.mac_bytes
            moved = repeated if moved is None else moved + repeated
        operands = tuple([self._operand_tile(kind, item, tile) for item in kind.operands])
        return NodeCost(
            operands, lanes, resident, moved, self.is_possible(tuple([rule is None for rule in kind.rules]))
        )

    def _is_possible(self, cannot_split: tuple[bool, ...]) -> Sizes:
        masks = [axis.counts == 1 for axis, cannot in zip(self.axes, cannot_split, strict=True) if cannot]
        return self._numbers(np.logical_and.reduce(masks)) if masks else None

    def _operand_tile(self, kind: NodeKind, operand: Operand, tile: Tile) -> Tile:
        extents = []
        for axis, rule, item, extent in zip(self.axes, kind.rules, tile, operand.shape, strict=False):
            cut = None if rule is None else rule[operand.slot]
            extents.append(axis.whole(extent) if cut is None else axis.needed(item, cut, extent))
        return tuple(extents)

    def _constants(self, kind: NodeKind, cut_axes: tuple[Intervals, ...]) -> tuple[Sizes, ...]:
        """Sums over all constants of a node: bytes in one lane if reloaded or if resident, and bytes loaded.

        Args:
            kind: the node.
            cut_axes: intervals of the results along the axes for which ``kind.cuts_constants`` is true.
        """
        intervals = iter(cut_axes)
        tile = [next(intervals) if is_cut else None for is_cut in kind.cuts_constants]
        columns = zip(*[self._constant(kind, item, tile) for item in kind.constants], strict=True)
        return tuple([self._numbers(sum(column)) for column in columns])

    def _constant(self, kind: NodeKind, operand: Operand, tile: Sequence[Intervals | None]) -> tuple[Sizes, ...]:
        """The same sizes as ``_constants``, for one constant.

        A resident constant has its full extent along N and H, and is loaded once for each tile along C.
        """
        shape = operand.shape
        longest: list[Any] = list(shape[:3])  # longest tile
        total: list[Any] = list(shape)  # sum over all tiles
        for axis, rule, item in zip(AXES, kind.rules, tile, strict=True):
            cut = None if rule is None else rule[operand.slot]
            stays = self._keeps & (axis != C)
            if cut is None or item is None:
                total[-1] = total[-1] * np.where(stays, 1, self.axes[axis].counts)
            else:
                needed = self.axes[axis].needed(item, cut, shape[cut.axis])
                longest[cut.axis] = np.where(stays, shape[cut.axis], needed.longest)
                total[cut.axis] = np.where(stays, shape[cut.axis], needed.total)
        if operand.filters is None:
            lanes = resident = self._lane_bytes(longest[0], longest[1], longest[2] * float(shape.row))
        else:
            axis, times = operand.filters
            filter_bytes = math.prod(shape) // max(shape[axis] * times, 1)
            lanes, resident = (self._lane_bytes(1, count, filter_bytes) for count in (1, longest[axis] * times))
        return np.where(self._keeps, 0, lanes), np.where(self._keeps, resident, 0), math.prod(total)


@dataclass(slots=True)
class _Live:
    """Tile of a value in on-chip memory and its lifetime. Steps are counted backwards from the end of the group."""

    tile: Tile
    shape: Shape
    lanes: Sizes
    total: Sizes
    first: int
    last: int


class Segment:
    """Group of consecutive nodes with a fixed last node.

    Args:
        tilings: the tilings.
        end: position of the last node.

    Attributes:
        size: number of nodes.
        loaded: bytes read from global memory, plus the cost of recomputation in bytes.
        stored: bytes written to global memory.
    """

    def __init__(self, tilings: Tilings, end: int) -> None:
        self.size = 0
        self.loaded: Sizes = 0.0
        self.stored = 0
        self._tilings = tilings
        self._end = end
        self._used: list[Sizes] = []  # bytes in use in one lane while each node runs
        self._resident: Sizes = 0.0
        self._possible: Sizes = True
        self._live: dict[Value, _Live] = {}

    def add(self, facts: Facts) -> Tile:
        """Prepend a node. Return the tile that it computes."""
        kind, step = facts.kind, self.size
        assert kind is not None
        self.size += 1
        tile = self._needed_tile(facts, kind)
        cost = self._tilings.node_cost(kind, tile)
        self._used.append(cost.lanes)
        if cost.is_possible is not None:
            self._possible = self._possible & cost.is_possible
        if cost.resident is not None:
            self._resident = self._resident + cost.resident
        if cost.moved is not None:
            self.loaded = self.loaded + cost.moved
        for value, shape, user in zip(facts.results, kind.results, facts.last_uses, strict=True):
            live = self._live.pop(value, None)
            if live is not None:  # The value is computed here instead of loaded, so that its lifetime begins here.
                self.loaded = self.loaded - live.total
                self._use(live, tile, step)
            if user > self._end:
                self.stored += math.prod(shape)
                self._possible = self._possible & self._tilings.has_tiles(shape)
        for value, operand, needed in zip(facts.reads, kind.operands, cost.operands, strict=True):
            live = self._live.get(value)
            if live is None:
                live = self._live[value] = _Live(
                    needed, operand.shape, *self._tilings.size(needed, operand.shape), step, step
                )
                self._keep(live.lanes, step, step + 1)
            else:  # Until a producer is prepended, the value is loaded here and kept for its later users.
                self.loaded = self.loaded - live.total
                self._use(live, self._tilings.union(live.tile, needed, operand.shape), step + 1)
                live.first = step
            self.loaded = self.loaded + live.total
        return tile

    def lane_bytes(self) -> Sizes:
        """Peak number of bytes in one lane."""
        return self._tilings.maximum(self._used) + self._resident

    def cheapest(self) -> tuple[float, Tiling] | None:
        """Lowest cost and the tiling that has it; None if no tiling fits into memory."""
        self._possible = self._possible & (self.lane_bytes() <= self._tilings.memory.lane_bytes)
        if len(self._tilings.tilings) == 1:  # NumPy operations on single numbers would take 10 % of the planning time.
            return (float(self.loaded) + self.stored, self._tilings.tilings[0]) if self._possible else None
        cost = np.where(self._possible, self.loaded, np.inf)
        index = int(cost.argmin())
        return (float(cost[index]) + self.stored, self._tilings.tilings[index]) if self._possible[index] else None

    def _needed_tile(self, facts: Facts, kind: NodeKind) -> Tile:
        """Union of the tiles that the users need, and of the equal tiles of a result that leaves the group."""
        tile: Tile | None = None
        for value, shape, user in zip(facts.results, kind.results, facts.last_uses, strict=True):
            live = self._live.get(value)
            if live is not None:
                tile = self._tilings.union(tile, live.tile, shape)
            if user > self._end:
                tile = self._tilings.union(tile, self._tilings.equal_tile(shape), shape)
        assert tile is not None, "a result without users leaves the group"
        return self._tilings.align_rows(tile, kind.row_multiple, kind.results[0])

    def _use(self, live: _Live, tile: Tile, stop: int) -> None:
        """Keep a value up to step ``stop`` (exclusive), and enlarge its tile."""
        if tile != live.tile:
            before = live.lanes
            live.tile = tile
            live.lanes, live.total = self._tilings.size(tile, live.shape)
            self._keep(live.lanes - before, live.last, live.first + 1)
        self._keep(live.lanes, live.first + 1, stop)

    def _keep(self, lanes: Sizes, begin: int, stop: int) -> None:
        """Add a number of bytes to the steps from ``begin`` to ``stop`` (exclusive)."""
        for step in range(begin, stop):
            self._used[step] = self._used[step] + lanes
