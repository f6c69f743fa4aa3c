"""Chart of the error of the compared tensors in the order of computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tpuconvert.model.description import Description
from tpuconvert.report.charts.drawing import LEFT, RIGHT, TOP, chart, horizontal_axis, mark, note, vertical_axis
from tpuconvert.report.charts.nodes import node_indices, thin
from tpuconvert.report.charts.scale import Scale
from tpuconvert.text.table import share
from tpuconvert.text.text_format import several, shorten
from tpuconvert.verify.text import sqnr_text

_HEIGHT = 210.0
_NOISE_GAP, _NOISE_HEIGHT = 50.0, 80.0
_MOST = 400
"""Largest number of points: of adjacent tensors, the one with the largest error is shown."""

_NAME = 34
"""Longest name in the chart."""


class _Point(NamedTuple):
    node: int
    entry: dict[str, Any]

    @property
    def sqnr(self) -> float | None:
        sqnr: float | None = self.entry["sqnr_db"]
        return sqnr

    @property
    def added(self) -> float:
        return self.entry["noise_added"] or 0.0


def error_over_depth(description: Description) -> tuple[str, str]:
    """Return a sentence and the chart; two empty texts if no tensor of a node was compared."""
    verification = description["verification"]
    nodes = node_indices(description)
    points = [_Point(nodes[entry["name"]], entry) for entry in verification["layers"] if entry["name"] in nodes]
    points.sort(key=lambda point: point.node)
    drawn = [point for point in points if point.sqnr is not None or point.entry["max_absolute"] == 0.0]
    if not drawn:
        return "", ""
    finite = [point for point in drawn if point.sqnr is not None]
    outputs = [
        _Point(nodes.get(entry["name"], description["nodes"] - 1), entry)
        for entry in verification["outputs"]
        if entry["sqnr_db"] is not None
    ]
    values = [point.sqnr for point in [*finite, *outputs] if point.sqnr is not None]
    bottom = TOP + _HEIGHT
    y = Scale.covering(min(0.0, *values), max(values), bottom, TOP) if values else Scale.covering(0, 60, bottom, TOP)
    x = Scale.exact(0, max(description["nodes"] - 1, 1), LEFT + 10, RIGHT - 10, ticks=8)
    parts = vertical_axis(y, "SQNR in dB, larger is better")
    shown = thin(finite, _MOST, lambda point: -(point.sqnr or 0.0))
    line = " ".join(f"{x.at(point.node):.1f},{y.at(point.sqnr or 0.0):.1f}" for point in shown)
    if len(shown) > 1:
        parts.append(f'<polyline class="curve s1" points="{line}"/>')
    parts += [_dot(x.at(point.node), y.at(point.sqnr or 0.0), "s1", point) for point in shown]
    exact = thin([point for point in drawn if point.sqnr is None], _MOST, lambda point: 0.0)
    parts += [_dot(x.at(point.node), TOP, "s3", point) for point in exact]
    for point in outputs:
        parts.append(_dot(x.at(point.node), y.at(point.sqnr or 0.0), "ring", point, radius=5.5))
    if finite:
        worst = min(finite, key=lambda point: point.sqnr or 0.0)
        parts.append(
            note(x.at(worst.node), y.at(worst.sqnr or 0.0) + 16, shorten(worst.entry["name"], _NAME), node=worst.node)
        )
    if any(point.added for point in points):
        parts += _noise(thin(points, _MOST, lambda point: point.added), x, bottom)
        bottom += _NOISE_GAP + _NOISE_HEIGHT
    parts += horizontal_axis(x, bottom, "index of the node, in the order of computation")
    return _lead(points, finite, outputs), chart("Error over depth", bottom + 60, parts)


def _dot(x: float, y: float, kind: str, point: _Point, radius: float = 3.0) -> str:
    entry = point.entry
    unit = " dB" if entry["sqnr_db"] is not None else ""
    tip = f"{entry['name']} ({entry['op']}): {sqnr_text(entry)}{unit}"
    if entry["noise_added"]:
        tip += f", noise added {share(entry['noise_added'])}"
    return mark("circle", kind, node=point.node, tip=tip, cx=x, cy=y, r=radius)


def _noise(points: Sequence[_Point], x: Scale, bottom: float) -> list[str]:
    """Return bars with the noise that each tensor adds, below the error."""
    largest = max(points, key=lambda point: point.added)
    low = bottom + _NOISE_GAP + _NOISE_HEIGHT
    y = Scale.covering(0.0, 100 * largest.added, low, low - _NOISE_HEIGHT, ticks=2)
    parts = vertical_axis(y, "noise added, % of the power of the tensor")
    width = max(1.5, min(8.0, 0.7 * (x.end - x.start) / (x.high - x.low + 1)))
    for point in points:
        if point.added:
            top = y.at(100 * point.added)
            tip = f"{point.entry['name']} ({point.entry['op']}): noise added {share(point.added)}"
            left = x.at(point.node) - width / 2
            parts.append(
                mark("rect", "s2", node=point.node, tip=tip, x=left, y=top, width=width, height=max(low - top, 0.5))
            )
    name = shorten(largest.entry["name"], _NAME)
    return [*parts, note(x.at(largest.node), y.at(100 * largest.added) + 8, name, node=largest.node)]


def _lead(points: Sequence[_Point], finite: Sequence[_Point], outputs: Sequence[_Point]) -> str:
    parts = []
    if finite:
        worst = min(finite, key=lambda point: point.sqnr or 0.0)
        parts.append(f"The lowest SQNR is {sqnr_text(worst.entry)} dB at '{shorten(worst.entry['name'])}'.")
    else:
        parts.append("Every compared tensor is exact.")
    if outputs:
        parts.append("Rings are the outputs.")
    largest = max(points, key=lambda point: point.added)
    if largest.added:
        added = share(largest.added)
        parts.append(f"Most noise is added by '{shorten(largest.entry['name'])}' ({added} of the power of the tensor).")
    bad = sum(1 for point in points if point.entry["not_finite"])
    if bad:
        parts.append(f"{several(bad, 'tensor')} with values that are not finite are left out.")
    return " ".join(parts)
