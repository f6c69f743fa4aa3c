"""Charts of the calibration: growth of the ranges with the number of samples, and histograms of tensors."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tpuconvert.model.description import Description
from tpuconvert.report.charts.drawing import (
    AXIS_HEIGHT,
    HALF_LINE,
    LEFT,
    RIGHT,
    TOP,
    chart,
    horizontal_axis,
    legend,
    mark,
    text,
    vertical_axis,
)
from tpuconvert.report.charts.nodes import node_indices
from tpuconvert.report.charts.scale import Scale
from tpuconvert.text.table import share
from tpuconvert.text.text_format import several, shorten

_HEIGHT = 200.0

_SHOWN = 6
"""Number of tensors with a histogram."""

_COLUMNS = 2
_PANEL_WIDTH, _PANEL_HEIGHT, _GAP = 340.0, 162.0, 24.0
_BARS = 84.0
"""Height of the bars of a histogram."""

_NAME = 30

_LINE_DISTANCE = 16.0
"""Smallest distance of two lines whose labels do not overlap."""

_LEGEND_ROW = 26.0
"""Distance of the rows of a legend, with room for the larger type of narrow pages."""

_CURVES = (("s1", "median", "median of the tensors"), ("s2", "smallest", "smallest of the tensors"))
"""Curves of the convergence: class, key in the description, and label."""

_CONVERGED = 0.02
"""Largest growth with the last doubling of the samples, as a share, that counts as converged."""


def convergence(description: Description) -> tuple[str, str]:
    """Return a sentence and the chart of the largest magnitudes against the number of samples."""
    record = description["convergence"]
    samples: list[int] = record["samples"]
    bottom = TOP + _HEIGHT
    y = Scale.covering(0.0, 100.0, bottom, TOP)
    doublings = [math.log2(count) for count in samples]
    x = Scale.exact(0.0, max(doublings[-1], 1.0), LEFT + 10, RIGHT - 10)
    parts = vertical_axis(y, "largest magnitude, % of the largest of all samples")
    names = dict(zip(doublings, map(str, samples), strict=True))
    if len(samples) > 1 and doublings[-1] - doublings[-2] < _least_distance(x):
        del names[doublings[-2]]
    parts += horizontal_axis(x, bottom, "number of samples", names=names)
    for kind, key, label in _CURVES:
        points = [(x.at(doubling), y.at(100 * part)) for doubling, part in zip(doublings, record[key], strict=True)]
        if len(points) > 1:
            line = " ".join(f"{left:.1f},{top:.1f}" for left, top in points)
            parts.append(f'<polyline class="curve {kind}" points="{line}"/>')
        for (left, top), count, part in zip(points, samples, record[key], strict=True):
            parts.append(mark("circle", kind, tip=f"{label}, {count} samples: {part:.1%}", cx=left, cy=top, r=3.5))
    lead = "A point with n samples is the mean over all subsets of n calibration samples."
    thresholds = _thresholds(description.get("histograms") or {})
    below_axis = bottom + AXIS_HEIGHT + _LEGEND_ROW
    parts += legend([(kind, label) for kind, _, label in _CURVES], LEFT, below_axis, spacing=(RIGHT - LEFT) / 2)
    lines = _threshold_lines(thresholds, x, y, below_axis + _LEGEND_ROW)
    parts += [part for line in lines for part in line]
    if len(samples) > 1:
        slowest, left = shorten(record["slowest"]), 1.0 - record["smallest"][-2]
        lead += (
            f" With {samples[-2]} instead of {samples[-1]} samples, the range of '{slowest}' would be {left:.1%} "
            f"smaller, and the ranges of half of the tensors at most {1.0 - record['median'][-2]:.1%}."
        )
        lead += " More samples would hardly change the ranges." if left < _CONVERGED else ""
    below = sum(part < 1.0 for part in thresholds.values())
    if below:
        lead += (
            f" The dashed lines are thresholds: the ranges of {below} of {len(thresholds)} tensors are below the range."
        )
    return lead, chart("Convergence of the calibration", below_axis + _LEGEND_ROW * (len(lines) + 0.5), parts)


def _thresholds(tensors: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the threshold of each calibrated tensor as a share of its largest magnitude on all samples."""
    largest = {name: max(-tensor["minimum"], tensor["maximum"]) for name, tensor in tensors.items()}
    return {name: tensor["threshold"] / largest[name] for name, tensor in tensors.items() if largest[name] > 0.0}


def _threshold_lines(thresholds: Mapping[str, float], x: Scale, y: Scale, legend_y: float) -> list[list[str]]:
    """Return lines at the median and at the smallest threshold with their legend. Equal lines are drawn once."""
    if not thresholds:
        return []
    lowest = min(thresholds, key=lambda name: (thresholds[name], name))
    shares = {f"threshold of {shorten(lowest, _NAME)}": thresholds[lowest]}
    median = statistics.median_low(thresholds.values())
    if len(thresholds) > 1 and y.at(100 * thresholds[lowest]) - y.at(100 * median) > _LINE_DISTANCE:
        shares = {"median of the thresholds": median, **shares}
    lines = []
    for row, (label, part) in enumerate(shares.items()):
        height, legend_row = y.at(100 * part), legend_y + row * _LEGEND_ROW
        lines.append(
            [
                mark("line", "limit", tip=f"{label}: {part:.1%}", x1=x.start, y1=height, x2=x.end, y2=height),
                mark("line", "limit", x1=LEFT - 12, y1=legend_row, x2=LEFT + 12, y2=legend_row),
                text(LEFT + 18, legend_row, f"{label}: {part:.0%}", shift=HALF_LINE),
            ]
        )
    return lines


