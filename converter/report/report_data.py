"""Data of the report: one JSON block with a documented schema, for the scripts of the page and for other programs.

docs/report.md describes the block, docs/schemas/report.schema.json is its schema. The nodes are stored as columns of
equal length. Numbers are rounded, keys without a value are left out, and so are columns without any value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tpuconvert.report.attribute_text import short_lists
from tpuconvert.report.graph_layout import describe_layout
from tpuconvert.report.model_description import Description
from tpuconvert.report.notes import group_notes, operators_of
from tpuconvert.schema.types import DType
from tpuconvert.schema.visible_text import for_json

VERSION = 1
"""Version of the block. It changes if keys are renamed or removed."""

_DIGITS = 5
"""Significant digits of a floating-point number."""

_SCALE_DIGITS = 7
"""Significant digits of a scale: those of float32."""

_WORST = 12
"""Largest number of entries in ``worst``."""

_ACTIVATION_BITS = 16
"""Widest integer type, in bits, that has a range. Wider integers are accumulators."""

_SOURCE = re.compile(r"^[^:]*: ")
"""The name of the source file before a source node, which is the same for all nodes."""

_LAYER_COLUMNS = ("rules", "keep_float")
"""Columns that are keys of the layers of the description."""

_HISTOGRAM_COLUMNS = ("minimum", "maximum", "threshold", "method", "clipped", "high")

_COST_COLUMNS = ("macs", "bytes", "seconds", "group")

_VERIFICATION_COLUMNS = {
    "stage": "stage",
    "sqnr": "sqnr_db",
    "cosine": "cosine",
    "max_difference": "max_absolute",
    "relative_difference": "relative",
    "noise_added": "noise_added",
    "clipped": "clipped",
    "integers": "integers",
    "different": "different",
    "steps": "steps",
    "not_finite": "not_finite",
}
"""Column -> key of a compared tensor."""

Columns = dict[str, list[Any]]


def report_data(*descriptions: Description, title: str = "") -> dict[str, Any]:
    """Return the JSON block for models. Keys of the descriptions that are absent leave parts of the block out.

    Args:
        descriptions: results of ``describe_for_report``, with the keys ``attribution``, ``tuning``, ``histograms``,
            ``layout`` and others, if they are known.
        title: title of the page; the name of the model by default.

    """
    models = [_model(description) for description in descriptions]
    versions = [description["tool_version"] for description in descriptions if "tool_version" in description]
    block = {
        "version": VERSION,
        "tool_version": versions[0] if versions else None,
        "title": title or (models[0]["name"] if models else ""),
        "models": models,
    }
    found: dict[str, Any] = _without_none(block)
    return found


def to_compact_json(block: Mapping[str, Any]) -> str:
    """Return the block as JSON text without white space. Equal blocks give equal text."""
    text = json.dumps(block, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return for_json(text)


def node_indices(description: Description) -> dict[str, int]:
    """Return name of a result -> index of its node. Names of source nodes are included if nothing else has them."""
    found: dict[str, int] = {}
    for index, layer in enumerate(description["layers"]):
        for value in layer["outputs"]:
            found[value["name"]] = index
    for index, layer in enumerate(description["layers"]):
        for source in layer["sources"]:
            quoted = re.search(r"'(.*)'$", source, re.DOTALL)
            if quoted is not None:
                found.setdefault(quoted[1], index)
    return found


def integer_shares(description: Description) -> tuple[int, float | None]:
    """Return the number of nodes that compute in integers, and their share of the multiply-accumulates if known."""
    is_integer = [_is_integer(layer) for layer in description["layers"]]
    macs = [layer["macs"] or 0 for layer in description["cost"]["layers"]] if "cost" in description else []
    total = sum(macs)
    share = sum(count for count, integer in zip(macs, is_integer, strict=False) if integer) / total if total else None
    return sum(is_integer), share


def worst_nodes(description: Description) -> list[int]:
    """Return the indices of the nodes to examine first.

    The order is that of the attribution; without one, that of the noise that nodes add; without a comparison, that of
    the time.
    """
    indices = node_indices(description)
    attribution, verification = description.get("attribution"), description.get("verification")
    names: list[str] = []
    if attribution:
        names = [node["name"] for node in attribution["nodes"]]
    elif verification:
        names = list(verification["most_noise_added_at"])
    found = list(dict.fromkeys(indices[name] for name in names if name in indices))
    if not found and "cost" in description:
        layers = description["cost"]["layers"]
        found = sorted(range(len(layers)), key=lambda index: -layers[index]["seconds"])
    return found[:_WORST]


def _model(description: Description) -> dict[str, Any]:
    indices = node_indices(description)
    verification, attribution = description.get("verification"), description.get("attribution")
    columns = _node_columns(description)
    columns |= _verification_columns(description, indices)
    columns |= _attribution_columns(description, indices)
    edges = _edges(description)
    return {
        "name": description["file"] or description["name"],
        "chip": description.get("chip"),
        "quantize": description.get("quantize"),
        "facts": _facts(description),
        "notes": _notes(description, indices),
        "nodes": {name: column for name, column in columns.items() if any(entry is not None for entry in column)},
        "edges": edges,
        "inputs": [_port(port) for port in description["inputs"]],
        "outputs": [_port(port) for port in description["outputs"]],
        "more_results": _more_results(description["layers"]) or None,
        "worst": worst_nodes(description),
        "groups": _groups(description.get("cost")),
        "layout": _layout(description, edges),
        "histograms": _histograms(description.get("histograms"), indices),
        "convergence": _rounded(description.get("convergence")),
        "verification": _verification(verification, columns, indices) if verification else None,
        "attribution": _attribution(attribution, indices) if attribution else None,
        "tuning": _rounded(description.get("tuning")),
        "evaluation": _rounded(description.get("evaluation")),
    }


def _facts(description: Description) -> dict[str, Any]:
    integer_nodes, integer_macs = integer_shares(description)
    cost = description.get("cost")
    facts: dict[str, Any] = {
        "nodes": description["nodes"],
        "operators": description["operators"],
        "arithmetic": description["arithmetic"],
        "integer_nodes": integer_nodes,
        "integer_mac_share": _round(integer_macs),
        "conversions": description["conversions"],
        "transposes": description.get("transposes"),
        "constant_bytes": description["constant_bytes"],
        "parameters": description["parameters"],
        "preprocessing": description.get("preprocessing") or None,
        "plugins": description.get("plugins") or None,
    }
    if cost is not None:
        facts |= {
            "macs": cost["macs"],
            "bytes": cost["bytes"],
            "bytes_node_by_node": cost["bytes_node_by_node"],
            "seconds": _round(cost["seconds"]),
            "seconds_node_by_node": _round(cost["seconds_node_by_node"]),
        }
    if description.get("memory"):
        facts |= {name: description["memory"][name] for name in ("peak_bytes", "arena_bytes")}
    return facts


def _notes(description: Description, indices: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the notes by reason. Nodes are indices; a node that the model does not contain any more is a name."""
    groups = group_notes(description.get("notes", []), operators_of(description))
    return [{**group.to_mapping(), "nodes": [indices.get(name, name) for name in group.nodes]} for group in groups]


