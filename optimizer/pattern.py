"""Patterns of a few connected nodes, what a match of one holds, and sketches of patterns.

A sketch is what can be said of a pattern without its operators being loaded: their names stand in their place. Whatever
a pattern matches its sketch does not refuse.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuconvert.schema.graph import Graph, Node, Source, Value
from tpuconvert.schema.op import Op

Names = tuple[str, ...]
"""Of operators, or of their classes."""

Given = type[Op] | str
"""An operator in a pattern: its class, which stands for what is derived from it too, or its name in the set."""


class Kinds:
    """Some operators, as patterns have them: ``node.op in kinds``."""

    __slots__ = ("_classes", "_names")

    def __init__(self, *given: Given) -> None:
        self._classes = tuple([item for item in given if not isinstance(item, str)])
        self._names = tuple([item for item in given if isinstance(item, str)])

    def __contains__(self, op: Op) -> bool:
        return isinstance(op, self._classes) or op.name in self._names

    def __bool__(self) -> bool:
        return bool(self._classes or self._names)

    @property
    def names(self) -> Names:
        """The names of the classes, and the others."""
        return (*_names(self._classes), *self._names)


def _names(ops: Iterable[type]) -> Names:
    return tuple([op.__name__ for op in ops])


@dataclass(frozen=True)
class Pattern:
    """A node of one of some operators, whose operands are patterns, or names to bind values to.

    A name in lower case binds any value, one in capitals a constant; a trailing ``?`` allows an absent operand, which
    binds None. Operands beyond the listed ones are not looked at.
    """

    ops: Kinds
    operands: tuple[Pattern | str, ...]
    name: str
    sole_user: bool
    where: Callable[[Node], bool] | None = field(default=None, compare=False)
    reads: Kinds = field(default_factory=Kinds)
    next_to: Kinds = field(default_factory=Kinds)

    def only(self, where: Callable[[Node], bool]) -> Pattern:
        """The same pattern for those nodes of which this holds as well."""
        own = self.where
        return dataclasses.replace(self, where=lambda node: (own is None or own(node)) and where(node))


def p(
    ops: Given | tuple[Given, ...],
    *operands: Pattern | str,
    name: str,
    sole_user: bool = False,
    where: Callable[[Node], bool] | None = None,
    reads: Given | tuple[Given, ...] = (),
    next_to: Given | tuple[Given, ...] = (),
) -> Pattern:
    """Make a pattern.

    Args:
        ops: the operator, or several of which any will do. A class stands for what is derived from it too; a name of
            the operator set for that operator alone, and its definition need not be loaded.
        operands: one per operand that matters.
        name: the node is bound to this name.
        sole_user: the node's result must have no other reader and not leave the graph; where it has, the match is
            counted as skipped.
        where: what else must hold of the node. A node of which it does not is no match, and nothing is counted: for
            conditions that most nodes of the operator do not meet.
        reads: operators of which at least one has to make an operand, whichever that is. A node that reads nothing of
            the kind is no match either, and is passed over without a look at ``where``.
        next_to: the same of operators that make an operand or read a result.
    """
    return Pattern(_kinds(ops), operands, name, sole_user, where, _kinds(reads), _kinds(next_to))


def _kinds(given: Given | tuple[Given, ...]) -> Kinds:
    return Kinds(*given) if isinstance(given, tuple) else Kinds(given)


pattern = p
"""The name that plugins know it by."""


class Match:
    """The nodes and values that a pattern bound, as attributes under their names.

    ``root`` is the pattern's outermost node; ``sources`` those of all matched nodes. ``memory`` is for what a rule has
    found out about more than one root; it lasts until no rule of the stage fires any more.
    """

    memory: dict[object, object]

    def __init__(self, root: Node) -> None:
        self.root = root
        self._bound: dict[str, Any] = {}
        self.shared = ""

    def __getattr__(self, name: str) -> Any:
        try:
            return self._bound[name]
        except KeyError:
            raise AttributeError(f"the pattern binds no '{name}'") from None

    def bind(self, name: str, item: Node | Value | None) -> bool:
        """Bind a name; False when it is bound to something else already."""
        return self._bound.setdefault(name, item) is item

    def binds(self, name: str) -> bool:
        """Whether the pattern that matched has this name: the patterns of one rule may differ in theirs."""
        return name in self._bound

    @property
    def nodes(self) -> dict[str, Node]:
        """The matched nodes by their names in the pattern, the root first."""
        return {name: item for name, item in self._bound.items() if isinstance(item, Node)}

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of all matched nodes, operands before their users."""
        return tuple(dict.fromkeys([source for node in reversed(self.nodes.values()) for source in node.sources]))


