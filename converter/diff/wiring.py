"""Operands of matched nodes that are other tensors: moved nodes, and nodes connected in another way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tpuconvert.diff.change import Change
from tpuconvert.diff.network import Network
from tpuconvert.diff.node_changes import changes_precision
from tpuconvert.diff.node_pairs import UNMATCHED, Matching

_MOST_COMPARED = 64
"""Largest number of differently connected nodes among which moved ones are searched, which takes cubic time."""

Tensor = tuple[int, int]
"""Index in the first network of a matched node (``-1 - i``: pair ``i`` of inputs), and index of its result."""

_Operand = tuple[frozenset[Tensor], bool]
"""Matched tensors from which an operand is computed, and True if hidden nodes are between."""


class _Reach:
    """Matched tensors from which an operand is computed through hidden nodes, on one side."""

    def __init__(self, network: Network, matched: list[int], is_second: bool, inputs: list[tuple[int, int]]) -> None:
        self.network = network
        self.hidden = {position for position, other in enumerate(matched) if other == UNMATCHED}
        self._matched = matched
        self._is_second = is_second
        self._inputs = {pair[is_second]: number for number, pair in enumerate(inputs)}
        self._tensors_of: dict[int, frozenset[Tensor]] = {}

    def hide(self, position: int) -> None:
        """Treat a matched node as if it were not there."""
        self.hidden.add(position)
        self._tensors_of.clear()

    def show(self, position: int) -> None:
        """Undo ``hide``."""
        self.hidden.discard(position)
        self._tensors_of.clear()

    def tensors(self, source: int, result: int) -> frozenset[Tensor]:
        """Return the nearest tensors that are not hidden, for result ``result`` of a node."""
        if source < 0:
            number = self._inputs.get(-1 - source)
            return frozenset() if number is None else frozenset([(-1 - number, 0)])
        if source not in self.hidden:
            return frozenset([(self._matched[source] if self._is_second else source, result)])
        stack = [source]
        while stack:
            position = stack[-1]
            if position in self._tensors_of:
                stack.pop()
                continue
            edges = self.network.edges[position]
            missing = [e.source for e in edges if e.source in self.hidden and e.source not in self._tensors_of]
            if missing:
                stack += missing
                continue
            self._tensors_of[position] = frozenset().union(*(self._direct(edge.source, edge.result) for edge in edges))
        return self._tensors_of[source]

    def _direct(self, source: int, result: int) -> frozenset[Tensor]:
        return self._tensors_of[source] if source in self.hidden else self.tensors(source, result)

    def is_hidden(self, source: int) -> bool:
        """Return True if an operand is computed by a hidden node."""
        return source in self.hidden


class _Wiring:
    """Comparison of the operands of matched nodes. Outputs are nodes with negative indices."""

    def __init__(self, matching: Matching) -> None:
        self.matching = matching
        self.reach = (
            _Reach(matching.first, matching.partner, False, matching.inputs),
            _Reach(matching.second, matching.origin, True, matching.inputs),
        )

    def operands(self, side: int, position: int) -> list[tuple[int, int, int]]:
        """Return slot, node and result of each operand of a matched node or of an output."""
        network = (self.matching.first, self.matching.second)[side]
        if position < 0:
            output = self.matching.outputs[-1 - position][side]
            tensor = network.position_of(network.graph.outputs[output])
            return [] if tensor is None else [(0, *tensor)]
        index = self.matching.partner[position] if side else position
        return [(edge.slot, edge.source, edge.result) for edge in network.edges[index]]

    def is_same(self, position: int) -> bool:
        """Return True if both nodes have the same operands, apart from hidden nodes between them."""
        sides = [self.operands(side, position) for side in (0, 1)]
        if position >= 0:
            before = self.matching.first.nodes[position]
            after = self.matching.second.nodes[self.matching.partner[position]]
            if before.op.name != after.op.name or changes_precision(before, after):
                return self._overlap(*sides)
        slots = [self._by_slot(side, operands) for side, operands in enumerate(sides)]
        if set(slots[0]) != set(slots[1]):
            return False
        return all(_agree(slots[0][slot], slots[1][slot]) for slot in slots[0])

    def _overlap(self, first: list[tuple[int, int, int]], second: list[tuple[int, int, int]]) -> bool:
        """Return True if two forms of a node, which may have other slots, are computed from the same tensors."""
        left, right = (
            frozenset[Tensor]().union(*(reach.tensors(source, result) for _, source, result in operands))
            for reach, operands in zip(self.reach, (first, second), strict=True)
        )
        return not left or not right or bool(left & right)

    def _by_slot(self, side: int, operands: Iterable[tuple[int, int, int]]) -> dict[int, list[_Operand]]:
        by_slot: dict[int, list[_Operand]] = {}
        reach = self.reach[side]
        for slot, source, result in operands:
            by_slot.setdefault(slot, []).append((reach.tensors(source, result), reach.is_hidden(source)))
        return by_slot

    def names(self, side: int, position: int) -> str:
        """Return the names of the operands."""
        network = (self.matching.first, self.matching.second)[side]
        return ", ".join(
            network.graph.inputs[-1 - source].name if source < 0 else network.nodes[source].outputs[result].name
            for _, source, result in self.operands(side, position)
        )


def _agree(first: list[_Operand], second: list[_Operand]) -> bool:
    """Compare the operands of one slot; several belong to a commutative operator, in any order."""
    if len(first) == len(second) == 1:
        (a, is_before), (b, is_after) = first[0], second[0]
        if a == b or (is_before and is_after and (a & b or not a or not b)):
            return True
        return (is_after and a <= b) or (is_before and b <= a)
    if Counter(a for a, _ in first) == Counter(b for b, _ in second):
        return True
    if len(first) != len(second) or not any(hidden for _, hidden in (*first, *second)):
        return False
    left, right = (frozenset().union(*(tensors for tensors, _ in side)) for side in (first, second))
    return left <= right or right <= left


def find_rewired(matching: Matching) -> list[Change]:
    """Return moved nodes, and nodes and outputs whose operands are other tensors."""
    wiring = _Wiring(matching)
    candidates = [*(a for a, _ in matching.pairs), *(-1 - number for number in range(len(matching.outputs)))]
    different = [position for position in candidates if not wiring.is_same(position)]
    moved = []
    if len(different) <= _MOST_COMPARED:
        while (position := _best_move(wiring, different)) is not None:
            wiring.reach[0].hide(position)
            wiring.reach[1].hide(matching.partner[position])
            moved.append(position)
            different = [other for other in different if other != position and not wiring.is_same(other)]
    return [_moved(wiring, position) for position in moved] + [_rewired(wiring, position) for position in different]


def _best_move(wiring: _Wiring, different: list[int]) -> int | None:
    """Return the node without which most of the others agree, or None if no node makes another one agree."""
    best, gain = None, 0
    for position in different:
        if position < 0 or any(len(wiring.operands(side, position)) != 1 for side in (0, 1)):
            continue
        partner = wiring.matching.partner[position]
        users = {u for u in wiring.matching.first.users[position] if wiring.matching.partner[u] != UNMATCHED}
        wiring.reach[0].hide(position)
        wiring.reach[1].hide(partner)
        solved = sum(wiring.is_same(other) for other in different if other != position)
        broken = sum(not wiring.is_same(user) for user in users if user not in different)
        wiring.reach[0].show(position)
        wiring.reach[1].show(partner)
        if solved - broken > gain:
            best, gain = position, solved - broken
    return best


def _moved(wiring: _Wiring, position: int) -> Change:
    node = wiring.matching.second.nodes[wiring.matching.partner[position]]
    return Change(
        "nodes",
        "moved",
        node.name,
        node.op.name,
        f"after {wiring.names(0, position)}",
        f"after {wiring.names(1, position)}",
        severity=1.0,
        nodes_before=(position,),
        nodes_after=(wiring.matching.partner[position],),
    )


def _rewired(wiring: _Wiring, position: int) -> Change:
    texts = wiring.names(0, position), wiring.names(1, position)
    if position < 0:
        port = wiring.matching.second.graph.output_ports[wiring.matching.outputs[-1 - position][1]]
        return Change("interface", "rewired", port.name, "output", *texts, severity=1.0)
    node = wiring.matching.second.nodes[wiring.matching.partner[position]]
    return Change(
        "nodes",
        "rewired",
        node.name,
        "operands",
        *texts,
        severity=1.0,
        nodes_before=(position,),
        nodes_after=(wiring.matching.partner[position],),
    )
