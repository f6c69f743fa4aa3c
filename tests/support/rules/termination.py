"""Termination measures: every firing of a rule decreases the measure of that rule.

Most rules decrease the first measure:

- ``cost``: the sum of the costs of all nodes; if that is unchanged, the sum over all operands of the longest path from
  an input (a rule that bypasses a node which still has other users shortens the path).
- ``permute_depth``: for every use of a permute, the longest path from it to an output. A permute that sinks below its
  user is replaced by permutes that are nearer to the outputs.
- ``reshape_depth``: the same for reshapes to a lower rank, which do not count as a part of the paths themselves.
- ``constants_first``: the number of adds and multiplies whose first operand is a constant.
- ``elements``: the number of elements of all results, except results of repetitions, and of all constants.

A rule could increase the measure of another one. The engine watches for that at run time: it stops after 50 firings per
node.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.tile import Repetition

Measure = Callable[[Graph], tuple[int, ...]]


def cost(graph: Graph) -> tuple[int, ...]:
    """The cost of all nodes, then the sum of the depths of their operands."""
    depth: dict[Node, int] = {}
    total = 0
    for node in graph.sorted_nodes():
        producers = [value.producer for value in node.inputs if value is not None and not value.is_constant]
        depths = [0 if producer is None else depth[producer] for producer in producers]
        depth[node] = 1 + max(depths, default=0)
        total += sum(depths) + len(depths)
    return sum(node.op.rewrite_weight for node in depth), total


def permute_depth(graph: Graph) -> tuple[int, ...]:
    """Distance of the permutes from the outputs. The farthest counts most."""
    return _distance(graph, lambda node: isinstance(node.op, Permute), 1)


def reshape_depth(graph: Graph) -> tuple[int, ...]:
    """Distance of the reshapes to a lower rank from the outputs. The farthest counts most."""
    return _distance(graph, _lowers_rank, 0)


def _lowers_rank(node: Node) -> bool:
    x = node.inputs[0] if isinstance(node.op, Reshape) else None
    return x is not None and x.rank > node.output.rank


def _distance(graph: Graph, is_counted: Callable[[Node], bool], length: int) -> tuple[int, ...]:
    """Distances from an output of all uses of the counted nodes, the largest first.

    Tuples compare as multisets do: a distance may be replaced by any number of smaller ones. ``length`` is the distance
    that a counted node itself adds for the nodes before it.
    """
    height: dict[Node, int] = {}
    distances: list[int] = []
    for node in reversed(graph.sorted_nodes()):
        users = [user for value in node.outputs for user in value.users]
        counts = is_counted(node)
        height[node] = (length if counts else 1) + max((height[user] for user in users), default=0)
        if counts:
            distances += [height[user] for user, _ in node.output.uses] + [0] * graph.is_output(node.output)
    return tuple(sorted(distances, reverse=True))


def constants_first(graph: Graph) -> tuple[int, ...]:
    """Number of adds and multiplies whose first operand is a constant."""
    found = [node for node in graph.nodes if isinstance(node.op, (Add, Mul))]
    return (sum(node.inputs[0] is not None and node.inputs[0].is_constant for node in found),)


def elements(graph: Graph) -> tuple[int, ...]:
    """Number of elements of all constants, and of results except repetitions. Dynamic extents count 1."""
    computed = [value for node in graph.nodes if not isinstance(node.op, Repetition) for value in node.outputs]
    values = [*computed, *(value for value in graph.values if value.is_constant)]
    return (sum(math.prod(extent for extent in value.shape if isinstance(extent, int)) for value in values),)


_OTHER_MEASURES: dict[str, Measure] = {
    "move_constant_second": constants_first,
    "shrink_repeated_constant": elements,
    "sink_reshape_through_concat": reshape_depth,
    "sink_reshape_through_elementwise": reshape_depth,
    "sink_permute_through_axis_op": permute_depth,
    "sink_permute_through_binary": permute_depth,
    "sink_permute_through_concat": permute_depth,
    "sink_permute_through_reduce": permute_depth,
    "sink_permute_through_split": permute_depth,
    "sink_permute_through_unary": permute_depth,
    "sink_tile_through_elementwise": elements,
}


def measure_of(rule: str) -> Measure:
    """The measure that every firing of a rule decreases."""
    return _OTHER_MEASURES.get(rule, cost)
