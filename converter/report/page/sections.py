"""Sections of the report that are readable without scripts: cards, verdicts, worst nodes, notes, groups, and charts."""

from __future__ import annotations

from collections.abc import Sequence

from tpuconvert.evaluation.result import measure_text
from tpuconvert.model.cost import GROUP_HEADING, group_rows, group_summary
from tpuconvert.model.description import Description, port_text, scale_text
from tpuconvert.model.notes import HEADINGS, SHARE, NoteGroup, group_notes, operators_of
from tpuconvert.precision.attribution_text import HEADING, cells, headline, unmatched_lines
from tpuconvert.precision.tuning_text import HEADING as TUNING_HEADING
from tpuconvert.precision.tuning_text import headline as tuning_headline
from tpuconvert.precision.tuning_text import row as tuning_row
from tpuconvert.report.charts import chart_sections, tuning_curve
from tpuconvert.report.output_branches import Branch, compared_outputs, misses_limit, output_branches
from tpuconvert.report.page.cards import cards
from tpuconvert.report.page.elements import FULL_BAR, Cell, NodeLinks, bar, html_table, panel, slot, source_html
from tpuconvert.report.report_data import has_cost, node_indices, worst_nodes
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.text.html_text import escape
from tpuconvert.schema.types import format_shape
from tpuconvert.text.table import number, share
from tpuconvert.text.text_format import bytes_text, operator_counts, several, shorten
from tpuconvert.verify.difference import LAYER_SQNR
from tpuconvert.verify.text import first_line, sqnr_text, verdict_lines

_MANY = 8
"""Largest number of nodes of a note, and of groups, that are shown without being expanded by a click."""

_MOST = 100
"""Largest number of nodes of a note that are named, and of groups. The data of the page contain all."""


_SQNR_IN_WORDS = (
    "SQNR is the power of an output against the power of its error: "
    "20 dB are an error of 1% of the power, 40 dB of 0.01%."
)
"""Sentence about the numbers of the comparison."""

_MUCH_CLIPPED = 1e-3
"""Smallest share of clipped values that is stated as the cause of the noise of a tensor."""


def model_article(description: Description, model: int) -> str:
    """Return the article about one model.

    Args:
        description: the description of the model.
        model: its index on the page.

    """
    indices = node_indices(description)
    pictured = {
        indices[name]
        for name, tensor in (description.get("histograms") or {}).items()
        if name in indices and len(tensor["counts"])
    }
    links = NodeLinks(model, indices, pictured)
    groups = group_notes(description.get("notes", []), operators_of(description))
    verification = description.get("verification")
    others = [kind for kind in dict.fromkeys(group.kind for group in groups) if kind not in (SHARE, "float", "chip")]
    parts = [
        _notes("Low share of INT8", "", groups, links, SHARE),
        _verification(description, links) if verification else "",
        _evaluation(description["evaluation"]) if description.get("evaluation") else "",
        _worst(description, links),
        slot("graph"),
        _charts(description),
        _tuning(description["tuning"]) if description.get("tuning") else "",
        _float(description, groups, links),
        _notes("Chip warnings", "These nodes are legal, and worth a test on the chip itself.", groups, links, "chip"),
        _notes("Notes on the source and the samples", "", groups, links, *others),
        _facts(description),
        _groups(description["cost"]) if description.get("cost", {}).get("groups") else "",
        slot("nodes"),
    ]
    name = escape(description["file"] or description["name"])
    return (
        f'<article class="model" id="m{model}" data-model="{model}">\n<header class="intro"><h2>{name}</h2>'
        f"<p>{_made_for(description)}</p></header>\n{cards(description)}{''.join(parts)}</article>\n"
    )


def _made_for(description: Description) -> str:
    if "chip" not in description:
        return '<span class="tag">source graph</span>'
    kind = "float" if description["quantize"] == "none" else description["quantize"].upper()
    return (
        f'<span class="tag">{escape(description["chip"])}</span> <span class="tag">{escape(kind)}</span> '
        f"<span>made by tpuconvert {escape(description['tool_version'])}</span>"
    )


