"""Attribution of the error of a quantized model to its nodes, by their effect on the outputs of the network."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from tpuconvert.conversion.optimization import optimize_graph
from tpuconvert.conversion.reproduction import check_source, read_options
from tpuconvert.conversion.source import AnySource, Weights, open_source
from tpuconvert.conversion.source_loading import is_quantized_source, load_source
from tpuconvert.model.float_names import keep_float_options
from tpuconvert.model.model import Model, load_converted
from tpuconvert.optimizer.engine.node_properties import computed_operands
from tpuconvert.optimizer.prepare_quantization import prepare
from tpuconvert.optimizer.quantize.traits import is_max_pool
from tpuconvert.plugins import load_plugins
from tpuconvert.precision.attribution_text import HEADING, attribution_lines, cells, headline
from tpuconvert.precision.integer_units import IntegerUnit, UnitOperand, find_units
from tpuconvert.precision.isolated_error import IsolatedErrors
from tpuconvert.precision.output_noise import OutputNoise
from tpuconvert.precision.rule_trials import Candidate, MeasuredRule, RuleTrials
from tpuconvert.progress import SILENT, Progress
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.samples.random_samples import random_feeds
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.text.plain_values import Plain, Unbounded
from tpuconvert.schema.types import Array
from tpuconvert.text.result import Result

if TYPE_CHECKING:
    from tpuconvert.samples.calibration_data import CalibrationSource

SAMPLES = 32
"""Default number of samples."""

NODES = 20
"""Default number of nodes that are measured on all samples."""

MEASURED_RULES = 3
"""Default number of nodes whose rules are measured. The text describes as many."""

RANGE_METHODS = ("auto", "minmax")
"""Calibration methods that a rule may state, in the order in which they are preferred."""


@dataclass(frozen=True)
class NodeError(Plain, added=("cause", "rule"), keys={"accumulated_sqnr": "accumulated_sqnr_db"}):
    """Error that one node causes.

    Args:
        name: name of the node in precision rules.
        op: operator in the float graph.
        isolated: error at the outputs if only this node is in integers.
        from_weights: the part from weights, tables and integer arithmetic.
        from_activations: the part from quantized operands.
        accumulated_sqnr: SQNR of the node's result in the model, in decibel.
        keep_float: names of the nodes to keep in float to remove the larger part.
        measured: options that trials have shown to remove the error; None if none were measured.

    """

    name: str
    op: str
    isolated: OutputNoise
    from_weights: OutputNoise
    from_activations: OutputNoise
    accumulated_sqnr: Unbounded
    keep_float: tuple[str, ...]
    measured: MeasuredRule | None = None

    @property
    def cause(self) -> Literal["weights", "activations"]:
        """``weights`` or ``activations``: the larger part."""
        return "weights" if self.from_weights.noise > self.from_activations.noise else "activations"

    @property
    def rule(self) -> str:
        """Options of ``convert`` that remove the larger part: the measured ones, else float nodes."""
        return self.measured.options if self.measured is not None else keep_float_options(self.keep_float)


@dataclass(frozen=True, repr=False)
class Attribution(Result):
    """Errors of the nodes of a quantized model.

    Args:
        file: name of the model.
        samples: number of feeds.
        origin: origin of random samples as text; empty for samples of the user.
        model: error of the whole model at the outputs.
        nodes: the measured nodes, the largest isolated error first.
        integer_nodes: number of nodes that compute in integers, without data movement.
        unmatched: names of integer tensors that cannot be attributed, because the float network does not have them.

    """

    file: str
    samples: int
    origin: str
    model: OutputNoise
    nodes: tuple[NodeError, ...]
    integer_nodes: int
    unmatched: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return the error of the model, the table of nodes, and the options that remove the largest errors."""
        return attribution_lines(self.to_dict())

    def _notebook(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        values = self.to_dict()
        return [headline(values)], [HEADING, *map(cells, values["nodes"])]


@np.errstate(all="ignore")  # Powers handles non-finite elements
def attribute(
    model: Model | str | os.PathLike[str],
    source: AnySource,
    weights: Weights = None,
    *,
    data: CalibrationSource | None = None,
    samples: int = SAMPLES,
    nodes: int = NODES,
    measured_rules: int = MEASURED_RULES,
    allow_root: str | os.PathLike[str] | None = None,
    plugins: Iterable[str | Path] = (),
    progress: Progress | None = None,
) -> Attribution:
    """Measure the error that each integer node of a quantized model causes at the outputs.

    Args:
        model: The INT8 model, or its file. Its recipe has the options with which the source is read.
        source: The source of the model, as for ``convert``.
        weights: The caffemodel of a prototxt.
        data: Samples, as ``convert`` takes them for calibration; None uses random numbers from a fixed seed.
        samples: Largest number of feeds to use.
        nodes: Largest number of nodes to measure on all samples: those with the largest error on the first one.
        measured_rules: Number of nodes, the worst first, for whose rules the source is quantized again to find the
            cheapest rule that helps. They are nodes whose larger part is from the quantization of the operands.
        allow_root: Directory that may contain external data of an ONNX model, besides the folder of the model.
        plugins: Python files with custom operators and converters.
        progress: Receives the stages.

    Returns:
        The nodes, the largest error first.

    Raises:
        UsageError: The model has no integer nodes, was converted from another source, or the source is quantized.

    Example:
        >>> settings = {"calibration": "calibration.npz", "preprocess": "color=GRAY,scale=0.0625"}
        >>> model = tc.convert("digits.onnx", quantize="int8", **settings)
        >>> attribution = tc.attribute(model, "digits.onnx", data="calibration.npz", samples=4)
        >>> worst = attribution.nodes[0]
        >>> worst.op, worst.cause
        ('conv', 'weights')

    """
    load_plugins(plugins)
    name = "the model" if isinstance(model, Model) else os.fspath(model)
    converted = load_converted(model, source)
    options = read_options(converted, allow_root)
    watcher = progress or SILENT
    with open_source(source, weights) as opened:
        check_source(converted, opened, name)
        watcher.stage("load the source")
        graph = load_source(opened, options)
        if is_quantized_source(graph):
            hint = "tpuconvert verify compares every integer with the source"
            raise UsageError(f"{name}: the source is quantized and defines the integers", hint=hint)
        optimize_graph(graph, options)
        prepare(graph, options.disable_rules)
        if data is None:
            feeds = random_feeds(graph.input_ports, samples)
        else:
            feeds = list(
                itertools.islice(load_feeds(data, graph.input_ports, options.preprocess, limit=samples), samples)
            )
        # The recipe contains samples if they refined weights and biases. Ranges from a file alone do not.
        is_corrected = "calibration" in converted.metadata["recipe"] and options.has_algorithm("bias-correction")
        attribution = attribute_error(
            graph,
            converted,
            feeds,
            nodes=nodes,
            has_corrected_biases=is_corrected,
            origin="of random numbers" if data is None else "",
            progress=watcher,
        )
        if measured_rules < 1:
            return attribution
        trials = RuleTrials(lambda: load_source(opened, options), options, graph, feeds)
        return _measure_rules(attribution, find_units(graph, converted.graph)[0], trials, measured_rules, watcher)


def attribute_error(
    graph: Graph,
    model: Model,
    feeds: Sequence[dict[str, Array]],
    *,
    nodes: int,
    has_corrected_biases: bool,
    origin: str = "",
    progress: Progress = SILENT,
) -> Attribution:
    """Measure the error that each integer node causes at the outputs.

    Args:
        graph: the float graph that was quantized.
        model: the quantized model.
        feeds: samples.
        nodes: largest number of nodes to measure on all samples: those with the largest error on the first one.
        has_corrected_biases: whether the conversion corrected biases on samples.
        origin: origin of random samples, as text after "4 samples"; empty for samples of the user.
        progress: receives the stages.

    Raises:
        UsageError: the model computes no tensor of the graph in integers, or there are no samples.

    """
    units, unmatched = find_units(graph, model.graph)
    file = model.graph.file or model.graph.name
    if not units:
        hint = "give an INT8 model with the source and the options of its conversion"
        raise UsageError("the model computes no tensor of the source in integers", file=file, hint=hint)
    if not feeds:
        raise UsageError("there are no samples to compare with", file=file, hint="give at least one sample")
    if nodes < 1:
        raise UsageError(f"nodes is {nodes}, expected at least 1", file=file)
    errors = IsolatedErrors(graph, model, feeds, has_corrected_biases=has_corrected_biases)
    errors.compare(units, progress)
    chosen = units
    if len(units) > nodes:
        estimates = errors.estimate(units, progress)
        order = sorted(range(len(units)), key=lambda index: -estimates[index])
        chosen = [units[index] for index in sorted(order[:nodes])]
    ranking = []
    for unit, error in zip(chosen, errors.measure(chosen, progress), strict=True):
        total, weights, activations = error.total.result(), error.weights.result(), error.activations.result()
        keep = _nodes_to_keep(unit, units, is_from_weights=weights.noise > activations.noise)
        accumulated = errors.accumulated_sqnr(unit)
        ranking.append(NodeError(unit.name, unit.node.op.name, total, weights, activations, accumulated, keep))
    ranking.sort(key=lambda node: -node.isolated.noise)
    return Attribution(file, len(feeds), origin, errors.total.result(), tuple(ranking), len(units), tuple(unmatched))


def _measure_rules(
    attribution: Attribution, units: Sequence[IntegerUnit], trials: RuleTrials, count: int, progress: Progress
) -> Attribution:
    """Replace the rules of the worst nodes by the cheapest ones that remove their error in a trial."""
    by_name = {unit.name: unit for unit in units}
    worst = [node for node in attribution.nodes[:count] if node.cause == "activations" and node.isolated.noise > 0.0]
    candidates = {node.name: _candidates(node, by_name[node.name], units) for node in worst}
    progress.stage("try rules", sum(map(len, candidates.values())))
    done = itertools.count(1)
    measured = {name: trials.choose(rules, lambda: progress.advance(next(done))) for name, rules in candidates.items()}
    nodes = tuple(replace(node, measured=measured.get(node.name)) for node in attribution.nodes)
    return replace(attribution, nodes=nodes)


def _candidates(node: NodeError, unit: IntegerUnit, units: Sequence[IntegerUnit]) -> list[Candidate]:
    """Return the options that may remove the error of the quantized operands of a unit, the cheapest first."""
    own = [item for item in unit.operands if item.is_own]
    names = [item.value.name if item.origin is item.integer else item.origin.name for item in own]
    tensors = [tuple(dict.fromkeys(names))]
    if unit.owns_result:
        tensors.append(tuple(dict.fromkeys([*names, unit.stored_value.name])))
    stored = {item.origin for item in own}
    producers = dict.fromkeys(other.name for other in units if other.stored in stored)
    return [
        *(Candidate(ranges, method) for ranges in tensors if ranges for method in RANGE_METHODS),
        Candidate(keep_float=node.keep_float),
        Candidate(keep_float=tuple(dict.fromkeys([*node.keep_float, *producers]))),
    ]


def _nodes_to_keep(unit: IntegerUnit, units: Sequence[IntegerUnit], *, is_from_weights: bool) -> tuple[str, ...]:
    """Return the nodes to keep in float, so that the larger part of the error of a unit is removed.

    The result of an integer linear operator is rounded to 8 bits only if it has integer users. The error of quantized
    operands is therefore removed if all their users are in float, and the maximum pools before these: pools stay in
    integers without a rule.
    """
    names = {unit.name: None}
    if not is_from_weights:
        quantized = {item.origin for item in unit.operands if item.is_own}
        if unit.owns_result:
            quantized.add(unit.stored)
        users = [other for other in units if any(item.origin in quantized for item in other.operands)]
        names.update(dict.fromkeys(other.name for other in users))
        operands = [item for other in users for item in other.operands if item.origin in quantized]
        names.update(dict.fromkeys(pool for item in operands for pool in _max_pools(item)))
    return tuple(names)


def _max_pools(operand: UnitOperand) -> list[str]:
    """Return the names of the maximum pools between the quantized tensor of an operand and the operand."""
    names = []
    value = operand.integer
    while value is not operand.origin and value.producer is not None:
        if is_max_pool(value.producer.op):
            names.append(value.name)
        value = computed_operands(value.producer)[0]
    return names
