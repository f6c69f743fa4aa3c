"""The differences of two models as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tpuconvert.difference.change import CATEGORIES, Change
from tpuconvert.difference.text import (
    MEASURES,
    by_category,
    growth_text,
    measured_text,
    output_lines,
    summary,
    value_text,
)
from tpuconvert.report.html_page import Cell, escape, html_table, page
from tpuconvert.report.text import number
from tpuconvert.text_format import several

if TYPE_CHECKING:
    from tpuconvert.difference.result import ModelDifference

_HEADING = ("name", "change", "property", "before", "after")


def to_html(found: ModelDifference) -> str:
    """Return the page with the differences of two models."""
    return page(f"tpuconvert: {found.before} compared with {found.after}", *difference_sections(found))


def describe_difference(found: ModelDifference) -> dict[str, Any]:
    """Return the differences with the descriptions of both models, from which a page can draw both graphs.

    ``difference`` is ``ModelDifference.to_dict()``, whose changes contain the indices of their nodes in ``models``.
    """
    return {"title": f"{found.before} -> {found.after}", "difference": found.to_dict(), "models": list(found.models)}


def difference_sections(found: ModelDifference) -> list[str]:
    """Return the sections of the page: verdict, sizes and cost, outputs, and one table per category."""
    sections = [f'<p class="lead">{escape(summary(found))}.</p>\n', _measures(found), _outputs(found)]
    for category, changes in by_category(found).items():
        own = [change for change in changes if not change.follows]
        others = [change for change in changes if change.follows]
        title, lead = f"{category.capitalize()}: {len(own)}", _sentence(CATEGORIES[category])
        sections.append(f'<h2>{escape(title)}</h2>\n<p class="lead">{escape(lead)}.</p>\n')
        if own:
            sections.append(_table(own))
        if others:
            title = f"{len(others)} more, which follow from other changes"
            sections.append(f"<details><summary>{escape(title)}</summary>\n{_table(others)}</details>\n")
    return sections


def _table(changes: Sequence[Change]) -> str:
    rows: list[Sequence[Cell]] = []
    for change in changes:
        after = measured_text(change) if change.measured else change.after
        cells = (change.name, change.action, change.what, change.before, after)
        rows.append([("w", escape(cells[0])), escape(cells[1]), ("t", escape(cells[2])), *_texts(cells[3:])])
    return html_table(_HEADING, rows)


def _texts(cells: Sequence[str]) -> list[Cell]:
    return [("w", escape(cell or "-")) for cell in cells]


def _measures(found: ModelDifference) -> str:
    rows: list[Sequence[Cell]] = [
        (
            escape(MEASURES[name]),
            ("n", escape(value_text(measure, measure.before))),
            ("n", escape(value_text(measure, measure.after))),
            ("n", escape(growth_text(measure))),
        )
        for name, measure in found.measures.items()
        if measure.before is not None or measure.after is not None
    ]
    return f"<h2>Sizes and cost</h2>\n{html_table(('', found.before, found.after, 'growth'), rows)}"


def _outputs(found: ModelDifference) -> str:
    outputs = found.outputs
    if outputs.problem:
        return "".join(f"<h2>Outputs</h2>\n<p>{escape(_sentence(line))}.</p>\n" for line in output_lines(outputs))
    rows: list[Sequence[Cell]] = []
    for output in outputs.outputs:
        measured = output.difference
        cells = (
            f"{measured.cosine:.6f}",
            "equal" if output.is_equal else f"{measured.sqnr:.1f}",
            number(measured.max_absolute),
            number(measured.relative),
            "-" if output.changed_classes is None else f"{output.changed_classes:.1%}",
        )
        rows.append([("w", escape(output.name)), *(("n", escape(cell)) for cell in cells)])
    heading = ("output", "cosine", "SQNR dB", "largest difference", "share of range", "other class")
    samples = f"On {several(outputs.samples, 'sample')} {outputs.origin}".rstrip()
    return f'<h2>Outputs</h2>\n<p class="lead">{escape(samples)}.</p>\n{html_table(heading, rows)}'


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
