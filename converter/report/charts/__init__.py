"""Charts of the report: inline SVG that needs no scripts, with the color variables of the page.

A point or bar of a node has the attribute ``data-node`` with its index. Colors are in ``charts.css`` of the page.
"""

from __future__ import annotations

from tpuconvert.model.description import Description
from tpuconvert.report.charts.calibration import convergence, histograms
from tpuconvert.report.charts.cost_of_nodes import cost_by_node, cost_by_operator
from tpuconvert.report.charts.error_over_depth import error_over_depth
from tpuconvert.report.charts.memory_over_time import memory_over_time
from tpuconvert.report.charts.tuning_curve import tuning_curve as tuning_curve


def chart_sections(description: Description) -> list[tuple[str, str, str]]:
    """Return the charts for which a description has data: title, sentences below it, and SVG, which may be empty.

    The chart of a search for a mixed precision is not among them: it is part of the section about the search.
    """
    sections = []
    if description.get("verification"):
        sections.append(("Error over depth", *error_over_depth(description)))
    if description.get("cost"):
        sections.append(("Time and multiply-accumulates", *cost_by_node(description)))
        sections.append(("Share of the operators", *cost_by_operator(description)))
    if description.get("memory"):
        sections.append(("Memory over time", *memory_over_time(description)))
    if description.get("histograms"):
        sections.append(("Histograms of tensors", *histograms(description)))
    if description.get("convergence"):
        sections.append(("Convergence of the calibration", *convergence(description)))
    return [section for section in sections if section[1]]
