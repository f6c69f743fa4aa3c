"""Blocks of the graph view: groups of nodes that are shown as one box until the user expands them.

A block is connected and convex: no path leaves it and enters it again. Its size is bounded. All blocks are intervals of
one topological order, so that the graph of blocks has no cycles, whatever the blocks are. The order is depth-first, and
stays in a scope of the source names where it can.

The blocks follow the scopes of the source names (``layer1/0/conv2``, ``features.3.conv.1``). Where the names have no
scopes, the graph is divided between its single-tensor cuts: the nodes between two of them are a residual block. A
sequence without such cuts is divided where the fewest tensors are live. Groups of on-chip memory are an alternative.

Vertices are the nodes in the order of the model, and after them the inputs and outputs of the graph, which are never
part of a block. Edges are a flat list ``[from, to, from, to, ...]``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tpuconvert.report.source_scopes import source_scopes

FEWEST_NODES = 13
"""Smallest number of nodes of a graph that is divided into blocks."""

SMALLEST = 3
"""Smallest number of nodes of a block."""

LARGEST = 128
"""Largest number of nodes of a block, except for blocks that are given by a label."""

MOST_BLOCKS = 120
"""Number of blocks from which on neighboring blocks become one."""

_USUAL_SCOPE = 40
"""Size up to which scopes are not divided, also in smaller graphs: a layer of a transformer has 20 to 40 nodes."""

_COVERED = 0.6
"""Smallest share of nodes in blocks for which the source names are used."""

_ABSORBED = 2
"""Largest number of nodes after a block, such as an activation after an add, that become part of it."""


_LONGEST_NAME = 24
"""Largest length of the name of a node in the name of a block."""


@dataclass(frozen=True)
class Blocks:
    """Division of a graph into blocks.

    Args:
        members: the vertices of each block, in topological order.
        names: the name of each block: its scope in the source, or the names of its first and last node.
        items: what is shown while all blocks are collapsed, in topological order: ``v`` is a vertex outside the blocks,
            ``-1 - b`` is block ``b``.
    """

    members: list[list[int]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    items: list[int] = field(default_factory=list)


def find_blocks(names: Sequence[str], edges: Sequence[int], vertices: int, labels: Sequence[str] = ()) -> Blocks:
    """Divide a graph by the scopes of its source names, or by its structure.

    Args:
        names: the name of the source node for each node.
        edges: flat list of vertex indices.
        vertices: number of nodes, inputs and outputs.
        labels: texts of the nodes for the names of blocks without scope; by default their names.
    """
    graph = _Graph(vertices, edges, labels or names)
    scopes: list[Hashable | None] = [None] * vertices
    if len(names) < FEWEST_NODES:
        return Blocks(items=graph.order(scopes))
    limit = int(min(LARGEST, max(16, 2 * math.sqrt(len(names)))))
    largest_scope = max(limit, min(_USUAL_SCOPE, len(names) // 3))
    inherited = graph.inherit(source_scopes(names, largest_scope, SMALLEST) + scopes[len(names) :])
    runs = [run for run in _runs(graph.order(inherited), inherited) if len(run) >= SMALLEST]
    if sum(len(part) for part in graph.connected_parts(runs) if len(part) >= SMALLEST) < _COVERED * len(names):
        runs = []
    else:
        scopes = inherited
    order = graph.order(scopes)
    intervals = [*runs, *graph.structure(order, {v for run in runs for v in run}, limit)]
    parts = list(graph.connected_parts(intervals))
    if sum(len(part) >= SMALLEST for part in parts) > MOST_BLOCKS:
        parts = list(graph.connected_parts(_merge(order, intervals, limit)))
    blocks = graph.blocks(order, parts, scopes)
    return blocks if len(blocks.members) > 1 else Blocks(items=order)


def label_blocks(labels: Sequence[Hashable | None], edges: Sequence[int], vertices: int) -> Blocks:
    """Return one block per label, or several where the nodes of a label are not convex or not connected.

    Args:
        labels: one label per node, such as its group of on-chip memory; None for a node outside the blocks.
        edges: flat list of vertex indices.
        vertices: number of nodes, inputs and outputs.
    """
    graph = _Graph(vertices, edges, [""] * len(labels))
    padded = [*labels, *([None] * (vertices - len(labels)))]
    order = graph.order(padded)
    return graph.blocks(order, graph.connected_parts(_runs(order, padded)), padded)


def adjacency(edges: Sequence[int], vertices: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the users and the producers of each vertex, without repeated edges."""
    users: list[list[int]] = [[] for _ in range(vertices)]
    producers: list[list[int]] = [[] for _ in range(vertices)]
    for producer, user in dict.fromkeys(zip(edges[::2], edges[1::2], strict=True)):
        users[producer].append(user)
        producers[user].append(producer)
    return users, producers


