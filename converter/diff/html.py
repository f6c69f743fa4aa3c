"""The differences of two models as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpuconvert.diff.change import CATEGORIES, Change
from tpuconvert.diff.record import MEASURES
from tpuconvert.diff.text import (
    by_category,
    growth_text,
    measured_text,
    output_lines,
    summary,
    value_text,
)
from tpuconvert.report.html_page import report_page
from tpuconvert.report.page.elements import Cell, html_table, name_html, panel
from tpuconvert.schema.text.html_text import escape
from tpuconvert.text.table import number
from tpuconvert.text.text_format import several

if TYPE_CHECKING:
    from tpuconvert.diff.record import DifferenceRecord

_HEADING = ("name", "change", "property", "before", "after")


def to_html(record: DifferenceRecord) -> str:
    """Return the page with the differences, and with the reports and graphs of both models."""
    models = [
        {**model, "file": f"{side}: {name}"}
        for side, name, model in zip(("before", "after"), (record.before, record.after), record.models, strict=True)
    ]
    return report_page(models, f"{record.before} -> {record.after}", "".join(difference_sections(record)))


def difference_sections(record: DifferenceRecord) -> list[str]:
    """Return the sections of the page: verdict, sizes and cost, outputs, and one table per category."""
    sections = [panel("Difference", f"{summary(record)}.", ""), _outputs(record)]
    for category, changes in by_category(record).items():
        own = [change for change in changes if not change.follows]
        others = [change for change in changes if change.follows]
        content = _table(own) if own else ""
        if others:
            title = f"{len(others)} more, which follow from other changes"
            content += f"<details><summary>{escape(title)}</summary>\n{_table(others)}</details>\n"
        sections.append(panel(f"{category.capitalize()}: {len(own)}", f"{_sentence(CATEGORIES[category])}.", content))
    return [*sections, _measures(record)]


def _table(changes: Sequence[Change]) -> str:
    rows: list[Sequence[Cell]] = []
    for change in changes:
        after = measured_text(change.measured) if change.measured else change.after
        name: Cell = ("w", _link(change))
        rows.append([name, escape(change.action), ("t", escape(change.what)), *_texts((change.before, after))])
    return html_table(_HEADING, rows)


def _link(change: Change) -> str:
    """Return the name of a change as a link to its first node, in the second model if it has one."""
    for model, nodes in ((1, change.nodes_after), (0, change.nodes_before)):
        if nodes:
            address = f"#m{model}n{nodes[0]}"
            return f'<a href="{address}" data-show="{model}" data-node="{nodes[0]}">{name_html(change.name)}</a>'
    return name_html(change.name)


def _texts(cells: Sequence[str]) -> list[Cell]:
    return [("w", escape(cell or "-")) for cell in cells]


def _measures(record: DifferenceRecord) -> str:
    rows: list[Sequence[Cell]] = [
        (
            escape(MEASURES[name]),
            ("n", escape(value_text(measure, measure.before))),
            ("n", escape(value_text(measure, measure.after))),
            ("n", escape(growth_text(measure))),
        )
        for name, measure in record.measures.items()
        if measure.before is not None or measure.after is not None
    ]
    return panel("Sizes and cost", "", html_table(("", record.before, record.after, "growth"), rows))


def _outputs(record: DifferenceRecord) -> str:
    outputs = record.outputs
    if outputs.problem:
        return "".join(panel("Outputs", f"{_sentence(line)}.", "") for line in output_lines(outputs))
    rows: list[Sequence[Cell]] = []
    for output in outputs.outputs:
        cells = (
            f"{output.cosine:.6f}",
            "equal" if output.is_equal else f"{output.sqnr:.1f}",
            number(output.max_absolute),
            number(output.relative),
            "-" if output.changed_classes is None else f"{output.changed_classes:.1%}",
        )
        rows.append([("w", escape(output.name)), *(("n", escape(cell)) for cell in cells)])
    heading = ("output", "cosine", "SQNR dB", "largest difference", "share of range", "other class")
    samples = f"On {several(outputs.samples, 'sample')} {outputs.origin}".rstrip()
    advice = f" {_sentence(outputs.advice)}." if outputs.advice else ""
    return panel("Outputs", f"{samples}.{advice}", html_table(heading, rows))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
