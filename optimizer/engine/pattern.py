"""Patterns: templates of a few connected nodes, and matches that bind names to nodes and values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.graph.graph_elements import JoinedSources, Sources

Operator = type[Op] | str | Trait
"""Operators in a pattern: an operator class including derived classes, the name of one operator, or a trait."""


class OperatorSet:
    """The operators that a pattern accepts: ``node.op in operators``."""

    __slots__ = ("_classes", "_included", "_names", "_traits")

    def __init__(self, *operators: Operator) -> None:
        self._classes = tuple([item for item in operators if isinstance(item, type)])
        self._names = tuple([item for item in operators if isinstance(item, str)])
        self._traits = tuple([item for item in operators if isinstance(item, Trait)])
        self._included: dict[type[Op], bool] = {}

    def __contains__(self, op: Op) -> bool:
        return self.includes(op.__class__)

    def __bool__(self) -> bool:
        return bool(self._classes or self._names or self._traits)

    def includes(self, op: type[Op]) -> bool:
        """Return True if the set contains the operators of a class."""
        cached = self._included.get(op)
        if cached is None:
            cached = (
                issubclass(op, self._classes) or op.name in self._names or any(t in op.traits for t in self._traits)
            )
            self._included[op] = cached
        return cached


@dataclass(frozen=True)
class Pattern:
    """Template of a node: the accepted operators, and for each operand a pattern or the name that the value gets.

    A name in lower case matches any value, a name in capitals only a constant. A trailing ``?`` allows an absent
    operand; the name is then bound to None. Operands beyond the listed ones are ignored.
    """

    ops: OperatorSet
    operands: tuple[Pattern | str, ...]
    name: str
    sole_user: bool
    where: Callable[[Node], bool] | None = field(default=None, compare=False)
    reads: OperatorSet = field(default_factory=OperatorSet)
    next_to: OperatorSet = field(default_factory=OperatorSet)

    def only(self, where: Callable[[Node], bool]) -> Pattern:
        """Return the pattern restricted to nodes for which ``where`` is true."""
        own = self.where
        return dataclasses.replace(self, where=lambda node: (own is None or own(node)) and where(node))


def p(
    ops: Operator | tuple[Operator, ...] | OperatorSet,
    *operands: Pattern | str,
    name: str,
    sole_user: bool = False,
    where: Callable[[Node], bool] | None = None,
    reads: Operator | tuple[Operator, ...] | OperatorSet = (),
    next_to: Operator | tuple[Operator, ...] | OperatorSet = (),
) -> Pattern:
    """Create a pattern.

    Args:
        ops: the operator, or several alternatives: a class (which includes derived classes), the name of one operator,
            or a trait (which includes every operator that has it).
        operands: a pattern or a name for each operand to check.
        name: the node is bound to this name.
        sole_user: require that the node's result has one user and is not a graph output. A match that fails only here
            is reported as declined.
        where: a further condition on the node. A node that fails it is not reported as declined: use it for conditions
            that most nodes of the operator do not meet.
        reads: at least one operand must be computed by one of these operators. Checked before ``where``.
        next_to: at least one operand must be computed by, or one result used by, one of these operators.
    """
    return Pattern(_operator_set(ops), operands, name, sole_user, where, _operator_set(reads), _operator_set(next_to))


def either_order(
    ops: Operator | tuple[Operator, ...],
    first: Pattern | str,
    second: Pattern | str,
    *,
    name: str,
    sole_user: bool = False,
    where: Callable[[Node], bool] | None = None,
) -> tuple[Pattern, Pattern]:
    """Create the patterns of a binary operator with its operands in both orders. Arguments as ``p``."""
    pairs = (first, second), (second, first)
    one, other = (p(ops, *pair, name=name, sole_user=sole_user, where=where) for pair in pairs)
    return one, other


def _operator_set(operators: Operator | tuple[Operator, ...] | OperatorSet) -> OperatorSet:
    if isinstance(operators, OperatorSet):
        return operators
    return OperatorSet(*operators) if isinstance(operators, tuple) else OperatorSet(operators)


pattern = p
"""Name of ``p`` in the public API, for plugins."""


class Match:
    """The nodes and values that a pattern has bound, as attributes under their names.

    Attributes:
        root: the last node of the pattern.
        shared: the name of a node that fails ``sole_user``, otherwise empty.
        memory: a dictionary in which a rule may cache results between matches. It is dropped when the stage ends.
    """

    memory: dict[object, object]

    def __init__(self, root: Node) -> None:
        self.root = root
        self.shared = ""
        self._bound: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        try:
            return self._bound[name]
        except KeyError:
            raise AttributeError(f"the pattern binds no '{name}'") from None

    def bind(self, name: str, item: Node | Value | None) -> bool:
        """Bind a name; return False if it is bound to another item already."""
        return self._bound.setdefault(name, item) is item

    def binds(self, name: str) -> bool:
        """Return True if the matched pattern binds this name. The patterns of one rule may bind different names."""
        return name in self._bound

    @property
    def nodes(self) -> dict[str, Node]:
        """The matched nodes by their names in the pattern, the root first."""
        return {name: item for name, item in self._bound.items() if isinstance(item, Node)}

    @property
    def sources(self) -> Sources:
        """The sources of all matched nodes, operands before their users."""
        nodes = self.nodes.values()
        if len(nodes) == 1:
            return self.root.unlisted_sources
        return JoinedSources([node.unlisted_sources for node in reversed(nodes)])

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that the matched nodes come from, operands before their users."""
        return tuple(dict.fromkeys([rule for node in reversed(self.nodes.values()) for rule in node.rules]))


def match(pattern: Pattern, node: Node, graph: Graph) -> Match | None:
    """Match a pattern with ``node`` as its root.

    Returns:
        None if the pattern does not match. If it matches except for ``sole_user``, ``shared`` of the match is set.
    """
    binding = Match(node)
    return binding if _match_node(pattern, node, graph, binding) else None


def _match_node(pattern: Pattern, node: Node, graph: Graph, m: Match) -> bool:
    if node.op not in pattern.ops or not m.bind(pattern.name, node):
        return False
    if pattern.reads and not any(other.op in pattern.reads for other in _producers(node)):
        return False
    if pattern.next_to and not any(other.op in pattern.next_to for other in _neighbors(node)):
        return False
    if pattern.where is not None and not pattern.where(node):
        return False
    for index, operand_pattern in enumerate(pattern.operands):
        value = node.inputs[index] if index < len(node.inputs) else None
        if isinstance(operand_pattern, str):
            if not _bind_value(operand_pattern, value, m):
                return False
            continue
        if value is None or value.producer is None or not _match_node(operand_pattern, value.producer, graph, m):
            return False
        if operand_pattern.sole_user and not graph.is_sole_use(value):
            m.shared = operand_pattern.name
    return True


def _bind_value(name: str, value: Value | None, m: Match) -> bool:
    if value is None:
        return name.endswith("?") and m.bind(name[:-1], None)
    return (value.data is not None or not name.isupper()) and m.bind(name.rstrip("?"), value)


def _producers(node: Node) -> Iterator[Node]:
    for value in node.inputs:
        if value is not None and value.producer is not None:
            yield value.producer


def _neighbors(node: Node) -> Iterator[Node]:
    yield from _producers(node)
    for value in node.outputs:
        for user, _ in value.uses:
            yield user
