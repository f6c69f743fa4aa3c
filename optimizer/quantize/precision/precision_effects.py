"""Sentences for the summary: the nodes that each precision rule selects, and what it changes."""

from __future__ import annotations

from collections.abc import Mapping

from tpuconvert.optimizer.precision_rules import ASYMMETRIC, FLOAT16, FLOAT32, INT16, PER_TENSOR, PrecisionRule
from tpuconvert.optimizer.quantize.legalize import Legalized
from tpuconvert.optimizer.quantize.precision.precision import Precision, Selection
from tpuconvert.optimizer.quantize.precision.precision_checks import has_zero_point_of
from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.optimizer.quantize.scales.annotate import activation_params
from tpuconvert.optimizer.quantize.traits import has_constant_weight
from tpuconvert.schema.graph.graph import Graph


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
    elif rule.dtype == INT16:
        parts.append(f"{sum(precision.wide.get(name) is not None for name in nodes)} in int16")
    elif rule.dtype:
        parts.append(f"{sum(name not in floats for name in nodes)} in integers")
    if rule.weights:
        linear = [node for node in graph.nodes if node.name in nodes and has_constant_weight(node)]
        fitting = [node for node in linear if (node.name in precision.per_tensor) == (rule.weights == PER_TENSOR)]
        parts.append(f"{sum(node.name not in floats for node in fitting)} with {rule.weights} weights")
    if rule.is_about_range:
        own = [name for name in selection.tensors if _has_own_scale(name, rule, precision, graph, ranges)]
        parts.append(f"{len(own)} of {len(selection.tensors)} tensors with this range")
    if rule.symmetry:
        own = [name for name in selection.tensors if _has_symmetry(name, rule, precision, graph, ranges)]
        parts.append(f"{len(own)} of {len(selection.tensors)} tensors {rule.symmetry}")
    counts = [_several(len(nodes), "node"), _several(selection.inputs, "input")]
    return f"'{rule.text}' selects {' and '.join(filter(None, counts))}: {', '.join(parts)}"


def _several(count: int, what: str) -> str:
    """Format a count with its noun; an empty string for 0."""
    return f"{count} {what}{'s' if count > 1 else ''}" if count else ""


def _has_own_scale(
    name: str, rule: PrecisionRule, precision: Precision, graph: Graph, ranges: Mapping[str, Range]
) -> bool:
    """Return True if the rule determines the scale of a tensor: no later rule does, and no neighbor does."""
    value = graph.find(name)
    if value is None or value.quant is None or name not in ranges:
        return False
    stated = rule.method == precision.methods.get(name, "") and rule.threshold == precision.thresholds.get(name)
    return stated and max(value.quant.scale) == activation_params(ranges[name], name in precision.asymmetric).scale[0]


def _has_symmetry(
    name: str, rule: PrecisionRule, precision: Precision, graph: Graph, ranges: Mapping[str, Range]
) -> bool:
    """Return True if a tensor has the symmetry that the rule states, and no later rule changes it."""
    if (rule.symmetry == ASYMMETRIC) != (name in precision.asymmetric):
        return False
    return has_zero_point_of(name, precision, graph, ranges)
