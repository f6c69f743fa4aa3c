"""Pairs of nodes and ports of two networks that correspond."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from tpuconvert.diff.network import Network
from tpuconvert.schema.graph.graph import Port

UNMATCHED = -1


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

    def unmatched(self) -> tuple[list[int], list[int]]:
        """Return the unmatched nodes of both networks."""
        return (
            [position for position, other in enumerate(self.partner) if other == UNMATCHED],
            [position for position, other in enumerate(self.origin) if other == UNMATCHED],
        )


def match_ports(before: Sequence[Port], after: Sequence[Port]) -> list[tuple[int, int]]:
    """Match inputs or outputs: by name, then the others in order."""
    positions = {port.name: position for position, port in enumerate(after)}
    pairs = {position: positions.pop(port.name) for position, port in enumerate(before) if port.name in positions}
    left = [position for position in range(len(before)) if position not in pairs]
    free = sorted(positions.values())
    return sorted([*pairs.items(), *zip(left, free, strict=False)])


def common_groups(
    free: tuple[list[int], list[int]], first: Sequence[Hashable], second: Sequence[Hashable]
) -> list[tuple[list[int], list[int]]]:
    """Group nodes of both sides by key; keys of one side only are left out."""
    left: dict[Hashable, list[int]] = {}
    right: dict[Hashable, list[int]] = {}
    for positions, keys, groups in ((free[0], first, left), (free[1], second, right)):
        for position in positions:
            groups.setdefault(keys[position], []).append(position)
    return [(mine, right[key]) for key, mine in left.items() if key in right]
