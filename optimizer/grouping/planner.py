"""Group planner: dynamic programming over the nodes in order of execution.

The cheapest plan of the first n nodes ends with a single node or a group, preceded by the cheapest plan of the nodes
before it. All groups of at most ``LONGEST`` nodes are tried with every candidate tiling. Equivalent windows of nodes,
such as repeated blocks, are evaluated once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpuconvert.optimizer.grouping.groups import MAX_PARTS, Group, Grouping, Tiles
from tpuconvert.optimizer.grouping.node_facts import Facts, facts_of
from tpuconvert.optimizer.grouping.segment import Segment, Tiling, Tilings
from tpuconvert.schema.definition.hardware import Hardware, LocalMemory, hardware_of
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import Chip

LONGEST = 32
"""Maximum number of nodes of a group. Planning time grows with it; longer groups save little more traffic."""

PATIENCE = 1500
"""Number of distinct windows after which the maximum group size is ``SHORTEST``. This limits the planning time."""

SHORTEST = 6
"""Maximum number of nodes of a group after PATIENCE windows."""

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
"""Candidate tile counts along H."""

FEW_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 28, 32)
"""Candidate tile counts along H for groups that are also tiled along N or C."""

FEW = (2, 4, 8, 16, 32)
"""Candidate tile counts along N and C."""


@dataclass(frozen=True)
class Plan:
    """Groups of the nodes of a graph.

    Args:
        groups: ranges of consecutive nodes.
        cost: traffic plus the byte equivalent of recomputation, in bytes.
    """

    groups: tuple[Group, ...]
    cost: float


def plan_groups(graph: Graph, chip: Chip, memory: LocalMemory | None = None) -> Grouping:
    """Find the cheapest groups of consecutive nodes of a graph, which is not changed.

    Args:
        graph: the graph.
        chip: the target.
        memory: on-chip memory, by default the memory of the chip.
    """
    hardware = hardware_of(chip)
    memory = memory or hardware.memory
    return Grouping(memory, plan_nodes(graph, chip, hardware, memory).groups)


def candidates(batch: int) -> list[Tiling]:
    """Candidate tilings of a graph; ``batch`` is the largest extent along N."""
    batch = min(batch, MAX_PARTS)
    tiles = [Tiles(1, 1, h) for h in ROWS]
    tiles += [Tiles(1, c, h) for c in FEW for h in FEW_ROWS]
    tiles += [Tiles(n, 1, h) for n in sorted({*FEW, batch}) if 1 < n <= batch for h in FEW_ROWS]
    return [(item, False) for item in tiles] + [(item, True) for item in tiles[1:]]


def plan_nodes(graph: Graph, chip: Chip, hardware: Hardware, memory: LocalMemory) -> Plan:
    """Find the cheapest groups of consecutive nodes, and their cost."""
    facts = facts_of(graph.nodes, set(graph.outputs), chip, hardware)
    batch = max([shape.n for item in facts if item.kind is not None for shape in item.kind.results], default=1)
    tilings = Tilings([(Tiles(), False)], memory), Tilings(candidates(batch), memory)
    plans: dict[tuple[int, ...], list[tuple[int, float, Tiling]]] = {}
    costs = [0.0]
    choices: list[tuple[int, Tiling | None]] = []  # For each end: number of nodes and tiling of the last group.
    begin = 0  # First node after the last node that cannot be in a group.
    start = 0  # First node of the current run (``Facts.joins``).

    def plan_end(end: int) -> bool:
        """Choose the last group of the first ``end + 1`` nodes. Return True if some group contains the whole run."""
        first = max(begin, end + 1 - (LONGEST if len(plans) < PATIENCE else SHORTEST))
        window = facts[first : end + 1]
        key = tuple([member.like for member in window])
        if key not in plans:
            plans[key] = _groups(window, end, tilings)
        costs[end + 1], choices[end] = costs[end] + facts[end].traffic, (1, None)
        for size, cost, tiling in plans[key]:
            if costs[end + 1 - size] + cost < costs[end + 1]:
                costs[end + 1], choices[end] = costs[end + 1 - size] + cost, (size, tiling)
        return any(size > end - max(first, start) for size, *_ in plans[key])

    for end, item in enumerate(facts):
        costs.append(costs[end] + item.traffic)
        choices.append((1, None))
        start = start if item.joins else end
        if item.kind is None:
            begin = end + 1
        elif end + 1 < len(facts) and facts[end + 1].joins:
            continue  # Groups that end inside a run are evaluated only if the whole run does not fit into one group.
        elif not plan_end(end):
            for position in range(start, end + 1):
                plan_end(position)
    groups = []
    stop = len(choices)
    while stop:
        size, chosen = choices[stop - 1]
        stop -= size
        if chosen is not None:
            groups.append(Group(stop, size, *chosen))
    return Plan(tuple(reversed(groups)), costs[-1])


def _groups(window: Sequence[Facts], end: int, tilings: tuple[Tilings, Tilings]) -> list[tuple[int, float, Tiling]]:
    """Size, cost and tiling of the groups that end with the last node of a window.

    Args:
        window: consecutive nodes.
        end: position of the last node.
        tilings: first a single tile, which is used as long as the group fits, because tiling saves no bytes unless a
            node skips rows; second all candidates, for longer groups.
    """
    groups: dict[int, tuple[int, float, Tiling]] = {}
    for some in tilings:
        segment = Segment(some, end)
        components: list[set[Value]] = []  # One set of operands per connected component of the group.
        for facts in reversed(window):
            assert facts.kind is not None
            if facts.kind.skips_rows and some is tilings[0]:
                break
            segment.add(facts)
            users = [item for item in components if not item.isdisjoint(facts.results)]
            components = [item for item in components if item.isdisjoint(facts.results)]
            components.append(set(facts.reads).union(*users))
            if segment.size == 1 or segment.size in groups or len(components) > 1:
                continue
            cheapest = segment.cheapest()
            if cheapest is None:  # Longer groups need at least as much memory.
                break
            groups[segment.size] = segment.size, *cheapest
        else:
            break
    return list(groups.values())
