"""The report as one self-contained HTML page, which can be mailed, archived, and read offline.

All text from a model file is escaped, because the file may be hostile.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from tpuconvert.report.attribution import HEADING, cells, headline
from tpuconvert.report.charts import STYLE as CHART_STYLE
from tpuconvert.report.charts import chart_sections, tuning_curve
from tpuconvert.report.cost import GROUP_HEADING, group_rows, group_summary
from tpuconvert.report.html_text import escape
from tpuconvert.report.model_description import Description, port_text, scale_text
from tpuconvert.report.notes import HEADINGS, SHARE, NoteGroup, group_notes, operators_of
from tpuconvert.report.text import number, share, sqnr_text, verdict_lines
from tpuconvert.report.tuning import HEADING as TUNING_HEADING
from tpuconvert.report.tuning import headline as tuning_headline
from tpuconvert.report.tuning import row as tuning_row
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.types import DType, format_shape
from tpuconvert.text_format import bytes_text, operator_counts, shorten

_STYLE = """
:root { --ink: #1c2430; --soft: #5b6675; --line: #d9dee5; --ground: #ffffff; --band: #f4f6f9; --mark: #2563a8;
  --warn: #b4540a; --good: #2f7d4f;
  --s1: #2563a8; --s2: #d1780f; --s3: #2f8f6b; --s4: #a23b72; --s5: #6b5fb5; --s6: #8a8f2a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --soft: #9aa5b4; --line: #343c48; --ground: #14181e; --band: #1c222b; --mark: #6aa5e8;
    --warn: #e8a05c; --good: #6cc48f;
    --s1: #6aa5e8; --s2: #e8a05c; --s3: #5fc29a; --s4: #dd84b4; --s5: #a79be6; --s6: #c3c765; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 0 auto;
  max-width: 1500px; padding: 2rem; }
