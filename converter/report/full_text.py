"""The report as text."""

from __future__ import annotations

from tpuconvert.model.description import Description
from tpuconvert.model.summary import node_lines, summary_text
from tpuconvert.precision.attribution_text import attribution_lines
from tpuconvert.precision.tuning_text import tuning_lines
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
