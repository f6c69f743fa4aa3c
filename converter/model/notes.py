"""Notes about a model, grouped by reason, with counts of the operators."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuconvert.installed import PAGES
from tpuconvert.model.description import NoteDescription
from tpuconvert.schema.file.file_model import Note
from tpuconvert.schema.text.plain_values import Plain
from tpuconvert.text.text_format import operator_counts, shorten

HEADINGS = {
    "accuracy": "warning",
    "int8": "INT8 share",
    "device": "on a device",
    "deviation": "warning",
    "preprocessing": "check the samples",
    "decoding": "slow decoding",
    "source": "about the source",
    "calibration": "calibration",
    "balancing": "balanced channels",
    "coarse-nodes": "too coarse in 8 bits",
    "int16-nodes": "16-bit nodes",
    "refinement": "refinement",
    "task": "task of the outputs",
    "precision": "precision rule",
    "float": "stays in float",
    "chip": "runs with a warning",
}
"""Kind of note -> text before a note of this kind. Notes are printed in this order."""

SHARE = "int8"
"""Kind of the notes about a small share of INT8 computation."""

DEVIATION = "deviation"
"""Kind of the notes about a node whose results deviate from the standard of the source format."""

NAMED = 3
"""Largest number of nodes of a group that are listed by name."""

_QUOTED = re.compile(r"'[^']*'")
_UNFINISHED = re.compile(r"the vendor marks .+ as unfinished on (\w+)")


@dataclass()
class NoteGroup(Plain, hidden=("reason", "subjects", "is_alike"), keys={"text": "reason"}):
    """Notes of one kind that give the same reason.

    Args:
        kind: a key of HEADINGS.
        reason: reason of the first note.
        operators: number of nodes per operator.
        nodes: names of the nodes, in the order of the notes.
        subjects: quoted names in notes that belong to no node of the graph.
        is_alike: True if the reasons of other notes differ from ``reason`` in quoted names.

    """

    kind: str
    reason: str
    operators: Counter[str] = field(default_factory=Counter)
    nodes: list[str] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)
    is_alike: bool = False

    @property
    def text(self) -> str:
        """The reason, with the names of all notes or a hint if the reasons of other notes differ in quoted names."""
        if self.is_alike and self.subjects:
            names = ", ".join(self.subjects[:NAMED])
            more = len(self.subjects) - NAMED
            return _QUOTED.sub(lambda _: f"{names} and {more} more" if more > 0 else names, self.reason, count=1)
        return f"{self.reason} (the others alike)" if self.is_alike else self.reason


def is_unfinished(note: Note) -> bool:
    """Return True for the warning that the vendor marks an operator as unfinished."""
    return note.kind == "chip" and _UNFINISHED.search(note.message) is not None


def group_notes(notes: Sequence[NoteDescription], operators: Mapping[str, str] | None = None) -> list[NoteGroup]:
    """Group notes by kind and reason. Reasons that differ only in quoted names are in the same group.

    Args:
        notes: mappings with ``kind``, ``node`` and ``message``. Messages of float notes and of deviations begin with
            the operator.
        operators: node name -> operator, for notes whose message does not contain the operator.

    """
    groups: dict[tuple[str, str], NoteGroup] = {}
    for note in notes:
        operator, reason = (operators or {}).get(note["node"], ""), note["message"]
        if note["kind"] in ("float", DEVIATION):
            operator, reason = _split(reason, operator)
        if note["kind"] == "chip" and (unfinished := _UNFINISHED.search(reason)):
            # One line, also for operators that consist of unfinished ones.
            reason = f"the vendor marks this as unfinished on {unfinished[1]}, see {PAGES}/inside/semantics.md#17-chips"
        quoted = _QUOTED.findall(reason)
        is_alike = note["node"] or (note["kind"] == "source" and len(quoted) == 1)
        pattern = _QUOTED.sub("''", reason) if is_alike else reason
        group = groups.setdefault((note["kind"], pattern), NoteGroup(note["kind"], reason))
        group.is_alike |= reason != group.reason
        if not note["node"]:
            group.subjects += quoted
        if note["node"]:
            group.operators[operator] += 1
            group.nodes.append(note["node"])
    order = list(HEADINGS)
    return sorted(groups.values(), key=lambda group: order.index(group.kind) if group.kind in order else len(order))


def _split(message: str, operator: str) -> tuple[str, str]:
    """Split ``softmax: 8-bit probabilities ...`` into operator and reason."""
    match = re.match(r"([A-Za-z0-9_]+): (.*)", message, re.DOTALL)
    return (match[1], match[2]) if match else (operator, message)


def note_lines(notes: Sequence[NoteDescription], operators: Mapping[str, str] | None = None) -> list[str]:
    """Return one line per reason, without the notes about the INT8 share (see ``share_lines``)."""
    return [group_line(group) for group in group_notes(notes, operators) if group.kind != SHARE]


def share_lines(messages: Iterable[str]) -> list[str]:
    """Return the lines about the INT8 share: the share as a warning, then the reasons."""
    first, *others = [*messages, ""]
    return [f"  warning: {first}", *(f"    {line}" for line in others[:-1])] if first else []


def group_line(group: NoteGroup) -> str:
    """Format a group as one line."""
    return f"  {HEADINGS.get(group.kind, group.kind)}: {names_text(group)}{group.text}"


def names_text(group: NoteGroup) -> str:
    """Format the operators and nodes of a group: ``concat x19 ('a', 'b', 'c' ...): ``."""
    if not group.nodes:
        return ""
    named = ", ".join(f"'{shorten(node)}'" for node in group.nodes[:NAMED])
    named += " ..." if len(group.nodes) > NAMED else ""
    counts = operator_counts({name: count for name, count in group.operators.most_common() if name})
    return f"{counts} ({named}): " if counts else f"{named}: "


def operators_of(description: Mapping[str, Any]) -> dict[str, str]:
    """Return node name -> operator for a description with ``layers``; otherwise an empty mapping."""
    return {layer["name"]: layer["op"] for layer in description.get("layers", ())}
