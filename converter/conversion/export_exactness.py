"""Check at the end of a conversion whether the vendor's compiler can compile the model exactly."""

from __future__ import annotations

from tpuconvert.exporters.bucket_graphs import graphs_of_buckets
from tpuconvert.exporters.tpu_mlir.chips import target_of
from tpuconvert.exporters.tpu_mlir.package import lower_graph
from tpuconvert.model.model import Model
from tpuconvert.schema.errors import UsageError


def check_exact(model: Model, chip: str) -> None:
    """Check that every node of a quantized model has an exact form for a chip of the vendor's compiler.

    Raises:
        UnsupportedError: nodes without an exact form; all of them are in the message.
        UsageError: the model is for another chip, or has no integers.
    """
    graph = model.graph
    target = target_of(chip, model.chip, graph.file)
    graphs = graphs_of_buckets(graph, model.metadata)
    if not all(lower_graph(each, target, "check", is_strict=True).integer_values() for each in graphs):
        raise UsageError(
            f"the model has no integers to be exact on {chip}", file=graph.file, hint="add --quantize int8"
        )
