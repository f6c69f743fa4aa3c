"""The rule engine: rules are patterns with a replacement; the engine does the bookkeeping.

A rule is a function of the graph and a match that returns what replaces the root's results, or a ``Skip`` with the
reason. The engine replaces the uses, hands over names, annotations and sources, checks that types and annotations did
not change, and removes what nobody reads any more. Rules of one stage run until none fires.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import numpy as np

import tpuconvert.optimizer.rules
from tpuconvert.optimizer.annotations import rounds_between
from tpuconvert.optimizer.pattern import Made, Match, Pattern, makers, match, may_match
from tpuconvert.optimizer.trace import Trace
from tpuconvert.schema.errors import InternalError
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.light_dataclass import dataclass
from tpuconvert.schema.op import Op

__all__ = ["Replacement", "RewriteRule", "Skip", "Trace", "rule", "rules_of", "run_rules"]

_FIRINGS_PER_NODE = 50
"""A rule set that fires more often than this, per node of the graph, does not come to an end."""


@dataclass(frozen=True)
class Skip:
    """Why a rule declined a match."""

    reason: str


Results = tuple[Value | None, ...] | Mapping[Value, Value]
"""The new values: one per result of the root (None for one that nobody reads), or, where a rule rewrites a region that
is read in several places, one for each old value that is read outside of it."""

Replacement = Value | Results | Skip
"""What a rule returns: the new result of the root, or several, or a Skip."""

RuleFunction = Callable[[Graph, Match], Replacement]


@dataclass(frozen=True)
class RewriteRule:
    """One rewrite: its patterns, the stage it runs in, and the function that checks and replaces.

    ``sees_annotations``: the rule itself decides what the annotations of the matched nodes inside allow. For all
    others the engine declines where one of them is rounded to a grid of its own.
    """

    name: str
    patterns: tuple[Pattern, ...]
    stage: str
    apply: RuleFunction
    sees_annotations: bool = False


_RULES: dict[str, RewriteRule] = {}


def rule(*patterns: Pattern, stage: str, sees_annotations: bool = False) -> Callable[[RuleFunction], RuleFunction]:
    """Register a rule for one or several patterns, tried in this order. Two rules of one name are an error."""

    def register(function: RuleFunction) -> RuleFunction:
        name = function.__name__
        if name in _RULES:
            raise ValueError(f"two rules are called '{name}'")
        _RULES[name] = RewriteRule(name, patterns, stage, function, sees_annotations)
        return function

    return register


def rules_of(stage: str) -> list[RewriteRule]:
    """The rules of a stage in alphabetical order of their names. Every module of the rules folder is loaded."""
    _load_rules()
    return sorted((item for item in _RULES.values() if item.stage == stage), key=lambda item: item.name)


@functools.cache
def _load_rules() -> None:
    for module in sorted(pkgutil.iter_modules(tpuconvert.optimizer.rules.__path__), key=lambda item: item.name):
        importlib.import_module(f"tpuconvert.optimizer.rules.{module.name}")


def run_rules(graph: Graph, rules: Iterable[RewriteRule], trace: Trace, most: int | None = None) -> int:
    """Apply rules until none fires, or until ``most`` have: the same graph gives the same firings in the same order.

    Returns:
        How many fired.

    Raises:
        InternalError: when the rules do not come to an end, or one changes a type or an annotation.
    """
    candidates = _Candidates(tuple(rules))
    budget = _FIRINGS_PER_NODE * (len(graph) + 10)
    nodes = graph.sorted_nodes()
    roots = {op for op in {node.op.__class__ for node in nodes} if candidates.of(op).pairs}
    queue = deque([node for node in nodes if node.op.__class__ in roots])
    waiting = set(queue)
    fired = 0
    memory: dict[object, object] = {}
    with np.errstate(all="ignore"):  # rules compute with constants, and look at what comes of it
        while queue and fired != most:
            node = queue.popleft()
            waiting.remove(node)
            pairs = candidates.of(node.op.__class__).reading(node)
            affected = _apply_first(graph, node, pairs, trace, memory) if pairs and node in graph else None
            if affected is None:
                continue
            fired += 1
            if fired > budget:
                raise InternalError(f"the rules do not come to an end: {trace.fired.most_common(3)}")
            fresh = [other for other in dict.fromkeys(affected) if other in graph and other not in waiting]
            queue.extend(fresh)
            waiting.update(fresh)
    if fired:
        graph.sort()
    return fired


_Pairs = list[tuple[RewriteRule, Pattern]]


class _OfOperator:
    """Which patterns of which rules can have nodes of an operator as their root; fewer for what such a node reads."""

    def __init__(self, op: type[Op], rules: tuple[RewriteRule, ...]) -> None:
        pairs = [(item, pattern) for item in rules for pattern in item.patterns]
        self._op = op
        self.pairs = [(item, pattern) for item, pattern in pairs if issubclass(op, pattern.ops)]
        self._most = max((len(pattern.operands) for _, pattern in self.pairs), default=0)
        self._reading: dict[tuple[Made, ...], _Pairs] = {}

    def reading(self, node: Node) -> _Pairs:
        """Those that the operators and constants which a node reads do not rule out."""
        if not self.pairs:
            return self.pairs
        made = makers(node, self._most)
        found = self._reading.get(made)
        if found is None:
            found = [(item, pattern) for item, pattern in self.pairs if may_match(pattern, self._op, made)]
            self._reading[made] = found
        return found


class _Candidates:
    """Which patterns of which rules can have a given operator as their root."""

    def __init__(self, rules: tuple[RewriteRule, ...]) -> None:
        self._rules = rules
        self._of: dict[type[Op], _OfOperator] = {}

    def of(self, op: type[Op]) -> _OfOperator:
        found = self._of.get(op)
        if found is None:
            found = self._of[op] = _OfOperator(op, self._rules)
        return found


def _apply_first(
    graph: Graph, node: Node, pairs: _Pairs, trace: Trace, memory: dict[object, object]
) -> list[Node] | None:
    """Apply the first rule that fires; returns the nodes worth another look, or None."""
    for item, pattern in pairs:
        found = match(pattern, node, graph)
        if found is None:
            continue
        found.memory = memory
        before = len(graph)
        replacement = _replacement(graph, item, found)
        added = graph.latest(len(graph) - before)
        if isinstance(replacement, Skip):
            trace.decline(item.name, node, replacement.reason)
            for unneeded in reversed(added):
                _remove(graph, unneeded)
            continue
        trace.fire(item.name, node)
        return _replace(graph, item, node, replacement, added, trace)
    return None


def _replacement(graph: Graph, item: RewriteRule, found: Match) -> Results | Skip:
    if found.shared:
        return Skip(f"{found.shared} has other users")
    if not item.sees_annotations and (name := rounds_between(found)):
        return Skip(f"the source file quantizes the result of {name}")
    with graph.source(*found.sources):
        replacement = item.apply(graph, found)
    return (replacement,) if isinstance(replacement, Value) else replacement


def _replace(
    graph: Graph, item: RewriteRule, node: Node, results: Results, added: list[Node], trace: Trace
) -> list[Node]:
    """Put results in the place of a node's, remove what is unread now; returns the nodes worth another look."""
    affected = list(added)
    replaced: list[tuple[str, Value]] = []
    pairs = results.items() if isinstance(results, Mapping) else zip(node.outputs, results, strict=True)
    producers = dict.fromkeys([node])
    for old, new in pairs:
        if new is None:
            if old.uses or graph.is_output(old):
                raise InternalError(f"rule {item.name} drops '{old.name}', which is read")
            continue
        is_new = new.producer is not None and new.producer in added
        _check(item, old, new, is_new)
        if is_new:
            new.quant = old.quant
        affected += old.users
        replaced.append((old.name, new))
        graph.replace_uses(old, new)
        if old.producer is not None:
            producers[old.producer] = None
    neighbours, freed = _remove_unread(graph, producers, trace)
    for name, new in replaced:
        if graph.find(name) is None and _may_be_called(new, name, added):
            graph.rename(new, name)
    _keep_constant_names(graph, added, freed)
    return affected + neighbours


