"""The result of a mixed-precision search: lines of text, and a picture of metric against cost."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from tpuconvert.report.model_description import Description
from tpuconvert.report.text import table
from tpuconvert.text_format import several, shorten

HEADING = ("", "nodes in float", "MACs in float", "metric", "drop")

_WIDTH, _HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 34, 20, 50
"""Margins of the picture in pixels."""

_TICKS = 5


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
        "->" if trial == tuning["best"] else "",
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


def curve_svg(tuning: Description) -> str:
    """Return a picture of all trials: cost to the right, metric upwards, the curve as a line, the chosen one marked."""
    trials = [trial for trial in tuning["trials"] if trial["metric"] is not None]
    if not trials:
        return ""
    level = tuning["of_float"]
    metrics = [trial["metric"] for trial in trials] + ([] if level is None else [level])
    low, high = _limits(metrics)
    right = max(trial["cost"] for trial in trials) or 1.0

    def place(trial: Description) -> tuple[float, float]:
        return _x(trial["cost"] / right), _y((trial["metric"] - low) / (high - low))

    parts = [f'<text x="{_x(0.5):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">share of the MACs in float</text>']
    parts.append(f'<text x="14" y="{_y(0.5):.1f}" transform="rotate(-90 14 {_y(0.5):.1f})" text-anchor="middle">')
    parts.append(f"{html.escape(tuning['metric'])}</text>")
    for index in range(_TICKS):
        part = index / (_TICKS - 1)
        parts.append(_line(_x(0), _y(part), _x(1), _y(part), "grid"))
        parts.append(_text(_LEFT - 6, _y(part) + 4, f"{low + part * (high - low):.4g}", "end"))
        parts.append(_text(_x(part), _HEIGHT - _BOTTOM + 18, f"{100 * part * right:.1f} %", "middle"))
    if level is not None:
        y = _y((level - low) / (high - low))
        parts += [_line(_x(0), y, _x(1), y, "float"), _text(_x(1), y - 5, "float model", "end")]
    points = " ".join("{:.1f},{:.1f}".format(*place(trial)) for trial in tuning["curve"] if trial["metric"] is not None)
    parts.append(f'<polyline points="{points}" class="curve"/>')
    for trial in trials:
        x, y = place(trial)
        is_best = trial == tuning["best"]
        shown = html.escape(f"{_value(trial, tuning)}, {trial['cost']:.2%}: {', '.join(trial['keep_float']) or 'none'}")
        kind, size = ("best", 7) if is_best else ("trial", 4)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" class="{kind}"><title>{shown}</title></circle>')
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" class="plot">{"".join(parts)}</svg>\n'


def _limits(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _x(part: float) -> float:
    return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)


def _y(part: float) -> float:
    return _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _text(x: float, y: float, text: Any, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'
