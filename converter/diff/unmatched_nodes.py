"""Unmatched nodes: those that belong to the other form of a matched node, those that replace each other, and the rest.

Quantization and fusion turn several nodes into one or one into several. An unmatched node belongs to a matched one next
to it if the matched one computes in other arithmetic (the requantization after a convolution), or if its counterpart
comes from the same source nodes (a batch normalization folded into a convolution).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tpuconvert.diff.change import Change
from tpuconvert.diff.network import Network, computes_in_integers, is_auxiliary
from tpuconvert.diff.node_changes import changes_precision
from tpuconvert.diff.node_pairs import UNMATCHED, Matching
from tpuconvert.schema.graph.graph import Node
from tpuconvert.text.text_format import operator_counts

_LISTED = 6
"""Largest number of operators that are listed one by one; of more, the numbers per operator are given."""

_NEAREST = 8
"""Largest number of matched nodes per direction to which an unmatched node may belong."""


@dataclass
class Leftover:
    """Unmatched nodes of both networks, and the matched node to which each belongs."""

    first: list[int] = field(default_factory=list)
    second: list[int] = field(default_factory=list)
    forms: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    """Matched node of the first network -> unmatched nodes of both networks that belong to it."""


def explain_unmatched(matching: Matching) -> tuple[list[Change], set[int]]:
    """Return the changes of category ``nodes`` and ``precision``, and the matched nodes that these describe."""
    left = Leftover()
    first = _Side(matching.first, matching.partner, lambda position: position)
    second = _Side(matching.second, matching.origin, lambda position: matching.origin[position])
    for side, other_node in (
        (first, lambda a: matching.second.nodes[matching.partner[a]]),
        (second, lambda a: matching.first.nodes[a]),
    ):
        for position in side.unmatched:
            owner = _owner(side, position, other_node, matching)
            if owner is None:
                (left.first if side is first else left.second).append(position)
            else:
                left.forms.setdefault(owner, ([], []))[side is second].append(position)
    changes = [_form_change(matching, a, left.forms.get(a, ([], []))) for a, _ in matching.pairs]
    described = {a for (a, _), change in zip(matching.pairs, changes, strict=True) if change is not None}
    replaced, rest = _replacements(first, second, left)
    return [*(change for change in changes if change is not None), *replaced, *rest], described


class _Side:
    """One network: its unmatched nodes, their connected regions, and the matched nodes around these."""

    def __init__(self, network: Network, matched: Sequence[int], key: Callable[[int], int]) -> None:
        self.network = network
        self.matched = matched
        self.key = key  # index in the first network of a matched node
        self.unmatched = [position for position, other in enumerate(matched) if other == UNMATCHED]

    def before(self, position: int) -> list[int]:
        """Operands that are nodes."""
        return [edge.source for edge in self.network.edges[position] if edge.source >= 0]

    def after(self, position: int) -> list[int]:
        """Users."""
        return self.network.users[position]

    @functools.cached_property
    def nearest_before(self) -> dict[int, tuple[int, ...]]:
        """The nearest matched nodes from which each unmatched node is computed, as indices of the first network."""
        nearest: dict[int, tuple[int, ...]] = {}
        for position in self.unmatched:
            nearest[position] = self._nearest(self.before(position), nearest)
        return nearest

    @functools.cached_property
    def nearest_after(self) -> dict[int, tuple[int, ...]]:
        """The nearest matched nodes that are computed from each unmatched node, as indices of the first network."""
        nearest: dict[int, tuple[int, ...]] = {}
        for position in reversed(self.unmatched):
            nearest[position] = self._nearest(self.after(position), nearest)
        return nearest

    def _nearest(self, neighbours: Iterable[int], nearest_of: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
        direct, others = list[int](), list[int]()
        for position in neighbours:
            if self.matched[position] == UNMATCHED:
                others += nearest_of[position]
            else:
                direct.append(self.key(position))
        return tuple(dict.fromkeys(direct + others))[:_NEAREST]

    def regions(self, positions: Iterable[int]) -> list[list[int]]:
        """Return the connected components of nodes, each in topological order."""
        waiting = dict.fromkeys(positions)
        regions = []
        while waiting:
            start = next(iter(waiting))
            del waiting[start]
            region, stack = [start], [start]
            while stack:
                position = stack.pop()
                for other in (*self.before(position), *self.after(position)):
                    if other in waiting:
                        del waiting[other]
                        region.append(other)
                        stack.append(other)
            regions.append(sorted(region))
        return regions

    def boundary(self, region: list[int]) -> tuple[frozenset[int], frozenset[int]]:
        """Return the matched operands and users of a region."""
        inside = set(region)
        before = {
            self.key(s) for position in region for s in self.before(position) if s not in inside and self._is_matched(s)
        }
        after = {
            self.key(u) for position in region for u in self.after(position) if u not in inside and self._is_matched(u)
        }
        return frozenset(before), frozenset(after)

    def _is_matched(self, position: int) -> bool:
        return self.matched[position] != UNMATCHED


def _source_names(nodes: Iterable[Node]) -> set[str]:
    return {source.node for node in nodes for source in node.sources}


def _owner(side: _Side, position: int, other_node: Callable[[int], Node], matching: Matching) -> int | None:
    """Return the matched node to which an unmatched one belongs, or None."""
    node = side.network.nodes[position]
    names = _source_names([node])
    near = dict.fromkeys((*side.nearest_before[position], *side.nearest_after[position]))
    chosen = None
    for owner in near:
        before, after = matching.first.nodes[owner], matching.second.nodes[matching.partner[owner]]
        own = before if side.network is matching.first else after
        is_same_source = bool(names) and names <= _source_names([other_node(owner)])
        if changes_precision(before, after):
            if is_same_source or (names and names == _source_names([own])):
                return owner
            if chosen is None and is_auxiliary(node):
                chosen = owner
        elif is_same_source and not names <= _source_names([own]):
            return owner
    return chosen


def _form_change(matching: Matching, a: int, added: tuple[list[int], list[int]]) -> Change | None:
    """Return the change of a matched node with another operator, arithmetic, or number of nodes."""
    b = matching.partner[a]
    before, after = matching.first.nodes[a], matching.second.nodes[b]
    is_precision = changes_precision(before, after)
    if before.op.name == after.op.name and not is_precision and not any(added):
        return None
    old, new = sorted([a, *added[0]]), sorted([b, *added[1]])
    texts = _operators(matching.first, old), _operators(matching.second, new)
    if is_precision:
        types = _arithmetic(matching.first, a, old), _arithmetic(matching.second, b, new)
        texts = f"{texts[0]} in {types[0]}", f"{texts[1]} in {types[1]}"
    elif not any(added):
        return Change(
            "nodes", "changed", after.name, "operator", *texts, severity=1.0, nodes_before=(a,), nodes_after=(b,)
        )
    name = before.name if is_precision and not computes_in_integers(before) else after.name
    category, action = ("precision", "changed") if is_precision else ("nodes", "replaced")
    return Change(category, action, name, "", *texts, severity=1.0, nodes_before=tuple(old), nodes_after=tuple(new))


def _operators(network: Network, positions: Iterable[int]) -> str:
    names = [network.nodes[position].op.name for position in positions]
    return " + ".join(names) if len(names) <= _LISTED else operator_counts(Counter(names))


def _arithmetic(network: Network, main: int, positions: Iterable[int]) -> str:
    """Return the type in which a node computes: the type of a float result, otherwise the narrowest one of its form."""
    dtype = network.nodes[main].outputs[0].dtype
    if dtype.is_float:
        return dtype.value
    types = [value.dtype for position in positions for value in network.nodes[position].outputs]
    return min((each for each in types if each.is_integer), key=lambda each: each.bits).value


def _replacements(first: _Side, second: _Side, left: Leftover) -> tuple[list[Change], list[Change]]:
    """Pair regions of unmatched nodes between the same matched nodes or from the same source nodes; list the others."""
    theirs = second.regions(left.second)
    free = dict.fromkeys(range(len(theirs)))
    by_boundary: dict[tuple[frozenset[int], frozenset[int]], list[int]] = {}
    by_source: dict[str, list[int]] = {}
    for index, region in enumerate(theirs):
        by_boundary.setdefault(second.boundary(region), []).append(index)
        for name in sorted(_source_names(second.network.nodes[position] for position in region)):
            by_source.setdefault(name, []).append(index)
    replaced, removed = [], []
    for region in first.regions(left.first):
        boundary = first.boundary(region)
        names = sorted(_source_names(first.network.nodes[position] for position in region))
        alike = [index for index in by_boundary.get(boundary, ()) if index in free] if any(boundary) else []
        from_source = {index for name in names for index in by_source.get(name, ()) if index in free}
        chosen = alike[:1] or sorted(from_source)
        if not chosen:
            removed += [_single(first, position, "removed") for position in region]
            continue
        for index in chosen:
            del free[index]
        other = sorted(position for index in chosen for position in theirs[index])
        replaced.append(_replacement(first.network, region, second.network, other))
    added = [_single(second, position, "added") for index in free for position in theirs[index]]
    return replaced, [*removed, *added]


def _replacement(first: Network, old: list[int], second: Network, new: list[int]) -> Change:
    """Return the change of unmatched nodes that replace each other."""
    texts = _operators(first, old), _operators(second, new)
    uses_integers = [
        any(computes_in_integers(n.nodes[position]) for position in p) for n, p in ((first, old), (second, new))
    ]
    is_precision = uses_integers[0] != uses_integers[1]
    if is_precision:
        mains = [_main(network, positions) for network, positions in ((first, old), (second, new))]
        types = _arithmetic(first, mains[0], old), _arithmetic(second, mains[1], new)
        texts = f"{texts[0]} in {types[0]}", f"{texts[1]} in {types[1]}"
    return Change(
        "precision" if is_precision else "nodes",
        "changed" if is_precision else "replaced",
        second.nodes[new[-1]].name,
        "",
        *texts,
        severity=float(max(len(old), len(new))),
        nodes_before=tuple(old),
        nodes_after=tuple(new),
    )


def _main(network: Network, positions: list[int]) -> int:
    """Return a node that computes in integers if there is one, otherwise the last node."""
    return next((position for position in positions if computes_in_integers(network.nodes[position])), positions[-1])


def _single(side: _Side, position: int, action: str) -> Change:
    """Return the change of a node that only one network has."""
    node = side.network.nodes[position]
    is_added = action == "added"
    text = f"{node.op.name} {node.outputs[0].type}"
    return Change(
        "nodes",
        action,
        node.name,
        "",
        "" if is_added else text,
        text if is_added else "",
        severity=1.0,
        nodes_before=() if is_added else (position,),
        nodes_after=(position,) if is_added else (),
    )
