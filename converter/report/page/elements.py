"""HTML elements of the report. All text from a model file is escaped, because the file may be hostile."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from tpuconvert.schema.text.html_text import escape
from tpuconvert.text.text_format import shorten

Cell = tuple[str, str] | str
"""Table cell: HTML, or (CSS class, HTML)."""

FULL_BAR = 60.0
"""SQNR in dB at which its bar has the full length."""

VIEWS = {"graph": "Graph", "nodes": "All nodes"}
"""Name of a view that scripts add to an article -> its heading."""


def html_table(heading: Sequence[str], rows: Sequence[Sequence[Cell]], marked: Container[int] = ()) -> str:
    """Return an HTML table. Cells are HTML already. Rows whose index is in ``marked`` are highlighted."""
    is_number = [bool(rows) and not isinstance(cell, str) and cell[0] == "n" for cell in (rows[0] if rows else heading)]
    head = "".join(
        f'<th scope="col" class="n">{escape(cell)}</th>' if number else f'<th scope="col">{escape(cell)}</th>'
        for cell, number in zip(heading, is_number, strict=True)
    )
    body = "\n".join(
        ('<tr class="bad">' if index in marked else "<tr>") + "".join(_cell(cell) for cell in row) + "</tr>"
        for index, row in enumerate(rows)
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="table">'
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>\n"
    )


def _cell(cell: Cell) -> str:
    return f"<td>{cell}</td>" if isinstance(cell, str) else f'<td class="{cell[0]}">{cell[1]}</td>'


def panel(title: str, lead: str, content: str, name: str = "") -> str:
    """Return a section with a heading. Title and lead are text, the content is HTML."""
    shown = f'<p class="lead">{escape(lead)}</p>\n' if lead else ""
    kind = f'class="panel" id="{escape(name)}"' if name else 'class="panel"'
    return f"<section {kind}>\n<h3>{escape(title)}</h3>\n{shown}{content}</section>\n"


def slot(view: str) -> str:
    """Return the element in which a script shows a view."""
    if view not in VIEWS:
        raise KeyError(view)
    return f'<div class="slot" data-view="{view}"></div>\n'


def bar(part: float) -> str:
    """Return a horizontal bar that is filled up to ``part``, from 0 to 1."""
    width = 100.0 * max(0.0, min(1.0, part))
    return (
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" width="100" height="8"/><rect width="{width:.1f}" height="8"/></svg>'
    )


def name_html(name: str) -> str:
    """Return a name as HTML; a long one is shortened, with the full name as tooltip."""
    short = shorten(name)
    return _breakable(short) if short == name else f'<span title="{escape(name)}">{_breakable(short)}</span>'


def _breakable(name: str) -> str:
    """Return a name as HTML that wraps after a slash."""
    return escape(name).replace("/", "/<wbr>")


def source_html(source: str) -> str:
    """Return the name of a source node without the file, which is the same for all nodes."""
    return name_html(source.split(": ", 1)[-1])


@dataclass(frozen=True)
class NodeLinks:
    """Links to the nodes of one model of the page.

    Args:
        model: index of the model on the page.
        indices: name of a tensor -> index of its node.
        pictured: indices of the nodes whose details have a histogram.

    """

    model: int
    indices: Mapping[str, int]
    pictured: Container[int] = ()

    def picture(self, name: str) -> str:
        """Return a link to the histogram of a node, or to the node in the graph; empty for an unknown name."""
        index = self.indices.get(name)
        if index is None:
            return ""
        kind, words = ("Calibration", "histogram") if index in self.pictured else ("graph", "in the graph")
        return f'<a href="#m{self.model}n{index}" data-node="{index}" data-picture="{kind}">{words}</a>'

    def link(self, name: str) -> str:
        """Return a name as a link that selects the node; plain text if the model does not contain it."""
        index = self.indices.get(name)
        if index is None:
            return name_html(name)
        short = shorten(name)
        title = "" if short == name else f' title="{escape(name)}"'
        return f'<a href="#m{self.model}n{index}" data-node="{index}"{title}>{_breakable(short)}</a>'
