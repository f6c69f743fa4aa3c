"""Independent implementation of the cost of a group, as plain loops over tiles.

Results that leave the group are split into equal tiles. A backward walk computes the interval of every value that a
tile needs. Windows make adjacent intervals overlap; the overlap is loaded and computed again.

Interval lengths along one axis do not depend on the tiling of the others, and are computed for each axis: the longest
interval for memory, the sum for traffic and compute. The loops over tiles are C (outermost), N, H.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tpuconvert.optimizer.grouping.group_cost import CannotCutError, GroupCost
from tpuconvert.optimizer.grouping.groups import Tiles
from tpuconvert.optimizer.grouping.slicing import AXES, C, Cut, H, Rule, row_multiple, rules
from tpuconvert.schema.definition.hardware import Hardware, LocalMemory
from tpuconvert.schema.graph import cost
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.convolution.convolution_params import ConvolutionParams

Interval = tuple[int, int]

Key = Value | tuple[Node, int]
"""A value between nodes, or the use of a constant: a node and the operand index."""


def part(extent: int, count: int, index: int) -> Interval:
    """Interval of tile ``index`` of ``count``; lengths differ by at most 1."""
    return index * extent // count, (index + 1) * extent // count


def leaving(nodes: Sequence[Node], outputs: Collection[Value]) -> list[Value]:
    """Results that leave the group: graph outputs, results with users outside of the group, and unused results."""
    members = set(nodes)
    produced = (value for node in nodes for value in node.outputs)
    return [v for v in produced if v in outputs or not v.uses or any(user not in members for user, _ in v.uses)]


def needed(nodes: Sequence[Node], leave: Collection[Value], axis: int, count: int, index: int) -> dict[Key, Interval]:
    """Intervals that tile ``index`` of ``count`` along an axis needs: of values, and of constants along ``Cut.axis``.

    Args:
        nodes: nodes of the group, in execution order.
        leave: results that leave the group.
        axis: N, C or H.
        count: number of tiles.
        index: index of the tile.

    Raises:
        CannotCutError: the group cannot be split into ``count`` tiles.
    """
    found: dict[Key, Interval] = {}
    for value in leave:
        extent = shape4(value)[axis]
        if extent < count:
            raise CannotCutError(f"'{value.name}' has extent {extent} along axis {axis}, expected at least {count}")
        found[value] = part(extent, count, index)
    for node in reversed(nodes):
        rule = rule_of(node, axis, count)
        wanted = [found[value] for value in node.outputs if value in found]
        start, stop = min(low for low, _ in wanted), max(high for _, high in wanted)
        if axis == H:
            multiple = row_multiple(node)
            start, stop = start // multiple * multiple, -(-stop // multiple) * multiple
        found.update(dict.fromkeys(node.outputs, (start, stop)))  # all results have the same tile
        for slot, (operand, cut) in enumerate(zip(node.inputs, rule, strict=True)):
            if operand is None:
                continue
            extent = shape4(operand)[axis if cut is None else cut.axis]
            interval = (0, extent) if cut is None else tuple(map(int, cut.of(start, stop, extent)))
            if operand.is_constant:
                found[node, slot] = interval
            else:
                low, high = found.get(operand, interval)
                found[operand] = (min(low, interval[0]), max(high, interval[1]))
    return found


def rule_of(node: Node, axis: int, count: int) -> tuple[Cut | None, ...]:
    """Return the rule of a node. A single tile needs all of each operand.

    Raises:
        CannotCutError: the node has no rule for the axis.
    """
    rule: Rule = (None,) * len(node.inputs) if count == 1 else rules(node)[axis]
    if rule is None:
        raise CannotCutError(f"'{node.name}' ({node.op.name}) cannot be tiled along axis {axis}")
    return rule


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
    leave = leaving(nodes, outputs)
    lengths = _Lengths(nodes, leave, tiles)
    produced = {value for node in nodes for value in node.outputs}
    loaded, lanes = 0, dict[Key, int]()
    for key in lengths.longest:
        if isinstance(key, Value):
            n, c, h = lengths.longest[key]
            rest = shape4(key)[3] * size_of(key)
            lanes[key] = lane_bytes(memory, n, c, h * rest)
            loaded += 0 if key in produced else math.prod(lengths.total[key]) * rest
        else:
            node, slot = key
            use = _constant_use(node, slot, lengths, tiles, keeps_constants)
            filters = filters_of(node, slot)
            lanes[key] = constant_lane_bytes(memory, use.extents, filters, use.longest, keeps_constants)
            loaded += use.loaded
    repeated, macs, repeated_bytes, seconds = 0, 0, 0.0, 0.0
    for node in nodes:
        first = node.outputs[0]
        steps = cost.macs(node) or 0
        again = steps * math.prod(lengths.total[first]) // max(math.prod(shape4(first)[:3]), 1) - steps
        repeated += again
        macs += steps + again
        seconds += cost.computing_seconds(node, hardware, steps + again)
        repeated_bytes += again * hardware.bytes_per_mac(cost.arithmetic_type(node))
    return GroupCost(
        lane_bytes=_peak(nodes, lanes, keeps_constants),
        loaded=loaded,
        stored=sum(map(bytes_of, leave)),
        macs=macs,
        repeated_macs=repeated,
        computing_seconds=seconds,
        repeated_bytes=repeated_bytes,
    )


class _Lengths:
    """Interval lengths of values and constants along N, C and H: the longest, and the sum over all tiles."""

    def __init__(self, nodes: Sequence[Node], leave: Collection[Value], tiles: Tiles) -> None:
        self.longest: dict[Key, list[int]] = {}
        self.total: dict[Key, list[int]] = {}
        for axis, count in zip(AXES, tiles, strict=True):
            for index in range(count):
                for key, (start, stop) in needed(nodes, leave, axis, count, index).items():
                    longest = self.longest.setdefault(key, [0, 0, 0])
                    longest[axis] = max(longest[axis], stop - start)
                    self.total.setdefault(key, [0, 0, 0])[axis] += stop - start


@dataclass(frozen=True)
class _ConstantUse:
    """Extents and bytes of a row, largest tile on the first three axes, and bytes loaded for all tiles."""

    extents: tuple[int, int, int, int]
    longest: tuple[int, int, int]
    loaded: int


def _constant_use(node: Node, slot: int, lengths: _Lengths, tiles: Tiles, is_kept: bool) -> _ConstantUse:
    """Size and traffic of a constant. A resident one is loaded completely along N and H, once for each tile along C."""
    value = node.inputs[slot]
    assert value is not None
    *longest, rest = shape4(value)
    extents = longest[0], longest[1], longest[2], rest * size_of(value)
    loaded = bytes_of(value)
    for axis, count in zip(AXES, tiles, strict=True):
        if count == 1 or (is_kept and axis != C):
            continue
        rule = rules(node)[axis]
        assert rule is not None
        cut = rule[slot]
        if cut is None:
            loaded *= count
        else:
            longest[cut.axis] = lengths.longest[node, slot][axis]
            loaded = loaded * lengths.total[node, slot][axis] // max(shape4(value)[cut.axis], 1)
    return _ConstantUse(extents, (longest[0], longest[1], longest[2]), loaded)


def _peak(nodes: Sequence[Node], lanes: dict[Key, int], keeps_constants: bool) -> int:
    """Peak memory over the nodes. The lifetime of a buffer is from its load or producer to its last user."""
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    used = [0] * len(nodes)
    kept = 0
    for step, node in enumerate(nodes):
        for slot, value in enumerate(node.inputs):
            if value is None:
                continue
            if not value.is_constant:
                first.setdefault(value, step)
                last[value] = step
            elif keeps_constants:
                kept += lanes[node, slot]
            else:
                used[step] += lanes[node, slot]
        for value in node.outputs:
            first[value] = last[value] = step
    for value, step in first.items():
        for index in range(step, last[value] + 1):
            used[index] += lanes[value]
    return max(used) + kept


def shape4(value: Value) -> tuple[int, int, int, int]:
    """Extents along N, C and H, and the product of the other extents."""
    shape = value.type.static_shape
    n, c, h = (*shape[:3], 1, 1)[:3]
    return n, c, h, math.prod(shape[3:])


def size_of(value: Value) -> int:
    """Bytes of one element."""
    return value.dtype.bits // 8


def bytes_of(value: Value) -> int:
    """Bytes of the whole tensor in global memory."""
    return math.prod(value.type.static_shape) * size_of(value)


def lane_bytes(memory: LocalMemory, n: Any, c: Any, plane: Any) -> Any:
    """Bytes of one lane for n * c planes of ``plane`` bytes each."""
    return lane_planes(memory, n, c) * plane_bytes(memory, plane)


def lane_planes(memory: LocalMemory, n: Any, c: Any) -> Any:
    """Planes in one lane, out of n * c."""
    return n * -(-c // memory.lanes)


def plane_bytes(memory: LocalMemory, plane: Any) -> Any:
    """Bytes of a plane, rounded up to a multiple of the memory row."""
    row = memory.row_bytes
    return -(-plane // row) * row


def filters_of(node: Node, index: int) -> tuple[int, int] | None:
    """Filter axis of a convolution weight, and number of filters per index; None for other operands."""
    if index != 1 or not isinstance(node.op, ConvolutionParams):
        return None
    return (0, 1) if node.op.weight_layout == "OIHW" else (1, node.op.groups)


def constant_lane_bytes(
    memory: LocalMemory,
    extents: tuple[int, int, int, int],
    filters: tuple[int, int] | None,
    lengths: tuple[Any, Any, Any],
    stays: bool,
) -> Any:
    """Bytes of one lane for a tile of a constant operand.

    Args:
        memory: on-chip memory.
        extents: extents of the operand along N, C and H, and bytes of one row.
        filters: result of ``filters_of``.
        lengths: extents of the tile along the operand's first three axes.
        stays: whether it is resident for all tiles; otherwise it is in memory only while the node runs.
    """
    n, c, h = lengths
    if filters is None:
        return lane_bytes(memory, n, c, h * extents[3])
    axis, times = filters
    count = extents[axis] * times
    return lane_bytes(memory, 1, lengths[axis] * times if stays else 1, math.prod(extents) // max(count, 1))
