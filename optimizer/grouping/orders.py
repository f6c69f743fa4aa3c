"""Topological orders of a graph. A group is consecutive in the order, so the order determines the possible groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpuconvert.schema.graph import Graph, Node


def depth_first(graph: Graph) -> list[Node]:
    """Depth-first topological order: follow each branch until it ends or joins another, newest branch first.

    In a file that interleaves the nodes of several branches, consecutive nodes are not connected.
    """
    missing = {
        node: len({value.producer for value in node.inputs if value is not None and value.producer is not None})
        for node in graph.nodes
    }
    ready = [node for node in reversed(graph.nodes) if not missing[node]]
    order: list[Node] = []
    while ready:
        node = ready.pop()
        order.append(node)
        users = dict.fromkeys(user for value in node.outputs for user, _ in value.uses)
        for user in reversed(users):
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return order


def distance(order: Sequence[Node]) -> int:
    """Return the sum of the buffer lifetimes: the distances from each producer to the last user of its result."""
    positions = {node: position for position, node in enumerate(order)}
    return sum(
        max((positions[user] for user, _ in value.uses), default=position) - position
        for node, position in positions.items()
        for value in node.outputs
    )


def other_orders(nodes: Sequence[Node], count: int) -> Iterator[list[Node]]:
    """Generate random topological orders with a fixed seed. At least half of the steps follow the newest branch."""
    import random  # Start-up cost: few graphs need this module.

    members = set(nodes)
    producers = {node: {v.producer for v in node.inputs if v is not None and v.producer in members} for node in nodes}
    users = {node: dict.fromkeys([u for v in node.outputs for u, _ in v.uses if u in members]) for node in nodes}
    chance = random.Random(len(nodes))
    for _ in range(count):
        missing = {node: len(before) for node, before in producers.items()}
        ready = [node for node in nodes if not missing[node]]
        order: list[Node] = []
        while ready:
            node = ready.pop(-1 if chance.random() < 0.5 else chance.randrange(len(ready)))
            order.append(node)
            for user in users[node]:
                missing[user] -= 1
                if not missing[user]:
                    ready.append(user)
        yield order
