"""Properties of nodes that the cost of a group depends on."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tpuconvert.optimizer.grouping.slicing import H, Rule, row_multiple, rules
from tpuconvert.schema.definition.hardware import Hardware
from tpuconvert.schema.definition.op import OpKind
from tpuconvert.schema.graph import cost
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.graph.locality import locality_of
from tpuconvert.schema.ops.convolution.convolution_params import ConvolutionParams
from tpuconvert.schema.types import Chip


class Shape(NamedTuple):
    """Extents along N, C and H, and the bytes of one row: the product of all other extents and the element size."""

    n: int
    c: int
    h: int
    row: int

    @staticmethod
    def of(value: Value) -> Shape:
        """Shape of a value with static extents."""
        shape = value.type.static_shape
        n, c, h = (*shape[:3], 1, 1, 1)[:3]
        return Shape(n, c, h, math.prod(shape[3:]) * (value.dtype.bits // 8))


class Operand(NamedTuple):
    """An operand that is present.

    ``slot`` is its index in the inputs of the node. For the weight of a convolution, ``filters`` is the axis of the
    filters and the number of filters per index of it; otherwise None.
    """

    slot: int
    shape: Shape
    filters: tuple[int, int] | None


@dataclass(frozen=True, eq=False)
class NodeKind:
    """Properties of a node that depend only on its operator and types.

    Args:
        rules: tiling rules for N, C and H.
        operands: the operands that are not constants.
        constants: the constant operands.
        cuts_constants: True for each axis along which a tile needs only a part of some constant.
        results: shapes of the results.
        skips_rows: True if windows skip rows of an operand, so that several tiles may load fewer rows than a single
            tile.
        row_multiple: number of rows of which the bounds of a result tile must be a multiple.
        mac_bytes: cost of the node's multiply-accumulates, in bytes.
    """

    rules: tuple[Rule, Rule, Rule]
    operands: tuple[Operand, ...]
    constants: tuple[Operand, ...]
    cuts_constants: tuple[bool, ...]
    results: tuple[Shape, ...]
    skips_rows: bool
    row_multiple: int
    mac_bytes: float

    @staticmethod
    def of(node: Node, bytes_per_mac: float) -> NodeKind:
        """Properties of a node with static extents."""
        operands, constants = list[Operand](), list[Operand]()
        for slot, value in enumerate(node.inputs):
            if value is not None:
                kind = constants if value.is_constant else operands
                kind.append(Operand(slot, Shape.of(value), _filters(node, slot)))
        by_axis, macs = rules(node), cost.macs(node) or 0
        cuts = tuple([rule is not None and any(rule[item.slot] is not None for item in constants) for rule in by_axis])
        return NodeKind(
            rules=by_axis,
            operands=tuple(operands),
            constants=tuple(constants),
            cuts_constants=cuts,
            results=tuple(map(Shape.of, node.outputs)),
            skips_rows=any(cut is not None and cut.step > 1 + cut.last - cut.first for cut in by_axis[H] or ()),
            row_multiple=row_multiple(node),
            mac_bytes=macs * bytes_per_mac,
        )


def _filters(node: Node, slot: int) -> tuple[int, int] | None:
    if slot != 1 or not isinstance(node.op, ConvolutionParams):
        return None
    return (0, 1) if node.op.weight_layout == "OIHW" else (1, node.op.groups)


class Facts(NamedTuple):
    """Planner data of one node.

    Args:
        traffic: bytes that the node moves to and from global memory if it is in no group; 0 if unknown.
        kind: properties of the node; None if it cannot be in a group.
        reads: operands that are not constants.
        results: the results.
        last_uses: for each result, the position of its last user, or the number of nodes if the result leaves every
            group.
        joins: True if a group that ends before the node moves at least as many bytes as one that ends after it. A node
            and the consecutive nodes after it with ``joins`` are a run; groups end inside a run only if no group
            contains all of it.
        like: ID of the class of equivalent nodes. Equivalent nodes have equal properties, and their producers and users
            are at equal distances.
    """

    traffic: int
    kind: NodeKind | None
    reads: tuple[Value, ...]
    results: tuple[Value, ...]
    last_uses: tuple[int, ...]
    joins: bool = False
    like: int = -1

    @staticmethod
    def of(node: Node, traffic: int, kind: NodeKind | None, last_uses: LastUses) -> Facts:
        """Return the planner data of a node, without ``joins`` and ``like``."""
        reads = tuple([value for value in node.inputs if value is not None and not value.is_constant])
        return Facts(traffic, kind, reads, tuple(node.outputs), tuple([last_uses.of(value) for value in node.outputs]))


class LastUses:
    """Positions of the last users of values, computed once for each value: one may have ten thousand users.

    Args:
        positions: position of every node.
        outputs: values that leave every group.
    """

    def __init__(self, positions: Mapping[Node, int], outputs: Collection[Value]) -> None:
        self._positions = positions
        self._outputs = outputs
        self._axes: dict[Value, int] = {}

    def of(self, value: Value) -> int:
        """Position of the last user of a value; the number of nodes for an output or if a user has no position."""
        axes = self._axes.get(value)
        if axes is None:
            end = len(self._positions)
            if value in self._outputs or not value.uses:
                axes = end
            else:
                axes = max([self._positions.get(user, end) for user, _ in value.uses])
            self._axes[value] = axes
        return axes


def facts_of(order: Sequence[Node], outputs: Collection[Value], chip: Chip, hardware: Hardware) -> list[Facts]:
    """Planner data of nodes in execution order."""
    last_uses = LastUses({node: position for position, node in enumerate(order)}, outputs)
    kinds: dict[Any, tuple[int, NodeKind | None]] = {}
    producers: dict[Value, tuple[int, int]] = {}
    read_at: dict[Value, int] = {}
    classes: dict[Any, int] = {}
    facts_list: list[Facts] = []
    for position, node in enumerate(order):
        traffic, kind = _traffic_and_kind(node, chip, hardware, kinds)
        facts = Facts.of(node, traffic, kind, last_uses)
        joins = bool(facts_list) and _joins(facts, facts_list[-1], position, last_uses)
        # For each operand: distance to its producer and index of the result, or distance to the previous reader and -1.
        links = []
        for value in facts.reads:
            before, index = producers.get(value, (read_at.get(value, position + 1), -1))
            links.append((position - before, index))
            read_at[value] = position
        producers.update((value, (position, index)) for index, value in enumerate(facts.results))
        users = tuple([user - position if user < len(order) else -1 for user in facts.last_uses])
        like = classes.setdefault((kind, tuple(links), users), len(classes))
        facts_list.append(facts._replace(joins=joins, like=like))
    return facts_list


def _traffic_and_kind(
    node: Node, chip: Chip, hardware: Hardware, cache: dict[Any, tuple[int, NodeKind | None]]
) -> tuple[int, NodeKind | None]:
    """Bytes that a node moves outside of a group, and its properties if it can be in one; cached in ``cache``."""
    if node.op.kind is OpKind.CUSTOM:
        return cost.bytes_alone(node) or 0, None
    operands = tuple(None if value is None else (value.is_constant, value.type) for value in node.inputs)
    # A value that is used for two operands of a node is loaded once.
    slots = {value: slot for slot, value in enumerate(node.inputs)}
    same = tuple([slots[value] for value in node.inputs]) if len(slots) < len(node.inputs) else ()
    key = type(node.op), node.op, operands, same, tuple(value.type for value in node.outputs)
    if key not in cache:
        traffic = cost.bytes_alone(node)
        is_local = traffic is not None and locality_of(node, chip).is_local
        kind = NodeKind.of(node, hardware.bytes_per_mac(cost.arithmetic_type(node))) if is_local else None
        cache[key] = traffic or 0, kind
    return cache[key]


def _joins(facts: Facts, previous: Facts, position: int, last_uses: LastUses) -> bool:
    """Return True if a node uses a result of the previous one, and fewer bytes are live after the node than before it.

    Also return True if the number of live bytes does not change and the node has no multiply-accumulates: a group with
    both nodes then needs little more memory than a group with the previous one.
    """
    if facts.kind is None or previous.kind is None or set(previous.results).isdisjoint(facts.reads):
        return False
    born = zip(facts.kind.results, facts.last_uses, strict=True)
    more = sum([math.prod(shape) for shape, user in born if user > position])
    read = dict(zip(facts.reads, facts.kind.operands, strict=True))
    less = sum([math.prod(item.shape) for value, item in read.items() if last_uses.of(value) == position])
    return more < less or (more == less and not facts.kind.mac_bytes)
