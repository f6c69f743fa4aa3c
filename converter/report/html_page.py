"""The report as one self-contained HTML page, which can be mailed, archived, and read offline."""

from __future__ import annotations

from collections.abc import Sequence

from tpuconvert.model.description import Description
from tpuconvert.report.page.assembly import assemble_page
from tpuconvert.report.page.sections import model_article
from tpuconvert.report.report_data import report_data
from tpuconvert.schema.text.html_text import escape

_NOSCRIPT = (
    "This page works without scripts. The table of all nodes, the search, the details of a node "
    "and the graph need them."
)


def to_html(description: Description) -> str:
    """Return the HTML page with the report of a model."""
    return report_page([description])


def report_page(descriptions: Sequence[Description], title: str = "", overview: str = "") -> str:
    """Return the HTML page with the reports of models.

    Args:
        descriptions: one per model, as ``describe_for_report`` returns them.
        title: title of the page; by default the name of the only model.
        overview: sections about all models, as HTML.

    """
    block = report_data(*descriptions, title=title)
    articles = "".join(model_article(description, index) for index, description in enumerate(descriptions))
    top = f'<div id="overview">\n{overview}</div>\n' if overview else ""
    body = (
        '<a class="skip" href="#main">Skip to the report</a>\n'
        f'<header class="top"><span class="brand">tpuconvert</span><h1>{escape(block["title"])}</h1>'
        '<div id="tools"></div></header>\n'
        f"<noscript><p>{_NOSCRIPT}</p></noscript>\n"
        f'<div class="frame">\n<main id="main">\n{top}{articles}</main>\n'
        '<aside id="details" aria-label="Selected node" hidden></aside>\n</div>\n'
    )
    return assemble_page(f"tpuconvert: {block['title']}", body, block)
