"""Checks that the nodes selected by precision rules have the requested forms."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tpuconvert.optimizer.precision_rules import INT16
from tpuconvert.optimizer.quantize.legalize import Legalized
from tpuconvert.optimizer.quantize.lowering.float16 import LARGEST
from tpuconvert.optimizer.quantize.precision.precision import Precision, no_form
from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.optimizer.quantize.scales.annotate import activation_params
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.types import F32, I16


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
                value_range = ranges.get(value.name)
                largest = 0.0 if value_range is None else max(-value_range.low, value_range.high)
            if largest > LARGEST:
                raise UsageError(
                    f"precision rule '{rule.text}': '{value.name}' has values up to {largest:.6g}, "
                    f"the largest float16 number is {LARGEST:g}",
                    file=graph.file,
                    node=node.name,
                    hint=f"float32 has them: --keep-float '{node.name}'",
                )


def check_wide_results(precision: Precision, graph: Graph, legalized: Legalized) -> None:
    """Check that the nodes with an ``int16`` rule have 16-bit results.

    Args:
        precision: the settings.
        graph: the annotated float graph.
        legalized: its legalization.

    Raises:
        UsageError: nodes have no 16-bit result; the message names the operators, and the first node with the reason.
    """
    floats = {item.node: item.reason for item in legalized.float_nodes}
    reasons: dict[Node, str] = {}
    for name in precision.wide:
        value = graph.find(name)
        assert value is not None and value.producer is not None, f"a rule selected '{name}'"
        if name in floats:
            reasons[value.producer] = f"stays in float: {floats[name]}"
        elif value.quant is None:
            continue  # no node has an exact form for ``exact_on``, which is an error of its own
        elif value.quant.dtype is not I16:
            users = [user.name for user in value.users if user.name not in floats]
            reasons[value.producer] = f"'{users[0]}' takes 8-bit operands" if users else "its result has 8 bits"
    if reasons:
        raise no_form(INT16, reasons, precision.wide[next(iter(reasons)).name], graph)


def check_asymmetric_tensors(
    precision: Precision, graph: Graph, ranges: Mapping[str, Range], legalized: Legalized
) -> None:
    """Check that each rule for asymmetric integers applies to some of its tensors.

    Args:
        precision: the settings.
        graph: the annotated float graph.
        ranges: the ranges that its annotations were computed from.
        legalized: its legalization.

    Raises:
        UsageError: a rule has no effect; the message names the first node and contains the reason.
    """
    floats = {item.node: item.reason for item in legalized.float_nodes}
    for selection in precision.selections:
        rule = selection.rule
        names = [name for name in selection.tensors if precision.asymmetric.get(name) is rule]
        if not names or any(has_zero_point_of(name, precision, graph, ranges) for name in names):
            continue
        value = graph.find(names[0])
        if names[0] in floats:
            reason = f"stays in float: {floats[names[0]]}"
        elif value is None or value.quant is None:
            continue  # as above
        elif value.quant.dtype is I16:
            reason = "its result has 16 bits, which are symmetric"
        else:
            reason = "its result has the scale of another tensor"
        raise UsageError(
            f"precision rule '{rule.text}': {reason}",
            file=graph.file,
            node=names[0],
            hint="asymmetric is for results of 8 bits with a scale of their own",
        )


def has_zero_point_of(name: str, precision: Precision, graph: Graph, ranges: Mapping[str, Range]) -> bool:
    """Return True if a tensor has 8 bits, and the data type and zero point that its range gives."""
    value = graph.find(name)
    if value is None or value.quant is None or name not in ranges:
        return False
    expected = activation_params(ranges[name], name in precision.asymmetric)
    return value.quant.dtype is expected.dtype and set(value.quant.zero_point) == set(expected.zero_point)
