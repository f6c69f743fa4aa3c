"""What a group costs when it runs part by part: memory, traffic and what is computed more than once.

Results that leave the group are cut into equal parts. Walking back from them, every value gets the interval that is
needed for a part; for windows neighbouring intervals overlap, and the overlap is loaded and computed again.

Lengths along an axis do not depend on the cuts along the others. They are found axis by axis: the longest interval for
the memory, the sum of all for traffic and work. Loops over parts run along C outermost, then N, then H.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tpuconvert.optimizer.grouping.layout import bytes_of, constant_lane_bytes, filters_of, lane_bytes, shape4, size_of
from tpuconvert.optimizer.grouping.slicing import AXES, C, Cut, H, Rule, row_multiple, rules
from tpuconvert.schema import cost
from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.groups import Tiles
from tpuconvert.schema.hardware import Hardware, LocalMemory

Interval = tuple[int, int]

Key = Value | tuple[Node, int]
"""A value between nodes, or the use of a constant: a node and the place of the operand."""


class CannotCutError(ValueError):
    """A node of the group cannot compute its results in parts along an axis, or there are fewer results than parts."""


def part(extent: int, count: int, index: int) -> Interval:
    """The interval of part ``index`` of ``count``: as equal as numbers allow."""
    return index * extent // count, (index + 1) * extent // count


def leaving(nodes: Sequence[Node], outputs: Collection[Value]) -> list[Value]:
    """Results that are read outside of the group, by nobody, or are outputs of the graph."""
    members = set(nodes)
    made = (value for node in nodes for value in node.outputs)
    return [v for v in made if v in outputs or not v.uses or any(user not in members for user, _ in v.uses)]


def needed(nodes: Sequence[Node], leave: Collection[Value], axis: int, count: int, index: int) -> dict[Key, Interval]:
    """The intervals of part ``index`` of ``count`` along an axis: of values, and of constants along the cut's axis.

    Args:
        nodes: the group, in running order.
        leave: results that leave it.
        axis: N, C or H.
        count: number of parts.
        index: of the part.

    Raises:
        CannotCutError: the group cannot be computed in so many parts.
    """
    found: dict[Key, Interval] = {}
    for value in leave:
        extent = shape4(value)[axis]
        if extent < count:
            raise CannotCutError(f"'{value.name}' has {extent} of {count} parts along axis {axis}")
        found[value] = part(extent, count, index)
    for node in reversed(nodes):
        rule = rule_of(node, axis, count)
        wanted = [found[value] for value in node.outputs if value in found]
        start, stop = min(low for low, _ in wanted), max(high for _, high in wanted)
        if axis == H:
            multiple = row_multiple(node)
            start, stop = start // multiple * multiple, -(-stop // multiple) * multiple
        found.update(dict.fromkeys(node.outputs, (start, stop)))  # all results are computed in the same part
        for place, (operand, cut) in enumerate(zip(node.inputs, rule, strict=True)):
            if operand is None:
                continue
            extent = shape4(operand)[axis if cut is None else cut.axis]
            interval = (0, extent) if cut is None else cut.of(start, stop, extent)
            if operand.is_constant:
                found[node, place] = interval
            else:
                low, high = found.get(operand, interval)
                found[operand] = (min(low, interval[0]), max(high, interval[1]))
    return found


def rule_of(node: Node, axis: int, count: int) -> tuple[Cut | None, ...]:
    """The rule of a node; with one part everything is needed.

    Raises:
        CannotCutError: there is none.
    """
    rule: Rule = (None,) * len(node.inputs) if count == 1 else rules(node)[axis]
    if rule is None:
        raise CannotCutError(f"'{node.name}' ({node.op.name}) is not cut along axis {axis}")
    return rule


@dataclass(frozen=True)
class GroupCost:
    """What a group costs.

    Args:
        lane_bytes: the most memory of one lane that is in use at a time.
        loaded: bytes read from global memory.
        stored: bytes written to it.
        macs: multiply-accumulate steps, with those of overlaps.
        repeated_macs: those of overlaps alone.
        computing_seconds: the least time that arithmetic takes.
        repeated_bytes: what they weigh: the bytes that global memory could have moved meanwhile.
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

    @property
    def weight(self) -> float:
        """What the planner makes small, in bytes."""
        return self.traffic + self.repeated_bytes


