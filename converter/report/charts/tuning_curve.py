"""Chart of accuracy against cost of a mixed-precision search."""

from __future__ import annotations

from tpuconvert.model.description import Description
from tpuconvert.report.charts.drawing import LEFT, RIGHT, TOP, chart, horizontal_axis, mark, note, text, vertical_axis
from tpuconvert.report.charts.scale import Scale
from tpuconvert.text.text_format import several, shorten

_HEIGHT = 230.0
_NAMES = 6
"""Number of nodes that are listed in the text of a trial."""


def tuning_curve(tuning: Description) -> str:
    """Return the chart of all trials: share of the multiply-accumulates in float to the right, metric upwards.

    The line connects the trials that no other one beats in metric and cost; the chosen trial is the large point. The
    text is empty if no trial has a finite metric.
    """
    trials = [trial for trial in tuning["trials"] if trial["metric"] is not None]
    if not trials:
        return ""
    level, goal = tuning["of_float"], _goal(tuning)
    metrics = [trial["metric"] for trial in trials] + [line for line in (level, goal) if line is not None]
    bottom = TOP + _HEIGHT
    y = Scale.covering(min(metrics), max(metrics), bottom, TOP)
    x = Scale.covering(0.0, 100 * max(trial["cost"] for trial in trials) or 1.0, LEFT, RIGHT)
    unit = " in dB" if tuning["metric"] == "sqnr" else ""
    parts = vertical_axis(y, f"{shorten(tuning['metric'], 60)}{unit}")
    parts += horizontal_axis(x, bottom, "share of the multiply-accumulates in float, %")
    for line, name in ((level, "float model"), (goal, "goal")):
        if line is not None:
            parts.append(mark("line", "limit", x1=LEFT, y1=y.at(line), x2=RIGHT, y2=y.at(line)))
            parts.append(
                text(RIGHT, y.at(line) + (-8 if name == "float model" else 12), name, "note end", shift=".3em")
            )
    curve = [trial for trial in tuning["curve"] if trial["metric"] is not None]
    if len(curve) > 1:
        points = " ".join(f"{x.at(100 * trial['cost']):.1f},{y.at(trial['metric']):.1f}" for trial in curve)
        parts.append(f'<polyline class="curve s1" points="{points}"/>')
    ordered = sorted(trials, key=lambda trial: trial == tuning["best"])  # the chosen one last, above the others
    for trial in ordered:
        is_best = trial == tuning["best"]
        kind, radius = ("best", 7.0) if is_best else ("s1", 4.0)
        left, top = x.at(100 * trial["cost"]), y.at(trial["metric"])
        parts.append(mark("circle", kind, tip=_tip(trial, tuning), cx=left, cy=top, r=radius))
        if is_best:
            parts.append(note(left + (4 if left < (LEFT + RIGHT) / 2 else -4), top + 14, "chosen"))
    return chart(f"{tuning['metric']} against cost", bottom + 60, parts)


def _goal(tuning: Description) -> float | None:
    """Return the smallest metric that is enough; None if it is not known."""
    if tuning["metric"] == "sqnr":
        return float(tuning["max_drop"])
    return None if tuning["of_float"] is None else float(tuning["of_float"] - tuning["max_drop"] / 100)


def _tip(trial: Description, tuning: Description) -> str:
    number = f"{trial['metric']:.2f} dB" if tuning["metric"] == "sqnr" else f"{trial['metric']:.5f}"
    names = trial["keep_float"]
    listed = ", ".join(shorten(name) for name in names[:_NAMES]) + (", ..." if len(names) > _NAMES else "")
    return f"{tuning['metric']} {number}, {trial['cost']:.2%} of the multiply-accumulates: " + (
        f"{several(len(names), 'node')} in float: {listed}" if names else "no further node in float"
    )
