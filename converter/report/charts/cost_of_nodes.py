"""Charts of time and multiply-accumulates: by node, and by operator."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from tpuconvert.model.description import Description
from tpuconvert.report.charts.drawing import HALF_LINE, LEFT, RIGHT, WIDTH, chart, legend, mark, text
from tpuconvert.text.text_format import several, shorten, time_text

_MOST = 12
"""Number of nodes with a separate bar."""

_ROW, _BAR, _HEAD = 56.0, 9.0, 36.0
"""Heights of the row of a node, of a bar in it, and of the legend above the rows."""

_NAME = 36

_COLORS = ("s1", "s2", "s3", "s4", "s5", "s6")


class _Cost(NamedTuple):
    """Share of the time and of the multiply-accumulates of a model."""

    name: str
    op: str
    seconds: float
    macs: int
    node: int | None = None


def cost_by_node(description: Description) -> tuple[str, str]:
    """Return a sentence and bars with the nodes that take most time; two empty texts without nodes."""
    costs = sorted(_costs(description), key=lambda cost: (-cost.seconds, -cost.macs, cost.node))
    seconds, macs = _totals(costs)
    if not costs or not seconds:
        return "", ""
    shown, others = costs[:_MOST], costs[_MOST:]
    kinds = [("s1", "share of the time")] + ([("s2", "share of the MACs")] if macs else [])
    parts = legend(kinds, 10, 16, spacing=220)
    largest = max(max(cost.seconds / seconds, cost.macs / macs if macs else 0.0) for cost in shown)
    for index, cost in enumerate(shown):
        top = _HEAD + index * _ROW
        amounts = _amounts(cost, seconds, macs)
        parts.append(
            text(10, top + 9, shorten(cost.name, _NAME), "name", shift=HALF_LINE, node=cost.node, more=cost.op)
        )
        parts.append(text(WIDTH - 10, top + 9, amounts, "end", shift=HALF_LINE))
        bars = [("s1", cost.seconds / seconds), ("s2", cost.macs / macs if macs else 0.0)]
        for row, (kind, part) in enumerate(bars):
            if part > 0.0:
                y = top + 23 + row * (_BAR + 1)
                width = max(1.0, (WIDTH - 20) * part / largest)
                tip = f"{cost.name} ({cost.op}): {amounts}"
                parts.append(mark("rect", kind, node=cost.node, tip=tip, x=10.0, y=y, width=width, height=_BAR))
    height = _HEAD + len(shown) * _ROW
    if others:
        rest = _Cost("", "", sum(cost.seconds for cost in others), sum(cost.macs for cost in others))
        parts.append(text(10, height + 9, several(len(others), "other node"), "name", shift=HALF_LINE))
        parts.append(text(WIDTH - 10, height + 9, _amounts(rest, seconds, macs), "end", shift=HALF_LINE))
        height += 30
    first = shown[0]
    lead = (
        f"Least time on the chip, computed and not measured: {time_text(seconds)} node by node, {_count(macs)}. "
        f"'{shorten(first.name)}' takes {first.seconds / seconds:.1%} of it; "
        f"the {several(len(shown), 'node')} below take {sum(cost.seconds for cost in shown) / seconds:.1%}."
    )
    return lead, chart("Time and multiply-accumulates of the nodes", height, parts)


def cost_by_operator(description: Description) -> tuple[str, str]:
    """Return a sentence and stacked bars with the share of each operator; two empty texts without nodes."""
    costs = _costs(description)
    seconds, macs = _totals(costs)
    if not costs or not seconds:
        return "", ""
    time_of: defaultdict[str, float] = defaultdict(float)
    macs_of: defaultdict[str, float] = defaultdict(float)
    number = Counter(cost.op for cost in costs)
    for cost in costs:
        time_of[cost.op] += cost.seconds
        macs_of[cost.op] += cost.macs
    ordered = sorted(number, key=lambda op: (-time_of[op], -macs_of[op], op))
    named = ordered[: len(_COLORS)] if len(ordered) > len(_COLORS) else ordered
    others = ordered[len(named) :]
    bars = [("time", time_of, seconds), *([("MACs", macs_of, float(macs))] if macs else [])]
    parts = []
    for index, (label, amounts, total) in enumerate(bars):
        y = 10.0 + index * 38
        parts.append(text(LEFT - 10, y + 14, label, "label end", shift=HALF_LINE))
        left = float(LEFT)
        segments = [(kind, op, amounts[op]) for kind, op in zip(_COLORS, named, strict=False)]
        if others:
            segments.append(("rest", several(len(others), "other operator"), sum(amounts[op] for op in others)))
        for kind, name, amount in segments:
            width = (RIGHT - LEFT) * amount / total
            if width >= 0.05:
                tip = f"{name}: {amount / total:.1%} of the {label}"
                parts.append(mark("rect", kind, tip=tip, x=left, y=y, width=width, height=28.0))
            left += width
    top = 10.0 + len(bars) * 38 + 18
    rows = [(kind, op, number[op]) for kind, op in zip(_COLORS, named, strict=False)]
    if others:
        rows.append(("rest", several(len(others), "other operator"), 1))
    for index, (kind, name, count) in enumerate(rows):
        names = others if kind == "rest" else [name]
        y = top + index * 26
        shares = ", ".join(f"{sum(amounts[op] for op in names) / total:.1%} {label}" for label, amounts, total in bars)
        parts.append(mark("rect", kind, x=float(LEFT), y=y - 6, width=12.0, height=12.0))
        parts.append(
            text(LEFT + 20, y, f"{shorten(name, _NAME)} x{count}" if count > 1 else name, "name", shift=HALF_LINE)
        )
        parts.append(text(RIGHT, y, shares, "end", shift=HALF_LINE))
    first = ordered[0]
    lead = f"{several(number[first], 'node')} with {first} take {time_of[first] / seconds:.1%} of the time."
    return lead, chart("Share of the operators", top + len(rows) * 26, parts)


def _costs(description: Description) -> list[_Cost]:
    layers = description["layers"]
    return [
        _Cost(layer["name"], layer["op"], cost["seconds"] or 0.0, cost["macs"] or 0, layer["index"])
        for layer, cost in zip(layers, description["cost"]["layers"], strict=True)
    ]


def _totals(costs: list[_Cost]) -> tuple[float, int]:
    return sum(cost.seconds for cost in costs), sum(cost.macs for cost in costs)


def _amounts(cost: _Cost, seconds: float, macs: int) -> str:
    """Format the time and the multiply-accumulates of a node, with their shares of the whole model."""
    with_share = f"{cost.seconds / seconds:.1%} {time_text(cost.seconds)}"
    return f"{with_share}, {cost.macs / macs:.1%} {_count(cost.macs)}" if cost.macs else with_share


def _count(macs: int) -> str:
    """Format a number of multiply-accumulates with a suitable unit."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if macs >= size:
            return f"{macs / size:.3g} {unit}MAC"
    return f"{macs} MAC"
