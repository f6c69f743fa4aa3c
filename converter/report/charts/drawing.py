"""Elements of inline SVG: marks, text, axes, and the frame of a chart.

Marks have classes only; ``charts.css`` of the page gives them colors. Coordinates have one decimal, so that equal data
give equal text.
"""

from __future__ import annotations

from tpuconvert.report.charts.scale import Scale
from tpuconvert.schema.text.html_text import escape

WIDTH = 720
LEFT, RIGHT = 76, 704
"""Horizontal ends of the plot area. The left margin has room for ticks in the larger type of narrow pages."""

TOP = 40
"""Upper end of the plot area, below the label of the vertical axis."""

AXIS_HEIGHT = 56
"""Height of ticks and label below the plot area."""

HALF_LINE = ".35em"
"""Shift of a baseline that centers text vertically."""


def coordinate(value: float) -> str:
    """Format a coordinate."""
    return f"{value:.1f}".removesuffix(".0")


def mark(tag: str, kind: str, *, node: int | None = None, tip: str = "", **position: float | str) -> str:
    """Return an element.

    Args:
        tag: name of the SVG element.
        kind: its classes.
        node: index of the node that it represents.
        tip: text that appears when the pointer is on the element.
        position: attributes; floats are coordinates.
    """
    attributes = "".join(
        f' {name}="{value if isinstance(value, str) else coordinate(value)}"' for name, value in position.items()
    )
    link = "" if node is None else f' data-node="{node}"'
    content = f"><title>{escape(tip)}</title></{tag}>" if tip else "/>"
    return f'<{tag} class="{kind}"{link}{attributes}{content}'


def text(
    x: float, y: float, content: str, kind: str = "", *, shift: str = "", node: int | None = None, more: str = ""
) -> str:
    """Return a text element.

    Args:
        x: horizontal coordinate.
        y: vertical coordinate of the baseline, before ``shift``.
        content: the text.
        kind: its classes, with ``end`` or ``middle`` for the alignment.
        shift: shift of the baseline, in units of the type size.
        node: index of the node that it names.
        more: text after it that narrow pages leave out.
    """
    link = "" if node is None else f' data-node="{node}"'
    classes = f' class="{kind}"' if kind else ""
    moved = f' dy="{shift}"' if shift else ""
    rest = f'<tspan class="wide" dx=".6em">{escape(more)}</tspan>' if more else ""
    return f'<text{classes}{link} x="{coordinate(x)}" y="{coordinate(y)}"{moved}>{escape(content)}{rest}</text>'


def horizontal_axis(scale: Scale, y: float, label: str, *, names: dict[float, str] | None = None) -> list[str]:
    """Return the ticks of a horizontal axis at height ``y``, its line, and its label below them.

    Args:
        scale: the scale.
        y: vertical coordinate.
        label: quantity and unit.
        names: texts of ticks by value, in place of the ticks of the scale.
    """
    parts = [mark("line", "axis", x1=scale.start, y1=y, x2=scale.end, y2=y)]
    shown = names if names is not None else {value: scale.text(value) for value in scale.ticks}
    for value, name in shown.items():
        x = scale.at(value)
        parts.append(mark("line", "axis", x1=x, y1=y, x2=x, y2=y + 5))
        kind = "end" if x > RIGHT - 8 else "middle"
        parts.append(text(x, y + 9, name, kind, shift=".8em"))
    parts.append(text((scale.start + scale.end) / 2, y + AXIS_HEIGHT - 6, label, "label middle"))
    return parts


def vertical_axis(scale: Scale, label: str) -> list[str]:
    """Return the ticks of a vertical axis with grid lines to the right, and its label above."""
    parts = []
    for value in scale.ticks:
        y = scale.at(value)
        parts.append(mark("line", "grid", x1=LEFT, y1=y, x2=RIGHT, y2=y))
        parts.append(text(LEFT - 8, y, scale.text(value), "end", shift=HALF_LINE))
    parts.append(text(8, scale.end - 18, label, "label"))
    return parts


def legend(entries: list[tuple[str, str]], x: float, y: float, *, spacing: float) -> list[str]:
    """Return squares with texts from left to right; an entry is the class of its square and its text."""
    parts = []
    for index, (kind, name) in enumerate(entries):
        left = x + index * spacing
        parts.append(mark("rect", kind, x=left, y=y - 6, width=12.0, height=12.0))
        parts.append(text(left + 18, y, name, shift=HALF_LINE))
    return parts


def note(x: float, y: float, content: str, *, node: int | None = None) -> str:
    """Return a text inside the plot area, on the side of ``x`` that has more room."""
    is_right = x > (LEFT + RIGHT) / 2
    return text(
        x - 8 if is_right else x + 8, y, content, "note end" if is_right else "note", shift=HALF_LINE, node=node
    )


def chart(title: str, height: float, parts: list[str]) -> str:
    """Return an SVG image that takes the width of its container."""
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {coordinate(height)}" role="img">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>\n"
    )
