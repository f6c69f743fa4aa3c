"""Matching of the nodes of two graphs by structure.

Every node gets two hashes: one of everything that it is computed from, one of everything that is computed from it. Both
end at matched nodes, inputs and outputs, so that each match makes further ones possible. Hashes begin with labels that
contain everything about a node, and continue with more and more tolerant ones; names decide only between nodes that
are alike. What is left is aligned in topological order. Each step takes time proportional to the size of the graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tpuconvert.difference.network import Edge, Network, Skeleton, is_auxiliary, is_conversion
from tpuconvert.schema.graph import Graph, Port

UNMATCHED = -1

_RADIUS = 3
"""Distance, in nodes, up to which neighbours decide about nodes without matched ones around them."""

_ALIGNED = 4000
"""Largest number of nodes that are aligned by topological order, which takes quadratic time: 0.2 s for this number."""


class View(Protocol):
    """Connections of a network, or of its skeleton."""

    @property
    def edges(self) -> Sequence[tuple[Edge, ...]]:
        """Computed operands of each node."""

    @property
    def outputs(self) -> Mapping[int, list[tuple[int, int]]]:
        """Result and position of each output that a node computes."""


@dataclass
class Matching:
    """The pairs of nodes and ports of two networks that correspond.

    Args:
        first: the network before.
        second: the network after.
        partner: for each node of the first network, the index of its partner or ``UNMATCHED``.
        origin: the reverse.
        inputs: pairs of positions of inputs.
        outputs: pairs of positions of outputs.

    """

    first: Network
    second: Network
    partner: list[int]
    origin: list[int]
    inputs: list[tuple[int, int]] = field(default_factory=list)
    outputs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Matched nodes, in the order of the first network."""
        return [(a, b) for a, b in enumerate(self.partner) if b != UNMATCHED]

    def add(self, a: int, b: int) -> None:
        """Match two nodes."""
        self.partner[a], self.origin[b] = b, a

    @property
    def is_complete(self) -> bool:
        """Return True if one of the networks has no unmatched node."""
        return UNMATCHED not in self.partner or UNMATCHED not in self.origin


def match_graphs(before: Graph, after: Graph) -> Matching:
    """Match the nodes of two graphs. The result depends on the graphs only."""
    first, second = Network(before), Network(after)
    found = Matching(
        first,
        second,
        [UNMATCHED] * len(first.nodes),
        [UNMATCHED] * len(second.nodes),
        match_ports(before.input_ports, after.input_ports),
        match_ports(before.output_ports, after.output_ports),
    )
    by_hash, by_name = _HashMatcher(found), _match_names
    by_hash.match(first.exact_labels, second.exact_labels)
    _match_constants(found)
    by_hash.match(first.exact_labels, second.exact_labels)
    by_hash.match(first.structure_labels, second.structure_labels)
    by_hash.match(first.shapeless_labels, second.shapeless_labels)
    by_hash.match_neighbourhoods(first.structure_labels, second.structure_labels)
    by_name(found, lambda network, place: network.operator_labels[place])
    by_hash.match(first.operator_labels, second.operator_labels)
    by_hash.match_neighbourhoods(first.operator_labels, second.operator_labels)
    _match_skeletons(found)
    by_hash.match(first.structure_labels, second.structure_labels)
    _match_moved(found)
    _match_other_forms(found)
    _align(found)
    by_hash.match(first.operator_labels, second.operator_labels)
    _match_replaced(found, by_hash)
    return found


def match_ports(before: Sequence[Port], after: Sequence[Port]) -> list[tuple[int, int]]:
    """Match inputs or outputs: by name, then the others in order."""
    places = {port.name: place for place, port in enumerate(after)}
    found = {place: places.pop(port.name) for place, port in enumerate(before) if port.name in places}
    left = [place for place in range(len(before)) if place not in found]
    free = sorted(places.values())
    return sorted([*found.items(), *zip(left, free, strict=False)])