class _Graph:
    """Adjacency of the vertices, and what is computed from it."""

    def __init__(self, vertices: int, edges: Sequence[int], names: Sequence[str]) -> None:
        self.nodes = len(names)
        self._names = names
        self.users, self.producers = adjacency(edges, vertices)

    def order(self, labels: Sequence[Hashable | None]) -> list[int]:
        """Return a topological order, depth-first, that stays among equal labels where it can.

        A label is entered when all its producers outside are in the order, if there is such a label: then its nodes
        are consecutive.
        """
        keys: list[Hashable] = [("own", v) if label is None else label for v, label in enumerate(labels)]
        waits = [len(producers) for producers in self.producers]
        outside: Counter[Hashable] = Counter(dict.fromkeys(keys, 0))
        for v, users in enumerate(self.users):
            for user in users:
                outside[keys[user]] += keys[user] != keys[v]
        ready: dict[Hashable, list[int]] = {}
        for v in reversed(range(len(keys))):
            if not waits[v]:
                ready.setdefault(keys[v], []).append(v)
        partial = list(ready)
        complete = [key for key in partial if not outside[key]]
        order: list[int] = []
        while partial or complete:
            key = (complete or partial).pop()
            stack = ready.setdefault(key, [])
            while stack:
                order.append(v := stack.pop())
                for user in reversed(self.users[v]):
                    other = keys[user]
                    waits[user] -= 1
                    if not waits[user]:
                        ready.setdefault(other, []).append(user)
                        partial.append(other)
                    if other != key:
                        outside[other] -= 1
                        if not outside[other]:
                            complete.append(other)
        return order

    def inherit(self, labels: list[Hashable | None]) -> list[Hashable | None]:
        """Give a node without a label the label of its first producer: an activation belongs to its conv."""
        for v in self.order([None] * len(labels)):
            if labels[v] is None and v < self.nodes and self.producers[v]:
                labels[v] = labels[self.producers[v][0]]
        return labels

    def connected_parts(self, intervals: Iterable[list[int]]) -> Iterator[list[int]]:
        """Divide intervals of a topological order into their connected parts, which stay in this order."""
        for interval in intervals:
            root = {v: v for v in interval}

            def find(v: int, root: dict[int, int] = root) -> int:
                while root[v] != v:
                    root[v] = v = root[root[v]]
                return v

            for v in interval:
                for producer in self.producers[v]:
                    if producer in root:
                        root[find(v)] = find(producer)
            parts: dict[int, list[int]] = {}
            for v in interval:
                parts.setdefault(find(v), []).append(v)
            yield from parts.values()

    def live(self, order: Sequence[int]) -> list[int]:
        """Return for each position of an order the number of tensors from nodes up to it that later nodes use."""
        position = {v: i for i, v in enumerate(order)}
        change = [0] * (len(order) + 1)
        for i, v in enumerate(order):
            last = max((position[user] for user in self.users[v] if user < self.nodes), default=i)
            change[i] += 1
            change[last] -= 1
        for i in range(1, len(order)):
            change[i] += change[i - 1]
        return change[: len(order)]

    def structure(self, order: Sequence[int], taken: set[int], limit: int) -> Iterator[list[int]]:
        """Divide the nodes of an order that are not taken into intervals, between single-tensor cuts where possible."""
        live = self.live(order)
        start = 0
        while start < len(order):
            stop = start
            while stop < len(order) and order[stop] not in taken and order[stop] < self.nodes:
                stop += 1
            for first, last in _intervals(live, start, stop, limit):
                yield list(order[first:last])
            start = stop + 1

    def blocks(self, order: list[int], parts: Iterable[list[int]], labels: Sequence[Hashable | None]) -> Blocks:
        """Return the blocks for disjoint connected parts of intervals, except parts that are too small."""
        block_of: dict[int, int] = {}
        blocks = Blocks()
        position = {v: i for i, v in enumerate(order)}
        large = [part for part in parts if len(part) >= SMALLEST and part[0] < self.nodes]
        for part in sorted(large, key=lambda part: position[part[0]]):
            block_of.update(dict.fromkeys(part, len(blocks.members)))
            blocks.members.append(part)
            scopes = [labels[v] for v in part if labels[v] is not None] or [self._short_name(v) for v in part]
            blocks.names.append(f"{scopes[0]} to {scopes[-1]}" if scopes[0] != scopes[-1] else str(scopes[0]))
        self._take_in_sources(blocks, block_of)
        blocks.items.extend(self._item_order(order, block_of))
        return blocks

    def _take_in_sources(self, blocks: Blocks, block_of: dict[int, int]) -> None:
        """Put a node without operands, such as a table, into the block that has all its users.

        The order has such a node long before its users, so that it is in no interval with them.
        """
        for v in reversed(range(self.nodes)):
            users = {block_of.get(user) for user in self.users[v]}
            if v not in block_of and not self.producers[v] and len(users) == 1 and None not in users:
                block_of[v] = block_of[self.users[v][0]]
                blocks.members[block_of[v]].insert(0, v)

    def _short_name(self, v: int) -> str:
        """Return the end of the name of a node, without its scopes."""
        name = self._names[v].rstrip("/").rpartition("/")[2]
        return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME // 2]}...{name[-_LONGEST_NAME // 2 :]}"

    def _item_order(self, order: list[int], block_of: dict[int, int]) -> Iterator[int]:
        """Return a topological order of the blocks and of the vertices outside them."""
        item = [-1 - block_of[v] if v in block_of else v for v in range(len(order))]
        pairs = {(item[v], item[user]): None for v in order for user in self.users[v] if item[v] != item[user]}
        users: dict[int, list[int]] = {}
        waits: Counter[int] = Counter()
        for producer, user in pairs:
            users.setdefault(producer, []).append(user)
            waits[user] += 1
        ready = [each for each in dict.fromkeys(item[v] for v in order) if not waits[each]][::-1]
        while ready:
            yield (producer := ready.pop())
            for user in reversed(users.get(producer, ())):
                waits[user] -= 1
                if not waits[user]:
                    ready.append(user)