def _facts(description: Description) -> str:
    rows: list[tuple[str, str]] = []
    for what in ("input", "output"):
        rows += [(what, port_text(port)) for port in description[f"{what}s"]]
    arithmetic = ", ".join(f"{count} in {dtype}" for dtype, count in description["arithmetic"].items())
    rows.append(("operators", operator_counts(description["operators"]) or "none"))
    rows.append(("results", arithmetic or "none"))
    if description["conversions"]:
        rows.append(("conversions", f"{description['conversions']} between integers and floats"))
    if "transposes" in description:
        rows.append(("transposes", f"{description['transposes']} left"))
    rows.append(("constants", f"{bytes_text(description['constant_bytes'])}, {description['parameters']:,} numbers"))
    if "cost" in description and not has_cost(description):
        rows.append(("cost", "unknown, because extents are open until the model runs; --input-shapes fixes them"))
    if description.get("preprocessing"):
        rows.append(("preprocessing", str(Preprocess.from_mapping(description["preprocessing"]))))
    if description.get("plugins"):
        rows.append(("plugins", ", ".join(description["plugins"])))
    body = "\n".join(f'<tr><th scope="row">{escape(what)}</th><td>{escape(text)}</td></tr>' for what, text in rows)
    return panel("Model", "", f'<table class="facts"><tbody>\n{body}\n</tbody></table>\n')


def _verification(description: Description, links: NodeLinks) -> str:
    """Return the comparison of the outputs and their branches. Only a missed limit is marked."""
    verification = description["verification"]
    is_bad, verdict = _verdict(description)
    shown = f'<p class="verdict{" bad" if is_bad else ""}">{escape(verdict)}.</p>\n'
    first = verification["first_difference"]
    for line in verdict_lines(verification):
        if line != verdict:
            text = escape(line)
            if first is not None:
                name = escape(f"'{shorten(first['name'])}'")
                text = text.replace(name, f"'{links.link(first['name'])}'", 1)
            shown += f'<p class="lead">{text}.</p>\n'
    branches = output_branches(description)
    rows: list[Sequence[Cell]] = []
    marked: set[int] = set()
    for output in verification["outputs"]:
        parts = branches.get(output["name"], [])
        for entry, cell in [(output, escape(output["name"])), *((part.entry, _branch(part, links)) for part in parts)]:
            if misses_limit(verification, entry):
                marked.add(len(rows))
            rows.append(
                (
                    ("w", cell),
                    ("n", sqnr_text(entry)),
                    ("b", bar(_sqnr_part(entry))),
                    ("n", "-" if entry["cosine"] is None else f"{entry['cosine']:.6f}"),
                    ("n", number(entry["max_absolute"])),
                    ("n", number(entry["relative"])),
                )
            )
    heading = ("output", "SQNR dB", "", "cosine", "max difference", "share of range")
    shown += f'<p class="lead">{escape(_SQNR_IN_WORDS)}</p>\n' if verification["is_quantized"] else ""
    return panel("Compared with the source", "", shown + html_table(heading, rows, marked), "compared")


def _branch(branch: Branch, links: NodeLinks) -> str:
    """Return the cell of a branch: its content, its part of the output, and the tensor."""
    words = " ".join(filter(None, (branch.content, branch.part))) or "part"
    return f'<span class="branch">{escape(words)}: {links.link(branch.entry["name"])}</span>'


def _verdict(description: Description) -> tuple[bool, str]:
    """Return True if a limit is missed, and the sentence about it."""
    verification = description["verification"]
    problems = [*verification["output_problems"], *(verification["opinion"] or {}).get("contradictions", ())]
    if problems:
        return True, problems[0]
    low = [
        (entry["sqnr_db"], label) for label, entry in compared_outputs(description) if misses_limit(verification, entry)
    ]
    if low:
        sqnr, label = min(low)
        others = f", and so {'is' if len(low) == 2 else 'are'} {len(low) - 1} more" if len(low) > 1 else ""
        return True, f"the SQNR of {label} is {sqnr:.1f} dB, below the limit of {LAYER_SQNR:g} dB{others}"
    first = verification["first_difference"]
    if first is None:
        return False, first_line(verification)
    if not verification["is_quantized"] or first["stage"] in ("import", "optimize"):
        return True, first_line(verification)
    return False, f"no output is below the limit of {LAYER_SQNR:g} dB"


def _sqnr_part(entry: Description) -> float:
    return 1.0 if entry["max_absolute"] == 0.0 else max(0.0, entry["sqnr_db"] or 0.0) / FULL_BAR


def _evaluation(evaluation: Description) -> str:
    """Return the measures on labeled samples, and of the other model if there is one."""
    other = evaluation["reference"]
    rows: list[list[Cell]] = []
    for name, value in {**evaluation["values"], **evaluation["agreement"]}.items():
        row: list[Cell] = [escape(name), ("n", escape(measure_text(name, value)))]
        if other is not None:
            row.append(("n", escape(measure_text(name, other[name])) if name in other else "-"))
        rows.append(row)
    heading = ["measure", "this model"]
    if other is not None:
        heading.append(evaluation["reference_file"] or "other model")
    return panel(
        "Measured on labeled samples", f"{several(evaluation['samples'], 'sample')}.", html_table(heading, rows)
    )