class _HashMatcher:
    """Matches nodes whose hashes are equal and unique."""

    def __init__(self, found: Matching) -> None:
        self._found = found
        self._numbers: dict[Hashable, int] = {}

    def match(self, first: Sequence[Hashable], second: Sequence[Hashable], *, both: bool = False) -> None:
        """Match nodes of the networks by labels, until there is no further match.

        With ``both``, operands and users must agree; otherwise one of the two suffices.
        """
        found = self._found
        self._match_views(found.first, found.second, self._intern(first), self._intern(second), both=both)

    def match_skeletons(
        self,
        views: tuple[Skeleton, Skeleton],
        first: Sequence[Hashable],
        second: Sequence[Hashable],
        *,
        both: bool = False,
    ) -> None:
        """Match the nodes that are not auxiliary."""
        labels = [
            [
                UNMATCHED if hidden else number
                for number, hidden in zip(self._intern(each), view.is_auxiliary, strict=True)
            ]
            for each, view in zip((first, second), views, strict=True)
        ]
        self._match_views(*views, *labels, both=both)

    def _match_views(self, a: View, b: View, first: list[int], second: list[int], *, both: bool) -> None:
        found = self._found
        while not found.is_complete:
            up = self._hash_up(a, first, found.partner, 0), self._hash_up(b, second, found.origin, 1)
            down = self._hash_down(a, first, found.partner, 0), self._hash_down(b, second, found.origin, 1)
            names = found.first.names, found.second.names
            together = [list(zip(*hashes, strict=True)) for hashes in zip(up, down, strict=True)]
            free = self._free(first, found.partner), self._free(second, found.origin)
            count = self._match_equal(free, together[0], together[1], names)
            for hashes in () if both else (up, down):
                named = [list(zip(*each, strict=True)) for each in zip(hashes, names, strict=True)]
                count += self._match_unique(free, named[0], named[1])
            for hashes in () if both else (up, down):
                count += self._match_unique(free, *hashes)
            if not count:
                return

    def match_neighbourhoods(self, first: Sequence[Hashable], second: Sequence[Hashable]) -> None:
        """Match nodes whose surroundings are equal and unique, then the nodes next to them."""
        found = self._found
        if found.is_complete:
            return
        labels = self._intern(first), self._intern(second)
        free = self._free(labels[0], found.partner), self._free(labels[1], found.origin)
        hashes = [
            self._hash_around(network, mine, matched, side)
            for side, (network, mine, matched) in enumerate(
                ((found.first, labels[0], found.partner), (found.second, labels[1], found.origin))
            )
        ]
        self._match_unique(free, *hashes)
        self.match(first, second)

    def _intern(self, labels: Iterable[Hashable]) -> list[int]:
        numbers = self._numbers
        return [numbers.setdefault(label, len(numbers)) for label in labels]

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _anchor(self, place: int, matched: list[int], side: int) -> int | None:
        """Hash of a matched node, equal on both sides; None for an unmatched node."""
        if matched[place] == UNMATCHED:
            return None
        return self._number(("pair", matched[place] if side else place))

    def _ports(self, side: int, pairs: list[tuple[int, int]]) -> dict[int, int]:
        return {pair[side]: place for place, pair in enumerate(pairs)}

    def _hash_up(self, view: View, labels: list[int], matched: list[int], side: int) -> list[int]:
        """Hash each node with the nodes from which it is computed."""
        inputs = self._ports(side, self._found.inputs)
        hashes: list[int] = []
        for place, edges in enumerate(view.edges):
            known = self._anchor(place, matched, side)
            if known is None:
                operands = [
                    (
                        edge.slot,
                        edge.result,
                        hashes[edge.source]
                        if edge.source >= 0
                        else self._number(("input", inputs.get(-1 - edge.source, f"{side}:{edge.source}"))),
                    )
                    for edge in edges
                ]
                known = self._number(("up", labels[place], *sorted(operands)))
            hashes.append(known)
        return hashes

    def _hash_down(self, view: View, labels: list[int], matched: list[int], side: int) -> list[int]:
        """Hash each node with the nodes and outputs that are computed from it."""
        outputs = self._ports(side, self._found.outputs)
        behind: list[list[tuple[int, ...]]] = [[] for _ in labels]
        for source, leaving in view.outputs.items():
            if source >= 0:
                behind[source] += [(result, -1, outputs.get(position, -1 - position)) for result, position in leaving]
        hashes = [0] * len(labels)
        for place in range(len(labels) - 1, -1, -1):
            known = self._anchor(place, matched, side)
            if known is None:
                known = self._number(("down", labels[place], *sorted(behind[place])))
            hashes[place] = known
            if labels[place] != UNMATCHED:  # auxiliary nodes are not part of a skeleton
                for edge in view.edges[place]:
                    if edge.source >= 0:
                        behind[edge.source].append((edge.result, edge.slot, known))
        return hashes

    def _hash_around(self, network: Network, labels: list[int], matched: list[int], side: int) -> list[int]:
        """Hash each node with the nodes around it."""
        anchors = [self._anchor(place, matched, side) for place in range(len(labels))]
        hashes = [label if anchor is None else anchor for label, anchor in zip(labels, anchors, strict=True)]
        for _ in range(_RADIUS):
            hashes = [
                self._number(
                    (
                        hashes[place],
                        tuple([(e.slot, e.result, hashes[e.source] if e.source >= 0 else -1) for e in edges]),
                        tuple(sorted([hashes[user] for user in network.users[place]])),
                    )
                )
                if anchor is None
                else anchor
                for place, (anchor, edges) in enumerate(zip(anchors, network.edges, strict=True))
            ]
        return hashes

    @staticmethod
    def _free(labels: list[int], matched: list[int]) -> list[int]:
        return [place for place, label in enumerate(labels) if label != UNMATCHED and matched[place] == UNMATCHED]

    def _match_equal(
        self,
        free: tuple[list[int], list[int]],
        first: Sequence[Hashable],
        second: Sequence[Hashable],
        names: tuple[list[str], list[str]],
    ) -> int:
        """Match nodes with equal hashes; of several by name, then in order if equally many."""
        count = 0
        for left, right in _groups(free, first, second):
            named = {names[1][b]: b for b in right}
            pairs = [(a, named.pop(names[0][a])) for a in left if names[0][a] in named]
            taken = {a for a, _ in pairs}
            if len(left) == len(right):
                pairs += zip([a for a in left if a not in taken], sorted(named.values()), strict=True)
            for a, b in pairs:
                self._found.add(a, b)
            count += len(pairs)
        return count

    def _match_unique(
        self, free: tuple[list[int], list[int]], first: Sequence[Hashable], second: Sequence[Hashable]
    ) -> int:
        """Match nodes whose hash one unmatched node of each side has."""
        count = 0
        left = [place for place in free[0] if self._found.partner[place] == UNMATCHED]
        right = [place for place in free[1] if self._found.origin[place] == UNMATCHED]
        for mine, theirs in _groups((left, right), first, second):
            if len(mine) == len(theirs) == 1:
                self._found.add(mine[0], theirs[0])
                count += 1
        return count


