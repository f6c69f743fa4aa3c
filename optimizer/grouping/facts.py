"""Planner data of every node, and equal numbers for equivalent nodes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tpuconvert.optimizer.grouping.candidates import Shape
from tpuconvert.optimizer.grouping.layout import filters_of, shape4, size_of
from tpuconvert.optimizer.grouping.slicing import Cut, Rule, row_multiple, rules
from tpuconvert.schema import cost
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.hardware import Hardware
from tpuconvert.schema.locality import locality_of
from tpuconvert.schema.op import OpKind
from tpuconvert.schema.types import Chip


class Operand(NamedTuple):
    """Operand that is not omitted.

    ``value`` is the number of the value in the graph, -1 for a constant. ``is_read_whole`` is True if tiles that
    together have all rows of the results need all rows of the operand. ``filters`` is the result of ``filters_of``.
    """

    value: int
    shape: Shape
    cuts: tuple[Cut | None, Cut | None, Cut | None]
    is_read_whole: bool
    filters: tuple[int, int] | None


class Use(NamedTuple):
    """Properties that depend only on the operator and its types.

    Args:
        number: equal for equal properties.
        can_cut: whether N, C and H can be tiled.
        shapes: shapes of the operands; None for an omitted one.
        operands: ``cuts``, ``is_read_whole`` and ``filters`` of each ``Operand``.
        results: shapes of the results.
        row_multiple: tiles of the results begin and end at a multiple of this number of rows.
        skips_rows: whether windows skip rows of an operand.
        has_constants: whether an operand is a constant.
        cuts_rows_of_constants: whether a tile of the results needs only some rows of a constant.
        steps: cost of its multiply-accumulates, in bytes.
    """

    number: int
    can_cut: tuple[bool, bool, bool]
    shapes: tuple[Shape | None, ...]
    operands: tuple[tuple[tuple[Cut | None, Cut | None, Cut | None], bool, tuple[int, int] | None], ...]
    results: tuple[Shape, ...]
    row_multiple: int
    skips_rows: bool
    has_constants: bool
    cuts_rows_of_constants: bool
    steps: float


class Facts(NamedTuple):
    """Planner data of one node.

    Args:
        node: the node.
        use: properties that it shares with nodes of equal operator and types.
        operands: operands that are not omitted.
        reads: numbers of the operands that are not constants.
        results: numbers of the results.
        last_users: per result, position of its last user; the number of nodes for a graph output.
        is_narrow: whether its single result is the only value of this and earlier nodes that later nodes use.
        like: number of the class of equivalent nodes; producers and users are compared by their distance.
    """

    node: Node
    use: Use
    operands: tuple[Operand, ...]
    reads: tuple[int, ...]
    results: tuple[int, ...]
    last_users: tuple[int, ...]
    is_narrow: bool
    like: int


class FactsOfGraph:
    """Planner data of the nodes that can be in a group; None for the others.

    Attributes:
        facts: planner data per position in the order.
        likes: ``like`` per position, -1 for nodes without facts.
        moved: bytes that each node moves without grouping; 0 if unknown.
    """

    def __init__(self, graph: Graph, order: Sequence[Node], chip: Chip, hardware: Hardware) -> None:
        self._chip = chip
        self._hardware = hardware
        self._positions = {node: position for position, node in enumerate(order)}
        self._outputs = set(graph.outputs)
        self._numbers: dict[Value, int] = {}
        self._producers: dict[int, tuple[int, int]] = {}
        self._used_last: dict[int, int] = {}
        self._kinds: dict[Any, int] = {}
        self._uses: dict[Any, tuple[int, Use | None]] = {}
        self._seen_until = -1  # last position that uses a value seen so far
        self.moved: list[int] = []
        self.facts = [self._facts(node, position) for position, node in enumerate(order)]
        self.likes = [-1 if facts is None else facts.like for facts in self.facts]

    def is_tied(self, position: int) -> bool:
        """Return True if no group ends after this node, because the next one is element-wise on its result.

        Together they need little more memory than the first alone, and move less.
        """
        mine, following = self.facts[position], self.facts[position + 1] if position + 1 < len(self.facts) else None
        if mine is None or following is None or following.use.steps or mine.last_users != (position + 1,):
            return False
        return following.reads == (mine.results[0],) and all(
            cut is not None and cut.is_same for item in following.operands if item.value >= 0 for cut in item.cuts
        )

    def _facts(self, node: Node, position: int) -> Facts | None:
        moved, use = self._use(node)
        self.moved.append(moved)
        if use is None:
            return None
        operands, links, reads = [], [], []
        for index, (value, shape) in enumerate(zip(node.inputs, use.shapes, strict=True)):
            if value is not None and shape is not None:
                number = -1
                if not value.is_constant:
                    number = self._numbers.get(value, -1)
                    if number < 0:
                        number = self._numbers[value] = len(self._numbers)
                        self._seen_until = max(self._seen_until, self._last_use(value))
                    reads.append(number)
                operands.append(Operand(number, shape, *use.operands[index]))
                links.append(self._link(number, position))
        until = [self._last_use(value) for value in node.outputs]
        is_narrow = len(until) == 1 and self._seen_until <= position < until[0]
        self._seen_until = max(self._seen_until, *until)
        end = len(self._positions)
        results, users = [], []
        for index, value in enumerate(node.outputs):
            number = self._numbers[value] = len(self._numbers)
            self._producers[number] = position, index
            results.append(number)
            users.append(end if value in self._outputs or not value.uses else until[index])
        kind = use.number, tuple(links), tuple([user - position if user < end else -1 for user in users])
        like = self._kinds.setdefault(kind, len(self._kinds))
        found = tuple(operands), tuple(reads), tuple(results), tuple(users)
        return Facts(node, use, *found, is_narrow, like)

    def _use(self, node: Node) -> tuple[int, Use | None]:
        """Bytes that a node moves without grouping, and its properties if it can be in a group."""
        if node.op.kind is OpKind.CUSTOM:
            return cost.bytes_alone(node) or 0, None
        operands = tuple(None if value is None else (value.is_constant, value.type) for value in node.inputs)
        # A value that is two operands of a node is moved once.
        same = tuple(map(node.inputs.index, node.inputs)) if len({*node.inputs}) < len(node.inputs) else ()
        key = type(node.op), node.op, operands, same, tuple(value.type for value in node.outputs)
        if key not in self._uses:
            self._uses[key] = self._analyze(node, len(self._uses))
        return self._uses[key]

    def _analyze(self, node: Node, number: int) -> tuple[int, Use | None]:
        moved = cost.bytes_alone(node)
        if moved is None or not locality_of(node, self._chip).is_local:
            return moved or 0, None
        by_axis = rules(node)
        shapes = tuple([None if value is None else _shape(value) for value in node.inputs])
        results = tuple(map(_shape, node.outputs))
        rows = by_axis[2] or (None,) * len(shapes)
        constants = [slot for slot, value in enumerate(node.inputs) if value is not None and value.is_constant]
        return moved, Use(
            number=number,
            can_cut=(_keeps_parts(by_axis[0]), _keeps_parts(by_axis[1]), by_axis[2] is not None),
            shapes=shapes,
            operands=tuple(
                [
                    (
                        (_cut(by_axis[0], slot), _cut(by_axis[1], slot), rows[slot]),
                        _is_read_whole(rows[slot], shape, results[0]),
                        filters_of(node, slot),
                    )
                    for slot, shape in enumerate(shapes)
                ]
            ),
            results=results,
            row_multiple=row_multiple(node),
            skips_rows=any(cut is not None and cut.skips for cut in rows),
            has_constants=bool(constants),
            cuts_rows_of_constants=any(rows[slot] is not None for slot in constants),
            steps=(cost.macs(node) or 0) * self._hardware.bytes_per_mac(cost.arithmetic_type(node)),
        )

    def _last_use(self, value: Value) -> int:
        """Position of the last user of a value; the number of nodes if a user is not in the order."""
        positions = self._positions
        return max([positions.get(user, len(positions)) for user, _ in value.uses], default=-1)

    def _link(self, number: int, position: int) -> tuple[int, int]:
        """Distance back to the producer of an operand and its result index, or to the previous user of it and -2."""
        if number < 0:
            return 0, -1
        known = self._producers.get(number)
        if known is not None:
            return position - known[0], known[1]
        before = self._used_last.get(number, -1)
        self._used_last[number] = position
        return (position - before if before >= 0 else -1), -2


def _shape(value: Value) -> Shape:
    n, c, h, rest = shape4(value)
    return Shape(n, c, h, rest * size_of(value))


def _keeps_parts(rule: Rule) -> bool:
    """Return True if an equal tile of the results needs an equal tile of each operand, or all of it."""
    return rule is not None and all(cut is None or cut.is_same for cut in rule)


def _cut(rule: Rule, slot: int) -> Cut | None:
    return None if rule is None else rule[slot]


def _is_read_whole(cut: Cut | None, shape: Shape | None, result: Shape) -> bool:
    """Return True if consecutive intervals that together have all rows of the results need all rows of an operand.

    If a cut skips nothing, each interval of the operand begins at the end of the previous one, or before.
    """
    return cut is None or shape is None or (not cut.skips and cut.of(0, result.h, shape.h) == (0, shape.h))
