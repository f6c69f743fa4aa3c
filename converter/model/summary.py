"""Description of a model as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tpuconvert.model.description import Description, port_text, scale_text
from tpuconvert.model.notes import SHARE, note_lines, operators_of, share_lines
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.graph.shape_buckets import buckets_of, format_buckets
from tpuconvert.schema.types import format_shape
from tpuconvert.text.styled_text import join_lines
from tpuconvert.text.table import table
from tpuconvert.text.text_format import bytes_text, operator_counts, several, shorten

Item = TypeVar("Item")

_ABOUT = ("name", "version", "author", "license")

MANY = 4
"""Largest number of elements of a list that are shown."""

_ALIKE = 4
"""Number of inputs or outputs with equal names, except for numbers, and equal shapes that share a line."""

_LABELS = 3
"""Largest number of labels of an output that are shown."""


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
    """One line per input and output; one for those whose names differ in numbers only, such as key-value caches."""
    lines = []
    for what in ("inputs", "outputs"):
        alike: dict[tuple[str, str], list[Description]] = {}
        for port in description[what]:
            alike.setdefault((re.sub(r"\d+", "0", port["name"]), port_text({**port, "name": ""})), []).append(port)
        for ports in alike.values():
            if len(ports) < _ALIKE:
                lines += [f"  {what[:-1]:<7} {port_text(port)}" for port in ports]
            else:
                text = port_text({**ports[0], "name": f"{ports[0]['name']} to {ports[-1]['name']}"})
                lines.append(f"  {what[:-1]:<7} {text}  ({len(ports)} {what})")
    return lines


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
    about = ", ".join(f"{key} {shorten(str(metadata[key]))}" for key in _ABOUT if metadata.get(key))
    lines = [f"  about the model: {about}"] if about else []
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
        shown = ", ".join(shorten(label) for label in labels[:_LABELS])
        parts.append(f"{several(len(labels), 'label')}: {shown} ...")
    return parts


def _list_of(value: Any, kind: type[Item]) -> list[Item]:
    """Elements of this type in a list; none if the value is not a list."""
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


def _headline(description: Description) -> str:
    name = description["file"] or description["name"]
    if "chip" not in description:
        return f"{name}: source graph"
    kind = "float" if description["quantize"] == "none" else description["quantize"].upper()
    return f"{name} for {description['chip']}, {kind} (made by tpuconvert {description['tool_version']})"