def _runs(order: Sequence[int], labels: Sequence[Hashable | None]) -> Iterator[list[int]]:
    """Divide an order into maximal intervals with one label. Nodes without label are not part of any."""
    run: list[int] = []
    for v in order:
        if run and labels[v] != labels[run[0]]:
            yield run
            run = []
        if labels[v] is not None:
            run.append(v)
    if run:
        yield run


def _merge(order: Sequence[int], intervals: Iterable[list[int]], limit: int) -> Iterator[list[int]]:
    """Join intervals of an order that follow each other, up to a number of nodes."""
    position = {v: i for i, v in enumerate(order)}
    joined: list[int] = []
    for interval in sorted(intervals, key=lambda interval: position[interval[0]]):
        if len(joined) + len(interval) > limit:
            yield joined
            joined = []
        joined = joined + interval
    yield joined


def _intervals(live: Sequence[int], start: int, stop: int, limit: int) -> Iterator[tuple[int, int]]:
    """Divide the places from ``start`` to ``stop`` of an order: residual blocks, and chains between them."""
    pieces: list[tuple[int, int]] = []
    first = start
    for i in range(start, stop):
        if live[i] <= 1 or i == stop - 1:
            pieces.append((first, i + 1))
            first = i + 1
    chain: list[tuple[int, int]] = []
    index = 0
    while index < len(pieces):
        first, last = pieces[index]
        index += 1
        if last - first == 1:
            chain.append((first, last))
            continue
        if chain:
            yield from _divide(live, chain[0][0], chain[-1][1], limit)
            chain = []
        after = index
        while after < len(pieces) and pieces[after][1] - pieces[after][0] == 1:
            after += 1
        if after - index <= _ABSORBED and after > index:
            last, index = pieces[after - 1][1], after
        yield from _divide(live, first, last, limit)
    if chain:
        yield from _divide(live, chain[0][0], chain[-1][1], limit)


def _divide(live: Sequence[int], start: int, stop: int, limit: int) -> Iterator[tuple[int, int]]:
    """Divide an interval into intervals of at most ``limit`` places, where the fewest tensors are live."""
    while stop - start > limit:
        cuts = range(start + limit // 3, start + limit)
        cut = min(cuts, key=lambda i: (live[i], -i)) + 1
        yield start, cut
        start = cut
    yield start, stop