def _node_columns(description: Description) -> Columns:
    layers = description["layers"]
    first = [layer["outputs"][0] for layer in layers]
    quants = [value["quantization"] for value in first]
    constants = description.get("constants", {})
    columns: Columns = {
        "name": [layer["name"] for layer in layers],
        "op": [layer["op"] for layer in layers],
        "parameters": [short_lists(layer["parameters"]) or None for layer in layers],
        "dtype": [value["dtype"] for value in first],
        "shape": [value["shape"] for value in first],
        "scale": [_scale(quant) for quant in quants],
        "zero_point": [_zero_point(quant) for quant in quants],
        "range": [_range(value) for value in first],
        "constants": [[constants[name] for name in layer["inputs"] if name in constants] or None for layer in layers],
        "sources": [[_SOURCE.sub("", source) for source in layer["sources"]] or None for layer in layers],
    }
    columns |= {name: [layer.get(name) or None for layer in layers] for name in _LAYER_COLUMNS}
    if "cost" in description:
        costs = description["cost"]["layers"]
        columns |= {name: [_round(cost[name], 3) for cost in costs] for name in _COST_COLUMNS}
    if description.get("memory"):
        columns["live_bytes"] = description["memory"]["live_bytes"]
    return columns


def _groups(cost: Description | None) -> dict[str, list[Any]] | None:
    """Return the groups of nodes in on-chip memory as columns."""
    if cost is None or not cost["groups"]:
        return None
    names = ("first", "nodes", "tiles", "keeps_constants", "lane_bytes", "macs", "repeated_macs", "bytes", "seconds")
    columns = {name: [_round(group[name], 3) for group in cost["groups"]] for name in names}
    return {**columns, "tiles": [list(tiles.values()) for tiles in columns["tiles"]]}


