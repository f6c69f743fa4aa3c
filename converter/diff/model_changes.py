"""Differences of two models besides their nodes: inputs and outputs, settings, notes and metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tpuconvert.diff.change import Change
from tpuconvert.diff.node_pairs import Matching
from tpuconvert.diff.side import Side
from tpuconvert.model.conversion_record import KEY as CONVERSION_RECORD
from tpuconvert.model.description import scale_text
from tpuconvert.model.model import Model
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.types import QuantParams, format_shape

_NOTES = ("float", "chip")
"""Kinds of compared notes: those about nodes. The others describe the source and measurements of the conversion."""

_OWN_LINES = ("chip", "quantize", "preprocess")
"""Options of the recipe that are compared as properties of the model."""


def interface_changes(matching: Matching) -> Iterator[Change]:
    """Return differences of inputs and outputs."""
    first, second = matching.first.graph, matching.second.graph
    for what, before, after, pairs, values in (
        ("input", first.input_ports, second.input_ports, matching.inputs, (first.inputs, second.inputs)),
        ("output", first.output_ports, second.output_ports, matching.outputs, (first.outputs, second.outputs)),
    ):
        positions = dict(pairs)
        for position, port in enumerate(before):
            if position not in positions:
                yield Change("interface", "removed", port.name, what, before=_port_type(port), severity=3.0)
        for position, port in enumerate(after):
            if position not in positions.values():
                yield Change("interface", "added", port.name, what, after=_port_type(port), severity=3.0)
        if [b for _, b in pairs] != sorted(b for _, b in pairs):
            old, new = (", ".join(port.name for port in ports) for ports in (before, after))
            yield Change("interface", "reordered", f"{what}s", "", old, new, severity=2.0)
        for a, b in pairs:
            is_result = what == "output" and values[0][a].type != values[1][b].type
            yield from _port_changes(what, before[a], after[b], follows=is_result)


def _port_changes(what: str, before: Port, after: Port, *, follows: bool) -> Iterator[Change]:
    if before.name != after.name:
        yield Change("interface", "renamed", after.name, what, before.name, after.name, severity=1.0)
    for quantity, old, new in (
        ("shape", format_shape(before.shape), format_shape(after.shape)),
        ("data type", before.dtype, after.dtype),
        ("quantization", _quant_text(before.quant), _quant_text(after.quant)),
    ):
        if old != new:
            yield Change(
                "interface", "changed", after.name, f"{what} {quantity}", old, new, follows=follows, severity=2.0
            )


def _port_type(port: Port) -> str:
    return f"{port.dtype}{format_shape(port.shape)}"


def _quant_text(quant: QuantParams | None) -> str:
    if quant is None:
        return "-"
    return scale_text({"scale": quant.scale, "zero_point": quant.zero_point, "axis": quant.axis})


def setting_changes(before: Side, after: Side) -> Iterator[Change]:
    """Return differences of settings and metadata of two finished models."""
    if before.model is None or after.model is None or not (before.has_settings and after.has_settings):
        return
    first, second = before.model, after.model
    old_options, new_options = _options(first), _options(second)
    rows: list[tuple[str, str, str]] = [
        ("chip", first.chip.value, second.chip.value),
        ("quantization", first.quantize, second.quantize),
        ("preprocessing", _preprocessing(first), _preprocessing(second)),
        ("plugins", ", ".join(first.content.plugins), ", ".join(second.content.plugins)),
    ]
    rows += [
        (f"option {name}", _plain(old_options.get(name)), _plain(new_options.get(name)))
        for name in sorted({*old_options, *new_options} - set(_OWN_LINES))
    ]
    for name, old, new in rows:
        if old != new:
            yield Change("settings", "changed", name, "", old or "-", new or "-", severity=1.0)
    old_data, new_data = ({**m.metadata, "tool_version": m.content.tool_version} for m in (first, second))
    for key in sorted({*old_data, *new_data} - {"recipe", "golden", "accuracy", CONVERSION_RECORD}):
        if old_data.get(key) != new_data.get(key):
            yield Change("metadata", "changed", key, "", _plain(old_data.get(key)), _plain(new_data.get(key)))


def _options(model: Model) -> Mapping[str, Any]:
    recipe = model.metadata.get("recipe")
    options = recipe.get("options") if isinstance(recipe, Mapping) else None
    return options if isinstance(options, Mapping) else {}


def _preprocessing(model: Model) -> str:
    return "" if model.preprocess is None else str(model.preprocess)


def _plain(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def note_changes(before: Side, after: Side, matching: Matching, changes: list[Change]) -> Iterator[Change]:
    """Return notes that only one model has. Those about nodes with another precision follow from that change."""
    if before.model is None or after.model is None or not (before.has_settings and after.has_settings):
        return
    names = {matching.first.nodes[a].name: matching.second.nodes[b].name for a, b in matching.pairs}
    changed_nodes = {
        network.nodes[position].name
        for change in changes
        if change.category in ("precision", "nodes")
        for network, positions in ((matching.first, change.nodes_before), (matching.second, change.nodes_after))
        for position in positions
    }
    old, new = (
        {(note.kind, rename.get(note.node, note.node)): note.message for note in model.notes if note.kind in _NOTES}
        for model, rename in ((before.model, names), (after.model, {}))
    )
    has_other_precision = any(change.category == "precision" for change in changes)
    for kind, node in dict.fromkeys((*old, *new)):
        first, second = old.get((kind, node)), new.get((kind, node))
        if first == second:
            continue
        action = "added" if first is None else "removed" if second is None else "changed"
        follows = node in changed_nodes or (action == "changed" and has_other_precision)
        yield Change("notes", action, node or kind, kind, first or "", second or "", follows=follows)
