"""Tables of text, and numbers in them."""

from __future__ import annotations

from collections.abc import Sequence

from tpuconvert.schema.text.visible_text import one_line
from tpuconvert.text.styled_text import concat, style


def number(value: float | None) -> str:
    """Format a measured number for a table."""
    return "not finite" if value is None else f"{value:.3g}"


def share(value: float | None) -> str:
    """Format a share as a percentage for a table."""
    if value is None:
        return "-"
    if value == 0.0:
        return "0"
    return f"{value:.2%}" if value >= 5e-5 else "<0.01%"


def table(rows: Sequence[tuple[str, ...]], *, has_heading: bool = True) -> list[str]:
    """Format rows as lines with aligned columns. The last column is not padded.

    Args:
        rows: the cells, which may have styles.
        has_heading: whether the first row is the heading.

    """
    rows = [tuple(map(one_line, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [_table_line(row, widths) for row in rows]
    return [style(lines[0], "heading"), *lines[1:]] if has_heading else lines


def _table_line(row: tuple[str, ...], widths: Sequence[int]) -> str:
    """Join the cells of a row, padded to the widths; blanks at the end of the line are left out."""
    last = max((column for column, cell in enumerate(row) if cell.strip()), default=-1)
    parts: list[str] = []
    for cell, width in zip(row[: last + 1], widths, strict=False):
        parts += [cell, " " * (width - len(cell) + 2)]
    return concat(parts[:-1])
