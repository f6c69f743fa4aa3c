"""Notes about a model, grouped by reason, with counts of the operators."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuconvert.text_format import counted, shortened

HEADINGS = {
    "int8": "INT8 share",
    "preprocessing": "check the samples",
    "source": "about the source",
    "calibration": "calibration",
    "float": "stays in float",
    "chip": "runs with a warning",
}
"""Kind of note -> beginning of its line, in the order in which they are printed."""

SHARE = "int8"
"""Kind of the notes that a model with few integers has."""

NAMED = 3
"""Number of nodes of a group that are named."""


@dataclass()
class NoteGroup:
    """Notes of one kind that give the same reason.

    Args:
        kind: a key of HEADINGS.
        reason: as text; that of the first note if they differ in the names they quote.
        operators: how many nodes of each operator.
        nodes: their names, in order.
        is_alike: whether the reasons differ in the names they quote.

    """

    kind: str
    reason: str
    operators: Counter[str] = field(default_factory=Counter)
    nodes: list[str] = field(default_factory=list)
    is_alike: bool = False

    @property
    def text(self) -> str:
        """The reason, and that others differ from it in names only."""
        return f"{self.reason} (the others alike)" if self.is_alike else self.reason

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"kind": self.kind, "reason": self.text, "operators": dict(self.operators), "nodes": self.nodes}


def grouped(notes: Sequence[Mapping[str, str]], operators: Mapping[str, str] | None = None) -> list[NoteGroup]:
    """Notes by kind and reason; names in quotation marks make no reason a new one.

    Args:
        notes: each with ``kind``, ``node`` and ``message``; that of a float note begins with the operator.
        operators: node name -> operator, for the notes that do not say it.

    """
    groups: dict[tuple[str, str], NoteGroup] = {}
    for note in notes:
        operator, reason = (operators or {}).get(note["node"], ""), note["message"]
        if note["kind"] == "float":
            operator, reason = _split(reason, operator)
        pattern = re.sub(r"'[^']*'", "''", reason) if note["node"] else reason
        group = groups.setdefault((note["kind"], pattern), NoteGroup(note["kind"], reason))
        group.is_alike |= reason != group.reason
        if note["node"]:
            group.operators[operator] += 1
            group.nodes.append(note["node"])
    order = list(HEADINGS)
    return sorted(groups.values(), key=lambda group: order.index(group.kind) if group.kind in order else len(order))


def _split(message: str, operator: str) -> tuple[str, str]:
    """``softmax: 8-bit probabilities ...`` -> operator and reason."""
    found = re.match(r"([a-z0-9_]+): (.*)", message, re.DOTALL)
    return (found[1], found[2]) if found else (operator, message)


def note_lines(notes: Sequence[Mapping[str, str]], operators: Mapping[str, str] | None = None) -> list[str]:
    """One line per reason. ``share_lines`` handles notes about the INT8 share."""
    return [group_line(group) for group in grouped(notes, operators) if group.kind != SHARE]


def share_lines(messages: Iterable[str]) -> list[str]:
    """Lines for the notes about the INT8 share: the share as a warning, then the reasons."""
    first, *others = [*messages, ""]
    return [f"  warning: {first}", *(f"    {line}" for line in others[:-1])] if first else []


def group_line(group: NoteGroup) -> str:
    """A group as a line."""
    return f"  {HEADINGS.get(group.kind, group.kind)}: {names_text(group)}{group.text}"


def names_text(group: NoteGroup) -> str:
    """The operators and nodes of a group: ``concat x19 ('a', 'b', 'c' ...): ``."""
    if not group.nodes:
        return ""
    named = ", ".join(f"'{shortened(node)}'" for node in group.nodes[:NAMED])
    named += " ..." if len(group.nodes) > NAMED else ""
    counts = counted({name: count for name, count in group.operators.most_common() if name})
    return f"{counts} ({named}): " if counts else f"{named}: "


def operators_of(description: Mapping[str, Any]) -> dict[str, str]:
    """Node name -> operator, of a description with ``layers``."""
    return {layer["name"]: layer["op"] for layer in description.get("layers", ())}
