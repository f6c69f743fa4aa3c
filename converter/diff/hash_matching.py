"""Matching of nodes by hashes of what they are computed from and of what is computed from them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Protocol

from tpuconvert.diff.network import Edge, Network, Skeleton
from tpuconvert.diff.node_pairs import UNMATCHED, Matching, common_groups

_RADIUS = 3
"""Distance, in nodes, up to which neighbors decide about nodes without matched ones around them."""


class View(Protocol):
    """Connections of a network, or of its skeleton."""

    @property
    def edges(self) -> Sequence[tuple[Edge, ...]]:
        """Computed operands of each node."""

    @property
    def outputs(self) -> Mapping[int, list[tuple[int, int]]]:
        """Result and position of each output that a node computes."""


class HashMatcher:
    """Matches nodes whose hashes are equal and unique."""

    def __init__(self, matching: Matching) -> None:
        self._matching = matching
        self._numbers: dict[Hashable, int] = {}

    def match(self, first: Sequence[Hashable], second: Sequence[Hashable], *, both: bool = False) -> None:
        """Match nodes of the networks by labels, until there is no further match.

        With ``both``, operands and users must agree; otherwise one of the two suffices.
        """
        matching = self._matching
        self._match_views(matching.first, matching.second, self._intern(first), self._intern(second), both=both)

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
        matching = self._matching
        while not matching.is_complete:
            up = self._hash_up(a, first, matching.partner, 0), self._hash_up(b, second, matching.origin, 1)
            down = self._hash_down(a, first, matching.partner, 0), self._hash_down(b, second, matching.origin, 1)
            names = matching.first.names, matching.second.names
            together = [list(zip(*hashes, strict=True)) for hashes in zip(up, down, strict=True)]
            free = self._free(first, matching.partner), self._free(second, matching.origin)
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
        matching = self._matching
        if matching.is_complete:
            return
        labels = self._intern(first), self._intern(second)
        free = self._free(labels[0], matching.partner), self._free(labels[1], matching.origin)
        hashes = [
            self._hash_around(network, mine, matched, side)
            for side, (network, mine, matched) in enumerate(
                ((matching.first, labels[0], matching.partner), (matching.second, labels[1], matching.origin))
            )
        ]
        self._match_unique(free, *hashes)
        self.match(first, second)

    def _intern(self, labels: Iterable[Hashable]) -> list[int]:
        numbers = self._numbers
        return [numbers.setdefault(label, len(numbers)) for label in labels]

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _anchor(self, position: int, matched: list[int], side: int) -> int | None:
        """Hash of a matched node, equal on both sides; None for an unmatched node."""
        if matched[position] == UNMATCHED:
            return None
        return self._number(("pair", matched[position] if side else position))

    def _ports(self, side: int, pairs: list[tuple[int, int]]) -> dict[int, int]:
        return {pair[side]: position for position, pair in enumerate(pairs)}

    def _hash_up(self, view: View, labels: list[int], matched: list[int], side: int) -> list[int]:
        """Hash each node with the nodes from which it is computed."""
        inputs = self._ports(side, self._matching.inputs)
        hashes: list[int] = []
        for position, edges in enumerate(view.edges):
            node_hash = self._anchor(position, matched, side)
            if node_hash is None:
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
                node_hash = self._number(("up", labels[position], *sorted(operands)))
            hashes.append(node_hash)
        return hashes

    def _hash_down(self, view: View, labels: list[int], matched: list[int], side: int) -> list[int]:
        """Hash each node with the nodes and outputs that are computed from it."""
        outputs = self._ports(side, self._matching.outputs)
        uses: list[list[tuple[int, ...]]] = [[] for _ in labels]
        for source, leaving in view.outputs.items():
            if source >= 0:
                uses[source] += [(result, -1, outputs.get(position, -1 - position)) for result, position in leaving]
        hashes = [0] * len(labels)
        for position in range(len(labels) - 1, -1, -1):
            node_hash = self._anchor(position, matched, side)
            if node_hash is None:
                node_hash = self._number(("down", labels[position], *sorted(uses[position])))
            hashes[position] = node_hash
            if labels[position] != UNMATCHED:  # auxiliary nodes are not part of a skeleton
                for edge in view.edges[position]:
                    if edge.source >= 0:
                        uses[edge.source].append((edge.result, edge.slot, node_hash))
        return hashes

    def _hash_around(self, network: Network, labels: list[int], matched: list[int], side: int) -> list[int]:
        """Hash each node with the nodes around it."""
        anchors = [self._anchor(position, matched, side) for position in range(len(labels))]
        hashes = [label if anchor is None else anchor for label, anchor in zip(labels, anchors, strict=True)]
        for _ in range(_RADIUS):
            hashes = [
                self._number(
                    (
                        hashes[position],
                        tuple([(e.slot, e.result, hashes[e.source] if e.source >= 0 else -1) for e in edges]),
                        tuple(sorted([hashes[user] for user in network.users[position]])),
                    )
                )
                if anchor is None
                else anchor
                for position, (anchor, edges) in enumerate(zip(anchors, network.edges, strict=True))
            ]
        return hashes

    @staticmethod
    def _free(labels: list[int], matched: list[int]) -> list[int]:
        return [
            position for position, label in enumerate(labels) if label != UNMATCHED and matched[position] == UNMATCHED
        ]

    def _match_equal(
        self,
        free: tuple[list[int], list[int]],
        first: Sequence[Hashable],
        second: Sequence[Hashable],
        names: tuple[list[str], list[str]],
    ) -> int:
        """Match nodes with equal hashes; of several by name, then in order if equally many."""
        count = 0
        for left, right in common_groups(free, first, second):
            named = {names[1][b]: b for b in right}
            pairs = [(a, named.pop(names[0][a])) for a in left if names[0][a] in named]
            taken = {a for a, _ in pairs}
            if len(left) == len(right):
                pairs += zip([a for a in left if a not in taken], sorted(named.values()), strict=True)
            for a, b in pairs:
                self._matching.add(a, b)
            count += len(pairs)
        return count

    def _match_unique(
        self, free: tuple[list[int], list[int]], first: Sequence[Hashable], second: Sequence[Hashable]
    ) -> int:
        """Match nodes whose hash one unmatched node of each side has."""
        count = 0
        left = [position for position in free[0] if self._matching.partner[position] == UNMATCHED]
        right = [position for position in free[1] if self._matching.origin[position] == UNMATCHED]
        for mine, theirs in common_groups((left, right), first, second):
            if len(mine) == len(theirs) == 1:
                self._matching.add(mine[0], theirs[0])
                count += 1
        return count
