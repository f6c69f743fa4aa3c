"""Orders in which nodes can run that keep a value and its readers close together."""

from __future__ import annotations

from collections.abc import Sequence

from tpuconvert.schema.graph import Graph, Node


def depth_first(graph: Graph) -> list[Node]:
    """Follow every branch to where it ends or has to wait for another; take the newest branch first.

    A file may have its branches side by side, one node of each in turn, and then no run of nodes is connected.
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
    """How far values are from their readers, all together: what an order keeps waiting."""
    places = {node: place for place, node in enumerate(order)}
    return sum(
        max((places[user] for user, _ in value.uses), default=place) - place
        for node, place in places.items()
        for value in node.outputs
    )
