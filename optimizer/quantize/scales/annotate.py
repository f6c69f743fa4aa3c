"""Choice of the scale of every activation from calibrated ranges.

The graph stays a float graph. The parameters are stored in ``quant`` of its values. The scales of the weights follow
from the scales of the activations. Legalization chooses the integer operators.

Steps, in this order:
1. Find the nodes with an integer form: linear operators (with two computed operands only if the chip supports this),
   and element-wise arithmetic and data movement with quantized operands. All other nodes stay float.
2. Results whose users are float nodes and graph outputs only are wide (INT16): rounding to 8 bits just before the end
   of the integer part would cost accuracy without a benefit. An activation function, an average or an add with such a
   result stays float. This includes the residual stream of a transformer, whose users are normalizations and adds, and
   the data movement between a graph input and the stream.
3. Scales: activations that are never negative are UINT8 with threshold / 255, the others symmetric INT8 with
   threshold / 127, or UINT8 with a zero point if a precision rule says so; data movement keeps its operand's scale.
4. A value whose sole user is a clamp or a concatenation gets the scale of the result of its user, so that nothing is
   rounded twice. If the sole user multiplies by a constant, the value gets the scale of the result divided by the
   constant. The multiplication then changes no integer.
5. If the chip supports it, activations get per-channel scales (``channel_scales``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np

from tpuconvert.optimizer.engine.annotations import is_dequantization
from tpuconvert.optimizer.engine.node_properties import computed_operands, element_operands
from tpuconvert.optimizer.quantize.lowering.lowering import find_lowering
from tpuconvert.optimizer.quantize.lowering.wide_plan import WidePlan, plan_wide_values
from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.optimizer.quantize.scales.channel_scales import scale_channels
from tpuconvert.optimizer.quantize.scales.recurrent_scales import layer_params
from tpuconvert.optimizer.quantize.traits import (
    changes_shape_or_axes,
    has_constant_weight,
    has_integer_form,
    is_arithmetic,
    is_average_pool,
    is_product,
    is_table,
    keeps_scale,
    positive_factor,
    why_no_runtime_product,
)
from tpuconvert.optimizer.recurrent_layers import why_no_integer_layer
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.concat import Split
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.recurrent.recurrent import RecurrentLayer
from tpuconvert.schema.types import I8, I16, U8, Chip, QuantParams


def quantize(
    graph: Graph,
    ranges: Mapping[str, Range],
    chip: Chip,
    float_reasons: Mapping[str, str] | None = None,
    *,
    shifts_only: bool = False,
    channel_scales: bool = True,
    asymmetric: Collection[str] = (),
    wide: Collection[str] = (),
) -> dict[str, str]:
    """Annotate a float graph for one chip.

    Args:
        graph: calibrated float graph; its values are annotated in place.
        ranges: calibrated ranges of its values, by name.
        chip: BM1686 rescales every channel of a result separately, so activations can have per-channel scales.
        float_reasons: nodes that must stay float: the reason by the name of the first result.
        shifts_only: for BM1684: requantize linear operators by one right shift per layer, and use 8-bit results only,
            because the vendor's compiler has no other forms for this chip.
        channel_scales: for BM1686: choose per-channel scales for activations.
        asymmetric: for BM1686: names of tensors whose 8-bit integers have a zero point.
        wide: for BM1686: names of nodes with operands and results of 16 bits.

    Returns:
        Reasons for which nodes stay float, by the name of their first result.
    """
    reasons = _nodes_that_stay_float(graph, chip, float_reasons or {})
    floats = set(reasons)
    results = _results_read_by_float_only(graph, floats, reasons, wide if chip is Chip.BM1686 else ())
    _keep_moved_inputs(graph, floats, results, reasons)
    plan = plan_wide_values(graph, wide, floats, chip)
    if chip is not Chip.BM1686:
        ranges = {name: dataclasses.replace(value_range, has_zero_point=False) for name, value_range in ranges.items()}
    params = {name: activation_params(value_range, name in asymmetric) for name, value_range in ranges.items()}
    headroom = None if shifts_only else WIDE_HEADROOM[chip]
    _annotate_activations(graph, ranges, params, floats, results | plan.values, headroom, plan)
    share_scales(graph, stated=False, fixed=plan.values)
    if chip is Chip.BM1686 and channel_scales:
        scale_channels(graph, ranges, floats)
    return reasons


def _nodes_that_stay_float(graph: Graph, chip: Chip, float_reasons: Mapping[str, str]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    quantized = {value for value in graph.inputs if value.dtype.is_float}
    for node in graph.sorted_nodes():
        reason = float_reasons.get(node.name) or _why_float(node, quantized, chip)
        if reason:
            reasons[node.name] = reason
        else:
            quantized.update(node.outputs)
    return reasons


def _why_float(node: Node, quantized: set[Value], chip: Chip) -> str:
    op = node.op
    if not all(value.dtype.is_float for value in node.outputs):
        return "works on integers of the source, not on quantized floats"
    operands = computed_operands(node)
    if not operands:
        return "does not depend on the input"
    if isinstance(op, RecurrentLayer):
        return why_no_integer_layer(node, chip)
    if is_product(op):
        if not has_constant_weight(node):
            return why_no_runtime_product(node, chip)
        return "" if find_lowering(type(op), chip) is not None else f"{chip.value} has no integer form of {op.name}"
    if op.name == "softmax":
        return "8-bit probabilities would be too coarse"
    has_form = keeps_scale(op) or is_average_pool(op) or is_arithmetic(op) or is_table(op)
    if not (has_form or has_integer_form(op)):
        return "it has no integer form"
    unquantized = [value.name for value in operands if value not in quantized]
    return f"its operand '{unquantized[0]}' is float" if unquantized else ""


def _results_read_by_float_only(
    graph: Graph, floats: set[str], reasons: dict[str, str], integers: Collection[str]
) -> set[Value]:
    """Find values without 8-bit users. Add activations, averages and adds that produce them to the float nodes.

    The nodes named in ``integers`` do not become float nodes.
    """
    wide: set[Value] = set()
    for node in reversed(graph.sorted_nodes()):
        if node.name in floats:
            continue
        if not all(_read_by_float_only(value, floats, wide) for value in node.outputs):
            continue
        if is_product(node.op) or _passes_wide(graph, node):
            wide.update(node.outputs)
        elif node.name in integers:
            continue
        elif is_average_pool(node.op) or is_table(node.op) or is_arithmetic(node.op) or has_integer_form(node.op):
            floats.add(node.name)
            reasons[node.name] = "nothing after it is quantized"
    # Data movement and clamps are wide only if their operands are. Data movement between float nodes stays float:
    # rounding there has no benefit.
    changed = True
    while changed:
        moved = False
        for node in graph.sorted_nodes():
            if node.outputs[0] in wide and _reads_float_node(node, floats):
                floats.add(node.name)
                reasons[node.name] = "nothing before or after it is quantized"
                wide.difference_update(node.outputs)
                moved = True
        narrow = [
            node
            for node in graph.nodes
            if not (is_product(node.op) or wide.isdisjoint(node.outputs))
            and not wide.issuperset((*computed_operands(node), *node.outputs))
        ]
        # An operand of a narrow concatenation is narrow too, and so are its producers.
        narrow_operands = {
            value for node in graph.nodes if node.name not in floats and node.outputs[0] not in wide
            for value in node.inputs if value in wide
        }  # fmt: skip
        wide.difference_update(*(node.outputs for node in narrow), narrow_operands)
        changed = moved or bool(narrow or narrow_operands)
    return wide


def _keep_moved_inputs(graph: Graph, floats: set[str], wide: set[Value], reasons: dict[str, str]) -> None:
    """Keep data movement of graph inputs in float if a float node uses the result: its values are then not rounded."""
    moves = [node for node in graph.sorted_nodes() if changes_shape_or_axes(node.op) and node.name not in floats]
    seen: set[Node] = set()
    for node in reversed(moves):
        if any(user.name in floats or user in seen for user in node.output.users):
            seen.add(node)
    unrounded = set(graph.inputs)
    for node in moves:
        if node in seen and node.inputs[0] in unrounded:
            floats.add(node.name)
            reasons[node.name] = "a float node reads it, and nothing before it is quantized"
            wide.discard(node.output)
            unrounded.add(node.output)


def _reads_float_node(node: Node, floats: set[str]) -> bool:
    producers = [value.producer for value in computed_operands(node)]
    return not is_product(node.op) and any(producer is not None and producer.name in floats for producer in producers)


def _read_by_float_only(value: Value, floats: set[str], wide: set[Value]) -> bool:
    return all(
        user.name in floats or (not is_product(user.op) and wide.issuperset(user.outputs)) for user in value.users
    )


def _passes_wide(graph: Graph, node: Node) -> bool:
    """Return True for nodes that support 16 bits as well as 8: layout changes, splits, clamps; some scalings, concats.

    Scalings and concats qualify only if they are the sole user of their operands.
    """
    if node.op.name == "concat" or positive_factor(node.op) is not None:
        return all(graph.is_sole_use(value) for value in computed_operands(node))
    is_part = isinstance(node.op, (Extract, Split))
    return changes_shape_or_axes(node.op) or is_part or node.op.clamp_range() is not None


def _annotate_activations(
    graph: Graph,
    ranges: Mapping[str, Range],
    params: Mapping[str, QuantParams],
    floats: set[str],
    wide: set[Value],
    headroom: float | None,
    plan: WidePlan,
) -> None:
    def params_for(value: Value) -> QuantParams:
        return wide_params(ranges[value.name], headroom) if value in wide else params[value.name]

    for value in graph.inputs:
        if value.dtype.is_float and any(user.name not in floats for user in value.users):
            value.quant = params_for(value)
    for node in graph.sorted_nodes():
        if node.name in floats:
            for operand in node.inputs:
                _forget_unread(operand, floats)
            continue
        source = node.inputs[0]
        if isinstance(node.op, RecurrentLayer):
            _annotate_layer(graph, node, ranges, params)
            continue
        for value in node.outputs:
            if (
                keeps_scale(node.op)
                and len(element_operands(node)) == 1
                and source is not None
                and source.quant is not None
            ):
                is_narrowed = source in plan.values and node.name not in plan.readers and value not in wide
                value.quant = params[source.name] if is_narrowed else source.quant
            else:
                value.quant = params_for(value)
    for node in graph.nodes:
        if is_product(node.op) and node.name not in floats:
            for value in computed_operands(node):
                value.quant = value.quant or params_for(value)


def _annotate_layer(graph: Graph, node: Node, ranges: Mapping[str, Range], params: Mapping[str, QuantParams]) -> None:
    """Annotate the input, the results and the computed initial states of a recurrent layer.

    An initial state that is an input of the graph has the parameters of the state, 16 bits for a cell.
    """
    x = node.inputs[0]
    assert x is not None
    x.quant = x.quant or params[x.name]
    layer_quants = layer_params(node, ranges)
    for value, quant in zip(node.outputs, layer_quants, strict=True):
        value.quant = quant
    for initial, quant in zip(node.inputs[5:7], layer_quants[1:], strict=False):
        if initial is not None and not initial.is_constant:
            is_own = initial.producer is None and graph.is_sole_use(initial)
            initial.quant = quant if is_own or initial.quant is None else initial.quant


def _forget_unread(value: Value | None, floats: set[str]) -> None:
    """Remove the annotation of a graph input that has only float users."""
    if value is not None and value.producer is None and all(user.name in floats for user in value.users):
        value.quant = None


def activation_params(value_range: Range, asymmetric: bool = False) -> QuantParams:
    """UINT8 parameters for values that are never negative, else symmetric INT8; the scale is a binary32 number.

    With ``asymmetric``, or if a search chose a zero point, all values are UINT8, and the zero point is the integer for
    the real number 0.
    """
    if (asymmetric or value_range.has_zero_point) and value_range.low < 0 and value_range.threshold > 0:
        low, high = max(value_range.low, -value_range.threshold), max(min(value_range.high, value_range.threshold), 0.0)
        scale = _scale((high - low) / 255)
        return QuantParams.per_tensor(scale, min(round(-low / scale), 255), U8)
    threshold = value_range.threshold if value_range.threshold > 0 else 1.0
    dtype, levels = (U8, 255) if value_range.is_never_negative else (I8, 127)
    return QuantParams.per_tensor(_scale(threshold / levels), 0, dtype)


SMALLEST_SCALE = float(np.finfo(np.float32).tiny)
"""Smallest scale. Smaller ones are subnormal or 0 in binary32; values of this magnitude do not matter to a network."""


def _scale(exact: float) -> float:
    """Nearest binary32 scale, at least the smallest normal number."""
    return max(float(np.float32(exact)), SMALLEST_SCALE)


WIDE_HEADROOM = {Chip.BM1682: 2.0, Chip.BM1684: 16.0, Chip.BM1686: 2.0}
"""Range of an INT16 result, relative to the largest calibrated magnitude. BM1684 adds the bias after its 16-bit stage:
the accumulator without bias, which may be larger than the result, must fit."""


def wide_params(value_range: Range, headroom: float | None) -> QuantParams:
    """Symmetric INT16 parameters for ``headroom`` times the calibrated range. None: 8-bit parameters for this range."""
    largest = max(-value_range.low, value_range.high, 0.0) or 1.0
    if headroom is None:
        return activation_params(dataclasses.replace(value_range, threshold=largest, has_zero_point=False))
    return QuantParams.per_tensor(_scale(headroom * largest / 32767), 0, I16)


def share_scales(graph: Graph, stated: bool, fixed: Collection[Value] = ()) -> None:
    """Give a value whose sole user is a clamp, a concatenation or data movement the scale of the result.

    Saturation then replaces the clamp, and data movement does not round again.

    Args:
        graph: annotated graph; values are changed in place.
        stated: the annotations come from the source and do not change. Only values without an annotation, such as the
            operand of a fused activation, get a scale, and dequantized ones stay float.
        fixed: values with 16 bits due to precision rules. These have no scale of 8 bits, and if there are any, no other
            value gets one of 16 bits.
    """
    for node in reversed(graph.sorted_nodes()):
        result = node.outputs[0].quant
        if result is None or len(node.outputs) != 1:
            continue
        factor = None if stated else positive_factor(node.op)
        if factor is not None:
            result = _divide(result, factor)
        elif not keeps_scale(node.op) and node.op.clamp_range() is None:
            continue
        for value in computed_operands(node):
            is_free = _is_free(graph, value)
            is_float = factor is not None and value.quant is None
            if fixed and value.quant is not None and value.quant.dtype.bits != result.dtype.bits:
                continue
            has_own = value.quant is not None or (value.producer is not None and is_dequantization(value.producer))
            if is_free and not is_float and not (stated and has_own):
                value.quant = result


def carry_scales(graph: Graph) -> None:
    """Copy the parameters of an operand to the result of data movement that has no source annotation."""
    for node in graph.sorted_nodes():
        source, result = node.inputs[0] if node.inputs else None, node.outputs[0]
        if changes_shape_or_axes(node.op) and source is not None and result.quant is None:
            moved = source.quant is not None and source.quant.axis is None and not source.is_constant
            result.quant = source.quant if moved else None


def _is_free(graph: Graph, value: Value) -> bool:
    """Return True if the scale of the value can change without an effect on another user.

    If data movement computes the value, its operand has the same scale and must be free too. A result of a split is
    never free, because all results have the scale of the operand.
    """
    if value.producer is None or not graph.is_sole_use(value) or isinstance(value.producer.op, RecurrentLayer):
        return False
    if not keeps_scale(value.producer.op):
        return True
    if len(value.producer.outputs) > 1:
        return False
    before = computed_operands(value.producer)
    return len(before) != 1 or _is_free(graph, before[0])


def _divide(params: QuantParams, factor: float) -> QuantParams:
    """Parameters with the scales divided by a factor."""
    return dataclasses.replace(params, scale=tuple(float(np.float32(scale / factor)) for scale in params.scale))
