"""Exports at the end of a conversion: whether all integers are exact, and what is left to the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tpuconvert.exporters.bucket_graphs import graphs_of_buckets
from tpuconvert.exporters.tpu_mlir.chips import TARGETS, target_of
from tpuconvert.exporters.tpu_mlir.host_part import HostPart, find_host_part
from tpuconvert.exporters.tpu_mlir.lowering import Lowering
from tpuconvert.exporters.tpu_mlir.package import lower_graph, lower_with_host
from tpuconvert.model.model import Model
from tpuconvert.model.notes import is_unfinished
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


def with_device_notes(model: Model, device: str) -> Model:
    """Return a model with the notes of a device: what a program for it leaves to the host, and no unfinished operators.

    The vendor marks operators of the chip as unfinished that its compiler computes, as the simulator proves.

    Args:
        model: the model.
        device: name of a chip of the vendor's compiler, for which the model was converted.
    """
    graph = next(iter(graphs_of_buckets(model.graph, model.metadata)))
    try:
        lowering = lower_with_host(graph, TARGETS[device], "check")
    except UnsupportedError:  # open extents, which export reports
        text = f"an export for {device} needs extents that are numbers: convert with --input-shapes"
        return _with_notes(model, (*model.notes, Note(KEY, "", text)))
    host = find_host_part(lowering)
    left = {node.name for node in host.nodes}
    notes = [note for note in model.notes if note.node in left or not is_unfinished(note)]
    text = _host_text(lowering, host, device)
    return _with_notes(model, [*notes, *([Note(KEY, "", text)] if text else [])])


def _with_notes(model: Model, notes: Sequence[Note]) -> Model:
    return Model(replace(model.content, notes=tuple(notes)))


def _host_text(lowering: Lowering, host: HostPart, device: str) -> str:
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
