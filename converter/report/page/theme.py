"""Colors of the report, as variables of the style sheet, for light and dark screens."""

from __future__ import annotations

LIGHT = {
    "ink": "#18202b",
    "soft": "#5a6676",
    "line": "#dde3ea",
    "ground": "#ffffff",
    "band": "#f3f5f9",
    "mark": "#1f63c6",
    "warn": "#b5480b",
    "good": "#17794a",
    "shade": "#1820281f",
    "tint": "#e8f0fd",
    "s1": "#2f6fd6",
    "s2": "#d9730d",
    "s3": "#24915a",
    "s4": "#8a4fd0",
    "s5": "#c23a68",
    "s6": "#5f7488",
}
"""Name of a variable -> color on a light screen.

``ink`` and ``soft`` are text, ``line`` borders, ``ground`` the panels, ``band`` the page around them, ``mark`` links
and selections, ``tint`` the ground of a selection, ``shade`` shadows, ``s1`` to ``s6`` the series of charts.
"""

SERIES = tuple(name for name in LIGHT if name.startswith("s") and name[1:].isdigit())
"""Names of the colors of series."""

DARK = {
    "ink": "#e4e9f1",
    "soft": "#97a4b5",
    "line": "#2b3440",
    "ground": "#171d26",
    "band": "#0e1218",
    "mark": "#73abff",
    "warn": "#f0a065",
    "good": "#5fc793",
    "shade": "#00000066",
    "tint": "#1d2e4a",
    "s1": "#6fa3f2",
    "s2": "#f0a04b",
    "s3": "#5cc48f",
    "s4": "#b48cf0",
    "s5": "#f0809f",
    "s6": "#93a7ba",
}
"""Name of a variable -> color on a dark screen."""


def theme_css() -> str:
    """Return the rules that set the variables: the theme of the system, unless ``data-theme`` selects one."""
    light, dark = _declarations("light", LIGHT), _declarations("dark", DARK)
    return (
        f":root {{ {light} }}\n"
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}\n'
        f':root[data-theme="dark"] {{ {dark} }}\n'
    )


def _declarations(scheme: str, colors: dict[str, str]) -> str:
    variables = " ".join(f"--{name}: {color};" for name, color in colors.items())
    return f"color-scheme: {scheme}; {variables}"
