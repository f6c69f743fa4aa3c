"""Share of a model's multiply-accumulates that are computed in integers, and reasons for the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tpuconvert.model.description import NoteDescription
from tpuconvert.model.notes import SHARE, group_notes, names_text
from tpuconvert.schema.errors import ThresholdError
from tpuconvert.schema.file.file_model import Note
from tpuconvert.schema.graph.cost import macs

if TYPE_CHECKING:
    from tpuconvert.schema.graph.graph import Graph, Node

LITTLE = 0.5
"""Notes are added if the share is below this value."""

_NO_REASON = "no reason is known"


def is_integer(node: Node) -> bool:
    """Return True if all results of a node are integers."""
    return all(value.dtype.is_integer for value in node.outputs)


def integer_share(nodes: Iterable[Node]) -> float | None:
    """Share of the multiply-accumulates that are computed in integers, or None without any. Open extents are 1."""
    steps = [(macs(node, open_extent=1) or 0, is_integer(node)) for node in nodes]
    total = sum(count for count, _ in steps)
    return sum(count for count, integer in steps if integer) / total if total else None


def share_notes(graph: Graph, float_notes: Sequence[Note]) -> list[Note]:
    """Return notes about a quantized graph with an INT8 share below ``LITTLE``: the share, and the nodes in float.

    Args:
        graph: the graph after quantization.
        float_notes: notes with the reasons for nodes that stay in float.

    """
    share = integer_share(graph.nodes)
    if share is None:
        if any(value.quant is not None for node in graph.nodes for value in node.outputs):
            return []
        text = "no node computes in integers, and none multiplies; what stays in float:"
    elif share < LITTLE:
        text = f"only {share:.1%} of the multiply-accumulates are in integers; what stays in float:"
    else:
        return []
    steps = {node.name: macs(node, open_extent=1) or 0 for node in graph.nodes if not is_integer(node)}
    total = sum(macs(node, open_extent=1) or 0 for node in graph.nodes)
    operators = {node.name: node.op.name for node in graph.nodes}
    reasons = {note.node: note.message for note in float_notes}
    float_names = [name for name, count in steps.items() if count or (not total and name in reasons)]
    messages: list[NoteDescription] = [
        {"kind": "float", "node": name, "message": reasons.get(name, f"{operators[name]}: {_NO_REASON}")}
        for name in float_names
    ]
    groups = [(sum(steps[name] for name in group.nodes), group) for group in group_notes(messages, operators)]
    lines = [
        (f"{count / total:.1%}: " if total else "") + names_text(group) + group.text
        for count, group in sorted(groups, key=lambda item: item[0], reverse=True)
    ]
    return [Note(SHARE, "", line) for line in (text, *lines)]


def check_integer_share(graph: Graph, least: float | None) -> None:
    """Compare the share of multiply-accumulates in integers with a lower limit.

    A graph without multiply-accumulates passes if it has quantized values.

    Raises:
        ThresholdError: the share is below the limit; the message names the operators that stay in float.

    """
    if least is None:
        return
    share = integer_share(graph.nodes)
    if share is None:
        share = float(any(value.quant is not None for node in graph.nodes for value in node.outputs))
    if share >= least:
        return
    steps: dict[str, int] = {}
    for node in graph.nodes:
        if not is_integer(node) and (count := macs(node, open_extent=1)):
            steps[node.op.name] = steps.get(node.op.name, 0) + count
    named = ", ".join(sorted(steps, key=steps.__getitem__, reverse=True)) or "nothing is quantized"
    raise ThresholdError(
        f"INT8 share: {share:.4f} of the multiply-accumulates are in integers, expected at least {least:g}; "
        f"in float: {named}",
        hint="convert without --min-int8-share: the summary gives the reasons",
    )
