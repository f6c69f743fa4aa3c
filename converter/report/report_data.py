"""Data of the report: one JSON block with a documented schema, for the scripts of the page and for other programs.

docs/guides/report.md describes the block. The nodes are stored as columns of
equal length. Numbers are rounded, keys without a value are left out, and so are columns without any value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Required, TypedDict

from tpuconvert.model.conversion_record import Convergence
from tpuconvert.model.description import Description, GraphNumbers, SubgraphDescription
from tpuconvert.model.notes import group_notes, operators_of
from tpuconvert.report.compiled_cycles import KEY
from tpuconvert.report.graph_layout import describe_layout
from tpuconvert.report.node_columns import NodeColumns, PortData, ResultData, describe_port, more_results, node_columns
from tpuconvert.report.rounding import round_number, round_numbers, without_none
from tpuconvert.schema.text.visible_text import for_json
from tpuconvert.schema.types import DType

VERSION: Final = 1
"""Version of the block. It changes if keys are renamed or removed."""

_WORST = 12
"""Largest number of entries in ``worst``."""


class Facts(GraphNumbers, total=False):
    """Key figures."""

    arithmetic: Annotated[Required[dict[str, int]], "number of nodes by element type of the first result"]
    integer_nodes: Required[int]
    integer_mac_share: float | None
    transposes: int | None
    subgraphs: list[SubgraphDescription] | None
    parameters: Required[int]
    preprocessing: dict[str, Any] | None
    plugins: list[str] | None
    macs: int
    bytes: Annotated[int, "global-memory traffic with groups"]
    bytes_node_by_node: int
    seconds: Annotated[float, "least time on the chip, with groups"]
    seconds_node_by_node: float
    compiled_cycles: Annotated[int, "one run on the chip, estimate of the vendor's compiler"]
    compiled_seconds: float
    peak_bytes: Annotated[int, "most bytes of tensors that are live at one node"]
    arena_bytes: Annotated[int | None, "size of one arena for all tensors"]


class NoteOfNodes(TypedDict):
    """Notes that give one reason."""

    kind: str
    reason: str
    operators: dict[str, int]
    nodes: Annotated[list[int | str], "indices of nodes; names of nodes that the model does not contain any more"]


class GroupColumns(TypedDict):
    """Groups of nodes that share on-chip memory, as columns."""

    first: Annotated[list[int], "index of the first node"]
    nodes: Annotated[list[int], "number of nodes"]
    tiles: Annotated[list[list[int]], "number of tiles along N, C and H"]
    keeps_constants: Annotated[list[bool], "whether constants stay in on-chip memory"]
    lane_bytes: Annotated[list[int], "bytes of on-chip memory per lane"]
    macs: list[int]
    repeated_macs: Annotated[list[int], "multiply-accumulates that tiles repeat"]
    bytes: Annotated[list[int], "global-memory traffic"]
    seconds: Annotated[list[float], "least time"]


class HistogramColumns(TypedDict):
    """Calibration of tensors, as columns: magnitudes of the float values of the first result of a node."""

    node: Annotated[list[int], "index of the node"]
    minimum: Annotated[list[float], "smallest value of all samples"]
    maximum: Annotated[list[float], "largest value of all samples"]
    threshold: Annotated[list[float], "largest magnitude that the integers represent"]
    method: Annotated[list[str], "calibration method of the threshold; rule for the method of a precision rule"]
    clipped: Annotated[list[float | None], "share of the values with a larger magnitude; null without a histogram"]
    high: Annotated[list[float], "upper end of the last bin; the first begins at 0"]
    counts: Annotated[list[list[int]], "number of magnitudes in bins of equal width; empty without a histogram"]


class ModelData(TypedDict):
    """One model."""

    name: str
    chip: Annotated[str | None, "absent for a source graph"]
    quantize: str | None
    facts: Facts
    notes: list[NoteOfNodes]
    nodes: Annotated[dict[str, Any], NodeColumns]
    edges: Annotated[list[int], "[from, to, from, to, ...]: indices of nodes; then of graph inputs, then of outputs"]
    inputs: Annotated[list[dict[str, Any]], list[PortData]]
    outputs: Annotated[list[dict[str, Any]], list[PortData]]
    more_results: Annotated[
        dict[str, Any] | None, dict[str, list[ResultData]] | None, "by index of a node: its results after the first"
    ]
    worst: Annotated[list[int], "indices of the nodes to examine first"]
    groups: Annotated[dict[str, list[Any]] | None, GroupColumns | None]
    layout: Annotated[dict[str, Any] | None, "positions of the graph view; they may change with any version"]
    histograms: Annotated[dict[str, list[Any]] | None, HistogramColumns | None]
    convergence: Annotated[dict[str, Any] | None, Convergence | None]
    verification: Annotated[dict[str, Any] | None, "document of verify, with tensors that are not in the columns"]
    attribution: Annotated[dict[str, Any] | None, "document of attribute, with nodes that are not in the columns"]
    tuning: Annotated[dict[str, Any] | None, "document of tune"]
    evaluation: Annotated[dict[str, Any] | None, "document of evaluate"]


class ReportData(TypedDict):
    """Data of the report: --report FILE.json, and the block of the page. Keys without a value are absent."""

    version: Annotated[Literal[1], "changes if keys are renamed or removed"]
    tool_version: str | None
    title: str
    models: list[ModelData]


def report_data(*descriptions: Description, title: str = "") -> dict[str, Any]:
    """Return the JSON block for models. Keys of the descriptions that are absent leave parts of the block out.

    Args:
        descriptions: results of ``describe_for_report``.
        title: title of the page; the name of the model by default.

    """
    models = [_model(description) for description in descriptions]
    versions = [description["tool_version"] for description in descriptions if "tool_version" in description]
    block: ReportData = {
        "version": VERSION,
        "tool_version": versions[0] if versions else None,
        "title": title or (models[0]["name"] if models else ""),
        "models": models,
    }
    compact: dict[str, Any] = without_none(block)
    return compact


def to_compact_json(block: Mapping[str, Any]) -> str:
    """Return the block as JSON text without white space. Equal blocks give equal text."""
    text = json.dumps(block, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return for_json(text)


def node_indices(description: Description) -> dict[str, int]:
    """Return name of a result -> index of its node. Names of source nodes are included if nothing else has them."""
    indices: dict[str, int] = {}
    for index, layer in enumerate(description["layers"]):
        for value in layer["outputs"]:
            indices[value["name"]] = index
    for index, layer in enumerate(description["layers"]):
        for source in layer["sources"]:
            quoted = re.search(r"'(.*)'$", source, re.DOTALL)
            if quoted is not None:
                indices.setdefault(quoted[1], index)
    return indices


def integer_shares(description: Description) -> tuple[int, float | None]:
    """Return the number of nodes that compute in integers, and their share of the multiply-accumulates if known."""
    is_integer = [_is_integer(layer) for layer in description["layers"]]
    macs = [layer["macs"] or 0 for layer in description["cost"]["layers"]] if "cost" in description else []
    total = sum(macs)
    share = sum(count for count, integer in zip(macs, is_integer, strict=False) if integer) / total if total else None
    return sum(is_integer), share


def has_cost(description: Description) -> bool:
    """Return True if the description has a cost, and extents are known so that it is not zero."""
    return "cost" in description and description["cost"]["seconds_node_by_node"] > 0.0


def worst_nodes(description: Description) -> list[int]:
    """Return the indices of the nodes to examine first.

    The order is taken from the attribution; without one, nodes are sorted by the noise that they add; without a
    comparison, by their time.
    """
    indices = node_indices(description)
    attribution, verification = description.get("attribution"), description.get("verification")
    names: list[str] = []
    if attribution:
        names = [node["name"] for node in attribution["nodes"]]
    elif verification:
        names = list(verification["most_noise_added_at"])
    worst = list(dict.fromkeys(indices[name] for name in names if name in indices))
    if not worst and "cost" in description:
        layers = description["cost"]["layers"]
        worst = sorted(range(len(layers)), key=lambda index: -layers[index]["seconds"])
    return worst[:_WORST]


def _model(description: Description) -> ModelData:
    indices = node_indices(description)
    verification, attribution = description.get("verification"), description.get("attribution")
    columns = node_columns(description, indices)
    edges = _edges(description)
    return {
        "name": description["file"] or description["name"],
        "chip": description.get("chip"),
        "quantize": description.get("quantize"),
        "facts": _facts(description),
        "notes": _notes(description, indices),
        "nodes": columns,
        "edges": edges,
        "inputs": [describe_port(port) for port in description["inputs"]],
        "outputs": [describe_port(port) for port in description["outputs"]],
        "more_results": more_results(description["layers"]) or None,
        "worst": worst_nodes(description),
        "groups": _groups(description.get("cost")),
        "layout": _layout(description, edges),
        "histograms": _histograms(description.get("histograms"), indices),
        "convergence": round_numbers(description.get("convergence")),
        "verification": _verification(verification, set(columns.get("name", ())), indices) if verification else None,
        "attribution": _attribution(attribution, indices) if attribution else None,
        "tuning": round_numbers(description.get("tuning")),
        "evaluation": round_numbers(description.get("evaluation")),
    }


def _facts(description: Description) -> Facts:
    integer_nodes, integer_macs = integer_shares(description)
    cost = description.get("cost")
    facts: Facts = {
        "nodes": description["nodes"],
        "operators": description["operators"],
        "arithmetic": description["arithmetic"],
        "integer_nodes": integer_nodes,
        "integer_mac_share": round_number(integer_macs),
        "conversions": description["conversions"],
        "transposes": description.get("transposes"),
        "subgraphs": description.get("subgraphs") or None,
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
            "seconds": round_number(cost["seconds"]),
            "seconds_node_by_node": round_number(cost["seconds_node_by_node"]),
        }
    if KEY in description:
        facts["compiled_cycles"] = description[KEY]["cycles"]
        facts["compiled_seconds"] = round_number(description[KEY]["seconds"])
    if description.get("memory"):
        facts["peak_bytes"], facts["arena_bytes"] = (
            description["memory"][name] for name in ("peak_bytes", "arena_bytes")
        )
    return facts


def _notes(description: Description, indices: Mapping[str, int]) -> list[NoteOfNodes]:
    """Return the notes by reason. Nodes are indices; a node that the model does not contain any more is a name."""
    groups = group_notes(description.get("notes", []), operators_of(description))
    return [
        {
            "kind": group.kind,
            "reason": group.text,
            "operators": dict(group.operators),
            "nodes": [indices.get(name, name) for name in group.nodes],
        }
        for group in groups
    ]


def _groups(cost: Description | None) -> dict[str, list[Any]] | None:
    """Return the groups of nodes in on-chip memory as columns."""
    if cost is None or not cost["groups"]:
        return None
    columns = {
        name: [round_number(group[name], 3) for group in cost["groups"]] for name in GroupColumns.__annotations__
    }
    return {**columns, "tiles": [list(tiles.values()) for tiles in columns["tiles"]]}


def _verification(verification: Description, names: set[str], indices: Mapping[str, int]) -> dict[str, Any]:
    """Return the comparison without the tensors ``names``, which the columns of the nodes contain."""
    layers = [entry for entry in verification["layers"] if entry["name"] not in names]
    worst = [indices.get(name, name) for name in verification["most_noise_added_at"]]
    return {**round_numbers({**verification, "layers": layers}), "most_noise_added_at": worst}


def _attribution(attribution: Description, indices: Mapping[str, int]) -> dict[str, Any]:
    """Return the attribution without the nodes that are in the columns."""
    nodes = [node for node in attribution["nodes"] if node["name"] not in indices]
    rounded: dict[str, Any] = round_numbers({**attribution, "nodes": nodes})
    return rounded


def _edges(description: Description) -> list[int]:
    """Return pairs of node indices in one list. Graph inputs, then graph outputs are pseudo nodes after the nodes."""
    layers = description["layers"]
    if not layers:
        return []
    producers = {value["name"]: index for index, layer in enumerate(layers) for value in layer["outputs"]}
    after = len(layers)
    for position, name in enumerate(description["input_values"]):
        producers[name] = after + position
    after += len(description["input_values"])
    edges: list[int] = []
    for index, layer in enumerate(layers):
        for name in layer["inputs"]:
            if name in producers:
                edges += (producers[name], index)
    for position, name in enumerate(description["output_values"]):
        if name in producers:
            edges += (producers[name], after + position)
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


def _is_integer(layer: Description) -> bool:
    return all(DType(value["dtype"]).is_integer for value in layer["outputs"])


def _histograms(tensors: Mapping[str, Description] | None, indices: Mapping[str, int]) -> dict[str, list[Any]] | None:
    """Return the calibration results of tensors as columns, with the index of the node of each."""
    by_node = {indices[name]: entry for name, entry in (tensors or {}).items() if name in indices}
    if not by_node:
        return None
    names = [name for name in HistogramColumns.__annotations__ if name not in ("node", "counts")]
    columns = {name: [round_number(entry[name], 4) for entry in by_node.values()] for name in names}
    return {"node": list(by_node), **columns, "counts": [entry["counts"] for entry in by_node.values()]}