def _verification_columns(description: Description, indices: Mapping[str, int]) -> Columns:
    verification = description.get("verification")
    if not verification:
        return {}
    is_first = {layer["name"] for layer in description["layers"]}
    columns: Columns = {name: [None] * len(description["layers"]) for name in _VERIFICATION_COLUMNS}
    has_integers = verification["exactness"] is not None
    for entry in verification["layers"]:
        if entry["name"] not in is_first:
            continue
        for name, key in _VERIFICATION_COLUMNS.items():
            columns[name][indices[entry["name"]]] = _round(entry[key])
    for name in ("integers", "different", "steps"):
        if not has_integers:
            del columns[name]
    if not any(columns["not_finite"]):
        del columns["not_finite"]
    if not verification["is_quantized"]:
        del columns["noise_added"], columns["clipped"]
    return columns


def _verification(verification: Description, columns: Columns, indices: Mapping[str, int]) -> dict[str, Any]:
    """Return the comparison without the tensors that are in the columns of the nodes."""
    names = set(columns["name"])
    layers = [entry for entry in verification["layers"] if entry["name"] not in names]
    worst = [indices.get(name, name) for name in verification["most_noise_added_at"]]
    return {**_rounded({**verification, "layers": layers}), "most_noise_added_at": worst}


def _attribution_columns(description: Description, indices: Mapping[str, int]) -> Columns:
    attribution = description.get("attribution")
    if not attribution:
        return {}
    names = ("isolated", "isolated_cosine", "flips", "weights_only", "activations_only", "accumulated", "cause", "fix")
    columns: Columns = {name: [None] * len(description["layers"]) for name in names}
    for node in attribution["nodes"]:
        index = indices.get(node["name"])
        if index is None:
            continue
        entries = (
            _round(node["isolated"]["sqnr_db"]),
            _round(node["isolated"]["cosine"], 7),
            _round(node["isolated"]["flips"]),
            _round(node["from_weights"]["sqnr_db"]),
            _round(node["from_activations"]["sqnr_db"]),
            _round(node["accumulated_sqnr_db"]),
            node["cause"],
            node["rule"],
        )
        for name, entry in zip(names, entries, strict=True):
            columns[name][index] = entry
    return columns


def _attribution(attribution: Description, indices: Mapping[str, int]) -> dict[str, Any]:
    """Return the attribution without the nodes that are in the columns."""
    nodes = [node for node in attribution["nodes"] if node["name"] not in indices]
    found: dict[str, Any] = _rounded({**attribution, "nodes": nodes})
    return found


def _edges(description: Description) -> list[int]:
    """Return pairs of node indices in one list. Graph inputs, then graph outputs are pseudo nodes after the nodes."""
    layers = description["layers"]
    if not layers:
        return []
    producers = {value["name"]: index for index, layer in enumerate(layers) for value in layer["outputs"]}
    after = len(layers)
    for place, name in enumerate(description["input_values"]):
        producers[name] = after + place
    after += len(description["input_values"])
    edges: list[int] = []
    for index, layer in enumerate(layers):
        for name in layer["inputs"]:
            if name in producers:
                edges += (producers[name], index)
    for place, name in enumerate(description["output_values"]):
        if name in producers:
            edges += (producers[name], after + place)
    return edges


