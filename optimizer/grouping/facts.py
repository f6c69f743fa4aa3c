"""What the planner knows of every node, and equal numbers for nodes that are alike."""

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
    """One operand that is there.

    ``value`` numbers values of the graph, and is -1 for a constant. ``is_read_whole`` says that parts which together
    are all rows of the results need all of its rows; ``filters`` is what ``filters_of`` finds.
    """

    value: int
    shape: Shape
    cuts: tuple[Cut | None, Cut | None, Cut | None]
    is_read_whole: bool
    filters: tuple[int, int] | None


class Use(NamedTuple):
    """What follows from the operator and its types alone.

    Args:
        number: the same for the same.
        can_cut: whether there is a rule for N, C and H.
        shapes: of the operands; None for one that is absent.
        operands: what ``Operand`` has in common with those of other nodes, per operand.
        results: their shapes.
        row_multiple: so many rows of the results come at a time.
        skips_rows: whether windows leave rows of an operand out.
        has_constants: whether some operands are constants.
        cuts_rows_of_constants: whether a part of the results needs only some rows of one of these.
        steps: what its multiply-accumulate steps weigh, in bytes.
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
    """One node.

    Args:
        node: it.
        use: what it has in common with others.
        operands: those that are there.
        reads: numbers of the operands that are no constants.
        results: numbers of the results.
        last_readers: per result the place of the last node that reads it; past the end for an output of the graph.
        is_narrow: whether nodes behind read its only result, and nothing else that it or a node before has to do with.
        like: equal for nodes that the planner cannot tell apart, with the places of those they read counted from here.
    """

    node: Node
    use: Use
    operands: tuple[Operand, ...]
    reads: tuple[int, ...]
    results: tuple[int, ...]
    last_readers: tuple[int, ...]
    is_narrow: bool
    like: int


class FactsOfGraph:
    """The facts of the nodes that can be in a group; None for the others.

    Attributes:
        facts: per place in the order.
        likes: ``like`` per place, -1 where there are no facts.
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
        self._uses: dict[Any, tuple[int, Use | None]] = {}
        self._seen_until = -1  # the last place that reads a value which has been seen
        self.moved: list[int] = []
        self.facts = [self._facts(node, place) for place, node in enumerate(order)]
        self.likes = [-1 if facts is None else facts.like for facts in self.facts]

    def is_tied(self, place: int) -> bool:
        """Whether the next node does nothing but change the elements that this one makes: no group ends between them.

        Together they need little more memory than the first alone, and move less.
        """
        mine, following = self.facts[place], self.facts[place + 1] if place + 1 < len(self.facts) else None
        if mine is None or following is None or following.use.steps or mine.last_readers != (place + 1,):
            return False
        return following.reads == (mine.results[0],) and all(
            cut is not None and cut.is_same for item in following.operands if item.value >= 0 for cut in item.cuts
        )

    def _facts(self, node: Node, place: int) -> Facts | None:
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
                        self._seen_until = max(self._seen_until, self._read_last(value))
                    reads.append(number)
                operands.append(Operand(number, shape, *use.operands[index]))
                links.append(self._link(number, place))
        until = [self._read_last(value) for value in node.outputs]
        is_narrow = len(until) == 1 and self._seen_until <= place < until[0]
        self._seen_until = max(self._seen_until, *until)
        end = len(self._places)
        results, readers = [], []
        for index, value in enumerate(node.outputs):
            number = self._numbers[value] = len(self._numbers)
            self._producers[number] = place, index
            results.append(number)
            readers.append(end if value in self._outputs or not value.uses else until[index])
        kind = use.number, tuple(links), tuple([reader - place if reader < end else -1 for reader in readers])
        like = self._kinds.setdefault(kind, len(self._kinds))
        found = tuple(operands), tuple(reads), tuple(results), tuple(readers)
        return Facts(node, use, *found, is_narrow, like)

    def _use(self, node: Node) -> tuple[int, Use | None]:
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

    def _looked_at(self, node: Node, number: int) -> tuple[int, Use | None]:
        moved = cost.bytes_alone(node)
        if moved is None or not locality_of(node, self._chip).is_local:
            return moved or 0, None
        by_axis = rules(node)
        shapes = tuple([None if value is None else _shape(value) for value in node.inputs])
        results = tuple(map(_shape, node.outputs))
        rows = by_axis[2] or (None,) * len(shapes)
        constants = [place for place, value in enumerate(node.inputs) if value is not None and value.is_constant]
        return moved, Use(
            number=number,
            can_cut=(_keeps_parts(by_axis[0]), _keeps_parts(by_axis[1]), by_axis[2] is not None),
            shapes=shapes,
            operands=tuple(
                [
                    (
                        (_cut(by_axis[0], place), _cut(by_axis[1], place), rows[place]),
                        _is_read_whole(rows[place], shape, results[0]),
                        filters_of(node, place),
                    )
                    for place, shape in enumerate(shapes)
                ]
            ),
            results=results,
            row_multiple=row_multiple(node),
            skips_rows=any(cut is not None and cut.skips for cut in rows),
            has_constants=bool(constants),
            cuts_rows_of_constants=any(rows[place] is not None for place in constants),
            steps=(cost.macs(node) or 0) * self._hardware.bytes_per_mac(cost.arithmetic_type(node)),
        )

    def _read_last(self, value: Value) -> int:
        """The place of the last node that reads a value, past the end for one that is not in the order."""
        places = self._places
        return max([places.get(user, len(places)) for user, _ in value.uses], default=-1)

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


def _is_read_whole(cut: Cut | None, shape: Shape | None, result: Shape) -> bool:
    """Whether intervals that are all rows of the results, each beginning where one ends, need all rows of an operand.

    Where a cut skips nothing, the next interval begins in the operand where the last one ended, or before.
    """
    return cut is None or shape is None or (not cut.skips and cut.of(0, result.h, shape.h) == (0, shape.h))
