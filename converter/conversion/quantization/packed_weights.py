"""Matmuls of a float model with packed weights (``weight_type``) and INT8 activations (``activation_type``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuconvert.conversion.model_building import Decision, QuantizedGraph
from tpuconvert.conversion.quantization.calibration_feeds import calibration_feeds
from tpuconvert.conversion.quantization.sample_split import split_feeds
from tpuconvert.optimizer.quantize.weights.group_weights import (
    WORTHWHILE_ERROR,
    GroupFormat,
    PackedWeight,
    outlier_inputs,
    pack_weight,
    pack_with_outliers,
    packable_nodes,
    replace_activation_type,
    replace_by_packed,
    second_moments,
)
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.file.file_model import Note
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.types import I8

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpuconvert.conversion.options.options import Options
    from tpuconvert.conversion.quantization.accuracy_check import AccuracyCheck
    from tpuconvert.progress import Progress
    from tpuconvert.samples.calibration_data import CalibrationSource, FeedSource
    from tpuconvert.schema.graph.graph import Graph, Node
    from tpuconvert.schema.types import Array

KIND = "weights"
"""Kind of the notes."""

_BITS = {"int4": 4, "int8": 8}
_MOST_NAMES = 3


@dataclass(frozen=True)
class RoundedActivations:
    """Matmuls whose activations are rounded when they are computed."""

    count: int
    type: str

    def notes(self) -> Sequence[Note]:
        """Return their number and type."""
        text = f"{self.count} matmuls have activations in {self.type}, with a scale per row and group of inputs"
        return [Note(KIND, "", text)]


@dataclass(frozen=True)
class PackedMatmuls:
    """Matmuls with packed weights.

    Args:
        type: type of the weights.
        form: their groups.
        errors: relative squared error of the result of every matmul, by its name.
        split: number of weights with a second group.
        size: bytes of the packed weights.
        before: bytes of the float weights.
        origin: text that states how they were rounded.
    """

    type: str
    form: GroupFormat
    errors: Mapping[str, float]
    split: int
    size: int
    before: int
    origin: str

    def notes(self) -> Sequence[Note]:
        """Return number, size and errors of the weights."""
        worst = sorted(self.errors.items(), key=lambda item: -item[1])[:_MOST_NAMES]
        repeated = (
            f"; {self.split} have a second group for their {self.form.group} largest inputs" if self.split else ""
        )
        errors = ", ".join(f"'{name}' {100 * error:.2g} %" for name, error in worst)
        zero = " and zero point" if self.form.has_zero_points else ""
        bits = 32 * self.size / self.before
        text = (
            f"{len(self.errors)} matmuls have weights in {self.type}, with a scale{zero} per {self.form.group} inputs: "
            f"{self.size / 1e6:.2f} MB instead of {self.before / 1e6:.2f} MB, {bits:.2f} bits per weight, {self.origin}"
            f"{repeated}. Largest squared errors of their results: {errors}"
        )
        return [Note(KIND, "", text)]


def quantize_matmuls(
    graph: Graph,
    options: Options,
    calibration: CalibrationSource | None,
    progress: Progress,
    check: AccuracyCheck | None = None,
) -> QuantizedGraph:
    """Pack weights and quantize activations, as the options request. The graph is changed in place.

    Args:
        graph: float graph.
        options: options of the conversion.
        calibration: samples for the rounding of the weights, or None.
        progress: receives the stages.
        check: records the float outputs on some samples, if there are any.

    Raises:
        UsageError: no matmul can be quantized, or the samples do not fit.

    """
    decisions: list[Decision] = []
    feeds = None if calibration is None else calibration_feeds(graph, options, calibration)
    if feeds is not None and check is not None:
        check.choose(feeds, split_feeds(graph, options.chip, feeds, feeds.samples))
        check.record(graph)
    if options.weight_type != "float32":
        decisions.append(_pack_weights(graph, options, feeds, progress))
    if options.activation_type != "float32":
        decisions.append(_quantize_activations(graph, options))
    graph.prune()
    graph.sort()
    return QuantizedGraph(graph, tuple(decisions))


def _quantize_activations(graph: Graph, options: Options) -> RoundedActivations:
    """Quantize the activations of all matmuls with packed weights when they are computed."""
    name = options.activation_type
    nodes = [node for node in graph.nodes if isinstance(node.op, MatmulGroupQuantized)]
    if not nodes:
        hint = "add --weight-type int4 or int8, or leave --activation-type out"
        raise UsageError(f"activation_type={name}: the model has no matmul with packed weights", hint=hint)
    for node in nodes:
        replace_activation_type(graph, node, I8)
    return RoundedActivations(len(nodes), name)


def _pack_weights(graph: Graph, options: Options, feeds: FeedSource | None, progress: Progress) -> PackedMatmuls:
    """Pack the weights of the matmuls of a float graph.

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
    if feeds is None:
        packed = {node.name: pack_weight(node.name, _weight(node), form) for node in nodes}
        origin = "rounded to nearest without samples"
    else:
        origin = f"rounded on {feeds.description}"
        for operand, moments in second_moments(graph, nodes, feeds):
            packed |= {weight.node: weight for weight in _pack_on_samples(by_operand[operand], form, moments)}
    before = sum(_weight(node).nbytes for node in nodes)
    for node in nodes:
        replace_by_packed(graph, node, packed[node.name], form)
    size = sum(
        weight.codes.nbytes + weight.scale.nbytes + (0 if weight.zero_point is None else weight.zero_point.nbytes)
        for weight in packed.values()
    )
    split = sum(weight.order is not None for weight in packed.values())
    errors = {name: weight.error for name, weight in packed.items()}
    return PackedMatmuls(name, form, errors, split, size, before, origin)


def _weight(node: Node) -> Array:
    weight = node.inputs[1]
    assert weight is not None, "packable"
    return weight.array


def _pack_on_samples(nodes: list[Node], form: GroupFormat, moments: Array) -> list[PackedWeight]:
    """Pack the weights of the users of one operand, with a second group for its outliers if that is worth its bits."""
    plain = [pack_weight(node.name, _weight(node), form, moments) for node in nodes]
    outliers = outlier_inputs(moments, form)
    if outliers is None:
        return plain
    split = [pack_with_outliers(node.name, _weight(node), form, moments, outliers) for node in nodes]
    before, after = (sum(weight.error for weight in weights) for weights in (plain, split))
    return split if after < WORTHWHILE_ERROR * before else plain
