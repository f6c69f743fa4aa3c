"""Chart of the memory of the tensors while a model runs."""

from __future__ import annotations

from tpuconvert.model.description import Description
from tpuconvert.report.charts.drawing import LEFT, RIGHT, TOP, chart, horizontal_axis, mark, note, text, vertical_axis
from tpuconvert.report.charts.nodes import thin
from tpuconvert.report.charts.scale import Scale
from tpuconvert.text.text_format import BYTE_UNITS, bytes_text, shorten

_HEIGHT = 210.0
_MOST = 400
"""Largest number of bars: of adjacent nodes, the one with most live bytes is shown."""

_NAME = 34
_UNITS = (*BYTE_UNITS, ("bytes", 1))


def memory_over_time(description: Description) -> tuple[str, str]:
    """Return a sentence and the chart; two empty texts without nodes."""
    memory, layers = description["memory"], description["layers"]
    live: list[int] = memory["live_bytes"]
    if not live or not max(live):
        return "", ""
    arena, largest = memory["arena_bytes"], max(live)
    unit, size = next((unit, size) for unit, size in _UNITS if largest >= size)
    bottom = TOP + _HEIGHT
    y = Scale.covering(0.0, max(largest, arena or 0) / size, bottom, TOP)
    x = Scale.exact(0, len(live), LEFT, RIGHT, ticks=8)
    parts = vertical_axis(y, f"live tensors, {unit}")
    shown = thin(list(enumerate(live)), _MOST, lambda item: item[1])
    width = (RIGHT - LEFT) / len(shown)
    peak = max(shown, key=lambda item: item[1])[0]
    for position, (index, count) in enumerate(shown):
        left, top = LEFT + position * width, y.at(count / size)
        layer = layers[index]
        tip = f"{layer['name']} ({layer['op']}): {bytes_text(count)}"
        kind = "s2" if index == peak else "s1"
        bar = max(width - min(1.0, 0.2 * width), 0.5)
        parts.append(mark("rect", kind, node=index, tip=tip, x=left, y=top, width=bar, height=bottom - top))
    if arena:
        line = y.at(arena / size)
        parts.append(mark("line", "limit", x1=LEFT, y1=line, x2=RIGHT, y2=line))
        parts.append(text(RIGHT, line - 9, f"arena {bytes_text(arena)}", "note end"))
    name = shorten(layers[peak]["name"], _NAME)
    position = next(position for position, (index, _) in enumerate(shown) if index == peak)
    parts.append(note(LEFT + (position + 0.5) * width, y.at(live[peak] / size) + 14, name, node=peak))
    parts += horizontal_axis(x, bottom, "index of the node, in the order of computation")
    lead = f"At most {bytes_text(largest)} of tensors are live, at '{shorten(layers[peak]['name'])}'. "
    if arena == largest:
        lead += "One arena of this size is enough for all tensors. "
    elif arena:
        lead += f"One arena for all tensors has {bytes_text(arena)}, {arena / largest - 1:.1%} more. "
    lead += "Constants are not counted."
    return lead, chart("Memory over time", bottom + 60, parts)
