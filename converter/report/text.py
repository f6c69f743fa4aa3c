"""Descriptions of models and comparisons, rendered as text and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tpuconvert.report.model_description import Description, port_text, scale_text
from tpuconvert.report.notes import SHARE, note_lines, operators_of, share_lines
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.shape_buckets import buckets_of, format_buckets
from tpuconvert.schema.types import format_shape
from tpuconvert.schema.visible_text import one_line
from tpuconvert.styled_text import Style, concat, join_lines, style
from tpuconvert.text_format import bytes_text, operator_counts, several, shorten
from tpuconvert.verify.difference import AS_READ, LAYER_SQNR

Item = TypeVar("Item")

_ABOUT = ("name", "version", "author", "license")

MANY = 4
"""Largest number of elements of a list that are shown."""

NOISIEST = 3
"""Largest number of tensors in the line about quantization noise."""


def summary_text(description: Description) -> str:
    """Return a summary of the model in a few lines."""
    notes = description.get("notes", [])
    lines = [_headline(description), *share_lines(note["message"] for note in notes if note["kind"] == SHARE)]
    lines += port_lines(description)
    buckets = buckets_of(description.get("metadata") or {})
    if buckets:
        lines.append(f"  accepts only {format_buckets(buckets)}")
    lines.append(f"  {several(description['nodes'], 'node')}: {operator_counts(description['operators']) or 'none'}")
    lines += subgraph_lines(description.get("subgraphs") or [])
    arithmetic = ", ".join(f"{count} in {dtype}" for dtype, count in description["arithmetic"].items())
    lines.append(f"  results: {arithmetic or 'none'}; constants: {bytes_text(description['constant_bytes'])}")
    if description["conversions"]:
        lines.append(f"  between integers and floats: {several(description['conversions'], 'conversion')}")
    if "transposes" in description:
        lines.append(f"  transposes: {description['transposes']} left")
    lines += metadata_lines(description.get("metadata") or {})
    lines += requirement_lines(description)
    lines += note_lines(notes, operators_of(description))
    return join_lines(lines)


def subgraph_lines(subgraphs: Sequence[Description]) -> list[str]:
    """One line per subgraph that the host executes."""
    return [
        f"  on the host: {item['parameter']} of '{shorten(item['node'])}': {several(item['nodes'], 'node')}, "
        f"{'unknown' if item['macs'] is None else format(item['macs'], ',')} MACs per run: "
        f"{operator_counts(item['operators']) or 'none'}"
        for item in subgraphs
    ]


def port_lines(description: Description) -> list[str]:
    """One line per input and output."""
    return [f"  {what[:-1]:<7} {port_text(port)}" for what in ("inputs", "outputs") for port in description[what]]


def requirement_lines(description: Description) -> list[str]:
    """Return lines about the preprocessing and the plugins of a model, if it has any."""
    lines = []
    if description.get("preprocessing"):
        lines.append(f"  preprocessing: {Preprocess.from_mapping(description['preprocessing'])}")
    if description.get("plugins"):
        lines.append(f"  plugins: {', '.join(description['plugins'])}")
    return lines


def metadata_lines(metadata: Description) -> list[str]:
    """Return the metadata of the source file: one line for the model, one per input and output."""
    whole = ", ".join(f"{key} {shorten(str(metadata[key]))}" for key in _ABOUT if metadata.get(key))
    lines = [f"  about the model: {whole}"] if whole else []
    for what in ("inputs", "outputs"):
        for index, tensor in enumerate(_list_of(metadata.get(what), object)):
            lines.append(f"  {what[:-1]} {index} is {'; '.join(_tensor_parts(tensor)) or 'not described'}")
    return lines


def _tensor_parts(tensor: Any) -> list[str]:
    """Describe an input or output by the metadata of the source, which may be any JSON in a damaged file."""
    if not isinstance(tensor, Mapping):
        return []
    names = _list_of([tensor.get(key) for key in ("name", "content", "color")], str)
    parts = [shorten(word) for word in dict.fromkeys(names) if word]
    for key in ("mean", "std", "min", "max"):
        if numbers := _list_of(tensor.get(key), float):
            parts.append(f"{key} {', '.join(f'{number:g}' for number in numbers[:MANY])}")
    if labels := _list_of(tensor.get("labels"), str):
        shown = ", ".join(shorten(label) for label in labels[:NOISIEST])
        parts.append(f"{several(len(labels), 'label')}: {shown} ...")
    return parts


def _list_of(value: Any, kind: type[Item]) -> list[Item]:
    """Elements of this type in a list; none if the value is no list."""
    return [item for item in value if isinstance(item, kind)] if isinstance(value, list | tuple) else []


def node_lines(description: Description) -> list[str]:
    """One line per node, under a heading."""
    return table(node_rows(description))


def node_rows(description: Description) -> list[tuple[str, ...]]:
    """Return the table of the nodes; the first row is the heading."""
    rows: list[tuple[str, ...]] = [("#", "operator", "result", "type", "scale", "from")]
    for layer in description["layers"]:
        first = layer["outputs"][0]
        rows.append(
            (
                str(layer["index"]),
                layer["op"],
                shorten(first["name"]),
                first["dtype"] + format_shape(first["shape"]),
                scale_text(first["quantization"]),
                "; ".join(shorten(source.split(": ", 1)[-1]) for source in layer["sources"]) or "-",
            )
        )
    return rows


def verification_lines(verification: Description, *, layers: bool = True) -> list[str]:
    """Return the comparison with the source as text: the verdict, then with ``layers`` a row per tensor."""
    rows = verification_rows(verification, layers=layers)
    return [*verdict_lines(verification), *noise_lines(verification), *table(rows)]


def verification_rows(verification: Description, *, layers: bool = True) -> list[tuple[str, ...]]:
    """Return the table of the compared tensors; the first row is the heading."""
    is_quantized = verification["is_quantized"]
    has_integers = verification["exactness"] is not None
    rows: list[tuple[str, ...]] = [
        ("tensor", "operator", "stage", "max diff", "share of range", "cosine", "SQNR dB")
        + (("noise added", "clipped") if is_quantized else ())
        + (("integers that differ", "steps") if has_integers else ())
    ]
    for entry in [*(verification["layers"] if layers else []), *verification["outputs"]]:
        row: tuple[str, ...] = (
            shorten(entry["name"]),
            entry["op"],
            entry["stage"],
            number(entry["max_absolute"]),
            number(entry["relative"]),
            "-" if entry["cosine"] is None else f"{entry['cosine']:.6f}",
            _sqnr_cell(entry, is_quantized=is_quantized),
        )
        if is_quantized:
            row += (share(entry["noise_added"]), share(entry["clipped"]))
        if has_integers:
            row += (
                (
                    style(f"{entry['different']} of {entry['integers']}", _outcome(not entry["different"])),
                    str(entry["steps"]),
                )
                if entry["integers"]
                else ("-", "-")
            )
        rows.append(row)
    return rows


def verdict_lines(verification: Description) -> list[str]:
    """Return a few lines: first significant difference, bit-exactness, the other engine, and problems of outputs."""
    exactness = verification["exactness"]
    lines = [first_line(verification)]
    if exactness is not None:
        lines.append(exactness["verdict"])
    lines += [*state_lines(verification), *opinion_lines(verification)]
    return [*lines, oracle_line(verification), *verification["output_problems"]]


def state_lines(verification: Description) -> list[str]:
    """Return the line about the steps of a model with state."""
    state = verification["state"]
    if state is None:
        return []
    names = ", ".join(f"'{shorten(name)}'" for name in state["names"][:MANY]) + " ..." * (len(state["names"]) > MANY)
    steps = several(state["steps"], "step")
    if state["is_kept"]:
        text = f"state {names}: {steps} in sequence compared, each with the state that the step before left"
    elif state["first_different"]:
        text = (
            f"state {names}: every run starts anew; in {steps} in sequence the outputs differ from those of the source "
            f"from step {state['first_different']} on (--state ports keeps it)"
        )
    elif state["steps"] > 1:
        text = f"state {names}: every run starts anew; {steps} in sequence compared, no output differs from the source"
    else:
        text = f"state {names}: every run starts anew; no steps in sequence compared"
    engine = f", also with {state['engine']}" if state["engine"] else ""
    return [text + engine + (f"; {state['problem']}" if state["problem"] else "")]


def opinion_lines(verification: Description) -> list[str]:
    """Return the lines about the comparison of the source with another engine."""
    opinion = verification["opinion"]
    if opinion is None or opinion["problem"]:
        return []
    if opinion["exactness"] is not None:
        return [opinion["exactness"]["verdict"], *opinion["contradictions"]]
    count = several(opinion["outputs"], "output")
    count = f"{several(opinion['tensors'], 'tensor')} and {count}" if opinion["is_exact"] else count
    largest = number(opinion["largest_difference"])
    lead = f"the source as {opinion['engine']} computes it"
    return [f"{lead}: {count} compared, largest difference {largest} of a range", *opinion["contradictions"]]


def oracle_line(verification: Description) -> str:
    """Return the line about the program that says what the source computes."""
    oracle = verification["oracle"]
    samples = several(oracle["samples"], "sample")
    if oracle["is_independent"]:
        return f"oracle: {oracle['name']} {oracle['version']}, {samples}"
    reason = f"; not compared with another engine: {oracle['problem']}" if oracle["problem"] else ""
    return f"oracle: the source as tpuconvert {oracle['version']} read it, {samples}{reason}"


def first_line(verification: Description) -> str:
    """Return the line with the number of compared samples and the first tensor with a significant difference."""
    first = verification["first_difference"]
    samples = several(verification["samples"], "sample")
    lead = f"compared with the source on {samples} {verification['origin']}".rstrip()
    if first is None:
        return f"{lead}; no tensor stands out"
    is_below = verification["is_quantized"] and first["stage"] not in ("import", "optimize")
    what = f"first tensor below {LAYER_SQNR:g} dB" if is_below else "first difference"
    return f"{lead}; {what}: '{shorten(first['name'])}' ({first['op']}), stage {first['stage']}"


def noise_lines(verification: Description) -> list[str]:
    """Return the line about the tensors that add most quantization noise."""
    added = {entry["name"]: entry["noise_added"] for entry in verification["layers"]}
    worst = verification["most_noise_added_at"][:NOISIEST] if verification["is_quantized"] else []
    if not worst:
        return []
    listed = ", ".join(f"'{shorten(name)}' ({share(added[name])} of its power)" for name in worst)
    return [f"most noise is added at {listed}"]


def share(value: float | None) -> str:
    """Format a share as a percentage for a table."""
    if value is None:
        return "-"
    if value == 0.0:
        return "0"
    return f"{value:.2%}" if value >= 5e-5 else "<0.01%"


def _sqnr_cell(entry: Description, *, is_quantized: bool) -> str:
    """Format the SQNR of a compared tensor with the style of its severity."""
    text = sqnr_text(entry)
    if entry["not_finite"]:
        return style(text, "bad")
    if text == "exact":
        return style(text, "good")
    is_low = is_quantized and entry["sqnr_db"] is not None and entry["sqnr_db"] < LAYER_SQNR
    return style(text, "warning") if is_low else text


def _outcome(is_good: bool) -> Style:
    return "good" if is_good else "warning"


def sqnr_text(entry: Description) -> str:
    """Format the SQNR of a compared tensor: decibel, the number not finite, or a word for equal tensors.

    Equal tensors are ``exact``, unless they depend on a node that is known to deviate from the standard.
    """
    if entry["not_finite"]:
        return f"{entry['not_finite']} not finite"
    if entry["sqnr_db"] is not None:
        return f"{entry['sqnr_db']:.1f}"
    if entry["max_absolute"] != 0.0:
        return "-"
    return AS_READ if entry.get("stage") == AS_READ else "exact"


def number(value: float | None) -> str:
    """Format a measured number for a table."""
    return "not finite" if value is None else f"{value:.3g}"


def table(rows: Sequence[tuple[str, ...]], *, has_heading: bool = True) -> list[str]:
    """Format rows as lines with aligned columns. The last column is not padded.

    Args:
        rows: the cells, which may have styles.
        has_heading: whether the first row is the heading.

    """
    rows = [tuple(map(one_line, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [_table_line(row, widths) for row in rows]
    return [style(lines[0], "heading"), *lines[1:]] if has_heading else lines


def _table_line(row: tuple[str, ...], widths: Sequence[int]) -> str:
    """Join the cells of a row, padded to the widths; blanks at the end of the line are left out."""
    last = max((column for column, cell in enumerate(row) if cell.strip()), default=-1)
    parts: list[str] = []
    for cell, width in zip(row[: last + 1], widths, strict=False):
        parts += [cell, " " * (width - len(cell) + 2)]
    return concat(parts[:-1])


def _headline(description: Description) -> str:
    name = description["file"] or description["name"]
    if "chip" not in description:
        return f"{name}: source graph"
    kind = "float" if description["quantize"] == "none" else description["quantize"].upper()
    return f"{name} for {description['chip']}, {kind} (made by tpuconvert {description['tool_version']})"