def group_cost(
    nodes: Sequence[Node],
    outputs: Collection[Value],
    tiles: Tiles,
    keeps_constants: bool,
    memory: LocalMemory,
    hardware: Hardware,
) -> GroupCost:
    """The cost of running nodes as a group.

    Args:
        nodes: in running order, with static shapes.
        outputs: of the graph.
        tiles: how results are cut.
        keeps_constants: as in ``Group``.
        memory: of the chip.
        hardware: its speed.

    Raises:
        CannotCutError: the group cannot be computed in these parts.
    """
    leave = leaving(nodes, outputs)
    lengths = _Lengths(nodes, leave, tiles)
    made = {value for node in nodes for value in node.outputs}
    loaded, lanes = 0, dict[Key, int]()
    for key in lengths.longest:
        if isinstance(key, Value):
            n, c, h = lengths.longest[key]
            rest = shape4(key)[3] * size_of(key)
            lanes[key] = lane_bytes(memory, n, c, h * rest)
            loaded += 0 if key in made else math.prod(lengths.total[key]) * rest
        else:
            node, place = key
            use = _constant_use(node, place, lengths, tiles, keeps_constants)
            filters = filters_of(node, place)
            lanes[key] = constant_lane_bytes(memory, use.extents, filters, use.longest, keeps_constants)
            loaded += use.loaded
    repeated, macs, weight, seconds = 0, 0, 0.0, 0.0
    for node in nodes:
        first = node.outputs[0]
        steps = cost.macs(node) or 0
        again = steps * math.prod(lengths.total[first]) // max(math.prod(shape4(first)[:3]), 1) - steps
        repeated += again
        macs += steps + again
        seconds += cost.computing_seconds(node, hardware, steps + again)
        weight += again * hardware.bytes_per_mac(cost.arithmetic_type(node))
    return GroupCost(
        lane_bytes=_peak(nodes, lanes, keeps_constants),
        loaded=loaded,
        stored=sum(map(bytes_of, leave)),
        macs=macs,
        repeated_macs=repeated,
        computing_seconds=seconds,
        repeated_bytes=weight,
    )


class _Lengths:
    """Along N, C and H: the longest interval of everything that is needed, and the sum over all parts."""

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
    """Extents and bytes of a row, lengths on the constant's own first three axes, and bytes loaded over all parts."""

    extents: tuple[int, int, int, int]
    longest: tuple[int, int, int]
    loaded: int


def _constant_use(node: Node, place: int, lengths: _Lengths, tiles: Tiles, is_kept: bool) -> _ConstantUse:
    """One that is kept is whole along N and H, and loaded once for each part along C."""
    value = node.inputs[place]
    assert value is not None
    *longest, rest = shape4(value)
    extents = longest[0], longest[1], longest[2], rest * size_of(value)
    loaded = bytes_of(value)
    for axis, count in zip(AXES, tiles, strict=True):
        if count == 1 or (is_kept and axis != C):
            continue
        rule = rules(node)[axis]
        assert rule is not None
        cut = rule[place]
        if cut is None:
            loaded *= count
        else:
            longest[cut.axis] = lengths.longest[node, place][axis]
            loaded = loaded * lengths.total[node, place][axis] // max(shape4(value)[cut.axis], 1)
    return _ConstantUse(extents, (longest[0], longest[1], longest[2]), loaded)


def _peak(nodes: Sequence[Node], lanes: dict[Key, int], keeps_constants: bool) -> int:
    """The most memory in use while one node runs. A tensor is there from its load or its node to its last reader."""
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    used = [0] * len(nodes)
    kept = 0
    for step, node in enumerate(nodes):
        for place, value in enumerate(node.inputs):
            if value is None:
                continue
            if not value.is_constant:
                first.setdefault(value, step)
                last[value] = step
            elif keeps_constants:
                kept += lanes[node, place]
            else:
                used[step] += lanes[node, place]
        for value in node.outputs:
            first[value] = last[value] = step
    for value, step in first.items():
        for index in range(step, last[value] + 1):
            used[index] += lanes[value]
    return max(used) + kept