def _check(item: RewriteRule, old: Value, new: Value, is_new: bool) -> None:
    if new.dtype is not old.dtype or len(new.shape) != len(old.shape) or _known_extents_differ(old, new):
        raise InternalError(f"rule {item.name} turns {old.type} into {new.type} at '{old.name}'")
    if new.quant != old.quant and not (is_new and new.quant is None):
        raise InternalError(f"rule {item.name} changes the quantization of '{old.name}'")
    if is_new and new.producer is not None and old in new.producer.inputs:
        raise InternalError(f"rule {item.name} makes '{old.name}' depend on itself")


def _known_extents_differ(old: Value, new: Value) -> bool:
    pairs = zip(old.shape, new.shape, strict=True)
    return old.shape != new.shape and any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)


def _may_be_called(value: Value, name: str, added: list[Node]) -> bool:
    """Whether a value may take over a name.

    A new one may. One that was there before may only when its own name says no more than which operator made it: the
    other names are those of the source's tensors.
    """
    if value.producer is None:
        return False
    stem = value.name.rpartition(".")[0] or value.name
    return value.producer in added or stem in (value.producer.op.name, name)


def _remove_unread(graph: Graph, nodes: Iterable[Node], trace: Trace) -> tuple[list[Node], set[str]]:
    """Remove nodes and, upwards, everything that only they read.

    Returns:
        The neighbours worth another look (producers that stay, and readers that have become the only one), and the
        names of the constants that went.
    """
    neighbours: list[Node] = []
    freed: set[str] = set()
    stack = list(nodes)
    while stack:
        item = stack.pop()
        if item not in graph:
            continue
        if any(value.uses or graph.is_output(value) for value in item.outputs):
            neighbours.append(item)
            neighbours += [user for value in item.outputs if len(value.uses) == 1 for user in value.users]
            continue
        trace.forget(item)
        freed |= _remove(graph, item)
        stack += [value.producer for value in item.inputs if value is not None and value.producer is not None]
    return neighbours, freed


def _remove(graph: Graph, node: Node) -> set[str]:
    """Remove a node whose results nobody reads, and the constants that only it read; returns their names."""
    graph.remove(node)
    return {value.name for value in dict.fromkeys(node.inputs) if value is not None and graph.discard(value)}


def _keep_constant_names(graph: Graph, added: list[Node], freed: set[str]) -> None:
    """Let constants that were made from others of the same name, which are gone, have that name."""
    for node in added:
        for value in node.inputs if node in graph else ():
            stem = value.name.rpartition(".")[0] if value is not None and value.is_constant else ""
            if value is not None and stem in freed and graph.find(stem) is None:
                graph.rename(value, stem)
