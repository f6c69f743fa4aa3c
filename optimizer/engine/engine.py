"""The rule engine: rules match and build, the engine does the bookkeeping.

A rule is a function of the graph and a match that returns the replacement of the root's results, or a ``Skip`` with the
reason. The engine replaces the uses, passes on names, annotations and sources, checks that types and annotations did
not change, and removes dead nodes. The rules of a stage run until none fires.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tpuconvert.optimizer.engine.annotations import replaced_kernels, rounds_between
from tpuconvert.optimizer.engine.pattern import Match, Pattern, match
from tpuconvert.optimizer.engine.registry import Replacement, Results, RewriteRule, Skip, rule
from tpuconvert.optimizer.engine.trace import Trace
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import InternalError
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.user_code import wrong_result

__all__ = ["Candidates", "Replacement", "Skip", "Trace", "rule", "run_rules"]

_FIRINGS_PER_NODE = 50
"""Maximum number of firings per node of the graph. Rules that fire more often are assumed not to terminate."""


def run_rules(graph: Graph, rules: Iterable[RewriteRule] | Candidates, trace: Trace, limit: int | None = None) -> int:
    """Apply rules until none fires, or at most ``limit`` times. Equal graphs have the same firings in the same order.

    Returns:
        The number of firings.

    Raises:
        InternalError: the rules do not terminate, or one changes a type or an annotation.
    """
    candidates = rules if isinstance(rules, Candidates) else Candidates(rules)
    budget = _FIRINGS_PER_NODE * (len(graph) + 10)
    queue = deque(filter(candidates.has_root, graph.sorted_nodes()))
    waiting = set(queue)
    fired = 0
    memory: dict[object, object] = {}
    with np.errstate(all="ignore"):  # Rules check the results of their arithmetic.
        while queue and fired != limit:
            node = queue.popleft()
            waiting.remove(node)
            pairs = candidates.of(node) if node in graph else ()
            affected = _apply_first(graph, node, pairs, trace, memory)
            if affected is None:
                continue
            fired += 1
            if fired > budget:
                raise InternalError(f"the rules do not terminate: {trace.fired.most_common(3)}")
            fresh = [
                other
                for other in dict.fromkeys(affected)
                if other in graph and other not in waiting and candidates.has_root(other)
            ]
            queue.extend(fresh)
            waiting.update(fresh)
    if fired:
        graph.sort()
    return fired


Pairs = Sequence[tuple[RewriteRule, Pattern]]

_CONSTANT = "constant"
Origin = type[Op] | str | None
"""Class of the operator that computes an operand, ``_CONSTANT``, or None for a graph input or an absent operand."""


class Candidates:
    """Rules that run together, indexed by the operators of a node and of its operands.

    The index is derived from the patterns. It leaves out patterns that cannot match because of the operator of the root
    or of an operand. Without it a chain of 16,000 nodes takes 1.0 s instead of 0.45 s.
    """

    def __init__(self, rules: Iterable[RewriteRule]) -> None:
        self._pairs = tuple([(item, pattern) for item in rules for pattern in item.patterns])
        self._operands = max((len(pattern.operands) for _, pattern in self._pairs), default=0)
        self._index: dict[tuple[type[Op], tuple[Origin, ...]], Pairs] = {}
        self._roots: dict[type[Op], bool] = {}

    def has_root(self, node: Node) -> bool:
        """Return True if the operator of a node is the root of a pattern."""
        op = node.op.__class__
        cached = self._roots.get(op)
        if cached is None:
            cached = self._roots[op] = any(pattern.ops.includes(op) for _, pattern in self._pairs)
        return cached

    def of(self, node: Node) -> Pairs:
        """The rules and patterns to try at a node, in the order of the rules."""
        op = node.op.__class__
        origins = tuple([_origin(value) for value in node.inputs[: self._operands]])
        candidates = self._index.get((op, origins))
        if candidates is None:
            candidates = tuple([pair for pair in self._pairs if _may_match(pair[1], op, origins)])
            self._index[op, origins] = candidates
        return candidates


def _origin(value: Value | None) -> Origin:
    if value is None:
        return None
    if value.producer is not None:
        return value.producer.op.__class__
    return _CONSTANT if value.data is not None else None


def _may_match(pattern: Pattern, op: type[Op], origins: Sequence[Origin]) -> bool:
    if not pattern.ops.includes(op):
        return False
    for operand_pattern, origin in zip(pattern.operands, origins, strict=False):
        if isinstance(operand_pattern, Pattern):
            if not isinstance(origin, type) or not operand_pattern.ops.includes(origin):
                return False
        elif origin is not None and operand_pattern.isupper() and origin != _CONSTANT:
            return False
    return True


def _apply_first(
    graph: Graph, node: Node, pairs: Pairs, trace: Trace, memory: dict[object, object]
) -> list[Node] | None:
    """Apply the first rule that fires. Return the nodes to visit again, or None if none fired."""
    for item, pattern in pairs:
        binding = match(pattern, node, graph)
        if binding is None:
            continue
        binding.memory = memory
        before = len(graph)
        replacement = _replacement(graph, item, binding)
        added = graph.latest(len(graph) - before)
        if (
            item.keeps_kernels
            and not isinstance(replacement, Skip)
            and (names := replaced_kernels(graph, binding, added))
        ):
            replacement = Skip(f"the source file computes {names} in integers")
        if isinstance(replacement, Skip):
            trace.decline(item.name, node, replacement.reason)
            for unneeded in reversed(added):
                _remove(graph, unneeded)
            continue
        trace.fire(item.name, node)
        _record(item, binding, added)
        return _replace(graph, item, node, replacement, added, trace)
    return None


def _record(item: RewriteRule, m: Match, added: Sequence[Node]) -> None:
    """Record the rule, and the rules of the matched nodes, in the nodes that it added."""
    earlier_rules = m.rules
    for node in added:
        node.rules = tuple(dict.fromkeys((*earlier_rules, *node.rules, item.name)))


def _replacement(graph: Graph, item: RewriteRule, m: Match) -> Results | Skip:
    if m.shared:
        return Skip(f"{m.shared} has other users")
    if not item.sees_annotations and (name := rounds_between(m)):
        return Skip(f"the source file quantizes the result of {name}")
    with graph.joined_sources(m.sources):
        replacement = item.apply(graph, m)
    return (replacement,) if isinstance(replacement, Value) else replacement


def _replace(
    graph: Graph, item: RewriteRule, node: Node, results: Results, added: list[Node], trace: Trace
) -> list[Node]:
    """Replace the results of a node and remove dead nodes. Return the nodes to visit again."""
    affected = list(added)
    replaced: list[tuple[str, Value]] = []
    pairs = results.items() if isinstance(results, Mapping) else zip(node.outputs, results, strict=True)
    producers = dict.fromkeys([node])
    for old, new in pairs:
        if new is None:
            if old.uses or graph.is_output(old):
                raise wrong_result(item.apply, f"rule {item.name} drops '{old.name}', which has users")
            continue
        is_new = new.producer is not None and new.producer in added
        _check(item, old, new, is_new)
        if is_new and new.quant != old.quant:  # equal parameters may state another arithmetic, which is kept
            new.quant = old.quant
        affected += old.users
        replaced.append((old.name, new))
        graph.replace_uses(old, new)
        if old.producer is not None:
            producers[old.producer] = None
    neighbours, freed = _remove_unused(graph, producers, trace)
    for name, new in replaced:
        if graph.find(name) is None and _may_take_name(new, name, added):
            graph.rename(new, name)
    _keep_constant_names(graph, added, freed)
    return affected + neighbours


def _check(item: RewriteRule, old: Value, new: Value, is_new: bool) -> None:
    if new.dtype is not old.dtype or len(new.shape) != len(old.shape) or _known_extents_differ(old, new):
        raise wrong_result(item.apply, f"rule {item.name} turns {old.type} into {new.type} at '{old.name}'")
    if new.quant != old.quant and not (is_new and new.quant is None):
        raise wrong_result(item.apply, f"rule {item.name} changes the quantization of '{old.name}'")
    if is_new and new.producer is not None and old in new.producer.inputs:
        raise wrong_result(item.apply, f"rule {item.name} makes '{old.name}' depend on itself")


def _known_extents_differ(old: Value, new: Value) -> bool:
    pairs = zip(old.shape, new.shape, strict=True)
    return old.shape != new.shape and any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)


def _may_take_name(value: Value, name: str, added: list[Node]) -> bool:
    """Return True if a value may take over the name of the value that it replaces.

    A new value may. An existing value may only if its name was derived from its operator, because other names are names
    of tensors in the source.
    """
    if value.producer is None:
        return False
    stem = value.name.rpartition(".")[0] or value.name
    return value.producer in added or stem in (value.producer.op.name, name)


def _remove_unused(graph: Graph, nodes: Iterable[Node], trace: Trace) -> tuple[list[Node], set[str]]:
    """Remove nodes without users and, upwards, all nodes that only they used.

    Returns:
        The neighbors to visit again (remaining producers, and users that have become the sole user), and the names of
        the removed constants.
    """
    remaining: dict[Node, None] = {}
    freed: set[str] = set()
    stack = list(nodes)
    while stack:
        item = stack.pop()
        if item not in graph:
            continue
        if any(value.uses or graph.is_output(value) for value in item.outputs):
            remaining[item] = None
            continue
        trace.forget(item)
        freed |= _remove(graph, item)
        stack += [value.producer for value in item.inputs if value is not None and value.producer is not None]
    neighbours: list[Node] = []
    for item in remaining:  # once: a split may lose thousands of users at a time
        if item in graph:
            neighbours.append(item)
            neighbours += [user for value in item.outputs if len(value.uses) == 1 for user in value.users]
    return neighbours, freed


def _remove(graph: Graph, node: Node) -> set[str]:
    """Remove a node without users and the constants that only it used. Return the names of these constants."""
    graph.remove(node)
    return {value.name for value in dict.fromkeys(node.inputs) if value is not None and graph.discard(value)}


def _keep_constant_names(graph: Graph, added: list[Node], freed: set[str]) -> None:
    """Give a new constant the name of the removed constant that it was computed from."""
    for node in added:
        for value in node.inputs if node in graph else ():
            stem = value.name.rpartition(".")[0] if value is not None and value.is_constant else ""
            if value is not None and stem in freed and graph.find(stem) is None:
                graph.rename(value, stem)
