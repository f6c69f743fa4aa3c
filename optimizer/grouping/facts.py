"""What the planner knows of every node, and equal numbers for nodes that are alike."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tpuconvert.optimizer.grouping.candidates import Shape
from tpuconvert.optimizer.grouping.layout import shape4, size_of
from tpuconvert.optimizer.grouping.slicing import Cut, Rule, row_multiple, rules
from tpuconvert.schema import cost
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.hardware import Hardware
from tpuconvert.schema.light_dataclass import dataclass
from tpuconvert.schema.locality import locality_of
from tpuconvert.schema.op import OpKind
from tpuconvert.schema.types import Chip


class Operand(NamedTuple):
    """One operand that is there. ``value`` numbers values of the graph, and is -1 for a constant."""

    place: int
    value: int
    shape: Shape
    cuts: tuple[Cut | None, Cut | None, Cut | None]


@dataclass(frozen=True)
class Facts:
    """One node.

    Args:
        node: it.
        operands: those that are there.
        reads: numbers of the operands that are no constants.
        results: numbers of the results.
        shapes: of the results.
        last_readers: per result the place of the last node that reads it; past the end for an output of the graph.
        can_cut: whether there is a rule for N, C and H.
        row_multiple: so many rows of the results come at a time.
        skips_rows: whether windows leave rows of an operand out.
        has_constants: whether some operands are constants.
        cuts_rows_of_constants: whether a part of the results needs only some rows of one of these.
        steps: what its multiply-accumulate steps weigh, in bytes.
        like: equal for nodes that the planner cannot tell apart, with the places of those they read counted from here.
    """

    node: Node
    operands: tuple[Operand, ...]
    reads: tuple[int, ...]
    results: tuple[int, ...]
    shapes: tuple[Shape, ...]
    last_readers: tuple[int, ...]
    can_cut: tuple[bool, bool, bool]
    row_multiple: int
    skips_rows: bool
    has_constants: bool
    cuts_rows_of_constants: bool
    steps: float
    like: int


class _Use(NamedTuple):
    """What follows from the operator and its types alone. ``number`` is the same for the same."""

    number: int
    cuts: tuple[tuple[Cut | None, Cut | None, Cut | None], ...]
    can_cut: tuple[bool, bool, bool]
    shapes: tuple[Shape | None, ...]
    results: tuple[Shape, ...]
    row_multiple: int
    skips_rows: bool
    steps: float


class FactsOfGraph:
    """The facts of the nodes that can be in a group; None for the others.

    Attributes:
        facts: per place in the order.
        moved: bytes that each node moves alone; 0 where they are not known.
    """

    def __init__(self, graph: Graph, order: Sequence[Node], chip: Chip, hardware: Hardware) -> None:
        self._chip = chip
        self._hardware = hardware
        self._places = {node: place for place, node in enumerate(order)}
        self._outputs = set(graph.outputs)
        self._numbers: dict[Value, int] = {}
        self._producers: dict[int, tuple[int, int]] = {}
        self._used_last: dict[int, int] = {}
        self._kinds: dict[Any, int] = {}
        self._uses: dict[Any, tuple[int, _Use | None]] = {}
        self.moved: list[int] = []
        self.facts = [self._facts(node, place) for place, node in enumerate(order)]

    def is_tied(self, place: int) -> bool:
        """Whether the next node does nothing but change the elements that this one makes: no group ends between them.

        Together they need little more memory than the first alone, and move less.
        """
        mine, following = self.facts[place], self.facts[place + 1] if place + 1 < len(self.facts) else None
        if mine is None or following is None or following.steps or mine.last_readers != (place + 1,):
            return False
        return following.reads == (mine.results[0],) and all(
            cut is not None and cut.is_same for item in following.operands if item.value >= 0 for cut in item.cuts
        )

    def _number(self, value: Value) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def _facts(self, node: Node, place: int) -> Facts | None:
        moved, use = self._use(node)
        self.moved.append(moved)
        if use is None:
            return None
        operands, links = [], []
        for index, (value, shape) in enumerate(zip(node.inputs, use.shapes, strict=True)):
            if value is not None and shape is not None:
                number = -1 if value.is_constant else self._number(value)
                operands.append(Operand(index, number, shape, use.cuts[index]))
                links.append(self._link(number, place))
        results = tuple(map(self._number, node.outputs))
        readers = tuple(map(self._last_reader, node.outputs))
        end = len(self._places)
        kind = use.number, tuple(links), tuple(reader - place if reader < end else -1 for reader in readers)
        for index, number in enumerate(results):
            self._producers[number] = place, index
        like = self._kinds.setdefault(kind, len(self._kinds))
        return Facts(
            node=node,
            operands=tuple(operands),
            reads=tuple([item.value for item in operands if item.value >= 0]),
            results=results,
            shapes=use.results,
            last_readers=readers,
            can_cut=use.can_cut,
            row_multiple=use.row_multiple,
            skips_rows=use.skips_rows,
            has_constants=any(item.value < 0 for item in operands),
            cuts_rows_of_constants=any(item.value < 0 and item.cuts[2] is not None for item in operands),
            steps=use.steps,
            like=like,
        )

    def _use(self, node: Node) -> tuple[int, _Use | None]:
        """Bytes that a node moves alone, and what is known of it when it can be in a group."""
        if node.op.kind is OpKind.CUSTOM:
            return cost.bytes_alone(node) or 0, None
        operands = tuple(None if value is None else (value.is_constant, value.type) for value in node.inputs)
        # A value that is read twice is moved once.
        same = tuple(map(node.inputs.index, node.inputs)) if len({*node.inputs}) < len(node.inputs) else ()
        key = type(node.op), node.op, operands, same, tuple(value.type for value in node.outputs)
        if key not in self._uses:
            self._uses[key] = self._looked_at(node, len(self._uses))
        return self._uses[key]

    def _looked_at(self, node: Node, number: int) -> tuple[int, _Use | None]:
        moved = cost.bytes_alone(node)
        if moved is None or not locality_of(node, self._chip).is_local:
            return moved or 0, None
        by_axis = rules(node)
        return moved, _Use(
            number,
            tuple((_cut(by_axis[0], i), _cut(by_axis[1], i), _cut(by_axis[2], i)) for i in range(len(node.inputs))),
            (_keeps_parts(by_axis[0]), _keeps_parts(by_axis[1]), by_axis[2] is not None),
            tuple(None if value is None else _shape(value) for value in node.inputs),
            tuple(map(_shape, node.outputs)),
            row_multiple(node),
            any(cut is not None and cut.skips for cut in by_axis[2] or ()),
            (cost.macs(node) or 0) * self._hardware.bytes_per_mac(cost.arithmetic_type(node)),
        )

    def _last_reader(self, value: Value) -> int:
        if value in self._outputs or not value.uses:
            return len(self._places)
        return max(self._places.get(user, len(self._places)) for user, _ in value.uses)

    def _link(self, number: int, place: int) -> tuple[int, int]:
        """Where an operand comes from, counted back from the node: its producer, or who read it before."""
        if number < 0:
            return 0, -1
        known = self._producers.get(number)
        if known is not None:
            return place - known[0], known[1]
        before = self._used_last.get(number, -1)
        self._used_last[number] = place
        return (place - before if before >= 0 else -1), -2


def _shape(value: Value) -> Shape:
    n, c, h, rest = shape4(value)
    return Shape(n, c, h, rest * size_of(value))


def _keeps_parts(rule: Rule) -> bool:
    """Whether equal parts of the results need equal parts of the operands, or all of them."""
    return rule is not None and all(cut is None or cut.is_same for cut in rule)


def _cut(rule: Rule, place: int) -> Cut | None:
    return None if rule is None else rule[place]
