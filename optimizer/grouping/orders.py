"""Orders in which nodes can run. A group is a run of the order, so that the order decides which groups there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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


def other_orders(nodes: Sequence[Node], count: int) -> Iterator[list[Node]]:
    """Some orders in which the nodes can run, drawn with a fixed seed; most steps follow the newest branch."""
    import random  # which few graphs need

    members = set(nodes)
    producers = {node: {v.producer for v in node.inputs if v is not None and v.producer in members} for node in nodes}
    chance = random.Random(len(nodes))
    for _ in range(count):
        missing = {node: len(before) for node, before in producers.items()}
        ready = [node for node in nodes if not missing[node]]
        order: list[Node] = []
        while ready:
            node = ready.pop(-1 if chance.random() < 0.5 else chance.randrange(len(ready)))
            order.append(node)
            for user in dict.fromkeys(user for value in node.outputs for user, _ in value.uses if user in members):
                missing[user] -= 1
                if not missing[user]:
                    ready.append(user)
        yield order
