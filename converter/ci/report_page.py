"""Report of all models of a manifest: a summary, and the report of each model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from tpuconvert.ci.reports import COLUMNS, cells
from tpuconvert.ci.runner import Outcome
from tpuconvert.model.description import Description
from tpuconvert.model.model import load
from tpuconvert.report.page.elements import Cell, html_table, panel
from tpuconvert.report.report_description import describe_for_report
from tpuconvert.schema.errors import CorruptInputError
from tpuconvert.schema.text.html_text import escape
from tpuconvert.text.text_format import several


def describe_outcomes(outcomes: Sequence[Outcome]) -> list[Description]:
    """Return the descriptions of the models in the cache, with the names in the manifest."""
    return [
        {**describe_for_report(load(outcome.model)), **outcome.sections, "file": outcome.name}
        for outcome in outcomes
        if outcome.model is not None
    ]


@contextlib.contextmanager
def cached_outcomes(outcomes: Sequence[Outcome], folder: str) -> Iterator[None]:
    """Attribute errors in a block that shows outcomes to the cache, if one is from there: its entries are not trusted.

    Raises:
        CorruptInputError: an outcome has descriptions of another form.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        cached = [outcome.name for outcome in outcomes if outcome.is_cached]
        if not cached:
            raise
        text = f"the entry of one of these models is damaged: {', '.join(cached[:6])}"
        raise CorruptInputError(text, file=folder, hint="remove the folder; all models are then made again") from error


def overview(outcomes: Sequence[Outcome]) -> str:
    """Return the sections about all models, as HTML: a table with a link to each model, and the errors."""
    rows: list[list[Cell]] = []
    marked = []
    model = 0
    for index, outcome in enumerate(outcomes):
        name = escape(outcome.name)
        if outcome.model is not None:
            name = f'<a href="#m{model}" data-show="{model}">{name}</a>'
            model += 1
        if outcome.status in ("failed", "error"):
            marked.append(index)
        *numbers, limits = cells(outcome)
        rows.append([name, escape(outcome.status), *(("n", escape(cell)) for cell in numbers), escape(limits)])
    missed = f", {len(marked)} with an error or a missed limit" if marked else ""
    parts = [
        panel(
            "Models",
            f"{several(len(outcomes), 'model')}{missed}.",
            html_table(("model", "result", *COLUMNS), rows, marked),
        )
    ]
    for outcome in outcomes:
        if outcome.trouble is not None:
            title = f"{outcome.name}: {outcome.trouble.id}"
            parts.append(panel(title, "", f"<pre>{escape(outcome.trouble.text)}</pre>\n"))
    return "".join(parts)