def match(pattern: Pattern, node: Node, graph: Graph) -> Match | None:
    """Match a pattern with ``node`` as its root.

    Returns:
        None when it does not match. A match whose ``shared`` names a node fits but for a ``sole_user`` demand.
    """
    found = Match(node)
    return found if _fits(pattern, node, graph, found) else None


Made = type[Op] | str | None
"""Where an operand comes from: the operator that makes it, or one of the words below; None where there is none."""

CONSTANT, GIVEN = "constant", "given"
"""An operand that has data, and one that is an input of the graph."""


def makers(node: Node, most: int | None = None) -> tuple[Made, ...]:
    """Where the operands of a node come from, or the first of them."""
    return tuple(
        [
            None
            if value is None
            else value.producer.op.__class__
            if value.producer is not None
            else GIVEN
            if value.data is None
            else CONSTANT
            for value in node.inputs[:most]
        ]
    )


Sketch = tuple[Names, tuple["Sketch | str", ...], Names, Names]
"""Of a pattern: its operators, its operands, what it ``reads``, and what it is ``next_to``."""


def sketch_of(pattern: Pattern) -> Sketch:
    """The sketch of a pattern."""
    operands = tuple([item if isinstance(item, str) else sketch_of(item) for item in pattern.operands])
    return pattern.ops.names, operands, pattern.reads.names, pattern.next_to.names


_FAMILIES: dict[type[Op], frozenset[str]] = {}  # looked up once


def is_one_of(op: type[Op], names: Iterable[str]) -> bool:
    """Whether an operator has one of these names, or its class does, or one that it is derived from."""
    own = _FAMILIES.get(op)
    if own is None:
        own = _FAMILIES[op] = frozenset((op.name, *_names(op.__mro__)))
    return not own.isdisjoint(names)


def may_match(sketch: Sketch, op: type[Op], made: Sequence[Made]) -> bool:
    """Whether a node of this operator can match, as far as it says where its operands come from.

    That refuses most, and is the same for all nodes that are alike: nobody needs to look at them one by one.
    """
    ops, operands, reads, _ = sketch
    if not is_one_of(op, ops):
        return False
    for index, wanted in enumerate(operands):
        maker = made[index] if index < len(made) else None
        if isinstance(wanted, tuple):
            if not (isinstance(maker, type) and is_one_of(maker, wanted[0])):
                return False
        elif not wanted.endswith("?") if maker is None else wanted.isupper() and maker != CONSTANT:
            return False
    return not reads or any(isinstance(maker, type) and is_one_of(maker, reads) for maker in made)


def may_start(sketch: Sketch, node: Node) -> bool:
    """Whether a node can match, as far as the operators around it say, and which values are the same."""
    return _may_fit(sketch, node, {})


def _may_fit(sketch: Sketch, node: Node, bound: dict[str, Value | None]) -> bool:
    _, operands, _, next_to = sketch
    if not may_match(sketch, node.op.__class__, makers(node)):
        return False
    if next_to and not any(is_one_of(other.op.__class__, next_to) for other in _neighbours(node)):
        return False
    for index, wanted in enumerate(operands):
        value = node.inputs[index] if index < len(node.inputs) else None
        if isinstance(wanted, str):
            if bound.setdefault(wanted.rstrip("?"), value) is not value:
                return False
        elif value is None or value.producer is None or not _may_fit(wanted, value.producer, bound):
            return False
    return True


def _neighbours(node: Node) -> Iterator[Node]:
    yield from _above(node)
    for value in node.outputs:
        for reader, _ in value.uses:
            yield reader


def _above(node: Node) -> Iterator[Node]:
    for value in node.inputs:
        if value is not None and value.producer is not None:
            yield value.producer


def _fits(pattern: Pattern, node: Node, graph: Graph, found: Match) -> bool:
    if node.op not in pattern.ops or not found.bind(pattern.name, node):
        return False
    if pattern.reads and not any(other.op in pattern.reads for other in _above(node)):
        return False
    if pattern.next_to and not any(other.op in pattern.next_to for other in _neighbours(node)):
        return False
    if pattern.where is not None and not pattern.where(node):
        return False
    for index, wanted in enumerate(pattern.operands):
        value = node.inputs[index] if index < len(node.inputs) else None
        if isinstance(wanted, str):
            if not _binds(wanted, value, found):
                return False
            continue
        if value is None or value.producer is None or not _fits(wanted, value.producer, graph, found):
            return False
        if wanted.sole_user and not graph.is_sole_use(value):
            found.shared = wanted.name
    return True


def _binds(wanted: str, value: Value | None, found: Match) -> bool:
    if value is None:
        return wanted.endswith("?") and found.bind(wanted[:-1], None)
    return (value.data is not None or not wanted.isupper()) and found.bind(wanted.rstrip("?"), value)
