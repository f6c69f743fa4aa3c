"""Which nodes run together: dynamic programming over the order in which nodes run.

The best plan for the first nodes ends with a node on its own or with a group; what stands before is the best plan for
that. All groups of bounded length are tried, each cut in every way, but for those that a bound shows to be no better.
Windows of nodes that are alike, as repeated blocks have them, are looked at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpuconvert.optimizer.grouping.candidates import Candidates
from tpuconvert.optimizer.grouping.ending import Ending
from tpuconvert.optimizer.grouping.facts import FactsOfGraph
from tpuconvert.optimizer.grouping.orders import depth_first, distance, other_orders
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.groups import Group, Grouping
from tpuconvert.schema.hardware import Hardware, LocalMemory, hardware_of
from tpuconvert.schema.types import Chip

LONGEST = 32
"""Nodes of a group. Time grows with it; what longer groups save is one tensor in so many nodes."""

PATIENCE = 1500
"""So many different ends of groups are looked at; then groups get SHORTEST, and time stays in proportion to nodes."""

SHORTEST = 6

SMALL = 16
"""Graphs of so many nodes are planned in several orders."""

ORDERS = 30
"""So many orders are drawn for a small graph; most are the same."""


@dataclass(frozen=True)
class Plan:
    """Groups over an order of nodes.

    Args:
        order: of the nodes.
        groups: runs of it.
        weight: traffic in bytes, with what is computed again weighed in bytes.
    """

    order: tuple[Node, ...]
    groups: tuple[Group, ...]
    weight: float


def plan_groups(graph: Graph, chip: Chip, memory: LocalMemory | None = None, longest: int = LONGEST) -> Grouping:
    """Find the groups of a graph, whose nodes are put into the order that they are runs of.

    Args:
        graph: sorted; the order of its nodes may change, nothing else.
        chip: the target.
        memory: on-chip memory, by default that of the chip.
        longest: most nodes of a group.
    """
    hardware = hardware_of(chip)
    memory = memory or hardware.memory
    plan = min(
        (plan_order(graph, order, chip, hardware, memory, longest) for order in _orders(graph)),
        key=lambda plan: plan.weight,
    )
    graph.reorder(plan.order)
    return Grouping(memory, plan.groups)


def _orders(graph: Graph) -> list[list[Node]]:
    """The orders that are planned: of a small graph several, of a larger one that which keeps less waiting."""
    orders = [graph.nodes, depth_first(graph)]
    if len(graph) > SMALL:
        return orders[:1] if orders[0] == orders[1] else [min(orders, key=distance)]
    return list({tuple(map(id, order)): order for order in (*orders, *other_orders(graph.nodes, ORDERS))}.values())


def plan_order(
    graph: Graph, order: Sequence[Node], chip: Chip, hardware: Hardware, memory: LocalMemory, longest: int = LONGEST
) -> Plan:
    """The best groups among runs of an order of all nodes, or of some of them."""
    known = FactsOfGraph(graph, order, chip, hardware)
    batches = {shape.n for facts in known.facts if facts is not None for shape in facts.use.results}
    candidates = Candidates(memory, batches)
    endings: dict[tuple[int, ...], Ending] = {}
    at: list[Ending | None] = []  # by place
    weights = [0.0]
    choices: list[tuple[int, int]] = []  # number of nodes, and the way of cutting them
    begin = 0
    for end, facts in enumerate(known.facts):
        weight, choice = weights[end] + known.moved[end], (1, 0)
        ending = None
        if facts is None:
            begin = end + 1
        elif not known.is_tied(end):
            size = longest if len(endings) < PATIENCE else min(longest, SHORTEST)
            first = max(begin, end + 1 - size)
            key = tuple(known.likes[first : end + 1])
            ending = endings.get(key)
            if ending is None:
                window = [item for item in known.facts[first : end + 1] if item is not None]
                ending = endings[key] = Ending(window, end, candidates, at[first:end])
            weight, choice = ending.lightest(weights, weight) or (weight, choice)
        at.append(ending)
        weights.append(weight)
        choices.append(choice)
    return Plan(tuple(order), _groups(choices, candidates), weights[-1])


def _groups(choices: Sequence[tuple[int, int]], candidates: Candidates) -> tuple[Group, ...]:
    groups = []
    stop = len(choices)
    while stop:
        count, way = choices[stop - 1]
        if count > 1:
            tiles, keeps = candidates.ways[way]
            groups.append(Group(stop - count, count, tiles, keeps))
        stop -= count
    return tuple(reversed(groups))
