"""What the rules lower, so that they come to an end.

Every firing of a rule makes its measure smaller, and measures cannot fall for ever. Most rules lower the first one:

- weight: the sum of all nodes' weights, and where that stays, the sum of the longest ways from an input to each operand
  (a rule that passes over a node which others still read makes the way shorter), an operand counting one itself;
- way of permutes: for every reader of a permute, a large number to the power of the longest way from it to an output: a
  permute that moves behind its reader is replaced by ones that are nearer to the outputs;
- way of reshapes: the same of reshapes to fewer axes, which are no part of the ways themselves;
- constants in front: operands of sums and products that are constant and come first;
- elements: how many numbers all operators compute that do more than repeat some, and how many the constants have.

Rules that lower different measures could still raise each other's; that they do not is watched while they run: the
engine stops after 50 firings per node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.tile import Repetition

Measure = Callable[[Graph], tuple[int, ...]]


def weight(graph: Graph) -> tuple[int, ...]:
    """The weights of all nodes, then the depths of what they read."""
    depth: dict[Node, int] = {}
    ways = 0
    for node in graph.sorted_nodes():
        above = [value.producer for value in node.inputs if value is not None and not value.is_constant]
        depths = [0 if producer is None else depth[producer] for producer in above]
        depth[node] = 1 + max(depths, default=0)
        ways += sum(depths) + len(depths)
    return sum(node.op.rewrite_weight for node in depth), ways


def way_of_permutes(graph: Graph) -> tuple[int, ...]:
    """How far the permutes are from the outputs, the farthest counting most."""
    return _way(graph, lambda node: isinstance(node.op, Permute), 1)


def way_of_reshapes(graph: Graph) -> tuple[int, ...]:
    """How far the reshapes to fewer axes are from the outputs, the farthest counting most."""
    return _way(graph, _drops_axes, 0)


def _drops_axes(node: Node) -> bool:
    x = node.inputs[0] if isinstance(node.op, Reshape) else None
    return x is not None and x.rank > node.output.rank


def _way(graph: Graph, counts: Callable[[Node], bool], length: int) -> tuple[int, ...]:
    """For every reader of a node that counts, a large number to the power of its distance from an output.

    ``length`` is what such a node itself adds to the distance of those above it.
    """
    nodes = graph.sorted_nodes()
    base = 2 + sum(len(value.uses) + graph.is_output(value) for node in nodes for value in node.outputs)
    height: dict[Node, int] = {}
    total = 0
    for node in reversed(nodes):
        readers = [user for value in node.outputs for user in value.users]
        is_counted = counts(node)
        height[node] = (length if is_counted else 1) + max((height[user] for user in readers), default=0)
        if is_counted:
            total += sum(base ** height[user] for user, _ in node.output.uses) + graph.is_output(node.output)
    return (total,)


def constants_in_front(graph: Graph) -> tuple[int, ...]:
    """Sums and products whose first operand is the constant."""
    found = [node for node in graph.nodes if isinstance(node.op, (Add, Mul))]
    return (sum(node.inputs[0] is not None and node.inputs[0].is_constant for node in found),)


def elements(graph: Graph) -> tuple[int, ...]:
    """The extents of all results but those of copies, and of all constants, multiplied; unknown extents count one."""
    computed = [value for node in graph.nodes if not isinstance(node.op, Repetition) for value in node.outputs]
    values = [*computed, *(value for value in graph.values if value.is_constant)]
    return (sum(math.prod(extent for extent in value.shape if isinstance(extent, int)) for value in values),)


_LOWER_ANOTHER: Mapping[str, Measure] = MappingProxyType(
    {
        "constant_second": constants_in_front,
        "shorten_repeated_constant": elements,
        "sink_reshape_through_concat": way_of_reshapes,
        "sink_reshape_through_function": way_of_reshapes,
        "sink_through_axes": way_of_permutes,
        "sink_through_binary": way_of_permutes,
        "sink_through_concat": way_of_permutes,
        "sink_through_reduce": way_of_permutes,
        "sink_through_split": way_of_permutes,
        "sink_through_unary": way_of_permutes,
        "tile_behind_function": elements,
    }
)


def measure_of(rule: str) -> Measure:
    """What a rule lowers."""
    return _LOWER_ANOTHER.get(rule, weight)