def _groups(
    free: tuple[list[int], list[int]], first: Sequence[Hashable], second: Sequence[Hashable]
) -> list[tuple[list[int], list[int]]]:
    """Group nodes of both sides by key; keys of one side only are left out."""
    left: dict[Hashable, list[int]] = {}
    right: dict[Hashable, list[int]] = {}
    for places, keys, groups in ((free[0], first, left), (free[1], second, right)):
        for place in places:
            groups.setdefault(keys[place], []).append(place)
    return [(mine, right[key]) for key, mine in left.items() if key in right]


def _unmatched(found: Matching) -> tuple[list[int], list[int]]:
    return (
        [place for place, other in enumerate(found.partner) if other == UNMATCHED],
        [place for place, other in enumerate(found.origin) if other == UNMATCHED],
    )


def _match_constants(found: Matching) -> None:
    """Match nodes with equal constants that no other node has."""
    left, right = _unmatched(found)
    first, second = found.first, found.second
    places = [place for place in left if any(v is not None and v.is_constant for v in first.nodes[place].inputs)]
    for mine, theirs in _groups((places, right), first.exact_labels, second.exact_labels):
        if len(mine) == len(theirs) == 1:
            found.add(mine[0], theirs[0])


def _match_names(found: Matching, label: Callable[[Network, int], Hashable]) -> None:
    """Match unmatched nodes with equal names and labels."""
    left, right = _unmatched(found)
    named = {(found.second.nodes[b].name, label(found.second, b)): b for b in right}
    for a in left:
        b = named.pop((found.first.nodes[a].name, label(found.first, a)), None)
        if b is not None:
            found.add(a, b)


def _match_skeletons(found: Matching) -> None:
    """Match nodes of a float graph with their forms on integers."""
    if found.is_complete:
        return
    views = Skeleton(found.first), Skeleton(found.second)
    by_hash = _HashMatcher(found)
    by_hash.match_skeletons(views, found.first.family_labels, found.second.family_labels)
    _match_names(found, lambda network, place: (network.family_labels[place], is_auxiliary(network.nodes[place])))
    _match_sources(found)
    by_hash.match_skeletons(views, found.first.family_labels, found.second.family_labels)