def _layout(description: Description, edges: Sequence[int]) -> dict[str, Any] | None:
    """Return the layout of the graph view."""
    layers = description["layers"]
    if not layers:
        return None
    if "cost" in description:
        costs = description["cost"]["layers"]
        layers = [{**layer, "group": cost["group"]} for layer, cost in zip(layers, costs, strict=True)]
    vertices = len(layers) + len(description["inputs"]) + len(description["outputs"])
    layout: dict[str, Any] = describe_layout(layers, edges, vertices)
    return layout


def _more_results(layers: Sequence[Description]) -> dict[str, Any]:
    """Return index -> the results of a node after the first one."""
    return {
        str(index): [
            {
                "name": value["name"],
                "dtype": value["dtype"],
                "shape": value["shape"],
                "scale": _scale(value["quantization"]),
                "zero_point": _zero_point(value["quantization"]),
                "range": _range(value),
            }
            for value in layer["outputs"][1:]
        ]
        for index, layer in enumerate(layers)
        if len(layer["outputs"]) > 1
    }


def _port(port: Description) -> dict[str, Any]:
    quant = port["quantization"]
    return {
        "name": port["name"],
        "dtype": port["dtype"],
        "shape": port["shape"],
        "scale": _scale(quant),
        "zero_point": _zero_point(quant),
    }


def _scale(quant: Description | None) -> Any:
    """Return the scale; for per-channel scales the lowest, the highest, their number and the axis."""
    if quant is None:
        return None
    scales = [_round(scale, _SCALE_DIGITS) for scale in quant["scale"]]
    return scales[0] if quant["axis"] is None else [min(scales), max(scales), len(scales), quant["axis"]]


def _zero_point(quant: Description | None) -> Any:
    """Return the zero point; the lowest and the highest if channels differ."""
    if quant is None:
        return None
    zeros = sorted(set(quant["zero_point"]))
    return zeros[0] if len(zeros) == 1 else [zeros[0], zeros[-1]]


def _range(value: Description) -> list[Any] | None:
    """Return the lowest and the highest value that the integers of a tensor represent; None for accumulators."""
    found = value_range(value)
    return None if found is None else [_round(found[0], 4), _round(found[1], 4)]


def value_range(value: Description) -> tuple[float, float] | None:
    """Return the lowest and the highest dequantized value of an integer tensor; None for accumulators and floats."""
    quant = value["quantization"]
    if quant is None or DType(value["dtype"]).bits > _ACTIVATION_BITS:
        return None
    pairs = list(zip(quant["scale"], quant["zero_point"], strict=True))
    dtype = DType(quant["dtype"])
    return min((dtype.min - zero) * scale for scale, zero in pairs), max(
        (dtype.max - zero) * scale for scale, zero in pairs
    )


def _is_integer(layer: Description) -> bool:
    return all(DType(value["dtype"]).is_integer for value in layer["outputs"])


def _histograms(found: Mapping[str, Description] | None, indices: Mapping[str, int]) -> dict[str, list[Any]] | None:
    """Return the calibration results of tensors as columns, with the index of the node of each."""
    known = {indices[name]: entry for name, entry in (found or {}).items() if name in indices}
    if not known:
        return None
    columns = {name: [_round(entry[name], 4) for entry in known.values()] for name in _HISTOGRAM_COLUMNS}
    return {"node": list(known), **columns, "counts": [entry["counts"] for entry in known.values()]}


def _round(value: Any, digits: int = _DIGITS) -> Any:
    """Round a float to significant digits; one that is not finite becomes None, and an integral one an integer."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return _round(value)


def _without_none(value: Any) -> Any:
    """Leave keys without a value out. Columns of nodes are kept as they are, because they have equal length."""
    if isinstance(value, Mapping):
        return {key: each if key == "nodes" else _without_none(each) for key, each in value.items() if each is not None}
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return [_without_none(each) for each in value]
    return value