def _worst(description: Description, links: NodeLinks) -> str:
    """Return the tables of the nodes to examine first: by attribution, by added noise, or by time."""
    verification = description.get("verification")
    parts = []
    if description.get("attribution"):
        parts.append(_attribution(description["attribution"], links))
    if verification and verification["is_quantized"] and verification["most_noise_added_at"]:
        parts.append(_most_noise(verification, description["layers"], links))
    if not parts and has_cost(description):
        parts.append(_slowest(description, links))
    return "".join(parts)


def _attribution(attribution: Description, links: NodeLinks) -> str:
    """Return the table of the nodes by their error at the outputs, with the options that remove it."""
    rows: list[Sequence[Cell]] = []
    for node in attribution["nodes"]:
        _, operator, *numbers = cells(node)
        row: list[Cell] = [
            ("w", links.link(node["name"])),
            escape(operator),
            *(("n", escape(cell)) for cell in numbers),
        ]
        rows.append([*row, ("w", f"{_cause(node, links)}<code>{escape(node['rule'])}</code>")])
    lead = ". ".join([headline(attribution), *unmatched_lines(attribution)])
    lead += (
        ". The largest error comes first. Each row is the network with only this node in integers: "
        "its error as a share of the power of the outputs, and the rule that removes the larger part."
    )
    table = html_table((*HEADING, "cause and rule"), rows)
    return panel("Error of each node at the outputs", lead, table, "worst")


def _cause(node: Description, links: NodeLinks) -> str:
    """Return a sentence about the error of a node and its larger part, with a link to the picture of the cause."""
    noise = share(node["isolated"]["noise"])
    if node["cause"] == "weights":
        words, shown = "its weights", node["name"]
    else:
        operands = [name for name in node["keep_float"] if name != node["name"]]
        shown = operands[0] if operands else node["name"]
        words = f"rounding '{shorten(shown)}'" if operands else "rounding its operands"
    picture = links.picture(shown)
    more = f" ({picture})" if picture else ""
    return f'<p class="cause">{noise} of the power, mostly from {escape(words)}{more}</p>'


def _most_noise(verification: Description, layers: Sequence[Description], links: NodeLinks) -> str:
    scales = {value["name"]: value["quantization"] for layer in layers for value in layer["outputs"]}
    sources = {value["name"]: layer["sources"] for layer in layers for value in layer["outputs"]}
    by_name = {entry["name"]: entry for entry in verification["layers"]}
    worst = [by_name[name] for name in verification["most_noise_added_at"]]
    largest = max(entry["noise_added"] or 0.0 for entry in worst)
    rows: list[Sequence[Cell]] = [
        (
            ("w", links.link(entry["name"])),
            escape(entry["op"]),
            ("n", share(entry["noise_added"])),
            ("b", bar((entry["noise_added"] or 0.0) / largest if largest else 0.0)),
            ("n", sqnr_text(entry)),
            ("c", _noise_cause(entry, links)),
            ("s", escape(scale_text(scales.get(entry["name"])))),
            ("t", "<br>".join(source_html(source) for source in sources.get(entry["name"], ())) or "-"),
        )
        for entry in worst
    ]
    heading = ("tensor", "operator", "noise added", "", "SQNR dB", "cause", "scale", "source")
    lead = (
        "Quantization noise that each node adds, as a share of the power of its result, the largest first. "
        "Values beyond the largest integer are clipped."
    )
    return panel("Tensors with the most quantization noise", lead, html_table(heading, rows), "noise")


def _noise_cause(entry: Description, links: NodeLinks) -> str:
    """Return the words for the cause of the noise of a tensor, with a link to its picture."""
    clipped = entry["clipped"] or 0.0
    words = f"{share(clipped)} of the values are clipped" if clipped >= _MUCH_CLIPPED else "rounding to integers"
    picture = links.picture(entry["name"])
    return f"{words} ({picture})" if picture else words


def _slowest(description: Description, links: NodeLinks) -> str:
    cost, layers = description["cost"], description["layers"]
    total = cost["seconds_node_by_node"]
    rows: list[Sequence[Cell]] = []
    for index in worst_nodes(description):
        layer, costs = layers[index], cost["layers"][index]
        first = layer["outputs"][0]
        rows.append(
            (
                ("w", links.link(layer["name"])),
                escape(layer["op"]),
                ("m", escape(first["dtype"] + format_shape(first["shape"]))),
                ("n", "-" if costs["macs"] is None else f"{costs['macs']:,}"),
                ("n", "-" if costs["bytes"] is None else f"{costs['bytes']:,}"),
                ("n", f"{costs['seconds'] * 1e6:,.1f}"),
                ("n", share(costs["seconds"] / total if total else 0.0)),
                ("b", bar(costs["seconds"] / total if total else 0.0)),
            )
        )
    heading = ("node", "operator", "type", "MACs", "bytes", "least time in us", "share", "")
    lead = (
        "The nodes with the largest lower bound of the time on the chip, computed node by node. "
        "tpuconvert verify and tpuconvert attribute add the accuracy of each node."
    )
    return panel("Slowest nodes", lead, html_table(heading, rows), "worst") if rows else ""


