"""Layered drawing of a directed acyclic graph: layers by longest path, few crossings, straight long lines.

The steps follow Sugiyama, Tagawa and Toda (1981): assign layers, add a dummy point in each layer that a long line
passes, order the layers by barycentres, assign x coordinates. The last step follows Brandes and Koepf (2001): align
each vertex with its median neighbor, four times (from above and below, from the left and the right), and take the
median of the four results.

A *net* is a tensor: its producer and its users. The users of a net share one line of dummy points. All steps are linear
in vertices and dummy points, apart from sorting, and the number of dummy points is bounded by a multiple of the number
of vertices: the longest nets beyond this bound have no dummy points, and are drawn as direct curves.

A layer of many boxes, such as the operands of a concat of 200 tensors, is divided into several layers. Their results
have no dummy points, because a separate column for each line would be as wide as the undivided layer.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Net = tuple[int, ...]
"""Vertex that produces a tensor, and the vertices that use it. The producer has the smallest index."""

BOX_GAP = 22
"""Horizontal distance between two boxes."""

LINE_GAP = 14
"""Horizontal distance between a line and a box or another line."""

LAYER_GAP = 38
"""Smallest vertical distance between two layers, in which the lines run."""

_MOST_BOXES = 32
"""Largest number of boxes of a layer that is not divided."""

_FEWEST_BOXES = 16
"""Number of boxes of the layers into which a larger one is divided, at least."""

_SWEEPS = 8
"""Largest number of passes over the layers, alternately down and up, that order them."""

_PATIENCE = 2
"""Number of passes without fewer crossings after which the order is final."""

_MAIN_WEIGHT = 4
"""Weight of a line between two inner boxes for the order of the layers; the weight of other lines is 1."""

_POINTS_PER_VERTEX = 5
"""Bound of the number of dummy points: the average number per vertex and net."""


@dataclass(frozen=True)
class Plan:
    """Positions of the vertices of one graph.

    Args:
        layer: layer of each vertex, from 0 at the top.
        x: horizontal center of each vertex.
        trunks: for each net the x coordinates of its dummy points, in the layers below its producer; empty for a net
            that ends in the next layer, or that is too long.
        gaps: vertical distance below each layer.
        width: the boxes are between 0 and this x coordinate.
    """

    layer: tuple[int, ...]
    x: tuple[int, ...]
    trunks: tuple[tuple[int, ...], ...]
    gaps: tuple[int, ...]
    width: int


def arrange(widths: Sequence[int], nets: Sequence[Net], first: int = 0, last: int = 0) -> Plan:
    """Return the positions of the vertices of a graph.

    Args:
        widths: width of the box of each vertex. Vertices are in topological order.
        nets: the tensors, sorted by their producer.
        first: number of vertices, at the beginning, that are alone in the top layer.
        last: number of vertices, at the end, that are alone in the bottom layer.
    """
    layer, is_divided = _divide_layers(_layers(len(widths), nets, first, last), widths)
    drawing = _Drawing(widths, nets, layer, is_divided)
    drawing.order_layers()
    x = drawing.place()
    return Plan(tuple(layer), tuple(x[: len(widths)]), drawing.trunks(x), drawing.gaps(x), drawing.width(x))


def _layers(count: int, nets: Sequence[Net], first: int, last: int) -> list[int]:
    """Return the layer of each vertex: the longest path to it, or a lower one if that makes the lines shorter.

    A vertex with more users than operands moves down to its first user. Operands that move with it do not count: they
    are computed from inputs and constants only, and have no other user.
    """
    top = 1 if first else 0
    layer = [0] * first + [top] * (count - first)
    users_of: list[list[int]] = [[] for _ in range(count)]
    for producer, *users in nets:
        users_of[producer] += users
        for user in users:
            layer[user] = max(layer[user], layer[producer] + 1)
    operands = [0] * count
    for producer in range(count):
        moves = producer >= first and not operands[producer] and len(users_of[producer]) == 1
        for user in users_of[producer]:
            operands[user] += not moves
    bottom = max(layer[: count - last], default=-1) + 1
    layer[count - last :] = [bottom] * last
    for v in reversed(range(first, count - last)):
        if len(users_of[v]) > operands[v]:
            layer[v] = max(layer[v], min(layer[user] for user in users_of[v]) - 1)
    return layer


def _divide_layers(layer: list[int], widths: Sequence[int]) -> tuple[list[int], list[bool]]:
    """Divide layers of many boxes into layers of about the square root of their number.

    The boxes stay in the order of the vertices, so that the boxes of one branch are in the same column in all its
    layers.

    Returns:
        The layer of each vertex, and for each vertex whether it is a box of a divided layer.

    """
    boxes: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for v, index in enumerate(layer):
        if widths[v]:
            boxes[index].append(v)
    divided, start = list(layer), [0] * len(boxes)
    is_divided = [False] * len(layer)
    shift = 0
    for index, row in enumerate(boxes):
        start[index] = index + shift
        if len(row) > _MOST_BOXES:
            shift += -(-len(row) // max(_FEWEST_BOXES, math.isqrt(len(row)))) - 1
    for index, row in enumerate(boxes):
        parts = start[index + 1] - start[index] if index + 1 < len(boxes) else 1 + index + shift - start[index]
        for i, v in enumerate(row):
            divided[v] = start[index] + i * parts // len(row)
            is_divided[v] = parts > 1
    return [divided[v] if width else start[layer[v]] for v, width in enumerate(widths)], is_divided


class _Drawing:
    """Vertices and dummy points in layers, with the line segments between adjacent layers."""

    def __init__(self, widths: Sequence[int], nets: Sequence[Net], layer: list[int], is_divided: list[bool]) -> None:
        self.count = len(widths)
        self.nets = nets
        self.half = [width // 2 for width in widths]
        self.level = list(layer)
        self.points: list[list[int]] = []
        spans = [max(layer[user] for user in users) - layer[producer] - 1 for producer, *users in nets]
        budget = _POINTS_PER_VERTEX * (self.count + len(nets)) + 64
        self.routed = [False] * len(nets)
        for net in sorted(range(len(nets)), key=lambda net: (spans[net], net)):
            if is_divided[nets[net][0]]:
                continue
            budget -= spans[net]
            self.routed[net] = budget >= 0
        segments: list[tuple[int, int]] = []
        for net, (producer, *users) in enumerate(nets):
            start = layer[producer]
            line = [producer]
            for depth in range(spans[net] if self.routed[net] else 0):
                line.append(len(self.level))
                self.level.append(start + 1 + depth)
                segments.append((line[-2], line[-1]))
            self.points.append(line[1:])
            segments += [(line[layer[user] - start - 1], user) for user in users if layer[user] - start <= len(line)]
        self.half += [0] * (len(self.level) - self.count)
        self.is_divided = is_divided + [False] * (len(self.level) - self.count)
        self.above: list[list[int]] = [[] for _ in self.level]
        self.below: list[list[int]] = [[] for _ in self.level]
        for upper, lower in dict.fromkeys(segments):
            self.below[upper].append(lower)
            self.above[lower].append(upper)
        self.rows: list[list[int]] = [[] for _ in range(max(self.level, default=-1) + 1)]

    def order_layers(self) -> None:
        """Order each layer: depth-first from the top, then by the barycentres of the neighbors, in both directions."""
        self._order_depth_first()
        rank = self._ranks()
        index = self._positions()
        best, fewest = [list(row) for row in self.rows], self._crossings(index)
        useless = 0
        for sweep in range(_SWEEPS):
            if not fewest or useless == _PATIENCE:
                break
            down = sweep % 2 == 0
            neighbors = self.above if down else self.below
            for row in self.rows if down else reversed(self.rows):
                if len(row) == 1:
                    continue
                keys: dict[int, float] = {}
                for v in row:
                    around = neighbors[v]
                    if len(around) > 1 and rank[v] == 2:
                        weights = [_MAIN_WEIGHT if rank[u] == 2 else 1 for u in around]
                        total = sum([index[u] * weight for u, weight in zip(around, weights, strict=True)])
                        keys[v] = total / sum(weights)
                    else:
                        keys[v] = sum([index[u] for u in around]) / len(around) if around else index[v]
                row.sort(key=keys.__getitem__)
                for i, v in enumerate(row):
                    index[v] = i
            crossings = self._crossings(index)
            useless += 1
            if crossings < fewest:
                best, fewest, useless = [list(row) for row in self.rows], crossings, 0
        self.rows = best

    def _order_depth_first(self) -> None:
        seen = [False] * len(self.level)
        for start in range(self.count):
            stack = [start]
            while stack:
                v = stack.pop()
                if seen[v]:
                    continue
                seen[v] = True
                self.rows[self.level[v]].append(v)
                stack += reversed(self.below[v])

    def _positions(self) -> list[int]:
        index = [0] * len(self.level)
        for row in self.rows:
            for i, v in enumerate(row):
                index[v] = i
        return index

    def _crossings(self, index: list[int]) -> int:
        """Number of crossings of segments between adjacent layers."""
        crossings = 0
        for row in self.rows:
            if len(row) == 1:
                continue
            ends: list[int] = []
            for v in row:
                targets = [index[u] for u in self.below[v]]
                for target in targets:
                    crossings += len(ends) - bisect_right(ends, target)
                for target in targets:
                    insort(ends, target)
        return crossings

    def place(self) -> list[int]:
        """Return the x coordinate of each vertex and dummy point."""
        if not self.level:
            return []
        index = self._positions()
        conflicts = self._conflicts(index)
        results: list[list[int]] = []
        for down in (True, False):
            medians = self._medians(index, down)
            for sign in (1, -1):
                x = self._compact(*self._align(medians, index, conflicts, down, sign), sign)
                results.append([sign * value for value in x])
        spans = [(min(self._left(x)), max(self._right(x))) for x in results]
        low, high = min(spans, key=lambda span: span[1] - span[0])
        for i, (x, (left, right)) in enumerate(zip(results, spans, strict=True)):
            shift = low - left if i % 2 == 0 else high - right
            x[:] = [value + shift for value in x]
        middle = [(sum(four) - min(four) - max(four)) // 2 for four in zip(*results, strict=True)]
        left = min(self._left(middle))
        return [value - left for value in middle]

    def _left(self, x: list[int]) -> list[int]:
        return [value - half for value, half in zip(x, self.half, strict=True)]

    def _right(self, x: list[int]) -> list[int]:
        return [value + half for value, half in zip(x, self.half, strict=True)]

    def _conflicts(self, index: list[int]) -> set[tuple[int, int]]:
        """Segments that cross a segment between two dummy points: the latter are drawn straight."""
        conflicts: set[tuple[int, int]] = set()
        for upper, lower in pairwise(self.rows):
            low, start = 0, 0
            for i, v in enumerate(lower):
                inner = next((u for u in self.above[v] if v >= self.count and u >= self.count), None)
                if inner is None and i < len(lower) - 1:
                    continue
                high = len(upper) - 1 if inner is None else index[inner]
                for w in lower[start : i + 1]:
                    conflicts.update(
                        (u, w)
                        for u in self.above[w]
                        if not low <= index[u] <= high and not (u >= self.count and w >= self.count)
                    )
                low, start = high, i + 1
        return conflicts

    def _ranks(self) -> list[int]:
        """Return 0 for a dummy point, 1 for a box without users or without operands, and 2 for the other boxes."""
        return [0 if v >= self.count else 1 + bool(self.above[v] and self.below[v]) for v in range(len(self.level))]

    def _medians(self, index: list[int], down: bool) -> list[tuple[int, ...]]:
        """Return for each vertex the one or two median neighbors that it may be aligned with.

        The main path is straight: boxes between others are aligned with each other before they are aligned with the
        first and last boxes, and these before lines. Boxes of divided layers are not aligned, so that each layer is as
        narrow as possible.
        """
        rank = self._ranks()
        ahead, back = (self.above, self.below) if down else (self.below, self.above)
        highest = [max((rank[u] for u in around), default=0) for around in back]
        medians: list[tuple[int, ...]] = []
        for v, around in enumerate(ahead):
            around = [u for u in around if rank[v] == highest[u] or u >= self.count]
            if v < self.count and len(around) > 1:
                best = max(rank[u] for u in around)
                around = sorted((u for u in around if rank[u] == best), key=index.__getitem__)
                middle = len(around) - 1
                around = around[middle // 2 : (middle + 1) // 2 + 1]
            medians.append(() if self.is_divided[v] else tuple(around))
        return medians

    def _align(
        self, medians: list[tuple[int, ...]], index: list[int], conflicts: set[tuple[int, int]], down: bool, sign: int
    ) -> tuple[list[int], list[list[int]]]:
        """Align each vertex with a median neighbor. Return the root of the column of each vertex, and the rows."""
        rows = [row[::sign] for row in (self.rows if down else self.rows[::-1])]
        root = list(range(len(self.level)))
        for row in rows:
            bound = -len(index)
            for v in row:
                for u in medians[v][::sign]:
                    if bound < sign * index[u] and ((u, v) if down else (v, u)) not in conflicts:
                        root[v] = root[u]
                        bound = sign * index[u]
                        break
        return root, rows

    def _compact(self, root: list[int], rows: list[list[int]], sign: int) -> list[int]:
        """Return x coordinates, mirrored for ``sign`` -1: columns as far left as possible, then toward the right."""
        after: dict[int, list[tuple[int, int]]] = {}
        waits = [0] * len(root)
        for row in rows:
            for left, right in pairwise(row):
                gap = BOX_GAP if self.half[left] and self.half[right] else LINE_GAP
                after.setdefault(root[left], []).append((root[right], self.half[left] + self.half[right] + gap))
                waits[root[right]] += 1
        x = [0] * len(root)
        ready = [v for v in range(len(root)) if root[v] == v and not waits[v]]
        columns: list[int] = []
        while ready:
            columns.append(left := ready.pop())
            for right, distance in after.get(left, ()):
                x[right] = max(x[right], x[left] + distance)
                waits[right] -= 1
                if not waits[right]:
                    ready.append(right)
        for left in reversed(columns):
            if left in after:
                x[left] = max(x[left], min(x[right] - distance for right, distance in after[left]))
        return [x[column] for column in root]

    def trunks(self, x: list[int]) -> tuple[tuple[int, ...], ...]:
        """Return the x coordinates of the dummy points of each net."""
        return tuple(tuple(x[point] for point in line) for line in self.points)

    def gaps(self, x: list[int]) -> tuple[int, ...]:
        """Return the vertical distance below each layer, which is larger for flat lines."""
        gaps = []
        for row in self.rows:
            reach = max((abs(x[v] - x[u]) for v in row for u in self.below[v]), default=0)
            gaps.append(LAYER_GAP + min(reach // 12, 3 * LAYER_GAP))
        return tuple(gaps)

    def width(self, x: list[int]) -> int:
        """Return the right end of the boxes."""
        return max(self._right(x), default=0)
