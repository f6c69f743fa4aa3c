"""Application of precision rules to a calibrated float graph.

A rule selects nodes by the names and operators of the graph and of the source. Fused nodes have the sources of all
nodes that they replace, so that a rule for one of these applies to the fused node. The names of tensors that the
optimizer removed are given separately.

Rules are applied in order. For each setting (data type, scales of weights, range) the last matching rule decides.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tpuconvert.optimizer.precision_rules import FLOAT16, FLOAT32, INT8, INT16, PER_CHANNEL, PER_TENSOR, PrecisionRule
from tpuconvert.optimizer.quantize.annotate import activation_params
from tpuconvert.optimizer.quantize.float16 import LARGEST, why_no_float16, with_exact_users
from tpuconvert.optimizer.quantize.legalize import Legalized
from tpuconvert.optimizer.quantize.ranges import Range
from tpuconvert.optimizer.quantize.traits import has_constant_weight
from tpuconvert.optimizer.quantize.weights import output_channel_axis
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph import Graph, Node, Source, Value
from tpuconvert.schema.spelling import did_you_mean
from tpuconvert.schema.types import F32, I16, Chip

_OPERATOR = "op:"
_BETWEEN = re.compile(r"between (.+) and (.+)")

Sources = Mapping[str, tuple[Source, ...]]


@dataclass(frozen=True)
class Selection:
    """The nodes and tensors that a rule selects.

    Args:
        rule: the rule.
        nodes: names of the nodes.
        inputs: number of inputs of the graph.
        tensors: names of the tensors whose scale follows from the range that the rule states.
    """

    rule: PrecisionRule
    nodes: tuple[str, ...]
    inputs: int
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class Precision:
    """Settings of a quantization by node and tensor. Without settings everything has its default.

    Args:
        floats: reasons for nodes that stay float, by name.
        integers: names of nodes that no decision keeps in float.
        float16: names of nodes that compute in FLOAT16, including those that do so because of their operands.
        half_rules: rules that request FLOAT16, by name of the node.
        wide: rules that require 16-bit results, by name of the node.
        per_tensor: names of linear operators with one scale for all weights.
        methods: calibration methods by name of the tensor.
        thresholds: thresholds by name of the tensor.
        selections: every rule with the nodes that it selects, in the order of the rules.
    """

    floats: Mapping[str, str] = field(default_factory=dict)
    integers: frozenset[str] = frozenset()
    float16: frozenset[str] = frozenset()
    half_rules: Mapping[str, PrecisionRule] = field(default_factory=dict)
    wide: Mapping[str, PrecisionRule] = field(default_factory=dict)
    per_tensor: frozenset[str] = frozenset()
    methods: Mapping[str, str] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    selections: tuple[Selection, ...] = ()

    def nodes_in_float(self, kept: Mapping[str, str]) -> dict[str, str]:
        """Combine the nodes that decisions keep in float with those of the rules, which take precedence."""
        return {**{name: reason for name, reason in kept.items() if name not in self.integers}, **self.floats}

    def with_thresholds(self, ranges: Mapping[str, Range]) -> Mapping[str, Range]:
        """Return ranges with the thresholds of the rules."""
        if not self.thresholds:
            return ranges
        changed = {
            name: dataclasses.replace(ranges[name], threshold=threshold)
            for name, threshold in self.thresholds.items()
            if name in ranges
        }
        return {**ranges, **changed}


NO_RULES = Precision()
"""Settings without rules."""


def apply_rules(graph: Graph, rules: Sequence[PrecisionRule], chip: Chip, tensors: Sources | None = None) -> Precision:
    """Select the nodes of every rule.

    Args:
        graph: float graph that is to be quantized, or a graph with the annotations of a quantized source.
        rules: the rules; later ones take precedence.
        chip: the target.
        tensors: result of ``tensor_sources`` before the optimizer.

    Raises:
        UsageError: a rule selects nothing, or states what a selected node does not have.
    """
    if not rules:
        return NO_RULES
    names = _Names(graph, tensors or {})
    dtypes: dict[Node, PrecisionRule] = {}
    weights: dict[Node, PrecisionRule] = {}
    ranges: dict[Value, PrecisionRule] = {}
    selections = []
    for rule in rules:
        nodes, inputs = names.select(rule)
        nodes = [node for node in nodes if all(value.dtype.is_float for value in node.outputs)]
        linear = [node for node in nodes if has_constant_weight(node)]
        results = _with_clamps([*inputs, *(value for node in nodes for value in node.outputs)])
        _check_selection(rule, nodes, linear, results, chip, graph)
        if rule.dtype:
            dtypes.update(dict.fromkeys(nodes, rule))
        if rule.weights:
            weights.update(dict.fromkeys(linear, rule))
        if rule.is_about_range:
            ranges.update(dict.fromkeys(results, rule))
        scaled = [value.name for value in results if rule.is_about_range and _clamped(value) is None]
        selections.append(Selection(rule, tuple(node.name for node in nodes), len(inputs), tuple(scaled)))
    halves = {node: rule for node, rule in dtypes.items() if rule.dtype == FLOAT16}
    _check_float16_forms(halves, chip, graph)
    return Precision(
        floats={
            node.name: f"a precision rule: {rule.text}"
            for node, rule in dtypes.items()
            if rule.dtype in (FLOAT32, FLOAT16)
        },
        float16=frozenset(node.name for node in with_exact_users(graph, halves, dtypes, chip)),
        half_rules={node.name: rule for node, rule in halves.items()},
        integers=frozenset(node.name for node, rule in dtypes.items() if rule.dtype in (INT8, INT16)),
        wide={node.name: rule for node, rule in dtypes.items() if rule.dtype == INT16},
        per_tensor=frozenset(node.name for node, rule in weights.items() if rule.weights == PER_TENSOR),
        methods={value.name: rule.method for value, rule in ranges.items() if rule.method},
        thresholds={value.name: rule.threshold for value, rule in ranges.items() if rule.threshold is not None},
        selections=tuple(selections),
    )


def _check_selection(
    rule: PrecisionRule,
    nodes: Sequence[Node],
    linear: Sequence[Node],
    results: Sequence[Value],
    chip: Chip,
    graph: Graph,
) -> None:
    def fail(reason: str, hint: str, node: str = "") -> UsageError:
        return UsageError(f"precision rule '{rule.text}': {reason}", file=graph.file, node=node, hint=hint)

    if not results:
        raise fail("no selected node has float results", "such nodes keep the integers of the source")
    if (rule.dtype or rule.weights) and not nodes:
        raise fail("selects only inputs of the model", "a calibration method or a threshold applies to an input")
    if rule.weights and not linear:
        operators = ", ".join(sorted({node.op.name for node in nodes}))
        raise fail(f"no selected node has constant weights ({operators})", "select linear operators, as op:conv")
    if rule.weights == PER_CHANNEL:
        for node in linear:
            if chip is Chip.BM1684:
                reason = "BM1684 has one multiplier per layer"
            elif output_channel_axis(node) is None:
                reason = f"the groups of {node.op.name} spread its output channels over two axes"
            else:
                continue
            raise fail(reason, "leave per-channel out for this node", node.name)


def _check_float16_forms(halves: Mapping[Node, PrecisionRule], chip: Chip, graph: Graph) -> None:
    """Check that the chip has a FLOAT16 form of every node that is to have one.

    Raises:
        UsageError: it has not; the message names the operators, and the first node.
    """
    reasons = {node: reason for node in halves if (reason := why_no_float16(node, chip))}
    if not reasons:
        return
    first = next(iter(reasons))
    operators = sorted({node.op.name for node in reasons})
    nodes = f" ({_several(len(reasons), 'node')})" if len(reasons) > 1 else ""
    raise UsageError(
        f"precision rule '{halves[first].text}': no float16 form of {', '.join(operators)}{nodes}: {reasons[first]}",
        file=graph.file,
        node=first.name,
        hint=f"add a rule for other settings after it: 'op:{operators[0]}=float32'",
    )


def check_float16_ranges(precision: Precision, graph: Graph, ranges: Mapping[str, Range]) -> None:
    """Check that FLOAT16 represents all operands and results of the nodes that compute in it.

    Args:
        precision: the settings.
        graph: the float graph.
        ranges: calibrated ranges of its values.

    Raises:
        UsageError: the samples or a constant have larger values.
    """
    for node in graph.sorted_nodes():
        rule = precision.half_rules.get(node.name)
        if rule is None:
            continue
        for value in (*node.inputs, *node.outputs):
            if value is None or value.dtype is not F32:
                continue
            if value.is_constant:
                largest = float(np.abs(value.array).max(initial=0.0))
            else:
                found = ranges.get(value.name)
                largest = 0.0 if found is None else max(-found.low, found.high)
            if largest > LARGEST:
                raise UsageError(
                    f"precision rule '{rule.text}': '{value.name}' has values up to {largest:.6g}, "
                    f"the largest float16 number is {LARGEST:g}",
                    file=graph.file,
                    node=node.name,
                    hint=f"float32 has them: --keep-float '{node.name}'",
                )


def _with_clamps(values: Iterable[Value]) -> list[Value]:
    """Add the results of clamps that are the sole users of a value, because they determine its scale."""
    found: dict[Value, None] = {}
    for value in values:
        following: Value | None = value
        while following is not None:
            found[following] = None
            following = _clamped(following)
    return list(found)


def _clamped(value: Value) -> Value | None:
    """Return the result of the clamp that is the sole user of a value, or None."""
    user = next(iter(value.users), None)
    return user.outputs[0] if user is not None and len(value.uses) == 1 and user.op.clamp_range() is not None else None


class _Names:
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
        found = []
        for node in self._nodes:
            if node in first or not reached.isdisjoint(node.inputs):
                found.append(node)
                reached.update(node.outputs)
        return found

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
            known = {op for node in self._nodes for op in (node.op.name, *(source.op for source in node.sources))}
            hint = did_you_mean(pattern.removeprefix(_OPERATOR), known) or f"one of {', '.join(sorted(known))}"
            return UsageError(f"{start}no node has the operator '{pattern}'", file=self._graph.file, hint=hint)
        removed = {source.node for sources in self._tensors.values() for source in sources} | set(self._tensors)
        if any(_fits(name, pattern) for name in removed):
            hint = "tpuconvert inspect lists the nodes of a converted model"
            message = f"{start}the optimizer replaced '{pattern}' by a constant or removed it"
            return UsageError(message, file=self._graph.file, hint=hint)
        known = {value.name for value in self._graph.values if not value.is_constant}
        known |= {source.node for source in self._sources}
        hint = did_you_mean(pattern, known) or "tpuconvert inspect lists the nodes of a converted model"
        return UsageError(f"{start}no node or tensor is named '{pattern}'", file=self._graph.file, hint=hint)


def _fits(name: str, pattern: str) -> bool:
    """Return True if a name equals a pattern, or matches its wildcards."""
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def check_wide_results(precision: Precision, graph: Graph, legalized: Legalized) -> None:
    """Check that the nodes with an ``int16`` rule have 16-bit results.

    Args:
        precision: the settings.
        graph: the annotated float graph.
        legalized: its legalization.

    Raises:
        UsageError: a node has no 16-bit result; the message contains the reason.
    """
    floats = {item.node: item.reason for item in legalized.float_nodes}
    for name, rule in precision.wide.items():
        value = graph.find(name)
        assert value is not None, f"a rule selected '{name}'"
        if name in floats:
            reason = f"stays in float: {floats[name]}"
        elif value.quant is None or value.quant.dtype is not I16:
            users = [user.name for user in value.users if user.name not in floats]
            reason = f"'{users[0]}' takes 8-bit operands" if users else "its result has 8 bits"
        else:
            continue
        raise UsageError(
            f"precision rule '{rule.text}': {reason}",
            file=graph.file,
            node=name,
            hint="16 bits are for linear operators whose results only float nodes and outputs use",
        )


def describe_effects(
    precision: Precision, graph: Graph, ranges: Mapping[str, Range], legalized: Legalized
) -> list[str]:
    """Return one sentence per rule: the number of nodes that it selects and what it does.

    Args:
        precision: the settings.
        graph: the annotated float graph.
        ranges: the ranges that its annotations were computed from.
        legalized: its legalization.
    """
    floats = {item.node for item in legalized.float_nodes}
    return [_describe(selection, precision, graph, ranges, floats) for selection in precision.selections]


def _describe(
    selection: Selection, precision: Precision, graph: Graph, ranges: Mapping[str, Range], floats: set[str]
) -> str:
    rule, nodes = selection.rule, selection.nodes
    parts = []
    if rule.dtype == FLOAT32:
        float32 = precision.floats.keys() - precision.float16
        parts.append(f"{sum(name in float32 for name in nodes)} in float")
    elif rule.dtype == FLOAT16:
        parts.append(f"{sum(name in precision.half_rules for name in nodes)} in float16")
    elif rule.dtype:
        parts.append(f"{sum(name not in floats for name in nodes)} in integers")
    if rule.weights:
        linear = [node for node in graph.nodes if node.name in nodes and has_constant_weight(node)]
        fitting = [node for node in linear if (node.name in precision.per_tensor) == (rule.weights == PER_TENSOR)]
        parts.append(f"{sum(node.name not in floats for node in fitting)} with {rule.weights} weights")
    if rule.is_about_range:
        own = [name for name in selection.tensors if _has_own_scale(name, rule, precision, graph, ranges)]
        parts.append(f"{len(own)} of {len(selection.tensors)} tensors with this range")
    counts = [_several(len(nodes), "node"), _several(selection.inputs, "input")]
    return f"'{rule.text}' selects {' and '.join(filter(None, counts))}: {', '.join(parts)}"


def _several(count: int, what: str) -> str:
    """Format a count with its noun; an empty string for 0."""
    return f"{count} {what}{'s' if count > 1 else ''}" if count else ""


def _has_own_scale(
    name: str, rule: PrecisionRule, precision: Precision, graph: Graph, ranges: Mapping[str, Range]
) -> bool:
    """Return True if the rule determines the scale of a tensor: no later rule does, and it is not that of a user."""
    value = graph.find(name)
    if value is None or value.quant is None or name not in ranges:
        return False
    stated = rule.method == precision.methods.get(name, "") and rule.threshold == precision.thresholds.get(name)
    return stated and max(value.quant.scale) == activation_params(ranges[name]).scale[0]