def _match_other_forms(found: Matching) -> None:
    """Match nodes that are not auxiliary and have any operator, if their operands and users are matched."""
    if found.is_complete:
        return
    views = Skeleton(found.first), Skeleton(found.second)
    by_hash = _HashMatcher(found)
    anything = [[0] * len(network.nodes) for network in (found.first, found.second)]
    by_hash.match_skeletons(views, *anything, both=True)


def _match_sources(found: Matching) -> None:
    """Match nodes that are not auxiliary, of one family, that come from the same nodes of the source file."""
    left, right = _unmatched(found)
    by_source: list[dict[Hashable, list[int]]] = [{}, {}]
    for side, (network, places) in enumerate(((found.first, left), (found.second, right))):
        for place in places:
            node = network.nodes[place]
            if node.sources and not is_auxiliary(node):
                key: Hashable = (network.family_labels[place], tuple(source.node for source in node.sources))
                by_source[side].setdefault(key, []).append(place)
    for common, mine in by_source[0].items():
        theirs = by_source[1].get(common, [])
        if len(mine) == len(theirs) == 1:
            found.add(mine[0], theirs[0])


def _movable(found: Matching) -> tuple[list[int], list[int]]:
    """Return the unmatched nodes without conversions, which are all alike: they belong to the nodes next to them."""
    left, right = _unmatched(found)
    return (
        [place for place in left if not is_conversion(found.first.nodes[place].op)],
        [place for place in right if not is_conversion(found.second.nodes[place].op)],
    )


def _match_moved(found: Matching) -> None:
    """Match nodes that are equal, and unique among the unmatched ones, wherever they are."""
    for labels in ("exact_labels", "structure_labels", "shapeless_labels"):
        left, right = _movable(found)
        for mine, theirs in _groups((left, right), getattr(found.first, labels), getattr(found.second, labels)):
            if len(mine) == len(theirs) == 1:
                found.add(mine[0], theirs[0])


def _align(found: Matching) -> None:
    """Match a longest common subsequence of the operators of the unmatched nodes, between their matched neighbours."""
    left, right = _movable(found)
    if not left or not right or max(len(left), len(right)) > _ALIGNED:
        return
    keys: dict[Hashable, int] = {}
    first = [keys.setdefault(found.first.operator_labels[place], len(keys)) for place in left]
    second = [keys.setdefault(found.second.operator_labels[place], len(keys)) for place in right]
    for place, other in longest_common_subsequence(first, second):
        if _has_common_neighbour(found, left[place], right[other]):
            found.add(left[place], right[other])


def longest_common_subsequence(first: Sequence[int], second: Sequence[int]) -> list[tuple[int, int]]:
    """Return the positions of a longest common subsequence, from the end where there are several."""
    lengths = np.zeros((len(first) + 1, len(second) + 1), np.int16)
    columns = np.asarray(second)
    for row, item in enumerate(first):
        longer = np.where(columns == item, lengths[row, :-1] + 1, lengths[row, 1:])
        np.maximum.accumulate(np.maximum(longer, lengths[row, 1:]), out=lengths[row + 1, 1:])
    found = []
    a, b = len(first), len(second)
    while a and b:
        if first[a - 1] == second[b - 1]:
            a, b = a - 1, b - 1
            found.append((a, b))
        elif lengths[a - 1, b] >= lengths[a, b - 1]:
            a -= 1
        else:
            b -= 1
    return found[::-1]


def _has_common_neighbour(found: Matching, a: int, b: int) -> bool:
    """Return True if an operand or a user of both nodes is matched with that of the other."""
    before = {found.partner[edge.source] for edge in found.first.edges[a] if edge.source >= 0}
    after = {found.partner[user] for user in found.first.users[a]}
    operands = {edge.source for edge in found.second.edges[b] if edge.source >= 0}
    return bool(before & operands or after & set(found.second.users[b]))


def _match_replaced(found: Matching, by_hash: _HashMatcher) -> None:
    """Match nodes with different operators whose operands and users are matched with each other."""
    labels = [
        [is_auxiliary(node) and any(value.dtype.is_integer for value in node.outputs) for node in network.nodes]
        for network in (found.first, found.second)
    ]
    by_hash.match(*labels, both=True)
