"""Charts of the report as inline SVG, generated in Python: deterministic, and readable without scripts."""

from __future__ import annotations

from tpuconvert.report.model_description import Description

Chart = tuple[str, str, str]
"""Title, lead sentence, and an inline ``<svg>`` element."""


def chart_sections(description: Description) -> list[Chart]:
    """Return the charts for which a description has data, in the order of the page. Title and lead are plain text.

    An element that represents a node has the attribute ``data-node`` with the index of the node in ``layers``.
    """
    return []
