"""The rule engine: rules are patterns with a replacement; the engine does the bookkeeping.

A rule is a function of the graph and a match that returns what replaces the root's results, or a ``Skip`` with the
reason. The engine replaces the uses, hands over names, annotations and sources, checks that types did not change, and
removes what nobody reads any more. Rules of one stage run until none fires.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import tpuconvert.optimizer.rules
from tpuconvert.optimizer.pattern import Match, Pattern, match
from tpuconvert.schema.errors import InternalError
from tpuconvert.schema.graph import Graph, Node, Value

_FIRINGS_PER_NODE = 50
"""A rule set that fires more often than this, per node of the graph, does not come to an end."""


@dataclass(frozen=True)
class Skip:
    """Why a rule declined a match."""

    reason: str


Replacement = Value | tuple[Value | None, ...] | Skip
"""What a rule returns: the new result, or one per result of the root (None for one that nobody reads), or a Skip."""

RuleFunction = Callable[[Graph, Match], Replacement]


@dataclass(frozen=True)
class RewriteRule:
    """One rewrite: a pattern, the stage it runs in, and the function that checks and replaces."""

    name: str
    pattern: Pattern
    stage: str
    apply: RuleFunction


@dataclass
class Trace:
    """How often every rule fired, and how often it was skipped for which reason."""

    fired: Counter[str] = field(default_factory=Counter)
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        """One line per rule and outcome, in alphabetical order."""
        rows = [(rule, f"fired {count}") for rule, count in self.fired.items()]
        rows += [(rule, f"skipped {count}: {reason}") for (rule, reason), count in self.skipped.items()]
        return [f"{rule}: {outcome}" for rule, outcome in sorted(rows)]


_RULES: dict[str, RewriteRule] = {}


def rule(*patterns: Pattern, stage: str) -> Callable[[RuleFunction], RuleFunction]:
    """Register a rule for one or several patterns. Two rules of one name are an error."""

    def register(function: RuleFunction) -> RuleFunction:
        for index, pattern in enumerate(patterns):
            name = function.__name__ if index == 0 else f"{function.__name__}.{index}"
            if name in _RULES:
                raise ValueError(f"two rules are called '{name}'")
            _RULES[name] = RewriteRule(name, pattern, stage, function)
        return function

    return register


def rules_of(stage: str) -> list[RewriteRule]:
    """The rules of a stage in alphabetical order of their names. Every module of the rules folder is loaded."""
    for module in sorted(pkgutil.iter_modules(tpuconvert.optimizer.rules.__path__), key=lambda item: item.name):
        importlib.import_module(f"tpuconvert.optimizer.rules.{module.name}")
    return sorted((item for item in _RULES.values() if item.stage == stage), key=lambda item: item.name)


def run_rules(graph: Graph, rules: list[RewriteRule], trace: Trace) -> int:
    """Apply rules until none fires. Returns how many fired.

    Raises:
        InternalError: when the rules do not come to an end, or one changes a type.
    """
    by_op: dict[type, list[RewriteRule]] = {}
    for item in rules:
        for op in item.pattern.ops:
            by_op.setdefault(op, []).append(item)
    budget = _FIRINGS_PER_NODE * (len(graph) + 10)
    queue: dict[Node, None] = dict.fromkeys(graph.sorted_nodes())
    fired = 0
    while queue:
        node = next(iter(queue))
        del queue[node]
        while (
            node in graph and (affected := _apply_first(graph, node, by_op.get(type(node.op), []), trace)) is not None
        ):
            fired += 1
            if fired > budget:
                raise InternalError(f"the rules do not come to an end: {trace.fired.most_common(3)}")
            queue.update(dict.fromkeys(affected))
    graph.sort()
    return fired


def _apply_first(graph: Graph, node: Node, rules: list[RewriteRule], trace: Trace) -> list[Node] | None:
    """Apply the first rule that fires; returns the nodes worth another look, or None."""
    for item in rules:
        found = match(item.pattern, node, graph)
        if found is None:
            continue
        if found.shared:
            trace.skipped[item.name, f"{found.shared} has other users"] += 1
            continue
        with graph.source(*found.sources):
            replacement = item.apply(graph, found)
        if isinstance(replacement, Skip):
            trace.skipped[item.name, replacement.reason] += 1
            continue
        results = replacement if isinstance(replacement, tuple) else (replacement,)
        trace.fired[item.name] += 1
        return _replace(graph, item, node, results)
    return None


def _replace(graph: Graph, item: RewriteRule, node: Node, results: tuple[Value | None, ...]) -> list[Node]:
    affected: list[Node] = []
    replaced: list[tuple[str, Value]] = []
    for old, new in zip(node.outputs, results, strict=True):
        if new is None:
            if old.uses or graph.is_output(old):
                raise InternalError(f"rule {item.name} drops '{old.name}', which is read")
            continue
        replaced.append((old.name, new))
        if new.dtype is not old.dtype or len(new.shape) != len(old.shape) or _known_extents_differ(old, new):
            raise InternalError(f"rule {item.name} turns {old.type} into {new.type} at '{old.name}'")
        if new.quant is None and new.producer is not None and new is not old:
            new.quant = old.quant
        affected += old.users
        graph.replace_uses(old, new)
    affected += _remove_unread(graph, node)
    for name, new in replaced:
        if graph.find(name) is None and new.producer is not None and _may_be_called(new, name):
            graph.rename(new, name)
        if new.producer is not None:
            affected.append(new.producer)
        affected += new.users
    return [other for other in dict.fromkeys(affected) if other in graph]


def _known_extents_differ(old: Value, new: Value) -> bool:
    pairs = zip(old.shape, new.shape, strict=True)
    return any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)


def _may_be_called(value: Value, name: str) -> bool:
    """Whether a value may take over a name: its own only says which operator made it, or that the name was taken."""
    assert value.producer is not None
    stem = value.name.rpartition(".")[0] or value.name
    return stem in (value.producer.op.name, name)


def _remove_unread(graph: Graph, node: Node) -> list[Node]:
    """Remove a node and, upwards, everything that only it read. Returns the surviving producers."""
    survivors = []
    stack = [node]
    while stack:
        item = stack.pop()
        if item not in graph:
            continue
        if any(value.uses or graph.is_output(value) for value in item.outputs):
            survivors.append(item)
            continue
        producers = [value.producer for value in item.inputs if value is not None and value.producer is not None]
        graph.remove(item)
        stack += producers
    return survivors
