"""Untrusted names in Markdown: as code spans, in which markup, HTML, links and mentions have no effect."""

from __future__ import annotations

import re

from tpuconvert.schema.text.visible_text import one_line


def code_span(text: str) -> str:
    """Return a text as a code span, delimited by more backticks than it contains in a row."""
    text = one_line(text) or "-"
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest or text != text.strip() else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def table_code_span(text: str) -> str:
    """Return a code span for a cell of a table, in which an escaped pipe character does not end the cell."""
    return code_span(text).replace("|", "\\|")