def _charts(description: Description) -> str:
    if not has_cost(description):
        description = {key: part for key, part in description.items() if key != "cost"}
    shown = [
        f'<figure class="panel chart"><figcaption><h3>{escape(title)}</h3>'
        f'<p class="lead">{escape(lead)}</p></figcaption>{svg}</figure>\n'
        for title, lead, svg in chart_sections(description)
    ]
    return f'<div class="charts">\n{"".join(shown)}</div>\n' if shown else ""


def _tuning(tuning: Description) -> str:
    """Return the result of a mixed-precision search: a sentence, the picture, and the table of the curve."""
    rows: list[Sequence[Cell]] = []
    for trial in tuning["curve"]:
        mark, *numbers = tuning_row(trial, tuning)
        names = ", ".join(trial["keep_float"]) or "-"
        rows.append(["chosen" if mark else "", *(("n", escape(cell)) for cell in numbers), ("w", escape(names))])
    shown = html_table((*TUNING_HEADING, "in float"), rows)
    return panel("Search for a mixed precision", f"{tuning_headline(tuning)}.", f"{tuning_curve(tuning)}{shown}")


def _float(description: Description, groups: list[NoteGroup], links: NodeLinks) -> str:
    """Return the section about the nodes of a quantized model or source that stay in float, with the reasons."""
    if not any(group.kind == "float" for group in groups):
        if description.get("quantize", "none") == "none":
            return ""
        return panel("Nodes in float", "None: every operator computes with integers.", "")
    lead = "These operators compute in float, and their inputs are dequantized."
    return _notes("Nodes in float", lead, groups, links, "float")


def _notes(title: str, lead: str, groups: list[NoteGroup], links: NodeLinks, *kinds: str) -> str:
    """Return a table with one row per reason, the most frequent first. A click expands the list of nodes."""
    chosen = sorted((group for group in groups if group.kind in kinds), key=lambda group: -len(group.nodes))
    if not chosen:
        return ""
    if not any(group.nodes for group in chosen):
        listed = "\n".join(f"<li>{escape(group.text)}</li>" for group in chosen)
        return panel(title, lead, f"<ul>\n{listed}\n</ul>\n")
    rows: list[Sequence[Cell]] = []
    for group in chosen:
        prefix = "" if group.kind in HEADINGS else f"{group.kind}: "
        rows.append(
            (
                ("n", str(len(group.nodes) or "")),
                escape(operator_counts({name: count for name, count in group.operators.most_common() if name}) or "-"),
                escape(prefix + group.text),
                ("w", _node_names(group.nodes, links)),
            )
        )
    return panel(title, lead, html_table(("count", "operators", "reason", "nodes"), rows))


def _node_names(nodes: list[str], links: NodeLinks) -> str:
    shown = ", ".join(links.link(node) for node in nodes[:_MANY])
    if len(nodes) <= _MANY:
        return shown or "-"
    rest = ", ".join(links.link(node) for node in nodes[_MANY:_MOST])
    left = len(nodes) - _MOST
    rest += f" and {several(left, 'other node')}" if left > 0 else ""
    return f"{shown}<details><summary>and {len(nodes) - _MANY} more</summary>{rest}</details>"


def _groups(cost: Description) -> str:
    """Return the table of groups of nodes that share on-chip memory; of many groups those with most traffic."""
    lead = f"{group_summary(cost)}."
    table = group_rows(cost)
    if len(table) > _MOST:
        traffic = [group["bytes"] for group in cost["groups"]]
        largest = sorted(range(len(traffic)), key=lambda index: -traffic[index])[:_MOST]
        table = [table[index] for index in sorted(largest)]
        lead += f" The table has the {_MOST} groups with most traffic."
    rows: list[Sequence[Cell]] = [(*(("n", escape(cell)) for cell in row[:-1]), escape(row[-1])) for row in table]
    shown = html_table(GROUP_HEADING, rows) if rows else ""
    if len(rows) > _MANY:
        shown = f"<details><summary>{several(len(rows), 'group')}</summary>{shown}</details>\n"
    return panel("Groups", lead, shown, "groups")
