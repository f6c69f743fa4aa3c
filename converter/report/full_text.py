"""The report as text."""

from __future__ import annotations

from tpuconvert.report.attribution import attribution_lines
from tpuconvert.report.model_description import Description
from tpuconvert.report.text import node_lines, summary_text, verification_lines


def full_text(description: Description) -> str:
    """Return the summary, one line per node, the comparison with the source and the attribution of the error."""
    lines = [summary_text(description), "", *node_lines(description)]
    if description.get("verification"):
        lines += ["", *verification_lines(description["verification"])]
    if description.get("attribution"):
        lines += ["", *attribution_lines(description["attribution"])]
    return "\n".join(lines)
