"""The result of a mixed-precision search as text."""

from __future__ import annotations

from tpuconvert.model.description import Description
from tpuconvert.text.styled_text import style
from tpuconvert.text.table import table
from tpuconvert.text.text_format import several, shorten

HEADING = ("", "nodes in float", "MACs in float", "metric", "drop")


def tuning_lines(tuning: Description) -> list[str]:
    """Return the result in a sentence, the nodes that are in float, and the table of the curve."""
    lines = [headline(tuning)]
    names = tuning["best"]["keep_float"]
    if names:
        lines.append(f"in float: {', '.join(shorten(name) for name in names)}")
    return [*lines, *table([HEADING, *(row(trial, tuning) for trial in tuning["curve"])])]


def headline(tuning: Description) -> str:
    """Return whether the goal was reached, and at which cost."""
    best = tuning["best"]
    what = f"{several(len(best['keep_float']), 'node')} in float, {best['cost']:.2%} of the multiply-accumulates"
    reached = "goal reached" if best["is_enough"] else "goal not reached"
    ended = "" if tuning["is_complete"] else ", the budget was spent"
    return f"{reached}: {_value(best, tuning)} with {what}; {several(len(tuning['trials']), 'trial')}{ended}"


def row(trial: Description, tuning: Description) -> tuple[str, ...]:
    """Return the table cells of one trial; the chosen one has an arrow."""
    return (
        style("->", "good" if trial["is_enough"] else "warning") if trial == tuning["best"] else "",
        str(len(trial["keep_float"])),
        f"{trial['cost']:.2%}",
        _value(trial, tuning),
        _drop(trial, tuning),
    )


def _value(trial: Description, tuning: Description) -> str:
    if trial["metric"] is None:
        return "exact"
    number = f"{trial['metric']:.2f} dB" if tuning["metric"] == "sqnr" else f"{trial['metric']:.5f}"
    return f"{tuning['metric']} {number}"


def _drop(trial: Description, tuning: Description) -> str:
    if tuning["of_float"] is None or trial["metric"] is None:
        return "-"
    return f"{100 * (tuning['of_float'] - trial['metric']):.2f}"
