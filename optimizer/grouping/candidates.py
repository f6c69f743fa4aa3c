"""Every way of cutting a group that the planner tries, as arrays: one number per way.

Along N and C parts never overlap: a value is needed in equal parts, or as a whole for each of them. Along H windows
make them overlap, so that the intervals of all parts of all counts are computed.
"""

import math
from collections.abc import Collection
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

_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
_FEW = (2, 4, 8, 16, 32)
_ROWS_WITH_OTHERS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 28, 32)


class Rows:
    """The rows of a value that each part needs, for every number of parts along H.

    Attributes:
        start, stop: the intervals of all parts of all counts, one after the other.
        longest, total: per way of cutting, the longest interval and the sum of all.
    """

    __slots__ = ("cuts", "longest", "start", "stop", "total", "unions")

    def __init__(self, start: Ints, stop: Ints, longest: Ints, total: Ints) -> None:
        self.start = start
        self.stop = stop
        self.longest = longest
        self.total = total
        self.cuts: dict[tuple[Cut, int], Rows] = {}
        self.unions: dict[int, tuple[Rows, Rows]] = {}


class Part(NamedTuple):
    """What is needed of a value: equal parts along N and C or all of it, and rows."""

    is_cut_n: bool
    is_cut_c: bool
    rows: Rows


class Shape(NamedTuple):
    """Extents along N, C and H, and bytes of one row."""

    n: int
    c: int
    h: int
    row: int


Whole = tuple[list[tuple[int, int, int, int]], list[tuple[int, int, int]], int, int]
"""Results (number, bytes of one lane, all bytes, last reader), operands (the same without a reader), and both sums of
bytes for constants: of a node that is not cut."""


