"""Exports at the end of a conversion: whether all integers are exact, and what is left to the host."""

from __future__ import annotations

from dataclasses import replace

from tpuconvert.exporters.bucket_graphs import graphs_of_buckets
from tpuconvert.exporters.tpu_mlir.chips import TARGETS, target_of
from tpuconvert.exporters.tpu_mlir.host_part import find_host_part
from tpuconvert.exporters.tpu_mlir.package import lower_graph, lower_with_host
from tpuconvert.model.model import Model
from tpuconvert.schema.errors import UnsupportedError, UsageError
from tpuconvert.schema.file.file_model import Note

KEY = "device"
"""Kind of the note."""

LISTED = 3
"""Nodes without a form that the note names."""


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


def with_device_note(model: Model, device: str) -> Model:
    """Return a model with a note about the nodes that a program for a device leaves to the host, if there are any.

    Args:
        model: the model.
        device: name of a chip of the vendor's compiler, for which the model was converted.
    """
    text = _host_text(model, device)
    if not text:
        return model
    return Model(replace(model.content, notes=(*model.notes, Note(KEY, "", text))))


def _host_text(model: Model, device: str) -> str:
    graph = next(iter(graphs_of_buckets(model.graph, model.metadata)))
    try:
        lowering = lower_with_host(graph, TARGETS[device], "check")
    except UnsupportedError:  # open extents, which export reports
        return f"an export for {device} needs extents that are numbers: convert with --input-shapes"
    host = find_host_part(lowering)
    if not host.nodes:
        return ""
    names = [f"{node.op.name} '{node.name}' ({reason})" for node, reason in host.reasons.items()]
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    causes = f"{'; '.join(names[:LISTED])}{more}"
    if host.is_everything:
        hint = next((problem.hint for problem in lowering.problems if problem.hint), "")
        return f"{device} has no form of {causes}: no program can be exported{f'; {hint}' if hint else ''}"
    share = f"{host.share:.1%} of the multiply-accumulates"
    count = "1 node" if len(host.nodes) == 1 else f"{len(host.nodes)} nodes"
    return f"an export for {device} leaves {count} to the host, {share}, from {causes} on"
