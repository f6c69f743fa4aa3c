"""Weights of a float model in 4 or 8 bits (``weight_type``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuconvert.model_building import QuantizedGraph
from tpuconvert.optimizer.quantize.group_weights import (
    GroupFormat,
    PackedWeight,
    pack_weight,
    packable_nodes,
    replace_by_packed,
    second_moments,
)
from tpuconvert.quantize.quantization import calibration_feeds
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.file_model import Note

if TYPE_CHECKING:
    from tpuconvert.options import Options
    from tpuconvert.progress import Progress
    from tpuconvert.samples.calibration_data import CalibrationSource
    from tpuconvert.schema.graph import Graph, Node
    from tpuconvert.schema.types import Array

KIND = "weights"
"""Kind of the notes."""

_BITS = {"int4": 4, "int8": 8}
_MOST_NAMES = 3


def pack_weights(
    graph: Graph, options: Options, calibration: CalibrationSource | None, progress: Progress
) -> QuantizedGraph:
    """Pack the weights of the matmuls of a float graph, which is changed in place.

    Raises:
        UsageError: the graph has integers, no weight can be packed, or the samples do not fit.

    """
    name = options.weight_type
    if any(value.quant is not None for value in graph.values):
        raise UsageError(f"weight_type={name} for a quantized source", hint="give the float model, or leave it out")
    form = GroupFormat(_BITS[name], options.weight_group, options.weight_zero_points)
    nodes = packable_nodes(graph, form)
    if not nodes:
        hint = "it is for matmuls with constant weights of at least 16384 elements; leave --weight-type out"
        raise UsageError(f"weight_type={name}: no weight can be packed", hint=hint)
    by_operand: dict[str, list[Node]] = {}
    for node in nodes:
        assert node.inputs[0] is not None, "packable"
        by_operand.setdefault(node.inputs[0].name, []).append(node)
    progress.stage("quantize")
    packed: dict[str, PackedWeight] = {}
    if calibration is None:
        packed = {node.name: _pack(node, form) for node in nodes}
        origin = "rounded to nearest without samples"
    else:
        feeds = calibration_feeds(graph, options, calibration)
        origin = f"rounded on {feeds.description}"
        for operand, moments in second_moments(graph, nodes, feeds):
            packed |= {node.name: pack_weight(node.name, _weight(node), form, moments) for node in by_operand[operand]}
    before = sum(_weight(node).nbytes for node in nodes)
    for node in nodes:
        replace_by_packed(graph, node, packed[node.name], form)
    graph.prune()
    graph.sort()
    return QuantizedGraph(graph, (_note(name, form, list(packed.values()), before, origin),))


def _weight(node: Node) -> Array:
    weight = node.inputs[1]
    assert weight is not None, "packable"
    return weight.array


def _pack(node: Node, form: GroupFormat) -> PackedWeight:
    return pack_weight(node.name, _weight(node), form)


def _note(name: str, form: GroupFormat, packed: list[PackedWeight], before: int, origin: str) -> Note:
    """Return a note with number, size and errors of the packed weights."""
    size = sum(
        item.codes.nbytes + item.scale.nbytes + (0 if item.zero_point is None else item.zero_point.nbytes)
        for item in packed
    )
    weights = before // 4
    worst = sorted(packed, key=lambda item: -item.error)[:_MOST_NAMES]
    errors = ", ".join(f"'{item.node}' {100 * item.error:.2g} %" for item in worst)
    zero = " and zero point" if form.has_zero_points else ""
    return Note(
        KIND,
        "",
        f"{len(packed)} matmuls have weights in {name}, with a scale{zero} per {form.group} inputs: "
        f"{size / 1e6:.2f} MB instead of {before / 1e6:.2f} MB, {8 * size / weights:.2f} bits per weight, {origin}. "
        f"Largest squared errors of their results: {errors}",
    )