def _least_distance(x: Scale) -> float:
    """Return the distance of two ticks whose texts do not overlap, in doublings."""
    return 40.0 * (x.high - x.low) / (x.end - x.start)


def histograms(description: Description) -> tuple[str, str]:
    """Return sentences and the histograms of the tensors that matter most; no image without histograms.

    They are the tensors that add most noise, and after these the ones with the largest clipped share.
    """
    with_counts = {name: tensor for name, tensor in description["histograms"].items() if tensor["counts"]}
    others = [tensor for tensor in description["histograms"].values() if not tensor["counts"]]
    without = _without_histogram(others)
    if not with_counts:
        return without, ""
    verification = description.get("verification")
    noisy = verification["most_noise_added_at"] if verification and verification["is_quantized"] else []
    ordered = sorted(with_counts, key=lambda name: (-(with_counts[name]["clipped"] or 0.0), name))
    shown = list(dict.fromkeys([name for name in noisy if name in with_counts] + ordered))[:_SHOWN]
    nodes = node_indices(description)
    parts: list[str] = []
    for index, name in enumerate(shown):
        left = 8.0 + (index % _COLUMNS) * (_PANEL_WIDTH + _GAP)
        top = 8.0 + (index // _COLUMNS) * (_PANEL_HEIGHT + _GAP)
        parts += _panel(name, with_counts[name], nodes.get(name), left, top)
    rows = -(-len(shown) // _COLUMNS)
    clipped = [tensor["clipped"] or 0.0 for tensor in with_counts.values()]
    lead = (
        "Magnitudes of the values on the calibration samples; the height of a bar is the logarithm of its count. "
        "Values beyond the line, which is the threshold, are clipped: in "
        f"{sum(part > 0 for part in clipped)} of {len(with_counts)} tensors, at most {_share_text(max(clipped))}."
    )
    lead += f" {without}" if without else ""
    return lead, chart("Histograms of tensors", 8.0 + rows * (_PANEL_HEIGHT + _GAP), parts)


def _without_histogram(others: Sequence[Mapping[str, Any]]) -> str:
    """Return the sentence about the calibrated tensors without a histogram; empty if there are none."""
    if not others:
        return ""
    simple = sum(tensor["method"] == "minmax" for tensor in others)
    reasons = []
    if simple:
        reasons.append(f"{several(simple, 'tensor')} with the method minmax, which needs only the largest magnitude")
    if len(others) > simple:
        reasons.append(f"{several(len(others) - simple, 'tensor')} whose values are all 0")
    return f"No histogram was recorded of {' and of '.join(reasons)}."


def _panel(name: str, tensor: Mapping[str, Any], node: int | None, left: float, top: float) -> list[str]:
    """Return the histogram of one tensor with its name, threshold and clipped share."""
    counts: Sequence[int] = tensor["counts"]
    right = left + _PANEL_WIDTH
    bottom = top + 50 + _BARS
    x = Scale.exact(tensor["low"], tensor["high"], left, right)
    largest = math.log1p(max(counts))
    step = (right - left) / len(counts)
    width = (tensor["high"] - tensor["low"]) / len(counts)
    parts = [text(left, top + 8, shorten(name, _NAME), "name", shift=HALF_LINE, node=node)]
    beyond = "no value clipped" if not tensor["clipped"] else f"{_share_text(tensor['clipped'])} clipped"
    parts.append(text((left + right) / 2, bottom + 8, beyond, "middle", shift=".8em"))
    for index, count in enumerate(counts):
        if not count:
            continue
        start = tensor["low"] + index * width
        height = max(1.0, _BARS * math.log1p(count) / largest)
        kind = "warn" if start >= tensor["threshold"] else "s1"
        tip = f"about {count:,} from {start:.4g} to {start + width:.4g}"
        bar = max(step - 0.8, 0.5)
        parts.append(mark("rect", kind, tip=tip, x=left + index * step, y=bottom - height, width=bar, height=height))
    parts.append(mark("line", "axis", x1=left, y1=bottom, x2=right, y2=bottom))
    limit = x.at(tensor["threshold"])
    parts.append(mark("line", "limit", x1=limit, y1=top + 42, x2=limit, y2=bottom))
    parts.append(_threshold_note(tensor, limit, top + 32, left, right))
    parts.append(text(left, bottom + 8, "0", shift=".8em"))
    parts.append(text(right, bottom + 8, f"{tensor['high']:.4g}", "end", shift=".8em"))
    return parts


def _threshold_note(tensor: Mapping[str, Any], x: float, y: float, left: float, right: float) -> str:
    """Return the threshold and its method as text above its line."""
    is_right = x > (left + right) / 2
    content = f"{tensor['method']} {tensor['threshold']:.4g}"
    return text(x, y, content, "note end" if is_right else "note", shift=HALF_LINE)


def _share_text(part: float) -> str:
    """Format a share as a percentage, or a small one in parts per million."""
    return share(part) if part == 0.0 or part >= 1e-4 else f"{1e6 * part:.2g} ppm"
