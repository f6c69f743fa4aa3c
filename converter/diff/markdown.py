"""The differences of two models as Markdown, for the description of a pull request.

Names come from the models. They are in code spans, in which Markdown, HTML, links and mentions have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpuconvert.diff.change import Change
from tpuconvert.diff.record import MEASURES
from tpuconvert.diff.text import (
    NAMED,
    alike,
    by_category,
    growth_text,
    measured_text,
    output_lines,
    summary,
    value_text,
)
from tpuconvert.schema.text.visible_text import one_line
from tpuconvert.text.markdown_text import code_span
from tpuconvert.text.text_format import shorten

if TYPE_CHECKING:
    from tpuconvert.diff.record import DifferenceRecord

MOST = 200
"""Largest number of changes of a category: services limit the length of a comment."""


def to_markdown(record: DifferenceRecord) -> str:
    """Return a summary, a table of sizes and cost, and one collapsed list per category."""
    lines = [f"**{_short_span(record.before)} → {_short_span(record.after)}**: {summary(record)}", ""]
    measures = [(name, measure) for name, measure in record.measures.items() if measure.differs]
    if measures:
        lines += ["| | before | after | growth |", "|---|---:|---:|---:|"]
        for name, measure in measures:
            cells = value_text(measure, measure.before), value_text(measure, measure.after), growth_text(measure)
            lines.append(f"| {MEASURES[name]} | {' | '.join(cells)} |")
        lines.append("")
    outputs = list(output_lines(record.outputs))
    if outputs:
        # The first line has no names, unless it contains the reason why the outputs are not compared.
        first = _short_span(outputs[0]) if record.outputs.problem else outputs[0].capitalize()
        lines += [first, "", *(f"- {_short_span(line.strip())}" for line in outputs[1:])]
        lines += [""] if outputs[1:] else []
    for category, changes in by_category(record).items():
        own = [change for change in changes if not change.follows]
        count = f"{len(own)} in {category}" if own else f"{category}: consequences of other changes"
        lines += ["<details>", f"<summary>{count}</summary>", ""]
        shown = alike(own)[:MOST]
        lines += [f"- {_group(group)}" for group in shown]
        rest = len(changes) - sum(map(len, shown))
        if rest:
            lines.append(f"- and {rest} more")
        lines += ["", "</details>", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _group(group: Sequence[Change]) -> str:
    """Format changes that are alike as the text of a list item."""
    first = group[0]
    if len(group) == 1:
        return _change(first)
    names = ", ".join(_short_span(change.name) for change in group[:NAMED])
    more = " ..." if len(group) > NAMED else ""
    return f"{len(group)} x {_short_span(first.before)} → {_short_span(first.after)}: {names}{more}"


def _change(change: Change) -> str:
    """Format a change as the text of a list item."""
    what = f" {_short_span(change.what)}" if change.what else ""
    text = f"{change.action} {_short_span(change.name)}{what}"
    if change.measured:
        return f"{text}: {_short_span(measured_text(change.measured))}"
    if change.action in ("added", "removed"):
        detail = change.after if change.action == "added" else change.before
        return f"{text}: {_short_span(detail)}" if detail else text
    return f"{text}: {_short_span(change.before)} → {_short_span(change.after)}"


def _short_span(text: str) -> str:
    return code_span(shorten(one_line(text), 160))
