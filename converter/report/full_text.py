"""The report as text."""

from __future__ import annotations

from tpuconvert.report.attribution import attribution_lines
from tpuconvert.report.model_description import Description
from tpuconvert.report.model_text import node_lines, summary_text
from tpuconvert.report.tuning import tuning_lines
from tpuconvert.verify.text import verification_lines


def full_text(description: Description) -> str:
    """Return the summary, one line per node, the comparison with the source, the attribution, the search."""
    lines = [summary_text(description), "", *node_lines(description)]
    if description.get("verification"):
        lines += ["", *verification_lines(description["verification"])]
    if description.get("attribution"):
        lines += ["", *attribution_lines(description["attribution"])]
    if description.get("tuning"):
        lines += ["", *tuning_lines(description["tuning"])]
    return "\n".join(lines)
