"""Legalization: lower an annotated float graph to the integer operators of one chip."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

# The lowerings register themselves when their modules are imported.
import tpuconvert.optimizer.quantize.lowering.lower_bm1684
import tpuconvert.optimizer.quantize.lowering.lower_bm1684_shifts
import tpuconvert.optimizer.quantize.lowering.lower_bm1686
import tpuconvert.optimizer.quantize.lowering.lower_recurrent
import tpuconvert.optimizer.quantize.lowering.lower_shared  # noqa: F401  they register themselves
from tpuconvert.optimizer.engine.node_properties import computed_operands
from tpuconvert.optimizer.quantize.lowering.float16 import float16_form
from tpuconvert.optimizer.quantize.lowering.lower_onnx import exact_form as onnx_form
from tpuconvert.optimizer.quantize.lowering.lowering import (
    ONNX,
    Declined,
    Lowered,
    Lowering,
    Product,
    find_lowering,
    integer_type,
)
from tpuconvert.optimizer.quantize.lowering.tflite import compared_operands, exact_form, forget_inner_scales
from tpuconvert.optimizer.quantize.lowering.wide_plan import NO_PLAN, WidePlan
from tpuconvert.optimizer.quantize.scales.annotate import carry_scales, share_scales
from tpuconvert.optimizer.quantize.traits import has_integer_form
from tpuconvert.optimizer.recurrent_layers import remove_cell_results
from tpuconvert.schema.errors import InternalError
from tpuconvert.schema.graph.graph import Graph, Node, Port, Value
from tpuconvert.schema.graph.legality import Status, check_use
from tpuconvert.schema.ops.recurrent.recurrent import RecurrentLayer
from tpuconvert.schema.types import F32, Chip, QuantParams, ScaleError


@dataclass(frozen=True)
class FloatNode:
    """A node that stays float in a quantized model, with the reason."""

    node: str
    op: str
    reason: str


@dataclass(frozen=True)
class Legalized:
    """Result of legalization: a graph of operators that are legal on one chip.

    Args:
        graph: the new graph.
        float_nodes: nodes that stayed float.
        products: for the result of every integer linear operator, the float value and weights that it approximates.
    """

    graph: Graph
    float_nodes: tuple[FloatNode, ...] = ()
    products: Mapping[Value, Product] = field(default_factory=dict)


def legalize(
    graph: Graph,
    chip: Chip,
    reasons: Mapping[str, str] | None = None,
    *,
    shifts_only: bool = False,
    per_tensor: Collection[str] = (),
    two_terms: Collection[str] = (),
    float16: Collection[str] = (),
    plan: WidePlan = NO_PLAN,
    narrow: Mapping[str, QuantParams] | None = None,
) -> Legalized:
    """Lower every annotated node for which the chip has an integer form.

    Args:
        graph: annotated float graph. A graph without annotations is returned unchanged.
        chip: the target. BM1682 has no fixed point: annotated graph inputs are dequantized.
        reasons: nodes that must stay float: the reason by the name of the first result.
        shifts_only: see ``quantize``.
        per_tensor: names of linear operators with one scale for all weights.
        two_terms: names of linear operators whose weights are sums of two terms (``two_term_weights``).
        float16: names of float nodes that compute in FLOAT16.
        plan: the values that have 16 bits because of precision rules.
        narrow: parameters of the 8-bit forms of these values, by name.

    Returns:
        A new graph whose values keep their names.
    """
    if not float16 and not any(value.quant is not None for value in graph.values):
        remove_cell_results(graph)
        reason_of = reasons or {}
        alone = [
            FloatNode(node.name, node.op.name, reason_of[node.name]) for node in graph.nodes if node.name in reason_of
        ]
        return Legalized(graph, tuple(alone))
    if graph.rescale:
        share_scales(graph, stated=True)
    if graph.rescale == ONNX:
        carry_scales(graph)
    if chip is not Chip.BM1686:
        forget_inner_scales(graph)
    lowering = Lowering(graph, chip, shifts_only, per_tensor, two_terms, float16, plan, narrow)
    floats: list[FloatNode] = []
    for value, port in zip(graph.inputs, graph.input_ports, strict=True):
        _input(lowering, value, port)
    for node in graph.sorted_nodes():
        with lowering.g.derived_from(node):
            reason = (reasons or {}).get(node.name)
            before = len(lowering.g)
            try:
                with lowering.narrowed_operands(node) if reason is None else contextlib.nullcontext():
                    lowered = _lower(node, lowering) if reason is None else Declined(reason)
            except ScaleError as error:  # Scales of weights or activations that are huge or almost 0.
                lowered = Declined(f"its scales are out of range: {error}")
            if isinstance(lowered, Declined):
                floats.append(FloatNode(node.name, node.op.name, lowered.reason))
                _keep(node, lowering)
            else:
                _check_form(node, lowering, before)
                _state(node, lowering, lowered)
    for value, port in zip(graph.outputs, graph.output_ports, strict=True):
        integers = value.quant is not None and value.quant.dtype.numpy.name == port.dtype and chip is not Chip.BM1682
        lowering.g.output(lowering.quantized_value(value) if integers else lowering.float_value(value), port)
    lowering.g.prune()
    remove_cell_results(lowering.g)
    lowering.g.sort()
    remaining = {node.name for node in lowering.g.nodes}
    return Legalized(lowering.g, tuple(item for item in floats if item.node in remaining), lowering.products)


def as_float(graph: Graph) -> Graph:
    """Convert a graph to float. Annotated values still saturate; a graph without annotations is unchanged."""
    return legalize(graph, Chip.BM1682).graph


def _input(lowering: Lowering, value: Value, port: Port) -> None:
    quant = value.quant
    integers = quant is not None and quant.dtype.numpy.name == port.dtype
    if integers and lowering.chip is not Chip.BM1682:
        lowering.set_quantized(value, lowering.g.input(value.name, integer_type(value), port, quant))
        return
    lowering.set_float_value(value, lowering.g.input(value.name, value.type, port))
    if lowering.rescale and quant is not None and not integers:
        lowering.saturate_float_value(value)


def _lower(node: Node, lowering: Lowering) -> Lowered:
    exact = exact_form(node, lowering)
    if exact is not None:
        return exact
    for value in node.outputs:
        if value.quant is None:
            return Declined("its result is not quantized")
    for operand in computed_operands(node):
        is_number = operand.dtype.is_float or not isinstance(node.op, RecurrentLayer)
        if is_number and operand.quant is None:
            return Declined(f"its operand '{operand.name}' is not quantized")
    if has_integer_form(node.op) and lowering.chip is not Chip.BM1682:
        return _lower_custom(node, lowering)
    function = find_lowering(type(node.op), lowering.chip, shifts_only=lowering.shifts_only)
    if function is None:
        return Declined(f"{lowering.chip.value} has no integer form of {node.op.name}")
    exact = onnx_form(node, lowering)
    if exact is not None:
        return exact
    lowering.form = function.__name__
    return function(node, lowering)


def _check_form(node: Node, lowering: Lowering, before: int) -> None:
    """Check that the chip has the operators of an integer form that the quantizer chose.

    The forms of a quantized source follow from its integers; the check of the whole model refuses them by name.

    Args:
        node: the node that was lowered.
        lowering: the new graph.
        before: number of its nodes before.

    Raises:
        InternalError: the chip does not have an operator with these types.

    """
    if lowering.rescale:
        return
    for new in lowering.g.latest(len(lowering.g) - before):
        verdict = check_use(new, lowering.chip)
        if verdict.status is Status.ILLEGAL:
            raise InternalError(
                f"the integer form of {node.op.name} has an operator that {lowering.chip.value} lacks: "
                f"{verdict.reason}",
                file=lowering.g.file,
                node=node.name,
            )


def _lower_custom(node: Node, lowering: Lowering) -> Lowered:
    """Lower a custom operator by its method ``quantized(operands, results)``.

    The arguments are the quantization parameters of the operands (None if not quantized) and of the results. The method
    returns an operator that computes the integers of the results from the integers of the operands, or None to decline.
    """
    operands = [None if value is None else lowering.quantized_value(value) for value in node.inputs]
    operand_params = tuple(None if value is None else value.quant for value in operands)
    result_params = tuple(value.quant for value in node.outputs)
    lowering.form = f"{type(node.op).__qualname__}.quantized"
    op = node.op.quantized(operand_params, result_params)  # type: ignore[attr-defined]  # checked by has_integer_form
    if op is None:
        return Declined(f"{node.op.name} declines these scales")
    types = op.infer(*[None if value is None else value.type for value in operands])
    for value, result_type in zip(node.outputs, types, strict=True):
        if value.quant is None or result_type.dtype is not value.quant.dtype:
            return Declined(f"{op.name} gives {result_type.dtype.value}, which is not what '{value.name}' is to be")
    return lowering.g.add_all(op, *operands, names=[value.name for value in node.outputs])


def _keep(node: Node, lowering: Lowering) -> None:
    """Copy the node, on float operands."""
    lowering.form = "float"
    if node.name in lowering.float16:
        _keep_in_float16(node, lowering)
        return
    inputs: Sequence[Value | None] | None = compared_operands(node, lowering)
    if inputs is None:
        inputs = [None if value is None else lowering.float_value(value) for value in node.inputs]
    results = lowering.g.add_all(node.op, *inputs, names=[value.name for value in node.outputs])
    for old, new in zip(node.outputs, results, strict=True):
        lowering.set_float_value(old, new)
        if lowering.rescale and old.quant is not None:
            lowering.saturate_float_value(old)


def _keep_in_float16(node: Node, lowering: Lowering) -> None:
    """Add the FLOAT16 form of a node. Operands that are not FLOAT32 do not change."""
    inputs: list[Value | None] = []
    for value in node.inputs:
        is_float32 = value is not None and value.dtype is F32
        form = lowering.half_value if is_float32 else lowering.float_value
        inputs.append(None if value is None else form(value))
    *first, last = float16_form(node.op)
    for op in first:
        inputs = [lowering.g.add(op, *inputs, name=f"{node.name}:{op.name}")]
    results = lowering.g.add_all(last, *inputs, names=[value.name for value in node.outputs])
    for old, new in zip(node.outputs, results, strict=True):
        lowering.set_half_value(old, new)


def _state(node: Node, lowering: Lowering, results: tuple[Value, ...]) -> None:
    """Record the integer results. If a node needed no operator, rename its operand to the result."""
    for old, new in zip(node.outputs, results, strict=True):
        if new.name != old.name and lowering.g.find(old.name) is None and new.producer is not None:
            lowering.g.rename(new, old.name)
        lowering.set_quantized(old, new)
