"""Fourth step of a conversion: check a quantized or float graph for its chip and build the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tpuconvert.conversion.conversion_record_writer import make_record
from tpuconvert.conversion.final_checks import check_expanded, check_legality, check_transposes
from tpuconvert.conversion.options.options import Options
from tpuconvert.installed import version
from tpuconvert.model.conversion_record import KEY
from tpuconvert.model.integer_share import check_integer_share
from tpuconvert.model.model import Model
from tpuconvert.model.notes import DEVIATION
from tpuconvert.optimizer import expand_composites, is_expandable, provide_tensors
from tpuconvert.optimizer.node_order import shorten_lifetimes
from tpuconvert.plugins import plugins_of
from tpuconvert.runtime.native.builder.cache_analysis import replanning_reason
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.file.file_model import FileModel, Note
from tpuconvert.schema.graph.control_flow import all_graphs
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.states import find_states

if TYPE_CHECKING:
    from tpuconvert.optimizer.quantize.ranges.ranges import Range


class Decision(Protocol):
    """Something that a user should know about a quantization."""

    def notes(self) -> Sequence[Note]:
        """Return the notes for the summary and the file."""


class QuantizedGraph(NamedTuple):
    """A graph whose tensors have their final data types, integer or float.

    Args:
        graph: the graph.
        decisions: what was decided about ranges, and about nodes that stay in float.
        is_quantized: whether the options or the source request integers.
        ranges: ranges of the calibration, by name of the tensor.
    """

    graph: Graph
    decisions: tuple[Decision, ...] = ()
    is_quantized: bool = False
    ranges: Mapping[str, Range] = MappingProxyType({})


def build_model(quantized: QuantizedGraph, options: Options) -> Model:
    """Check that the chip can execute the graph, and order its nodes. The graph is changed in place.

    Raises:
        UnsupportedError: the chip cannot execute some nodes.
        ThresholdError: more transposes are left than allowed, or fewer multiply-accumulates are in integers.
        UsageError: the options limit the share of integers, but the model computes in float.

    """
    graph = quantized.graph
    quantization_notes = [note for decision in quantized.decisions for note in decision.notes()]
    if options.strict_set:
        expand_composites(graph, is_expandable)
        check_expanded(graph)
    provide_tensors(graph, options.chip, options.disable_rules)
    warnings = check_legality(graph, options.chip)
    check_transposes(graph, options.max_transposes)
    if options.min_int8_share is not None:
        if not quantized.is_quantized:
            hint = "add --quantize int8, or leave --min-int8-share out"
            raise UsageError("min_int8_share is for models that are quantized, this one is float", hint=hint)
        check_integer_share(graph, options.min_int8_share)
    shorten_lifetimes(graph)
    graph.validate()
    record = make_record(graph, quantized.ranges)
    states = find_states(graph) if options.state == "auto" else ()
    reason = replanning_reason(graph, states)
    slow = [Note("decoding", "", f"every token needs a new plan, because {reason}")] if reason else []
    notes: Iterable[Note] = (Note("source", "", note) for note in graph.notes)
    deviations = [
        Note(DEVIATION, item.node, f"{item.op}: {item.text}") for each in all_graphs(graph) for item in each.deviations
    ]
    return Model(
        FileModel(
            graph=graph,
            chip=options.chip,
            tool_version=version(),
            quantize="int8" if has_integers(graph) else "none",
            preprocessing=options.preprocess.to_dict() if options.preprocess else {},
            notes=(*deviations, *slow, *notes, *quantization_notes, *warnings),
            plugins=tuple(plugins_of(graph)),
            metadata={**graph.metadata, **({KEY: record} if record else {})},
            states=states,
        )
    )


def has_integers(graph: Graph) -> bool:
    """Return True if some tensor between nodes is stored as integers with a scale."""
    return any(value.quant is not None and value.dtype.is_integer for value in graph.values)
