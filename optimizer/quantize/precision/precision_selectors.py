"""Selection of nodes and inputs by precision rules: names with wildcards, operators, and paths between two nodes.

A rule selects nodes by the names and operators of the graph and of the source. Fused nodes have the sources of all
nodes that they replace, so that a rule for one of these applies to the fused node. The names of tensors that the
optimizer removed are given separately.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping

from tpuconvert.optimizer.precision_rules import PrecisionRule
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph, Node, Source, Value
from tpuconvert.schema.text.spelling import did_you_mean

_OPERATOR = "op:"
_BETWEEN = re.compile(r"between (.+) and (.+)")

Sources = Mapping[str, tuple[Source, ...]]


class NodeNames:
    """Names by which rules select nodes and inputs of a graph."""

    def __init__(self, graph: Graph, tensors: Sources) -> None:
        self._graph = graph
        self._tensors = tensors
        self._nodes = graph.sorted_nodes()
        self._sources = dict.fromkeys(source for node in self._nodes for source in node.sources)

    def select(self, rule: PrecisionRule) -> tuple[list[Node], list[Value]]:
        """Return the selected nodes in execution order, and the selected inputs.

        Raises:
            UsageError: the rule selects nothing.
        """
        between = _BETWEEN.fullmatch(rule.selector)
        if between is None:
            return self._matches(rule, rule.selector)
        (first, start), (last, _) = (self._matches(rule, pattern.strip()) for pattern in between.groups())
        after = self._after(set(first), set(start))
        needed = {value for node in last for value in node.inputs}
        before = set(last)
        for node in reversed(self._nodes):
            if needed.intersection(node.outputs):
                before.add(node)
                needed.update(node.inputs)
        nodes = [node for node in after if node in before]
        if not nodes:
            message = f"precision rule '{rule.text}': there is no path from '{between[1]}' to '{between[2]}'"
            raise UsageError(message, file=self._graph.file, hint="the first name is the one nearer to the inputs")
        return nodes, []

    def _after(self, first: set[Node], inputs: set[Value]) -> list[Node]:
        """Return the given nodes and those that depend on them or on the inputs, in execution order."""
        reached = set(inputs)
        nodes_after = []
        for node in self._nodes:
            if node in first or not reached.isdisjoint(node.inputs):
                nodes_after.append(node)
                reached.update(node.outputs)
        return nodes_after

    def _matches(self, rule: PrecisionRule, pattern: str) -> tuple[list[Node], list[Value]]:
        if pattern.startswith(_OPERATOR):
            nodes = self._with_operator(pattern.removeprefix(_OPERATOR).strip().lower())
            inputs: list[Value] = []
        else:
            nodes, inputs = self._with_name(pattern)
            if not nodes and not inputs and ":" in pattern:  # nodes of a quantized file: NAME:int32
                nodes, inputs = self._with_name(pattern.rpartition(":")[0])
        if not nodes and not inputs:
            raise self._no_match(rule, pattern)
        return nodes, inputs

    def _with_operator(self, pattern: str) -> list[Node]:
        return [
            node
            for node in self._nodes
            if any(_fits(op.lower(), pattern) for op in (node.op.name, *(source.op for source in node.sources)))
        ]

    def _with_name(self, pattern: str) -> tuple[list[Node], list[Value]]:
        chosen = {source for source in self._sources if _fits(source.node, pattern)}
        for name, sources in self._tensors.items():
            if _fits(name, pattern):
                chosen.update(sources)
        nodes = [
            node
            for node in self._nodes
            if not chosen.isdisjoint(node.sources) or any(_fits(value.name, pattern) for value in node.outputs)
        ]
        inputs = [
            value
            for value, port in zip(self._graph.inputs, self._graph.input_ports, strict=True)
            if _fits(value.name, pattern) or _fits(port.name, pattern)
        ]
        return nodes, inputs

    def _no_match(self, rule: PrecisionRule, pattern: str) -> UsageError:
        start = f"precision rule '{rule.text}': "
        if pattern.startswith(_OPERATOR):
            operators = {op for node in self._nodes for op in (node.op.name, *(source.op for source in node.sources))}
            hint = did_you_mean(pattern.removeprefix(_OPERATOR), operators) or f"one of {', '.join(sorted(operators))}"
            return UsageError(f"{start}no node has the operator '{pattern}'", file=self._graph.file, hint=hint)
        removed = {source.node for sources in self._tensors.values() for source in sources} | set(self._tensors)
        if any(_fits(name, pattern) for name in removed):
            hint = "tpuconvert inspect lists the nodes of a converted model"
            message = f"{start}the optimizer replaced '{pattern}' by a constant or removed it"
            return UsageError(message, file=self._graph.file, hint=hint)
        operators = {value.name for value in self._graph.values if not value.is_constant}
        operators |= {source.node for source in self._sources}
        hint = did_you_mean(pattern, operators) or "tpuconvert inspect lists the nodes of a converted model"
        return UsageError(f"{start}no node or tensor is named '{pattern}'", file=self._graph.file, hint=hint)


def _fits(name: str, pattern: str) -> bool:
    """Return True if a name equals a pattern, or matches its wildcards."""
    return name == pattern or fnmatch.fnmatchcase(name, pattern)
