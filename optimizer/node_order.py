"""Order of execution: topological, with short lifetimes of the results."""

from __future__ import annotations

from collections.abc import Sequence

from tpuconvert.schema.graph.graph import Graph, Node


def shorten_lifetimes(graph: Graph) -> None:
    """Order the nodes depth first, if this shortens the lifetimes of their results. Only the order changes."""
    graph.reorder(min((graph.nodes, depth_first(graph)), key=total_lifetime))


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


def total_lifetime(order: Sequence[Node]) -> int:
    """Return the sum of the buffer lifetimes: the distances from each producer to the last user of its result."""
    positions = {node: position for position, node in enumerate(order)}
    return sum(
        max((positions[user] for user, _ in value.uses), default=position) - position
        for node, position in positions.items()
        for value in node.outputs
    )
