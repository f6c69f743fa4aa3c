"""Second step of a conversion: the graph of a frontend becomes an optimized graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tpuconvert.conversion.final_checks import check_finite, check_not_empty, constant_arrays
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.pass_instrumentation import Watch
from tpuconvert.conversion.source_loading import is_quantized_source
from tpuconvert.optimizer import expand_where_illegal, fit_to_chip, optimize
from tpuconvert.optimizer.precision_rules import tensor_sources
from tpuconvert.optimizer.recurrent_layers import expand_recurrent_layers
from tpuconvert.progress import SILENT, Progress
from tpuconvert.schema.graph.control_flow import nested_graphs
from tpuconvert.schema.graph.graph import Graph, Source

if TYPE_CHECKING:
    from tpuconvert.conversion.input_expectations import Expected


@dataclass(frozen=True)
class OptimizedGraph:
    """A graph after the optimizer.

    Args:
        graph: the graph.
        expected: distributions that batch norms state about tensors of a float network to be quantized. The optimizer
            folds the batch norms.
        tensors: result of ``tensor_sources`` before the optimizer; empty without precision rules.
    """

    graph: Graph
    expected: Mapping[str, Expected] = field(default_factory=dict)
    tensors: Mapping[str, tuple[Source, ...]] = field(default_factory=dict)


def optimize_graph(
    graph: Graph, options: Options, *, progress: Progress = SILENT, watch: Watch | None = None
) -> OptimizedGraph:
    """Optimize the graph of a frontend, which is changed in place, for the chip of the options.

    Raises:
        UnsupportedError: a constant became NaN or infinite.
        UsageError: the graph computes nothing.

    """
    progress.stage("optimize")
    constants = constant_arrays(graph)
    expected: Mapping[str, Expected] = {}
    if options.quantize is not None:
        # 185 ms: imports the quantizer
        from tpuconvert.conversion.input_expectations import expectations

        expected = expectations(graph)
    tensors: Mapping[str, tuple[Source, ...]] = {}
    if options.precision or options.keep_float:
        tensors = tensor_sources(graph)
    if options.strict_set or is_quantized_source(graph):
        expand_recurrent_layers(graph)
    elif options.quantize is not None:
        expand_recurrent_layers(graph, options.chip if options.exact_on == "none" else None)
    trace = None if watch is None else watch.trace
    observers = () if watch is None else watch.observers(graph, options, progress.report)
    for subgraph in nested_graphs(graph):
        optimize(subgraph, trace, chip=options.chip, disabled=options.disable_rules)
    optimize(graph, trace, chip=options.chip, disabled=options.disable_rules, observers=observers)
    expand_where_illegal(graph, options.chip)
    fit_to_chip(graph, options.chip, trace, options.disable_rules)
    graph.budget = None
    if not options.allow_non_finite:
        check_finite(graph, checked=constants)
    check_not_empty(graph, options.inputs, options.outputs)
    return OptimizedGraph(graph, expected, tensors)
