"""Summary of a conversion in a few lines."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from tpuconvert.model.accuracy_notes import KEY as ACCURACY
from tpuconvert.model.accuracy_notes import worst_messages
from tpuconvert.model.description import (
    ConversionSettings,
    GraphNumbers,
    NoteDescription,
    TensorDescription,
    describe_model,
)
from tpuconvert.model.integer_share import integer_share, is_integer
from tpuconvert.model.model import Model
from tpuconvert.model.notes import SHARE, NoteGroup, group_line, group_notes, share_lines
from tpuconvert.model.summary import port_lines, requirement_lines
from tpuconvert.schema.graph.cost import total_macs
from tpuconvert.text.text_format import bytes_text, operator_counts, several, shorten
from tpuconvert.verify.text import sqnr_text, verdict_lines

if TYPE_CHECKING:
    from tpuconvert.conversion.quantization.accuracy_check import ModelAccuracyValues
    from tpuconvert.schema.graph.graph import Node
    from tpuconvert.verify.verification import Verification

Summary: TypeAlias = "Mapping[str, Any]"

REASONS = 6
"""Number of groups of notes in the summary. Beyond it groups of ``REASON_KINDS`` are counted; ``inspect`` shows all."""

REASON_KINDS = ("source", "float", "chip")
"""Kinds of notes that can be numerous and explain single nodes. All others are always shown: warnings, choices of the
quantization and tasks of the outputs."""

OUTPUTS = 8
"""Largest number of outputs whose error is printed, those with the largest errors."""

KINDS = 6
"""Largest number of operators in the summary, the most frequent ones first."""


class ConversionSummary(GraphNumbers, ConversionSettings):
    """Result of a conversion."""

    source: str
    output: str
    bytes: Annotated[int, "size of the file"]
    inputs: list[TensorDescription]
    outputs: list[TensorDescription]
    integer_nodes: Annotated[int, "nodes whose results are integers"]
    macs: Annotated[int | None, "multiply-accumulates; null if they depend on extents"]
    integer_macs: Annotated[int | None, "of them in integers"]
    integer_share: Annotated[float | None, "share of the multiply-accumulates in integers, open extents counted as 1"]
    accuracy: Annotated[dict[str, Any] | None, ModelAccuracyValues | None, "null without samples"]
    warnings: Annotated[list[str], "an entry for each output that is not accurate"]
    notes: Annotated[list[dict[str, Any]], list[NoteGroup]]
    verification: Annotated[dict[str, Any] | None, Verification | None, "the comparison with the source"]
    next_step: Annotated[str, "a command to type next"]


def summarize(
    model: Model, path: str | os.PathLike[str], verification: Verification | None, next_step: str, remedy: str = ""
) -> ConversionSummary:
    """Return the summary of a conversion as plain values, as printed by ``convert --json``.

    Args:
        model: the converted model.
        path: the written model file.
        verification: the comparison with the source; None if it was not made.
        next_step: suggested next command.
        remedy: command that finds the causes of inaccurate outputs.

    """
    description = describe_model(model.content, None if verification is None else verification.to_dict(), layers=False)
    nodes = model.graph.nodes
    integers = [node for node in nodes if is_integer(node)]
    return {
        "source": description["file"] or description["name"],
        "output": os.fspath(path),
        "bytes": os.path.getsize(path),
        "tool_version": description["tool_version"],
        "chip": description["chip"],
        "quantize": description["quantize"],
        "inputs": description["inputs"],
        "outputs": description["outputs"],
        "nodes": len(nodes),
        "operators": description["operators"],
        "integer_nodes": len(integers),
        "macs": total_macs(nodes),
        "integer_macs": total_macs(integers),
        "integer_share": integer_share(nodes),
        "conversions": description["conversions"],
        "transposes": description["transposes"],
        "constant_bytes": description["constant_bytes"],
        "preprocessing": description["preprocessing"],
        "plugins": description["plugins"],
        "accuracy": model.metadata.get(ACCURACY),
        "warnings": [f"{note.message}; next: {remedy}" for note in model.notes if note.kind == ACCURACY],
        "notes": _grouped_notes(description["notes"], nodes),
        "verification": description["verification"],
        "next_step": next_step,
    }


def _grouped_notes(notes: Sequence[NoteDescription], nodes: Iterable[Node]) -> list[dict[str, Any]]:
    if not notes:
        return []
    operators = {node.name: node.op.name for node in nodes}
    return [group.to_dict() for group in group_notes(notes, operators)]


def summary_lines(summary: Summary) -> list[str]:
    """Return the summary as text."""
    is_float = summary["quantize"] == "none"
    kind = "float" if is_float else summary["quantize"].upper()
    lines = [f"{summary['source']} for {summary['chip']}, {kind} (made by tpuconvert {summary['tool_version']})"]
    lines += _share_lines(summary)
    lines += port_lines(summary)
    lines.append(f"  nodes   {summary['nodes']}: {_most_common(summary['operators'])}")
    if not is_float:
        lines.append(f"  INT8    {_integer_share(summary)}")
    if summary["transposes"]:
        lines.append(f"  transposes: {summary['transposes']} left")
    lines += requirement_lines(summary)
    lines += _note_lines(summary)
    verification = summary["verification"]
    if verification is not None:
        lines += [f"  {line}" for line in verdict_lines(verification)]
        lines += [f"  similarity of '{entry['name']}': {_similarity(entry)}" for entry in verification["outputs"]]
    lines += _accuracy_lines(summary)
    lines.append(f"wrote {summary['output']} ({summary['bytes']:,} bytes)")
    if summary["next_step"].isprintable():  # escapes of a file name would be part of the command
        lines.append(f"next: {summary['next_step']}")
    return lines


def _most_common(operators: dict[str, int]) -> str:
    named = dict(sorted(operators.items(), key=lambda item: item[1], reverse=True)[:KINDS])
    more = len(operators) - len(named)
    return (operator_counts(named) or "none") + (f" and {several(more, 'other operator')}" if more else "")


def _integer_share(summary: Summary) -> str:
    """Return the integer share of a model as text."""
    text = f"{summary['integer_nodes']} of {several(summary['nodes'], 'node')}"
    if summary["macs"]:
        text += f", {summary['integer_macs'] / summary['macs']:.1%} of the multiplications"
    if summary["conversions"]:
        text += f"; {several(summary['conversions'], 'conversion')} to or from float"
    return f"{text}; constants: {bytes_text(summary['constant_bytes'])}"


def _share_lines(summary: Summary) -> list[str]:
    if not summary["notes"]:
        return []
    return share_lines(note["reason"] for note in summary["notes"] if note["kind"] == SHARE)


def _note_lines(summary: Summary) -> list[str]:
    if not summary["notes"]:
        return []
    groups = [
        NoteGroup(note["kind"], note["reason"], Counter(note["operators"]), note["nodes"])
        for note in summary["notes"]
        if note["kind"] not in (SHARE, ACCURACY)
    ]
    reasons = [index for index, group in enumerate(groups) if group.kind in REASON_KINDS]
    more = min(max(len(groups) - REASONS, 0), len(reasons))
    left_out = reasons[len(reasons) - more :]
    lines = [group_line(group) for index, group in enumerate(groups) if index not in left_out]
    if more:
        lines.append(f"  {several(more, 'more reason')}: tpuconvert inspect {summary['output']} --summary")
    return lines


def _accuracy_lines(summary: Summary) -> list[str]:
    """Return the measured error of every output, and a warning for each that is below a limit."""
    accuracy = summary["accuracy"]
    if accuracy is None:
        return []
    origin = f"{accuracy['samples']} held-out samples"
    if not accuracy["held_out"]:
        origin = f"{several(accuracy['samples'], 'sample')} that calibrated it (none held out)"
    lines = [f"  quantization error at the outputs, on {origin}:"]
    # The worst outputs first. Those below a limit have a line of their own.
    outputs = sorted(accuracy["outputs"], key=lambda item: (item["is_accurate"], item["cosine"]))
    lines += [f"    {shorten(item['name'])}: {_measures(item)}" for item in outputs[:OUTPUTS]]
    if len(outputs) > OUTPUTS:
        lines.append(
            f"    {several(len(outputs) - OUTPUTS, 'more output')}: cosine {outputs[OUTPUTS]['cosine']:.4f} or more"
        )
    return lines + [f"warning: {text}" for text in worst_messages(summary["warnings"])]


def _measures(item: Summary) -> str:
    if item["equal_share"] is not None:
        return f"{item['equal_share']:.1%} of the elements are equal"
    sqnr = "" if item["sqnr_db"] is None else f", SQNR {item['sqnr_db']:.1f} dB"
    return f"cosine {item['cosine']:.4f}{sqnr}"


def _similarity(entry: Summary) -> str:
    cosine = "-" if entry["cosine"] is None else f"{entry['cosine']:.6f}"
    has_number = entry["sqnr_db"] is not None and not entry["not_finite"]
    return f"cosine {cosine}, SQNR {sqnr_text(entry)}" + (" dB" if has_number else "")
