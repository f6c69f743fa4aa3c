"""The best grouping of a small graph, found by trying all of them."""

import itertools
import math
from functools import cache

from tpuconvert.optimizer.grouping.group_cost import CannotCutError, group_cost
from tpuconvert.optimizer.grouping.groups import Tiles
from tpuconvert.schema.definition.hardware import LocalMemory, hardware_of
from tpuconvert.schema.graph import cost
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.graph.locality import locality_of
from tpuconvert.schema.types import Chip


def least_cost(graph: Graph, chip: Chip, memory: LocalMemory) -> float:
    """Lowest cost over all partitions of the nodes into connected groups that can run sequentially.

    Groups need not be consecutive in the order of the graph. They are tiled with every tile count along H, and some
    tile counts along C and N.
    """
    nodes = graph.nodes
    bit = {node: 1 << index for index, node in enumerate(nodes)}
    before = [
        sum({bit[value.producer] for value in node.inputs if value is not None and value.producer is not None})
        for node in nodes
    ]
    is_local = [locality_of(node, chip).is_local for node in nodes]
    hardware = hardware_of(chip)
    outputs = set(graph.outputs)

    @cache
    def cost_of(members: int) -> float:
        group = [node for node in nodes if members & bit[node]]
        if len(group) == 1:
            return float(cost.bytes_alone(group[0]) or 0)
        if not all(is_local[nodes.index(node)] for node in group) or not _is_connected(group):
            return math.inf
        return min((_group_cost(group, way) for way in _ways(group)), default=math.inf)

    def _group_cost(group: list[Node], way: tuple[Tiles, bool]) -> float:
        try:
            found = group_cost(group, outputs, *way, memory, hardware)
        except CannotCutError:
            return math.inf
        return found.traffic + found.repeated_bytes if found.lane_bytes <= memory.lane_bytes else math.inf

    everything = (1 << len(nodes)) - 1

    @cache
    def best(done: int) -> float:
        if done == everything:
            return 0.0
        rest = [index for index in range(len(nodes)) if not done >> index & 1]
        found = math.inf
        for count in range(1, len(rest) + 1):
            for chosen in itertools.combinations(rest, count):
                members = sum(1 << index for index in chosen)
                if all(before[index] & ~(done | members) == 0 for index in chosen):  # all producers have run
                    alone = cost_of(members)
                    if alone < found:
                        found = min(found, alone + best(done | members))
        return found

    return best(0)


def _ways(group: list[Node]) -> list[tuple[Tiles, bool]]:
    shapes = [value.type.static_shape for node in group for value in node.outputs]
    rows = max(shape[2] for shape in shapes)
    channels = [c for c in (1, 2, 4, 8) if c <= max(shape[1] for shape in shapes)]
    images = {1, min(shape[0] for shape in shapes)}
    tiles = [Tiles(n, c, h) for n in images for c in channels for h in range(1, rows + 1)]
    return [(item, keeps) for item in tiles for keeps in (False, True)]


def _is_connected(group: list[Node]) -> bool:
    members, seen, ahead = set(group), {group[0]}, [group[0]]
    while ahead:
        node = ahead.pop()
        near = {user for value in node.outputs for user, _ in value.uses}
        near |= {value.producer for value in node.inputs if value is not None and value.producer is not None}
        for other in near & members - seen:
            seen.add(other)
            ahead.append(other)
    return len(seen) == len(group)
