"""Choice of the nodes that stay in float so that the vendor's compiler has an exact form for all integers."""

from __future__ import annotations

from collections.abc import Mapping

from tpuconvert.conversion.options.options import Options
from tpuconvert.exporters.bucket_graphs import graphs_of_buckets
from tpuconvert.exporters.tpu_mlir.chips import target_of
from tpuconvert.exporters.tpu_mlir.package import try_lowering
from tpuconvert.optimizer.engine.node_properties import dependent_nodes
from tpuconvert.optimizer.quantize import Legalized, Quantize, forget_annotations
from tpuconvert.schema.graph.graph import Graph, Node


def quantize_exactly(graph: Graph, options: Options, quantize: Quantize, floats: Mapping[str, str]) -> Legalized:
    """Quantize a graph such that every integer node has an exact form on a chip of the vendor's compiler.

    A program cannot compute floating-point nodes between integers exactly, but the host can continue with a suffix of
    the network. A node without an exact form therefore stays in float, and so does every node that depends on it.

    Args:
        graph: calibrated float graph.
        options: ``exact_on`` is the chip.
        quantize: quantizes the graph.
        floats: nodes that stay float for other reasons: the reason by the name of the node.

    Returns:
        The first result without refused nodes. If nothing else than float would remain, the first result of all, so
        that the caller can report its refused nodes.

    Raises:
        UsageError: models for ``options.chip`` do not run on that chip.
    """
    target = target_of(options.exact_on, options.chip, graph.file)
    first: Legalized | None = None
    floats = dict(floats)
    while True:
        legalized = quantize(floats)
        first = first or legalized
        reasons: dict[str, str] = {}
        for each in graphs_of_buckets(legalized.graph, graph.metadata):
            lowering = try_lowering(each, target, "check", is_strict=True)
            if not lowering.integer_values():
                return first
            for refused, reason in lowering.refused.items():
                text = f"no exact form on {target.name} of '{refused.name}' ({refused.op.name}): {reason}"
                reasons.update(dict.fromkeys(_dependent_names(graph, refused), text))
        if reasons.keys() <= floats.keys():
            return legalized
        floats = {**reasons, **floats}
        forget_annotations(graph)


def _dependent_names(graph: Graph, refused: Node) -> list[str]:
    """Names of the float nodes that a refused integer node is a part of, and of all nodes that depend on them."""
    first = set()
    pending, seen = [refused], {refused}
    while pending:
        for value in pending.pop().outputs:
            float_value = graph.find(value.name)
            if float_value is not None and float_value.producer is not None:
                first.add(float_value.producer)
                continue
            pending += [user for user in value.users if user not in seen]
            seen.update(value.users)
    return [node.name for node in (*first, *dependent_nodes(graph, first))]
