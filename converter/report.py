"""What a model is and what became of its source: one description, rendered as text, JSON and a self-contained page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tpuconvert.model import Model
from tpuconvert.schema.graph import Graph, Port, Value
from tpuconvert.schema.types import QuantParams, format_shape
from tpuconvert.verification import Verification

Description = dict[str, Any]


def describe_model(model: Model, verification: Verification | None = None) -> Description:
    """Everything a report shows, as plain values."""
    content = model.content
    return {
        "tool_version": content.tool_version,
        "chip": model.chip.value,
        "quantize": model.quantize,
        "preprocessing": dict(content.preprocessing),
        "plugins": list(content.plugins),
        "notes": [{"kind": note.kind, "node": note.node, "message": note.message} for note in model.notes],
        **describe_graph(model.graph),
        "verification": verification.to_mapping() if verification is not None else None,
    }


def describe_graph(graph: Graph) -> Description:
    """The part of a description that a graph alone has."""
    constants = [value for value in graph.values if value.data is not None]
    return {
        "name": graph.name,
        "file": graph.file,
        "inputs": [_port(port) for port in graph.input_ports],
        "outputs": [_port(port) for port in graph.output_ports],
        "nodes": len(graph),
        "operators": dict(sorted(Counter(node.op.name for node in graph.nodes).items())),
        "arithmetic": dict(sorted(Counter(_arithmetic(node.outputs) for node in graph.nodes).items())),
        "constant_bytes": sum(value.array.nbytes for value in constants),
        "parameters": sum(value.array.size for value in constants),
        "layers": [
            {
                "index": index,
                "name": node.name,
                "op": node.op.name,
                "parameters": str(node.op).removeprefix(node.op.name).strip("()"),
                "inputs": [None if value is None else value.name for value in node.inputs],
                "outputs": [_value(value) for value in node.outputs],
                "sources": [str(source) for source in node.sources],
            }
            for index, node in enumerate(graph.nodes)
        ],
    }


def _port(port: Port) -> Description:
    return {"name": port.name, "dtype": port.dtype, "shape": list(port.shape), "quantization": _quant(port.quant)}


def _value(value: Value) -> Description:
    return {
        "name": value.name,
        "dtype": value.dtype.value,
        "shape": list(value.shape),
        "quantization": _quant(value.quant),
    }


def _quant(quant: QuantParams | None) -> Description | None:
    if quant is None:
        return None
    return {
        "scale": list(quant.scale),
        "zero_point": list(quant.zero_point),
        "dtype": quant.dtype.value,
        "axis": quant.axis,
    }


def _arithmetic(outputs: Iterable[Value]) -> str:
    """A node computes in what its first result is."""
    return next(iter(outputs)).dtype.value


def to_json(description: Description) -> str:
    """The description as JSON text; the same description gives the same text."""
    return json.dumps(description, indent=2, ensure_ascii=False) + "\n"


def summary_text(description: Description) -> str:
    """The model in a few lines."""
    lines = [_headline(description)]
    for what in ("inputs", "outputs"):
        lines += [f"  {what[:-1]:<7} {_port_text(port)}" for port in description[what]]
    operators = ", ".join(f"{name} x{count}" if count > 1 else name for name, count in description["operators"].items())
    lines.append(f"  {description['nodes']} nodes: {operators or 'none'}")
    arithmetic = ", ".join(f"{count} in {dtype}" for dtype, count in description["arithmetic"].items())
    lines.append(f"  results: {arithmetic or 'none'}; constants: {_bytes(description['constant_bytes'])}")
    if description.get("preprocessing"):
        from tpuconvert.preprocess import Preprocess

        lines.append(f"  preprocessing: {Preprocess.from_mapping(description['preprocessing'])}")
    if description.get("plugins"):
        lines.append(f"  plugins: {', '.join(description['plugins'])}")
    lines += note_lines(description.get("notes", []))
    return "\n".join(lines)


def full_text(description: Description) -> str:
    """The summary and one line per node."""
    lines = [summary_text(description), ""]
    rows = [("#", "operator", "result", "type", "scale", "from")]
    for layer in description["layers"]:
        first = layer["outputs"][0]
        rows.append(
            (
                str(layer["index"]),
                layer["op"],
                first["name"],
                first["dtype"] + format_shape(first["shape"]),
                _quant_text(first["quantization"]),
                "; ".join(source.split(": ", 1)[-1] for source in layer["sources"]) or "-",
            )
        )
    lines += table(rows)
    if description.get("verification"):
        lines += ["", *verification_lines(description["verification"])]
    return "\n".join(lines)


NOTE_HEADINGS = {
    "float": "stays in float",
    "chip": "runs with a warning",
    "source": "about the source",
}


def note_lines(notes: list[Description]) -> list[str]:
    """Notes, those with the same reason together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for note in notes:
        groups.setdefault((note["kind"], note["message"]), []).append(note["node"])
    lines = []
    for (kind, message), nodes in groups.items():
        named = [f"'{node}'" for node in nodes if node]
        shown = ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
        lines.append(f"  {NOTE_HEADINGS.get(kind, kind)}: {shown + ': ' if shown else ''}{message}")
    return lines


def verification_lines(verification: Description, *, layers: bool = True) -> list[str]:
    """The comparison with the source as text."""
    rows = [("tensor", "operator", "stage", "max diff", "share of range", "cosine", "SQNR dB")]
    for entry in [*(verification["layers"] if layers else []), *verification["outputs"]]:
        rows.append(
            (
                entry["name"],
                entry["op"],
                entry["stage"],
                number(entry["max_absolute"]),
                number(entry["relative"]),
                "-" if entry["cosine"] is None else f"{entry['cosine']:.6f}",
                sqnr_text(entry),
            )
        )
    first = verification["first_difference"]
    where = (
        f"first difference: '{first['name']}' ({first['op']}), stage {first['stage']}"
        if first
        else "no tensor stands out"
    )
    return [f"compared with the source on {verification['samples']} samples; {where}", *table(rows)]


def sqnr_text(entry: Description) -> str:
    """SQNR of a compared tensor; no difference at all has no number."""
    if entry["sqnr_db"] is not None:
        return f"{entry['sqnr_db']:.1f}"
    return "exact" if entry["max_absolute"] == 0.0 else "-"


def number(value: float | None) -> str:
    """A measured number in a table."""
    return "not finite" if value is None else f"{value:.3g}"


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines with aligned columns; the first row is the heading. The last column is not padded."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _headline(description: Description) -> str:
    name = description["file"] or description["name"]
    if "chip" not in description:
        return f"{name}: source graph"
    kind = "float" if description["quantize"] == "none" else description["quantize"].upper()
    return f"{name} for {description['chip']}, {kind} (made by tpuconvert {description['tool_version']})"


def _port_text(port: Description) -> str:
    quant = _quant_text(port["quantization"])
    return f"{port['name']}  {port['dtype']}{format_shape(port['shape'])}" + (f"  {quant}" if quant != "-" else "")


def _quant_text(quant: Description | None) -> str:
    if quant is None:
        return "-"
    if quant["axis"] is not None:
        return f"{len(quant['scale'])} scales on axis {quant['axis']}"
    zero = quant["zero_point"][0]
    return f"{quant['scale'][0]:.6g}" + (f", zero {zero}" if zero else "")


def _bytes(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
