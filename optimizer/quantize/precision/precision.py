"""Application of precision rules to a calibrated float graph.

Rules are applied in order. For each setting (data type, scales of weights, range) the last matching rule decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tpuconvert.optimizer.precision_rules import (
    ASYMMETRIC,
    FLOAT16,
    FLOAT32,
    INT8,
    INT16,
    PER_CHANNEL,
    PER_TENSOR,
    SYMMETRIC,
    PrecisionRule,
)
from tpuconvert.optimizer.quantize.lowering.float16 import why_no_float16, with_exact_users
from tpuconvert.optimizer.quantize.precision.precision_selectors import NodeNames, Sources
from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.optimizer.quantize.traits import has_constant_weight
from tpuconvert.optimizer.quantize.weights.weights import output_channel_axis
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.types import Chip


@dataclass(frozen=True)
class Selection:
    """The nodes and tensors that a rule selects.

    Args:
        rule: the rule.
        nodes: names of the nodes.
        inputs: number of inputs of the graph.
        tensors: names of the tensors whose scale follows from the range or the symmetry that the rule states.
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
        asymmetric: rules that request a zero point, by name of the tensor.
        symmetric: names of the tensors for which a rule excludes one.
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
    asymmetric: Mapping[str, PrecisionRule] = field(default_factory=dict)
    symmetric: frozenset[str] = frozenset()
    methods: Mapping[str, str] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    selections: tuple[Selection, ...] = ()

    def nodes_in_float(self, floats: Mapping[str, str]) -> dict[str, str]:
        """Combine the nodes that decisions keep in float with the nodes of the rules, which take precedence."""
        return {**{name: reason for name, reason in floats.items() if name not in self.integers}, **self.floats}

    def with_thresholds(self, ranges: Mapping[str, Range]) -> Mapping[str, Range]:
        """Return ranges with the thresholds of the rules."""
        if not self.thresholds:
            return ranges
        changed = {
            name: ranges[name].with_threshold(threshold)
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
    names = NodeNames(graph, tensors or {})
    dtypes: dict[Node, PrecisionRule] = {}
    weights: dict[Node, PrecisionRule] = {}
    ranges: dict[Value, PrecisionRule] = {}
    symmetries: dict[Value, PrecisionRule] = {}
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
        if rule.symmetry:
            symmetries.update(dict.fromkeys(results, rule))
        has_tensors = rule.is_about_range or rule.symmetry
        scaled = [value.name for value in results if has_tensors and _clamped(value) is None]
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
        asymmetric={value.name: rule for value, rule in symmetries.items() if rule.symmetry == ASYMMETRIC},
        symmetric=frozenset(value.name for value, rule in symmetries.items() if rule.symmetry == SYMMETRIC),
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
    if rule.symmetry == ASYMMETRIC and chip is not Chip.BM1686:
        name = nodes[0].name if nodes else results[0].name
        raise fail(f"the integer operators for {chip.value} have no zero points", "symmetric is the default", name)
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
    if reasons:
        raise no_form(FLOAT16, reasons, halves[next(iter(reasons))], graph)


def no_form(dtype: str, reasons: Mapping[Node, str], rule: PrecisionRule, graph: Graph) -> UsageError:
    """Return the error for nodes that have no form of a data type.

    Args:
        dtype: ``float16`` or ``int16``.
        reasons: the nodes with reasons.
        rule: the rule that selects the first node.
        graph: the graph.
    """
    first, reason = next(iter(reasons.items()))
    operators = sorted({node.op.name for node in reasons})
    nodes = f" ({len(reasons)} nodes)" if len(reasons) > 1 else ""
    default = FLOAT32 if dtype == FLOAT16 else INT8
    rules = ", ".join(f"'op:{name}={default}'" for name in operators)
    return UsageError(
        f"precision rule '{rule.text}': no {dtype} form of {', '.join(operators)}{nodes}: {reason}",
        file=graph.file,
        node=first.name,
        hint=f"exclude nodes by rules after it: {rules}",
    )


def _with_clamps(values: Iterable[Value]) -> list[Value]:
    """Add the results of clamps that are the sole users of a value, because they determine its scale."""
    clamped: dict[Value, None] = {}
    for value in values:
        following: Value | None = value
        while following is not None:
            clamped[following] = None
            following = _clamped(following)
    return list(clamped)


def _clamped(value: Value) -> Value | None:
    """Return the result of the clamp that is the sole user of a value, or None."""
    user = next(iter(value.users), None)
    return user.outputs[0] if user is not None and len(value.uses) == 1 and user.op.clamp_range() is not None else None
