"""HTML of graphs and results, for notebooks. All text is escaped, because names in a model file may be hostile."""

from __future__ import annotations

import html
from collections.abc import Sequence

from tpuconvert.schema.text.visible_text import visible

MOST_ROWS = 50
"""Largest number of table rows that a notebook shows."""

LONGEST = 120
"""Largest number of characters of a table cell."""


def escape(text: object) -> str:
    """Escape text for HTML, including attribute values."""
    return html.escape(visible(str(text)), quote=True)


def notebook_html(lines: Sequence[str], rows: Sequence[Sequence[str]] = ()) -> str:
    """Return lines of text, and below them a table whose first row is the heading."""
    parts = ["<div>", *(f"<div>{escape(line)}</div>" for line in lines)]
    if len(rows) > 1:
        head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
        shown = rows[1 : MOST_ROWS + 1]
        body = ("<tr>" + "".join(f"<td>{escape(_cut(cell))}</td>" for cell in row) + "</tr>" for row in shown)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>")
        if len(rows) > MOST_ROWS + 1:
            parts.append(f"<div>and {len(rows) - 1 - MOST_ROWS} more</div>")
    return "".join([*parts, "</div>"])


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
