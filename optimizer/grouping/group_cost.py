"""Cost of one group that runs tile by tile: memory, traffic and recomputation."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tpuconvert.optimizer.grouping.groups import Tiles
from tpuconvert.optimizer.grouping.node_facts import Facts, LastUses, NodeKind, Shape
from tpuconvert.optimizer.grouping.segment import Segment, Tilings
from tpuconvert.optimizer.grouping.slicing import AXES, rules
from tpuconvert.schema.definition.hardware import Hardware, LocalMemory
from tpuconvert.schema.graph import cost
from tpuconvert.schema.graph.graph import Node, Value


class CannotCutError(ValueError):
    """Error: a node of the group cannot be tiled along an axis, or an extent is smaller than the number of tiles."""


@dataclass(frozen=True)
class GroupCost:
    """Cost of a group.

    Args:
        lane_bytes: peak memory of one lane.
        loaded: bytes read from global memory.
        stored: bytes written to global memory.
        macs: number of multiply-accumulates, including recomputation.
        repeated_macs: number of these that are recomputation.
        computing_seconds: lower bound of the compute time.
        repeated_bytes: bytes that could be transferred to or from global memory during the recomputation.
    """

    lane_bytes: int
    loaded: int
    stored: int
    macs: int
    repeated_macs: int
    computing_seconds: float
    repeated_bytes: float

    @property
    def traffic(self) -> int:
        """Bytes moved to and from global memory."""
        return self.loaded + self.stored


def group_cost(
    nodes: Sequence[Node],
    outputs: Collection[Value],
    tiles: Tiles,
    keeps_constants: bool,
    memory: LocalMemory,
    hardware: Hardware,
) -> GroupCost:
    """Compute the cost of nodes that run as a group.

    Args:
        nodes: in execution order, with static shapes.
        outputs: outputs of the graph.
        tiles: number of tiles along N, C and H.
        keeps_constants: as in ``Group``.
        memory: on-chip memory.
        hardware: peak rates of the chip.

    Raises:
        CannotCutError: the group cannot be split into these tiles.
    """
    last_uses = LastUses({node: position for position, node in enumerate(nodes)}, outputs)
    segment = Segment(Tilings([(tiles, keeps_constants)], memory), len(nodes) - 1)
    repeated, macs, repeated_bytes, seconds = 0, 0, 0.0, 0.0
    # ``bytes_per_mac=0`` leaves recomputation out of the segment's cost: it is counted below, in integers.
    members = [Facts.of(node, 0, NodeKind.of(node, bytes_per_mac=0), last_uses) for node in nodes]
    _check_tiles(nodes, members, tiles)
    computed_tiles = [segment.add(facts) for facts in reversed(members)]
    for node, tile in zip(nodes, reversed(computed_tiles), strict=True):
        computed = math.prod([int(item.total[0]) for item in tile])
        steps = cost.macs(node) or 0
        again = steps * computed // max(math.prod(Shape.of(node.outputs[0])[:3]), 1) - steps
        repeated += again
        macs += steps + again
        seconds += cost.computing_seconds(node, hardware, steps + again)
        repeated_bytes += again * hardware.bytes_per_mac(cost.arithmetic_type(node))
    return GroupCost(
        lane_bytes=int(segment.lane_bytes()),
        loaded=int(segment.loaded),
        stored=segment.stored,
        macs=macs,
        repeated_macs=repeated,
        computing_seconds=seconds,
        repeated_bytes=repeated_bytes,
    )


def _check_tiles(nodes: Sequence[Node], members: Sequence[Facts], tiles: Tiles) -> None:
    """Check that every result that leaves the group has an element per tile, and that all nodes can be tiled."""
    leaving = [
        value
        for item in members
        for value, user in zip(item.results, item.last_uses, strict=True)
        if user == len(nodes)
    ]
    for axis, count in zip(AXES, tiles, strict=True):
        for value in leaving:
            extent = Shape.of(value)[axis]
            if extent < count:
                raise CannotCutError(f"'{value.name}' has extent {extent} along axis {axis}, expected at least {count}")
        for node in reversed(nodes):
            if count > 1 and rules(node)[axis] is None:
                raise CannotCutError(f"'{node.name}' ({node.op.name}) cannot be tiled along axis {axis}")
