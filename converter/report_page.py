"""The report as one HTML page without scripts from elsewhere: it can be mailed, archived, and read offline.

Everything that comes from a model file is escaped: names in a hostile file stay text.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from tpuconvert.report import NOTE_HEADINGS, Description, number, sqnr_text, summary_text
from tpuconvert.schema.types import format_shape

_STYLE = """
:root { --ink: #1c2430; --soft: #5b6675; --line: #d9dee5; --ground: #ffffff; --band: #f4f6f9; --mark: #2563a8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --soft: #9aa5b4; --line: #343c48; --ground: #14181e; --band: #1c222b; --mark: #6aa5e8; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 0 auto;
  max-width: 1200px; padding: 2rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p.lead, .soft { color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .87rem; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; position: sticky; top: 0; background: var(--ground); }
tr:nth-child(even) td { background: var(--band); }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
code, td.m { font-family: ui-monospace, monospace; font-size: .82rem; overflow-wrap: anywhere; }
.bar { display: inline-block; height: .7em; background: var(--mark); min-width: 1px; }
pre { background: var(--band); padding: 1rem; overflow-x: auto; }
"""

_BAR_FULL = 60.0
"""Decibel at which an SQNR bar is full."""

Cell = tuple[str, str] | str
"""A cell's HTML, or (CSS class, HTML)."""


def page(title: str, *sections: str) -> str:
    """A whole page around sections of HTML."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style>\n</head>\n'
        f"<body>\n<h1>{escape(title)}</h1>\n{''.join(sections)}\n</body>\n</html>\n"
    )


def escape(text: object) -> str:
    """Text that is safe in HTML, attribute values included."""
    return html.escape(str(text), quote=True)


def html_table(heading: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table; cells are HTML already."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heading)
    body = "\n".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>\n'


def _cell(cell: Cell) -> str:
    return f"<td>{cell}</td>" if isinstance(cell, str) else f'<td class="{cell[0]}">{cell[1]}</td>'


def to_html(description: Description) -> str:
    """The whole report of a model."""
    name = description["file"] or description["name"]
    return page(f"tpuconvert: {name}", *model_sections(description))


def model_sections(description: Description) -> list[str]:
    """The sections of one model."""
    sections = [f"<pre>{escape(summary_text({**description, 'notes': []}))}</pre>\n"]
    if description.get("notes"):
        rows = [
            (
                escape(NOTE_HEADINGS.get(note["kind"], note["kind"])),
                ("m", escape(note["node"])),
                escape(note["message"]),
            )
            for note in description["notes"]
        ]
        sections.append(f"<h2>Worth knowing</h2>\n{html_table(('what', 'node', 'reason'), rows)}")
    if description.get("verification"):
        sections.append(_verification(description["verification"]))
    sections.append(_layers(description["layers"]))
    return sections


def _verification(verification: dict[str, Any]) -> str:
    first = verification["first_difference"]
    lead = f"On {verification['samples']} samples. "
    if first is None:
        lead += "No tensor differs by more than rounding explains."
    else:
        lead += f"The first tensor that stands out is '{first['name']}' ({first['op']}), stage {first['stage']}."
    rows: list[Sequence[Cell]] = []
    for entry in [*verification["layers"], *verification["outputs"]]:
        full = _BAR_FULL if entry["max_absolute"] == 0.0 else max(0.0, min(_BAR_FULL, entry["sqnr_db"] or 0.0))
        bar = f'<span class="bar" style="width:{full / _BAR_FULL * 8:.2f}rem"></span>'
        rows.append(
            (
                ("m", escape(entry["name"])),
                escape(entry["op"]),
                escape(entry["stage"]),
                ("n", number(entry["max_absolute"])),
                ("n", number(entry["relative"])),
                ("n", "-" if entry["cosine"] is None else f"{entry['cosine']:.6f}"),
                ("n", sqnr_text(entry)),
                bar,
            )
        )
    heading = ("tensor", "operator", "stage", "max difference", "share of range", "cosine", "SQNR dB", "")
    return f'<h2>Compared with the source</h2>\n<p class="lead">{escape(lead)}</p>\n{html_table(heading, rows)}'


def _layers(layers: list[dict[str, Any]]) -> str:
    rows: list[Sequence[Cell]] = []
    for layer in layers:
        outputs = layer["outputs"]
        rows.append(
            (
                ("n", str(layer["index"])),
                escape(layer["op"]),
                ("m", "<br>".join(escape(value["name"]) for value in outputs)),
                ("m", "<br>".join(escape(value["dtype"] + format_shape(value["shape"])) for value in outputs)),
                ("m", "<br>".join(_scale(value["quantization"]) for value in outputs)),
                ("m", escape(layer["parameters"])),
                ("m", escape(", ".join("-" if name is None else name for name in layer["inputs"]))),
                ("m", "<br>".join(escape(source) for source in layer["sources"])),
            )
        )
    heading = ("#", "operator", "result", "type", "scale", "parameters", "reads", "source")
    return f"<h2>Graph</h2>\n{html_table(heading, rows)}"


def _scale(quant: dict[str, Any] | None) -> str:
    if quant is None:
        return "-"
    if quant["axis"] is not None:
        low, high = min(quant["scale"]), max(quant["scale"])
        return f"{len(quant['scale'])} on axis {quant['axis']}: {low:.4g} to {high:.4g}"
    zero = quant["zero_point"][0]
    return f"{quant['scale'][0]:.6g}" + (f", zero {zero}" if zero else "")
