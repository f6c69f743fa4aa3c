"""Candidate tilings of a group. Quantities are arrays with one element per tiling.

Along N and C tiles never overlap: a tile needs an equal tile of a value, or all of it. Along H tiles overlap because of
windows, so the intervals of all tiles are computed for every tile count.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tpuconvert.optimizer.grouping.layout import constant_lane_bytes, lane_bytes, lane_planes, plane_bytes
from tpuconvert.optimizer.grouping.slicing import Cut
from tpuconvert.schema.groups import MAX_PARTS, Tiles
from tpuconvert.schema.hardware import LocalMemory

if TYPE_CHECKING:
    import numpy.typing as npt

    from tpuconvert.optimizer.grouping.facts import Facts, Operand

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]
    Floats = npt.NDArray[np.float64]
else:
    Ints = Bools = Floats = np.ndarray

WHOLE = 0
"""Index of the candidate without tiling."""

_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
_FEW = (2, 4, 8, 16, 32)
_ROWS_WITH_OTHERS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 28, 32)


@dataclass(eq=False, slots=True)
class Rows:
    """Rows of a value that each tile needs, for every number of tiles along H.

    Attributes:
        start, stop: intervals of all tiles, concatenated over all tile counts.
        longest, total: for each tiling, length of the longest interval and sum of the lengths.
    """

    start: Ints
    stop: Ints
    longest: Ints
    total: Ints
    cuts: dict[tuple[Cut, int], Rows] = field(default_factory=dict)
    unions: dict[int, tuple[Rows, Rows]] = field(default_factory=dict)
    planes: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)
    parts: dict[tuple[bool, bool], Part] = field(default_factory=dict)

    def part(self, is_cut_n: bool, is_cut_c: bool) -> Part:
        """Return the tile with these rows, cached: equal arguments return the same object."""
        known = self.parts.get((is_cut_n, is_cut_c))
        if known is None:
            known = self.parts[is_cut_n, is_cut_c] = Part(is_cut_n, is_cut_c, self)
        return known


@dataclass(eq=False, slots=True)
class Part:
    """Tile of a value: equal tiles along N and C or the full extent, and the rows."""

    is_cut_n: bool
    is_cut_c: bool
    rows: Rows
    sizes: dict[Shape, tuple[Ints, Ints]] = field(default_factory=dict)
    steps: dict[int, Step] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Step:
    """Memory and cost of a node that computes a tile of its results.

    Attributes:
        operands: needed tile and shape of each operand that is not a constant.
        lanes: bytes of one lane for the results, and for constants that are reloaded for each tile.
        all_lanes: ``lanes`` plus the bytes of the operand if there is exactly one, otherwise None.
        constants: bytes of one lane for resident constants, and bytes loaded for all constants; None if there are none.
        repeated: cost of recomputation in bytes; None if the node has no multiply-accumulates.
    """

    operands: tuple[tuple[Part, Shape], ...]
    lanes: Ints
    all_lanes: Ints | None
    constants: tuple[Ints, Ints] | None
    repeated: Floats | None


class Shape(NamedTuple):
    """Extents along N, C and H, and bytes of one row."""

    n: int
    c: int
    h: int
    row: int


WholeNode = tuple[list[tuple[int, int, int, int]], list[tuple[int, int, int, bool]], int, int, int]
"""Memory and traffic of a node without tiling. Results: number, bytes of one lane, bytes, last user. Operands: number,
bytes of one lane, bytes, ``is_read_whole``. Constants, summed: bytes of one lane, bytes, bytes that tiles may skip."""


class Candidates:
    """Candidate tilings, with cached sizes of tiles.

    Args:
        memory: on-chip memory.
        extents_n: extents of axis 0 in the graph; if all are 1, no candidate splits N.
    """

    def __init__(self, memory: LocalMemory, extents_n: Collection[int]) -> None:
        self.memory = memory
        batch = min(max(extents_n, default=1), MAX_PARTS)
        tiles = [Tiles(1, 1, h) for h in _ROWS]
        tiles += [Tiles(1, c, h) for c in _FEW for h in _ROWS_WITH_OTHERS]
        tiles += [Tiles(n, 1, h) for n in sorted({*_FEW, batch}) if 1 < n <= batch for h in _ROWS_WITH_OTHERS]
        # Constants are resident or reloaded for each tile; with one tile there is no difference.
        self.ways = [(item, False) for item in tiles] + [(item, True) for item in tiles if max(item) > 1]
        self.n, self.c, self.h = (np.array(column, np.int64) for column in zip(*(w for w, _ in self.ways), strict=True))
        self.keeps: Bools = np.array([keeps for _, keeps in self.ways])
        self.is_cut: tuple[Bools, Bools, Bools] = (self.n > 1, self.c > 1, self.h > 1)
        self._counts = np.repeat(_ROWS, _ROWS).astype(np.int64)
        self._indices = np.concatenate([np.arange(count, dtype=np.int64) for count in _ROWS])
        self._begins = np.cumsum([0, *_ROWS[:-1]])
        self._row_of = np.array([_ROWS.index(int(count)) for count in self.h])
        self._parts_n_c: Ints = self.n * self.c
        self._stays: Ints = self.keeps.astype(np.int64)
        self._passes: Ints = 1 - self._stays
        # Number of loads of a constant, by whether it is split along N and C. A resident one is reloaded along C only.
        self._loads: dict[tuple[bool, bool], Ints] = {}
        for is_cut_n in (False, True):
            again: Ints = np.where(self.keeps, 1, self.h if is_cut_n else self.h * self.n)
            self._loads[is_cut_n, True], self._loads[is_cut_n, False] = again, again * self.c
        self._equal: dict[int, Rows] = {}
        self._whole: dict[int, Rows] = {}
        self._planes: dict[tuple[int, bool, int, bool], tuple[Any, Any]] = {}
        self._whole_nodes: dict[tuple[int, ...], WholeNode] = {}
        self._whole_constants: dict[int, tuple[int, int, int]] = {}
        self._whole_values: dict[Shape, tuple[int, int]] = {}
        self._constants: dict[tuple[int, bool, bool, Rows | None], tuple[Ints, Ints, Ints]] = {}
        self._only: dict[tuple[bool, bool, bool], Bools] = {}
        self._parts: dict[tuple[int, int, int], Bools] = {}

    def _rows(self, start: Ints, stop: Ints, extent: int) -> Rows:
        start[0], stop[0] = 0, extent  # a single tile has all rows, including those that no window reads
        length = stop - start
        longest = np.maximum.reduceat(length, self._begins)[self._row_of]
        total = np.add.reduceat(length, self._begins)[self._row_of]
        return Rows(start, stop, longest, total)

    def equal_rows(self, extent: int) -> Rows:
        """Rows of equal tiles."""
        if extent not in self._equal:
            start, stop = (index * extent // self._counts for index in (self._indices, self._indices + 1))
            self._equal[extent] = self._rows(start, stop, extent)
        return self._equal[extent]

    def whole_rows(self, extent: int) -> Rows:
        """All rows for each tile."""
        if extent not in self._whole:
            start = np.zeros_like(self._counts)
            self._whole[extent] = self._rows(start, start + extent, extent)
        return self._whole[extent]

    def cut_rows(self, rows: Rows, cut: Cut, extent: int) -> Rows:
        """Map ``rows`` of a result to the rows of an operand that they need."""
        key = cut, extent
        known = rows.cuts.get(key)
        if known is None:
            _, step, first, last, divisor = cut
            low, high = rows.start * step, rows.stop * step
            low += first
            high += last - step
            if divisor != 1:
                low //= divisor
                high //= divisor
            high += 1
            np.maximum(low, 0, out=low)
            np.minimum(high, extent, out=high)
            known = rows.cuts[key] = self._rows(low, high, extent)
        return known

    def rounded_rows(self, rows: Rows, multiple: int, extent: int) -> Rows:
        """Extend each interval to multiples of ``multiple``."""
        key = Cut(-1, divisor=multiple), extent
        if key not in rows.cuts:
            start, stop = rows.start // multiple * multiple, -(-rows.stop // multiple) * multiple
            rows.cuts[key] = self._rows(start, stop, extent)
        return rows.cuts[key]

    def union(self, one: Part, other: Part, extent: int) -> Part:
        """Smallest tile of a value that contains two tiles."""
        if one is other:
            return one
        rows = one.rows
        if rows is not other.rows:
            known = rows.unions.get(id(other.rows))
            if known is None:  # keep a reference to the other, so that its id is not reused
                both = np.minimum(rows.start, other.rows.start), np.maximum(rows.stop, other.rows.stop)
                known = rows.unions[id(other.rows)] = self._rows(*both, extent), other.rows
            rows = known[0]
        return rows.part(one.is_cut_n and other.is_cut_n, one.is_cut_c and other.is_cut_c)

    def size(self, part: Part, shape: Shape) -> tuple[Ints, Ints]:
        """Bytes of one lane for a tile of a value, and total bytes of all tiles."""
        known = part.sizes.get(shape)
        if known is None:
            rows = part.rows
            plane = rows.planes.get(shape.row)
            if plane is None:
                longest: Ints = plane_bytes(self.memory, rows.longest * shape.row)
                plane = rows.planes[shape.row] = longest, rows.total * shape.row
            planes, all_planes = self._planes_of(shape.n, part.is_cut_n, shape.c, part.is_cut_c)
            known = part.sizes[shape] = planes * plane[0], all_planes * plane[1]
        return known

    def _planes_of(self, n: int, is_cut_n: bool, c: int, is_cut_c: bool) -> tuple[Any, Any]:
        """Planes in one lane for a tile of n * c planes, and total planes of all tiles along N and C."""
        key = n, is_cut_n, c, is_cut_c
        known = self._planes.get(key)
        if known is None:
            planes = lane_planes(self.memory, -(-n // self.n) if is_cut_n else n, -(-c // self.c) if is_cut_c else c)
            if is_cut_n:
                times: Any = 1 if is_cut_c else self.c
            else:
                times = self.n if is_cut_c else self._parts_n_c
            known = self._planes[key] = planes, n * c * times
        return known

    def only(self, can_cut: tuple[bool, bool, bool]) -> Bools:
        """Mask of the tilings that split only these axes."""
        known = self._only.get(can_cut)
        if known is None:
            others = [is_cut for is_cut, can in zip(self.is_cut, can_cut, strict=True) if not can]
            known = self._only[can_cut] = ~np.logical_or.reduce(others)
        return known

    def has_parts(self, n: int, c: int, h: int) -> Bools:
        """Mask of the tilings without empty tiles of a result that leaves the group."""
        known = self._parts.get((n, c, h))
        if known is None:
            known = self._parts[n, c, h] = (self.n <= n) & (self.c <= c) & (self.h <= h)
        return known

    def step(self, facts: Facts, part: Part) -> Step:
        """Memory and cost of a node that computes a tile of its results."""
        known = part.steps.get(facts.use.number)
        if known is None:
            known = part.steps[facts.use.number] = self._step(facts, part)
        return known

    def _step(self, facts: Facts, part: Part) -> Step:
        result = facts.use.results[0]
        lanes, everything = self.size(part, result)
        for shape in facts.use.results[1:]:
            lanes = lanes + self.size(part, shape)[0]
        constants = None
        if facts.use.has_constants:
            while_running, kept, moved = self._constants_of(facts, part)
            lanes = lanes + while_running
            constants = kept, moved
        repeated = None
        if facts.use.steps:
            whole = result.n * result.c * result.h * result.row
            repeated = facts.use.steps * (everything / max(whole, 1) - 1.0)
        operands = [(self._needed(item, part, result), item.shape) for item in facts.operands if item.value >= 0]
        all_lanes = lanes + self.size(*operands[0])[0] if len(operands) == 1 else None
        return Step(tuple(operands), lanes, all_lanes, constants, repeated)

    def _needed(self, operand: Operand, part: Part, result: Shape) -> Part:
        cut_n, cut_c, cut_h = operand.cuts
        extent = operand.shape.h
        if cut_h is None:
            rows = self.whole_rows(extent)
        elif cut_h.is_same and extent == result.h:
            rows = part.rows
        else:
            rows = self.cut_rows(part.rows, cut_h, extent)
        return rows.part(cut_n is not None and part.is_cut_n, cut_c is not None and part.is_cut_c)

    def _constants_of(self, facts: Facts, part: Part) -> tuple[Ints, Ints, Ints]:
        """Sums over constants: bytes of one lane while the node runs, resident bytes of one lane, bytes loaded."""
        rows = part.rows if facts.use.cuts_rows_of_constants else None
        key = facts.use.number, part.is_cut_n, part.is_cut_c, rows
        known = self._constants.get(key)
        if known is None:
            found = [self._constant(operand, part) for operand in facts.operands if operand.value < 0]
            lanes, kept, moved = (sum(column[1:], column[0]) for column in zip(*found, strict=True))
            known = self._constants[key] = self._passes * lanes, self._stays * kept, moved
        return known

    def _constant(self, operand: Operand, part: Part) -> tuple[Any, Any, Ints]:
        """Bytes of one lane if reloaded, bytes of one lane if resident, and bytes loaded.

        A resident constant has its full extent along N and H, and is loaded once for each tile along C.
        """
        shape, (cut_n, cut_c, cut_h), filters = operand.shape, operand.cuts, operand.filters
        n, _, h = extents = shape[:3]
        is_cut_n, is_cut_c = cut_n is not None and part.is_cut_n, cut_c is not None and part.is_cut_c
        whole: list[Any] = list(extents)
        if cut_c is not None and is_cut_c:
            whole[cut_c.axis] = -(-extents[cut_c.axis] // self.c)
        longest = list(whole)
        if is_cut_n:
            longest[0] = -(-n // self.n)
        moved: Ints = math.prod(shape) * self._loads[is_cut_n, is_cut_c]
        if cut_h is not None:
            rows = self.cut_rows(part.rows, cut_h, h)
            longest[2] = rows.longest
            moved = np.where(self.keeps, moved, moved // self.h * rows.total // max(h, 1))
        return (
            constant_lane_bytes(self.memory, shape, filters, tuple(longest), False),
            constant_lane_bytes(self.memory, shape, filters, tuple(whole), True),
            moved,
        )

    def whole(self, facts: Facts) -> WholeNode:
        """Memory and traffic of a node without tiling, cached."""
        known = self._whole_nodes.get(facts.results)
        if known is None:
            known = self._whole_nodes[facts.results] = self._whole_node(facts)
        return known

    def _whole_node(self, facts: Facts) -> WholeNode:
        results = [
            (number, *self._whole_value(shape), user)
            for number, shape, user in zip(facts.results, facts.use.results, facts.last_users, strict=True)
        ]
        operands = [
            (item.value, *self._whole_value(item.shape), item.is_read_whole)
            for item in facts.operands
            if item.value >= 0
        ]
        constants = self._whole_constants.get(facts.use.number)
        if constants is None:
            constants = self._whole_constants[facts.use.number] = self._constants_of_whole(facts)
        return results, operands, *constants

    def _constants_of_whole(self, facts: Facts) -> tuple[int, int, int]:
        """Sums over constants: bytes of one lane, bytes, and bytes that tiles may skip."""
        lanes = moved = spared = 0
        for value, shape, _, is_read_whole, filters in facts.operands:
            if value < 0:
                lanes += constant_lane_bytes(self.memory, shape, filters, shape[:3], False)
                moved += math.prod(shape)
                spared += 0 if is_read_whole else math.prod(shape)
        return lanes, moved, spared

    def _whole_value(self, shape: Shape) -> tuple[int, int]:
        """Bytes of one lane, and total bytes."""
        known = self._whole_values.get(shape)
        if known is None:
            lanes: int = lane_bytes(self.memory, shape.n, shape.c, shape.h * shape.row)
            known = self._whole_values[shape] = lanes, math.prod(shape)
        return known
