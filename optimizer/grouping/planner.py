"""Group planner: dynamic programming over the execution order of the nodes.

The cheapest plan of the first n nodes ends with a single node or a group, preceded by the cheapest plan of the nodes
before it. All groups of bounded length are tried with every candidate tiling, except those whose lower bound shows that
they are not cheaper. Equivalent windows of nodes, such as repeated blocks, are evaluated once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpuconvert.optimizer.grouping.candidates import Candidates
from tpuconvert.optimizer.grouping.facts import FactsOfGraph
from tpuconvert.optimizer.grouping.orders import depth_first, distance, other_orders
from tpuconvert.optimizer.grouping.segment_bounds import SegmentBounds
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.groups import Group, Grouping
from tpuconvert.schema.hardware import Hardware, LocalMemory, hardware_of
from tpuconvert.schema.types import Chip

LONGEST = 32
"""Maximum number of nodes of a group. Planning time grows with it; longer groups save little more traffic."""

PATIENCE = 1500
"""After this number of distinct windows, the maximum group size is SHORTEST, which keeps planning time linear."""

SHORTEST = 6
"""Maximum number of nodes of a group after PATIENCE windows."""

SMALL = 16
"""Graphs with at most this number of nodes are planned in several orders."""

ORDERS = 30
"""Number of random orders of a small graph; most are equal."""


@dataclass(frozen=True)
class Plan:
    """Groups of consecutive nodes of an order.

    Args:
        order: execution order of the nodes.
        groups: ranges of consecutive nodes of the order.
        cost: traffic plus the byte equivalent of recomputation, in bytes.
    """

    order: tuple[Node, ...]
    groups: tuple[Group, ...]
    cost: float


def plan_groups(graph: Graph, chip: Chip, memory: LocalMemory | None = None, longest: int = LONGEST) -> Grouping:
    """Find the groups of a graph, and reorder its nodes so that each group is consecutive.

    Args:
        graph: in topological order; only the order of its nodes may change.
        chip: the target.
        memory: on-chip memory, by default that of the chip.
        longest: maximum number of nodes of a group.
    """
    hardware = hardware_of(chip)
    memory = memory or hardware.memory
    plan = min(
        (plan_order(graph, order, chip, hardware, memory, longest) for order in _orders(graph)),
        key=lambda plan: plan.cost,
    )
    graph.reorder(plan.order)
    return Grouping(memory, plan.groups)


def _orders(graph: Graph) -> list[list[Node]]:
    """Orders to plan: several for a small graph, the one with the shorter buffer lifetimes for a larger one."""
    orders = [graph.nodes, depth_first(graph)]
    if len(graph) > SMALL:
        return orders[:1] if orders[0] == orders[1] else [min(orders, key=distance)]
    return list({tuple(map(id, order)): order for order in (*orders, *other_orders(graph.nodes, ORDERS))}.values())


def plan_order(
    graph: Graph, order: Sequence[Node], chip: Chip, hardware: Hardware, memory: LocalMemory, longest: int = LONGEST
) -> Plan:
    """Find the cheapest groups of consecutive nodes in an order of all nodes, or of some of them."""
    known = FactsOfGraph(graph, order, chip, hardware)
    batches = {shape.n for facts in known.facts if facts is not None for shape in facts.use.results}
    candidates = Candidates(memory, batches)
    bounds_of_window: dict[tuple[int, ...], SegmentBounds] = {}
    at: list[SegmentBounds | None] = []  # by position
    costs = [0.0]
    choices: list[tuple[int, int]] = []  # number of nodes, and index of their tiling
    begin = 0
    for end, facts in enumerate(known.facts):
        cost, choice = costs[end] + known.moved[end], (1, 0)
        bounds = None
        if facts is None:
            begin = end + 1
        elif not known.is_tied(end):
            size = longest if len(bounds_of_window) < PATIENCE else min(longest, SHORTEST)
            first = max(begin, end + 1 - size)
            key = tuple(known.likes[first : end + 1])
            bounds = bounds_of_window.get(key)
            if bounds is None:
                window = [item for item in known.facts[first : end + 1] if item is not None]
                bounds = bounds_of_window[key] = SegmentBounds(window, end, candidates, at[first:end])
            cost, choice = bounds.cheapest_group(costs, cost) or (cost, choice)
        at.append(bounds)
        costs.append(cost)
        choices.append(choice)
    return Plan(tuple(order), _groups(choices, candidates), costs[-1])


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