h1 { font-size: 1.5rem; margin: 2.5rem 0 .2rem; } h1:first-child { margin-top: 0; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
p.lead, .soft { color: var(--soft); margin: .2rem 0 .6rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .87rem; }
table.facts { width: auto; } table.facts td:first-child { color: var(--soft); white-space: nowrap; }
th, td { text-align: left; padding: .3rem .5rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.m { font-family: ui-monospace, monospace; font-size: .8rem; white-space: nowrap; }
td.w, td.t { font-family: ui-monospace, monospace; font-size: .8rem; overflow-wrap: anywhere; min-width: 14rem; }
td.t { min-width: 7rem; }
td.b { min-width: 9rem; }
tr.bad td { color: var(--warn); font-weight: 600; }
.bar { display: inline-block; height: .7em; background: var(--mark); min-width: 1px; }
tr.bad .bar { background: var(--warn); }
details { margin: .6rem 0; } summary { cursor: pointer; color: var(--soft); }
"""

_BAR_FULL = 60.0
"""SQNR in dB at which its bar has the full length."""

_BAR_WIDTH = 8.0
"""Length of a full bar in CSS em units."""

_MANY = 8
"""Largest number of nodes of a group that are shown without being expanded by a click."""

_FEW = 4
"""Largest length of a list of numbers that is shown in full; of longer lists the length and range are shown."""

Cell = tuple[str, str] | str
"""Table cell: HTML, or (CSS class, HTML)."""


def page(title: str, *sections: str) -> str:
    """Return a whole page with the given sections, which are HTML already."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}{CHART_STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{escape(title)}</h1>\n{''.join(sections)}\n</body>\n</html>\n"
    )


def html_table(heading: Sequence[str], rows: Sequence[Sequence[Cell]], marked: Container[int] = ()) -> str:
    """Return an HTML table. Cells are HTML already. Rows whose index is in ``marked`` are highlighted."""
    is_number = [bool(rows) and not isinstance(cell, str) and cell[0] == "n" for cell in (rows[0] if rows else heading)]
    head = "".join(
        f'<th class="n">{escape(cell)}</th>' if number else f"<th>{escape(cell)}</th>"
        for cell, number in zip(heading, is_number, strict=True)
    )
    body = "\n".join(
        ('<tr class="bad">' if index in marked else "<tr>") + "".join(_cell(cell) for cell in row) + "</tr>"
        for index, row in enumerate(rows)
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>\n'


def _cell(cell: Cell) -> str:
    return f"<td>{cell}</td>" if isinstance(cell, str) else f'<td class="{cell[0]}">{cell[1]}</td>'


def to_html(description: Description) -> str:
    """Return the HTML page with the report of a model."""
    name = description["file"] or description["name"]
    return page(f"tpuconvert: {name}", *model_sections(description))


def model_sections(description: Description) -> list[str]:
    """Return the sections of one model: summary, notes, comparison with the source, attribution, search, and nodes."""
    groups = group_notes(description.get("notes", []), operators_of(description))
    verification = description.get("verification")
    others = [kind for kind in dict.fromkeys(group.kind for group in groups) if kind not in (SHARE, "float", "chip")]
    return [
        _facts(description),
        _verification(verification, description["layers"]) if verification else "",
        _attribution(description["attribution"]) if description.get("attribution") else "",
        _tuning(description["tuning"]) if description.get("tuning") else "",
        _notes("Little of this model is INT8", "", groups, SHARE),
        _float(description, groups),
        _notes("Chip warnings", "These nodes are legal, and worth a test on the chip itself.", groups, "chip"),
        _notes(
            "About the source and the samples",
            "",
            groups,
            *others,
        ),
        *_charts(description),
        _quantization(description["layers"]),
        _groups(description["cost"]) if "cost" in description else "",
        _layers(description["layers"]),
    ]


def _facts(description: Description) -> str:
    rows: list[tuple[str, str]] = []
    if "chip" in description:
        kind = "float" if description["quantize"] == "none" else description["quantize"].upper()
        rows.append(("made for", f"{description['chip']}, {kind}, by tpuconvert {description['tool_version']}"))
    for what in ("input", "output"):
        rows += [(what, port_text(port)) for port in description[f"{what}s"]]
    arithmetic = ", ".join(f"{count} in {dtype}" for dtype, count in description["arithmetic"].items())
    rows.append(("nodes", f"{description['nodes']}: {operator_counts(description['operators']) or 'none'}"))
    rows.append(("results", arithmetic or "none"))
    rows.append(("constants", f"{bytes_text(description['constant_bytes'])}, {description['parameters']:,} numbers"))
    if description.get("preprocessing"):
        rows.append(("preprocessing", str(Preprocess.from_mapping(description["preprocessing"]))))
    if description.get("plugins"):
        rows.append(("plugins", ", ".join(description["plugins"])))
    body = "\n".join(f"<tr><td>{escape(what)}</td><td>{escape(text)}</td></tr>" for what, text in rows)
    return f'<div class="scroll"><table class="facts"><tbody>\n{body}\n</tbody></table></div>\n'


def _float(description: Description, groups: list[NoteGroup]) -> str:
    """Return the section about the nodes of a quantized model or source that stay in float, with the reasons."""
    if not any(group.kind == "float" for group in groups):
        if description.get("quantize", "none") == "none":
            return ""
        return '<h2>What stayed in float</h2>\n<p class="lead">Nothing: every operator computes with integers.</p>\n'
    lead = "These operators compute in float, and their inputs are dequantized."
    return _notes("What stayed in float, and why", lead, groups, "float")


def _notes(title: str, lead: str, groups: list[NoteGroup], *kinds: str) -> str:
    """Return a table with one row per reason, the most frequent first. A click expands the list of nodes."""
    chosen = sorted((group for group in groups if group.kind in kinds), key=lambda group: -len(group.nodes))
    if not chosen:
        return ""
    lead = f'<p class="lead">{escape(lead)}</p>\n' if lead else ""
    if not any(group.nodes for group in chosen):
        listed = "\n".join(f"<li>{escape(group.text)}</li>" for group in chosen)
        return f"<h2>{escape(title)}</h2>\n{lead}<ul>\n{listed}\n</ul>\n"
    rows: list[Sequence[Cell]] = []
    for group in chosen:
        prefix = "" if group.kind in HEADINGS else f"{group.kind}: "
        rows.append(
            (
                ("n", str(len(group.nodes) or "")),
                escape(operator_counts({name: count for name, count in group.operators.most_common() if name}) or "-"),
                escape(prefix + group.text),
                ("w", _node_names(group.nodes)),
            )
        )
    return f"<h2>{escape(title)}</h2>\n{lead}{html_table(('nodes', 'operators', 'reason', 'which'), rows)}"


def _node_names(nodes: list[str]) -> str:
    shown = ", ".join(_name(node) for node in nodes[:_MANY])
    if len(nodes) <= _MANY:
        return shown or "-"
    rest = ", ".join(escape(node) for node in nodes[_MANY:])
    return f"{shown}<details><summary>and {len(nodes) - _MANY} more</summary>{rest}</details>"


def _verification(verification: Description, layers: list[Description]) -> str:
    scales = {value["name"]: value["quantization"] for layer in layers for value in layer["outputs"]}
    sources = {value["name"]: layer["sources"] for layer in layers for value in layer["outputs"]}
    is_quantized = verification["is_quantized"]
    lead = "</p>\n<p>".join(escape(f"{line}.") for line in verdict_lines(verification))
    parts = [f'<h2>Compared with the source</h2>\n<p class="lead">{lead}</p>\n']
    parts.append(_comparison(verification["outputs"], is_quantized=False, first=None))
    by_name = {entry["name"]: entry for entry in verification["layers"]}
    if is_quantized and verification["most_noise_added_at"]:
        worst = [by_name[name] for name in verification["most_noise_added_at"]]
        largest = max(entry["noise_added"] or 0.0 for entry in worst)
        rows: list[Sequence[Cell]] = [
            (
                ("w", _name(entry["name"])),
                escape(entry["op"]),
                ("t", "<br>".join(_source(source) for source in sources.get(entry["name"], ())) or "-"),
                ("t", escape(scale_text(scales.get(entry["name"])))),
                ("n", share(entry["clipped"])),
                ("n", sqnr_text(entry)),
                ("n", share(entry["noise_added"])),
                ("b", _bar((entry["noise_added"] or 0.0) / largest if largest else 0.0)),
            )
            for entry in worst
        ]
        heading = ("tensor", "operator", "source", "scale", "clipped", "SQNR dB", "noise added", "")
        parts.append(
            "<h2>Where the accuracy went</h2>\n"
            '<p class="lead">The tensors whose own step adds most noise, as a share of their power, the largest first. '
            "Clipped are values beyond the largest integer.</p>\n" + html_table(heading, rows)
        )
    first = verification["first_difference"]
    table = _comparison(verification["layers"], is_quantized, first["name"] if first else None)
    parts.append(
        "<h2>Every compared tensor</h2>\n"
        '<p class="lead">In the order of computation. The bar is the SQNR, full at '
        f"{_BAR_FULL:g} dB; the first tensor that stands out is marked.</p>\n{table}"
    )
    return "".join(parts)


def _attribution(attribution: Description) -> str:
    """Return the table of the nodes by their error at the outputs, with the options that remove it."""
    rows: list[Sequence[Cell]] = []
    for node in attribution["nodes"]:
        name, operator, *numbers = cells(node)
        row: list[Cell] = [("w", escape(name)), escape(operator), *(("n", escape(cell)) for cell in numbers)]
        rows.append([*row, ("w", escape(node["rule"]))])
    table = html_table((*HEADING, "keep in float"), rows)
    return f'<h2>Error of each node at the outputs</h2>\n<p class="lead">{escape(headline(attribution))}.</p>\n{table}'


def _tuning(tuning: Description) -> str:
    """Return the result of a mixed-precision search: a sentence, the picture, and the table of the curve."""
    rows: list[Sequence[Cell]] = []
    for trial in tuning["curve"]:
        mark, *numbers = tuning_row(trial, tuning)
        names = ", ".join(trial["keep_float"]) or "-"
        rows.append(["chosen" if mark else "", *(("n", escape(cell)) for cell in numbers), ("w", escape(names))])
    shown = html_table((*TUNING_HEADING, "in float"), rows)
    lead = f'<p class="lead">{escape(tuning_headline(tuning))}.</p>'
    curve = f'<figure class="chart">{tuning_curve(tuning)}</figure>'
    return f"<h2>Search for a mixed precision</h2>\n{lead}\n{curve}{shown}"


def _charts(description: Description) -> list[str]:
    """Return a section per chart."""
    return [
        f'<h2>{escape(title)}</h2>\n<p class="lead">{escape(lead)}</p>\n<figure class="chart">{svg}</figure>\n'
        for title, lead, svg in chart_sections(description)
    ]


def _comparison(entries: list[Description], is_quantized: bool, first: str | None) -> str:
    heading: tuple[str, ...] = ("tensor", "operator", "stage", "max difference", "share of range", "cosine", "SQNR dB")
    heading = (*heading, "", "noise added", "clipped") if is_quantized else (*heading, "")
    rows: list[Sequence[Cell]] = []
    for entry in entries:
        full = _BAR_FULL if entry["max_absolute"] == 0.0 else max(0.0, min(_BAR_FULL, entry["sqnr_db"] or 0.0))
        row: list[Cell] = [
            ("w", _name(entry["name"])),
            escape(entry["op"]),
            escape(entry["stage"]),
            ("n", number(entry["max_absolute"])),
            ("n", number(entry["relative"])),
            ("n", "-" if entry["cosine"] is None else f"{entry['cosine']:.6f}"),
            ("n", sqnr_text(entry)),
            ("b", _bar(full / _BAR_FULL)),
        ]
        if is_quantized:
            row += [("n", share(entry[key])) for key in ("noise_added", "clipped")]
        rows.append(row)
    return html_table(heading, rows, [index for index, entry in enumerate(entries) if entry["name"] == first])


def _bar(part: float) -> str:
    return f'<span class="bar" style="width:{part * _BAR_WIDTH:.2f}em"></span>'


def _quantization(layers: list[Description]) -> str:
    """Return the table of integer activations, with their scales and dequantized ranges."""
    rows: list[Sequence[Cell]] = []
    for layer in layers:
        for value in layer["outputs"]:
            quant = value["quantization"]
            if quant is None or DType(value["dtype"]).bits > _ACTIVATION_BITS:
                continue
            pairs = list(zip(quant["scale"], quant["zero_point"], strict=True))
            dtype = DType(quant["dtype"])
            low = min((dtype.min - zero) * scale for scale, zero in pairs)
            high = max((dtype.max - zero) * scale for scale, zero in pairs)
            zeros = sorted(set(quant["zero_point"]))
            rows.append(
                (
                    ("t", _name(value["name"])),
                    escape(layer["op"]),
                    ("m", escape(value["dtype"])),
                    ("t", escape(_steps(quant))),
                    ("n", f"{zeros[0]}" if len(zeros) == 1 else f"{zeros[0]} to {zeros[-1]}"),
                    ("n", f"{low:.4g}"),
                    ("n", f"{high:.4g}"),
                    ("t", "<br>".join(_source(source) for source in layer["sources"])),
                )
            )
    if not rows:
        return ""
    heading = ("tensor", "operator", "type", "scale", "zero point", "lowest", "highest", "source")
    lead = "The integers between layers: real = (integer - zero point) * scale; many scales are one per channel."
    return (
        f'<h2>Quantization</h2>\n<p class="lead">{escape(lead)}</p>\n'
        f"<details><summary>{len(rows)} tensors</summary>{html_table(heading, rows)}</details>\n"
    )


def _groups(cost: Description) -> str:
    """Return the table of groups of nodes that share on-chip memory."""
    lead = f'<h2>Groups</h2>\n<p class="lead">{escape(group_summary(cost))}.</p>\n'
    rows: list[Sequence[Cell]] = [
        (*(("n", escape(cell)) for cell in row[:-1]), escape(row[-1])) for row in group_rows(cost)
    ]
    return lead + (html_table(GROUP_HEADING, rows) if rows else "")


_ACTIVATION_BITS = 16
"""Widest integer type, in bits, that is listed as an activation. Wider integers are accumulators."""


def _steps(quant: Description) -> str:
    """Return the scale as text; for per-channel scales, their range, number and axis."""
    low, high = min(quant["scale"]), max(quant["scale"])
    if quant["axis"] is None:
        return f"{low:.6g}"
    return f"{low:.4g} to {high:.4g} ({len(quant['scale'])} on axis {quant['axis']})"


def _layers(layers: list[Description]) -> str:
    rows: list[Sequence[Cell]] = []
    for layer in layers:
        outputs = layer["outputs"]
        rows.append(
            (
                ("n", str(layer["index"])),
                escape(layer["op"]),
                ("t", "<br>".join(_name(value["name"]) for value in outputs)),
                ("m", "<br>".join(escape(value["dtype"] + format_shape(value["shape"])) for value in outputs)),
                ("t", "<br>".join(escape(scale_text(value["quantization"])) for value in outputs)),
                ("t", "<br>".join(_source(source) for source in layer["sources"])),
                ("t", "<br>".join("-" if name is None else _name(name) for name in layer["inputs"])),
                ("w", escape(_short_lists(layer["parameters"]))),
            )
        )
    heading = ("#", "operator", "result", "type", "scale", "source", "reads", "parameters")
    return f"<h2>Graph</h2>\n{html_table(heading, rows)}"


def _name(name: str) -> str:
    """Return a name as HTML; a long one is shortened, with the full name as tooltip."""
    short = shorten(name)
    return escape(name) if short == name else f'<span title="{escape(name)}">{escape(short)}</span>'


def _source(source: str) -> str:
    """Return the name of a source node without the file, which is the same for all nodes."""
    return _name(source.split(": ", 1)[-1])


_LIST = re.compile(r"\((-?[0-9.e+-]+(?:, -?[0-9.e+-]+)+)\)")


def _short_lists(parameters: str) -> str:
    """Show long lists of numbers in parameters as their length and range."""

    def shorten(found: re.Match[str]) -> str:
        numbers = found[1].split(", ")
        if len(numbers) <= _FEW:
            return found[0]
        ordered = sorted(numbers, key=float)
        return f"({len(numbers)} numbers, {ordered[0]} to {ordered[-1]})"

    return _LIST.sub(shorten, parameters)