class Candidates:
    """The ways of cutting, and what they make of values.

    Args:
        memory: of the chip.
        extents_n: extents of axis 0 in the graph; with 1 alone nothing is cut along N.
    """

    def __init__(self, memory: LocalMemory, extents_n: Collection[int]) -> None:
        self.memory = memory
        batch = min(max(extents_n, default=1), MAX_PARTS)
        tiles = [Tiles(1, 1, h) for h in _ROWS]
        tiles += [Tiles(1, c, h) for c in _FEW for h in _ROWS_WITH_OTHERS]
        tiles += [Tiles(n, 1, h) for n in sorted({*_FEW, batch}) if 1 < n <= batch for h in _ROWS_WITH_OTHERS]
        # Constants stay for all parts, or do not; with one part that is the same.
        self.ways = [(item, False) for item in tiles] + [(item, True) for item in tiles if max(item) > 1]
        self.n, self.c, self.h = (np.array(column, np.int64) for column in zip(*(w for w, _ in self.ways), strict=True))
        self.keeps: Bools = np.array([keeps for _, keeps in self.ways])
        self.is_cut: tuple[Bools, Bools, Bools] = (self.n > 1, self.c > 1, self.h > 1)
        self._counts = np.repeat(_ROWS, _ROWS).astype(np.int64)
        self._indices = np.concatenate([np.arange(count, dtype=np.int64) for count in _ROWS])
        self._begins = np.cumsum([0, *_ROWS[:-1]])
        self._row_of = np.array([_ROWS.index(int(count)) for count in self.h])
        self._equal: dict[int, Rows] = {}
        self._whole: dict[int, Rows] = {}
        self._planes: dict[tuple[int, bool, int, bool], tuple[Ints, Ints]] = {}
        self._sizes: dict[tuple[Part, Shape], tuple[Ints, Ints]] = {}
        self._whole_nodes: dict[tuple[int, ...], Whole] = {}
        self._constants: dict[tuple[int, bool, bool, Rows | None], tuple[Ints, Ints, Ints]] = {}
        self._only: dict[tuple[bool, bool, bool], Bools] = {}
        self._parts: dict[tuple[int, int, int], Bools] = {}
        self._repetitions: dict[tuple[Part, Shape, float], Floats] = {}

    def _rows(self, start: Ints, stop: Ints, extent: int) -> Rows:
        start[0], stop[0] = 0, extent  # one part is everything, also rows that no window reads
        length = stop - start
        longest = np.maximum.reduceat(length, self._begins)[self._row_of]
        total = np.add.reduceat(length, self._begins)[self._row_of]
        return Rows(start, stop, longest, total)

    def equal_rows(self, extent: int) -> Rows:
        """Equal parts of the rows."""
        if extent not in self._equal:
            start, stop = (index * extent // self._counts for index in (self._indices, self._indices + 1))
            self._equal[extent] = self._rows(start, stop, extent)
        return self._equal[extent]

    def whole_rows(self, extent: int) -> Rows:
        """All rows for each part."""
        if extent not in self._whole:
            start = np.zeros_like(self._counts)
            self._whole[extent] = self._rows(start, start + extent, extent)
        return self._whole[extent]

    def cut_rows(self, rows: Rows, cut: Cut, extent: int) -> Rows:
        """The rows of an operand that ``rows`` of a result need."""
        key = cut, extent
        if key not in rows.cuts:
            low = (rows.start * cut.step + cut.first) // cut.divisor
            high = ((rows.stop - 1) * cut.step + cut.last) // cut.divisor + 1
            rows.cuts[key] = self._rows(np.maximum(low, 0), np.minimum(high, extent), extent)
        return rows.cuts[key]

    def rounded_rows(self, rows: Rows, multiple: int, extent: int) -> Rows:
        """The rows that are computed where they come several at a time."""
        if multiple == 1:
            return rows
        key = Cut(-1, divisor=multiple), extent
        if key not in rows.cuts:
            start, stop = rows.start // multiple * multiple, -(-rows.stop // multiple) * multiple
            rows.cuts[key] = self._rows(start, stop, extent)
        return rows.cuts[key]

    def join(self, one: Part, other: Part, extent: int) -> Part:
        """What is needed by two readers of a value."""
        rows = one.rows
        if rows is not other.rows:
            known = rows.unions.get(id(other.rows))
            if known is None:  # the other is kept as well, so that its address stays its own
                both = np.minimum(rows.start, other.rows.start), np.maximum(rows.stop, other.rows.stop)
                known = rows.unions[id(other.rows)] = self._rows(*both, extent), other.rows
            rows = known[0]
        return Part(one.is_cut_n and other.is_cut_n, one.is_cut_c and other.is_cut_c, rows)

    def planes(self, n: int, is_cut_n: bool, c: int, is_cut_c: bool) -> tuple[Ints, Ints]:
        """Planes in one lane for a part of n * c of them, and planes of all parts along N and C together."""
        key = n, is_cut_n, c, is_cut_c
        known = self._planes.get(key)
        if known is None:
            long_n, all_n = self._lengths(n, is_cut_n, self.n)
            long_c, all_c = self._lengths(c, is_cut_c, self.c)
            known = self._planes[key] = lane_planes(self.memory, long_n, long_c), all_n * all_c
        return known

    def _lengths(self, extent: int, is_cut: bool, counts: Ints) -> tuple[Ints, Ints]:
        """Longest interval and sum of all."""
        ones = np.ones_like(counts)
        return (-(-extent // counts), extent * ones) if is_cut else (extent * ones, extent * counts)

    def size(self, part: Part, shape: Shape) -> tuple[Ints, Ints]:
        """Bytes of one lane that a part of a value takes, and bytes of all its parts together."""
        key = part, shape
        known = self._sizes.get(key)
        if known is None:
            planes, all_planes = self.planes(shape.n, part.is_cut_n, shape.c, part.is_cut_c)
            lanes: Any = planes * plane_bytes(self.memory, part.rows.longest * shape.row)
            known = self._sizes[key] = lanes, all_planes * (part.rows.total * shape.row)
        return known

    def only(self, can_cut: tuple[bool, bool, bool]) -> Bools:
        """Which ways cut along no other axes than these."""
        known = self._only.get(can_cut)
        if known is None:
            others = [is_cut for is_cut, can in zip(self.is_cut, can_cut, strict=True) if not can]
            known = self._only[can_cut] = ~np.logical_or.reduce(others)
        return known

    def has_parts(self, n: int, c: int, h: int) -> Bools:
        """Which ways leave something for every part of a result that leaves the group."""
        known = self._parts.get((n, c, h))
        if known is None:
            known = self._parts[n, c, h] = (self.n <= n) & (self.c <= c) & (self.h <= h)
        return known

    def constants(self, facts: "Facts", part: Part) -> tuple[Ints, Ints, Ints]:
        """Bytes of one lane while the node runs, bytes of one lane all the time, and bytes loaded, of all constants.

        A constant that is kept is whole along N and H, and loaded once for each part along C.
        """
        rows = part.rows if facts.cuts_rows_of_constants else None
        key = facts.like, part.is_cut_n, part.is_cut_c, rows
        known = self._constants.get(key)
        if known is None:
            found = [self._constant(facts, operand, part) for operand in facts.operands if operand.value < 0]
            lanes, kept, moved = (np.add.reduce(column) for column in zip(*found, strict=True))
            known = self._constants[key] = lanes, kept, moved
        return known

    def _constant(self, facts: "Facts", operand: "Operand", part: Part) -> tuple[Ints, Ints, Ints]:
        cut_n, cut_c, cut_h = operand.cuts
        extents = operand.shape[:3]
        whole: list[Any] = [extent * np.ones_like(self.n) for extent in extents]
        moved = math.prod(operand.shape) * np.ones_like(self.n)
        if cut_c is not None and part.is_cut_c:
            whole[cut_c.axis] = -(-extents[cut_c.axis] // self.c)
        else:
            moved = moved * self.c
        longest, loaded = list(whole), moved
        if cut_n is not None and part.is_cut_n:
            longest[0] = -(-extents[0] // self.n)
        else:
            loaded = loaded * self.n
        if cut_h is None:
            loaded = loaded * self.h
        else:
            rows = self.cut_rows(part.rows, cut_h, extents[2])
            longest[2], loaded = rows.longest, loaded * rows.total // max(extents[2], 1)
        while_running = constant_lane_bytes(self.memory, facts.node, operand.place, tuple(longest), False)
        all_the_time = constant_lane_bytes(self.memory, facts.node, operand.place, tuple(whole), True)
        return (
            np.where(self.keeps, 0, while_running),
            np.where(self.keeps, all_the_time, 0),
            np.where(self.keeps, moved, loaded),
        )

    def whole(self, facts: "Facts") -> "Whole":
        """What a node takes and moves that is not cut."""
        known = self._whole_nodes.get(facts.results)
        if known is None:
            known = self._whole_nodes[facts.results] = self._whole_node(facts)
        return known

    def _whole_node(self, facts: "Facts") -> "Whole":
        results = [
            (number, *self._whole_value(shape), reader)
            for number, shape, reader in zip(facts.results, facts.shapes, facts.last_readers, strict=True)
        ]
        operands = [(item.value, *self._whole_value(item.shape)) for item in facts.operands if item.value >= 0]
        constants = [item for item in facts.operands if item.value < 0]
        lanes = [constant_lane_bytes(self.memory, facts.node, item.place, item.shape[:3], False) for item in constants]
        return results, operands, sum(lanes), sum(math.prod(item.shape) for item in constants)

    def _whole_value(self, shape: Shape) -> tuple[int, int]:
        """Bytes of one lane, and all bytes."""
        return lane_bytes(self.memory, shape.n, shape.c, shape.h * shape.row), math.prod(shape)

    def repetition(self, part: Part, shape: Shape, steps: float) -> Floats:
        """What is computed more than once weighs, of a node whose steps weigh so much together."""
        key = part, shape, steps
        known = self._repetitions.get(key)
        if known is None:
            everything = shape.n * shape.c * shape.h * shape.row
            known = self._repetitions[key] = steps * (self.size(part, shape)[1] / max(everything, 1) - 1.0)
        return known
