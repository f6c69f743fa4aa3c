"""Matching of the nodes of two graphs by structure.

Every node gets two hashes: one of everything that it is computed from, one of everything that is computed from it. Both
end at matched nodes, inputs and outputs, so that each match makes further ones possible. Hashes begin with labels that
contain everything about a node, and continue with more and more tolerant ones; names decide only between nodes that
are alike. What is left is aligned in topological order. Each step takes time proportional to the size of the graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from tpuconvert.diff.hash_matching import HashMatcher
from tpuconvert.diff.network import Network, Skeleton, is_auxiliary, is_conversion
from tpuconvert.diff.node_pairs import UNMATCHED, Matching, common_groups, match_ports
from tpuconvert.schema.graph.graph import Graph

_ALIGNED = 4000
"""Largest number of nodes that are aligned by topological order, which takes quadratic time: 0.2 s for this number."""


def match_graphs(before: Graph, after: Graph) -> Matching:
    """Match the nodes of two graphs. The result depends on the graphs only."""
    first, second = Network(before), Network(after)
    matching = Matching(
        first,
        second,
        [UNMATCHED] * len(first.nodes),
        [UNMATCHED] * len(second.nodes),
        match_ports(before.input_ports, after.input_ports),
        match_ports(before.output_ports, after.output_ports),
    )
    by_hash, by_name = HashMatcher(matching), _match_names
    by_hash.match(first.exact_labels, second.exact_labels)
    _match_constants(matching)
    by_hash.match(first.exact_labels, second.exact_labels)
    by_hash.match(first.structure_labels, second.structure_labels)
    by_hash.match(first.shapeless_labels, second.shapeless_labels)
    by_hash.match_neighbourhoods(first.structure_labels, second.structure_labels)
    by_name(matching, lambda network, position: network.operator_labels[position])
    by_hash.match(first.operator_labels, second.operator_labels)
    by_hash.match_neighbourhoods(first.operator_labels, second.operator_labels)
    _match_skeletons(matching)
    by_hash.match(first.structure_labels, second.structure_labels)
    _match_moved(matching)
    _match_other_forms(matching)
    _align(matching)
    by_hash.match(first.operator_labels, second.operator_labels)
    _match_replaced(matching, by_hash)
    return matching


def _match_constants(matching: Matching) -> None:
    """Match nodes with equal constants that no other node has."""
    left, right = matching.unmatched()
    first, second = matching.first, matching.second
    positions = [
        position for position in left if any(v is not None and v.is_constant for v in first.nodes[position].inputs)
    ]
    for mine, theirs in common_groups((positions, right), first.exact_labels, second.exact_labels):
        if len(mine) == len(theirs) == 1:
            matching.add(mine[0], theirs[0])


def _match_names(matching: Matching, label: Callable[[Network, int], Hashable]) -> None:
    """Match unmatched nodes with equal names and labels."""
    left, right = matching.unmatched()
    named = {(matching.second.nodes[b].name, label(matching.second, b)): b for b in right}
    for a in left:
        b = named.pop((matching.first.nodes[a].name, label(matching.first, a)), None)
        if b is not None:
            matching.add(a, b)


def _match_skeletons(matching: Matching) -> None:
    """Match nodes of a float graph with their forms on integers."""
    if matching.is_complete:
        return
    views = Skeleton(matching.first), Skeleton(matching.second)
    by_hash = HashMatcher(matching)
    by_hash.match_skeletons(views, matching.first.family_labels, matching.second.family_labels)
    _match_names(
        matching, lambda network, position: (network.family_labels[position], is_auxiliary(network.nodes[position]))
    )
    _match_sources(matching)
    by_hash.match_skeletons(views, matching.first.family_labels, matching.second.family_labels)


def _match_other_forms(matching: Matching) -> None:
    """Match nodes that are not auxiliary and have any operator, if their operands and users are matched."""
    if matching.is_complete:
        return
    views = Skeleton(matching.first), Skeleton(matching.second)
    by_hash = HashMatcher(matching)
    anything = [[0] * len(network.nodes) for network in (matching.first, matching.second)]
    by_hash.match_skeletons(views, *anything, both=True)


def _match_sources(matching: Matching) -> None:
    """Match nodes that are not auxiliary, of one family, that come from the same nodes of the source file."""
    left, right = matching.unmatched()
    by_source: list[dict[Hashable, list[int]]] = [{}, {}]
    for side, (network, positions) in enumerate(((matching.first, left), (matching.second, right))):
        for position in positions:
            node = network.nodes[position]
            if node.sources and not is_auxiliary(node):
                key: Hashable = (network.family_labels[position], tuple(source.node for source in node.sources))
                by_source[side].setdefault(key, []).append(position)
    for common, mine in by_source[0].items():
        theirs = by_source[1].get(common, [])
        if len(mine) == len(theirs) == 1:
            matching.add(mine[0], theirs[0])


def _movable(matching: Matching) -> tuple[list[int], list[int]]:
    """Return the unmatched nodes without conversions, which are all alike: they belong to the nodes next to them."""
    left, right = matching.unmatched()
    return (
        [position for position in left if not is_conversion(matching.first.nodes[position].op)],
        [position for position in right if not is_conversion(matching.second.nodes[position].op)],
    )


def _match_moved(matching: Matching) -> None:
    """Match nodes that are equal, and unique among the unmatched ones, wherever they are."""
    for labels in ("exact_labels", "structure_labels", "shapeless_labels"):
        first, second = getattr(matching.first, labels), getattr(matching.second, labels)
        for mine, theirs in common_groups(_movable(matching), first, second):
            if len(mine) == len(theirs) == 1:
                matching.add(mine[0], theirs[0])


def _align(matching: Matching) -> None:
    """Match a longest common subsequence of the operators of the unmatched nodes, between their matched neighbors."""
    left, right = _movable(matching)
    if not left or not right or max(len(left), len(right)) > _ALIGNED:
        return
    keys: dict[Hashable, int] = {}
    first = [keys.setdefault(matching.first.operator_labels[position], len(keys)) for position in left]
    second = [keys.setdefault(matching.second.operator_labels[position], len(keys)) for position in right]
    for position, other in longest_common_subsequence(first, second):
        if _has_common_neighbour(matching, left[position], right[other]):
            matching.add(left[position], right[other])


def longest_common_subsequence(first: Sequence[int], second: Sequence[int]) -> list[tuple[int, int]]:
    """Return the positions of a longest common subsequence, from the end where there are several."""
    lengths = np.zeros((len(first) + 1, len(second) + 1), np.int16)
    columns = np.asarray(second)
    for row, item in enumerate(first):
        longer = np.where(columns == item, lengths[row, :-1] + 1, lengths[row, 1:])
        np.maximum.accumulate(np.maximum(longer, lengths[row, 1:]), out=lengths[row + 1, 1:])
    pairs = []
    a, b = len(first), len(second)
    while a and b:
        if first[a - 1] == second[b - 1]:
            a, b = a - 1, b - 1
            pairs.append((a, b))
        elif lengths[a - 1, b] >= lengths[a, b - 1]:
            a -= 1
        else:
            b -= 1
    return pairs[::-1]


def _has_common_neighbour(matching: Matching, a: int, b: int) -> bool:
    """Return True if an operand, or a user, of one node is matched with one of the other node."""
    before = {matching.partner[edge.source] for edge in matching.first.edges[a] if edge.source >= 0}
    after = {matching.partner[user] for user in matching.first.users[a]}
    operands = {edge.source for edge in matching.second.edges[b] if edge.source >= 0}
    return bool(before & operands or after & set(matching.second.users[b]))


def _match_replaced(matching: Matching, by_hash: HashMatcher) -> None:
    """Match nodes with different operators whose operands and users are matched with each other."""
    labels = [
        [is_auxiliary(node) and any(value.dtype.is_integer for value in node.outputs) for node in network.nodes]
        for network in (matching.first, matching.second)
    ]
    by_hash.match(*labels, both=True)
