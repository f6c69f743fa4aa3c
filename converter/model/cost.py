"""Cost of a model on its chip: multiply-accumulates, memory traffic with and without groups, and minimum time.

The cost is computed from the graph, layer groups that are planned for it, and the peak performance of the chip. The
time is a lower bound, not a measurement: it assumes that arithmetic and memory traffic both run at peak rate, in
parallel.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, TypedDict

from tpuconvert.model.description import Description
from tpuconvert.optimizer.grouping.group_cost import group_cost
from tpuconvert.optimizer.grouping.groups import Group, Tiles
from tpuconvert.optimizer.grouping.planner import plan_groups
from tpuconvert.schema.definition.hardware import Hardware, LocalMemory, hardware_of
from tpuconvert.schema.graph import cost
from tpuconvert.schema.text.plain_values import to_plain
from tpuconvert.schema.types import Chip
from tpuconvert.text.table import table
from tpuconvert.text.text_format import bytes_text, operator_counts, several, shorten

if TYPE_CHECKING:
    from tpuconvert.model.model import Model

MACS = "multiply-accumulates; null if they depend on extents"
BYTES = "bytes moved to and from memory"


class PeakDescription(TypedDict):
    """Peak performance of a chip."""

    bytes_per_second: float
    macs_per_second: Annotated[dict[str, float], "by data type"]


class GroupDescription(TypedDict):
    """Nodes that share on-chip memory."""

    first: Annotated[int, "index of the first node"]
    nodes: Annotated[int, "number of nodes"]
    tiles: Annotated[dict[str, int], Tiles, "number of tiles along each axis"]
    keeps_constants: Annotated[bool, "whether constants stay in on-chip memory"]
    lane_bytes: Annotated[int, "bytes of on-chip memory per lane"]
    macs: int
    repeated_macs: Annotated[int, "multiply-accumulates that tiles repeat"]
    bytes_node_by_node: int
    bytes: Annotated[int, BYTES]
    saved: Annotated[float, "share of the traffic"]
    seconds: float
    operators: dict[str, int]


class LayerCost(TypedDict):
    """Cost of a node alone."""

    index: int
    macs: Annotated[int | None, MACS]
    bytes: Annotated[int | None, BYTES]
    seconds: float
    group: int | None


class CostDescription(TypedDict):
    """Cost of a model on its chip."""

    chip: Annotated[str, Chip]
    memory: Annotated[dict[str, int], LocalMemory]
    peak: PeakDescription
    macs: Annotated[int, MACS]
    repeated_macs: int
    bytes_node_by_node: int
    bytes: Annotated[int, BYTES]
    saved: Annotated[float, "share of the traffic"]
    seconds_node_by_node: float
    seconds: float
    not_known: Annotated[int, "nodes whose extents are known when the model runs"]
    groups: list[GroupDescription]
    layers: list[LayerCost]


def describe_cost(model: Model) -> CostDescription:
    """Plan layer groups. Return them, their cost, and totals as plain values. Bytes and seconds are per run."""
    hardware = hardware_of(model.chip)
    nodes = model.graph.nodes
    memory = hardware.memory
    layers: list[LayerCost] = []
    for index, node in enumerate(nodes):
        moved = cost.bytes_alone(node)
        seconds = cost.roofline_seconds(cost.computing_seconds(node, hardware), moved or 0, hardware)
        layers.append({"index": index, "macs": cost.macs(node), "bytes": moved, "seconds": seconds, "group": None})
    groups = [_group(model, group, layers, hardware) for group in plan_groups(model.graph, model.chip).groups]
    for number, group in enumerate(groups):
        for layer in layers[group["first"] : group["first"] + group["nodes"]]:
            layer["group"] = number
    alone = [layer for layer in layers if layer["group"] is None]
    before = sum(layer["bytes"] or 0 for layer in layers)
    after = sum(layer["bytes"] or 0 for layer in alone) + sum(group["bytes"] for group in groups)
    return {
        "chip": model.chip.value,
        "memory": to_plain(memory),
        "peak": {
            "bytes_per_second": hardware.bytes_per_second,
            "macs_per_second": {
                "INT8": hardware.macs_int8,
                "FLOAT16": hardware.macs_float16,
                "FLOAT32": hardware.macs_float32,
            },
        },
        "macs": sum(layer["macs"] or 0 for layer in layers),
        "repeated_macs": sum(group["repeated_macs"] for group in groups),
        "bytes_node_by_node": before,
        "bytes": after,
        "saved": _share(before, after),
        "seconds_node_by_node": sum(layer["seconds"] for layer in layers),
        "seconds": sum(layer["seconds"] for layer in alone) + sum(group["seconds"] for group in groups),
        "not_known": sum(layer["bytes"] is None for layer in layers),
        "groups": groups,
        "layers": layers,
    }


def _share(before: int, after: int) -> float:
    return 1.0 - after / before if before else 0.0


def _group(model: Model, group: Group, layers: list[LayerCost], hardware: Hardware) -> GroupDescription:
    """Describe one group of nodes."""
    nodes = model.graph.nodes[group.first : group.stop]
    outputs = set(model.graph.outputs)
    costs = group_cost(nodes, outputs, group.tiles, group.keeps_constants, hardware.memory, hardware)
    before = sum(layer["bytes"] or 0 for layer in layers[group.first : group.stop])
    return {
        "first": group.first,
        "nodes": group.count,
        "tiles": group.tiles._asdict(),
        "keeps_constants": group.keeps_constants,
        "lane_bytes": costs.lane_bytes,
        "macs": costs.macs,
        "repeated_macs": costs.repeated_macs,
        "bytes_node_by_node": before,
        "bytes": costs.traffic,
        "saved": _share(before, costs.traffic),
        "seconds": cost.roofline_seconds(costs.computing_seconds, costs.traffic, hardware),
        "operators": dict(sorted(Counter(node.op.name for node in nodes).items())),
    }


def group_lines(cost: Description) -> list[str]:
    """Return the groups and the memory traffic that they save, as text."""
    return [group_summary(cost), *(table([GROUP_HEADING, *group_rows(cost)]) if cost["groups"] else ())]


def group_summary(cost: Description) -> str:
    """Return the line with the number of groups and their total saving."""
    memory = cost["memory"]
    size = f"{memory['lanes']} lanes of {bytes_text(memory['lane_bytes'])}"
    if not cost["groups"]:
        return f"no groups; {bytes_text(cost['bytes'])} of global-memory traffic node by node"
    return (
        f"{several(len(cost['groups']), 'group')} in on-chip memory ({size}): {_saving(cost)} of global-memory traffic"
    )


GROUP_HEADING = ("group", "nodes", "parts", "memory", "traffic", "saved", "repeated", "operators")


def group_rows(cost: Description) -> list[tuple[str, ...]]:
    """Return one table row per group; the columns are :data:`GROUP_HEADING`."""
    memory = cost["memory"]
    rows: list[tuple[str, ...]] = []
    for number, group in enumerate(cost["groups"]):
        parts = " x ".join(f"{count} {axis.upper()}" for axis, count in group["tiles"].items() if count > 1)
        rows.append(
            (
                str(number),
                f"{group['first']}-{group['first'] + group['nodes'] - 1}",
                (parts or "1") + (", constants stay" if group["keeps_constants"] else ""),
                f"{group['lane_bytes'] / memory['lane_bytes']:.0%}",
                f"{bytes_text(group['bytes_node_by_node'])} -> {bytes_text(group['bytes'])}",
                f"{group['saved']:.1%}",
                f"{group['repeated_macs'] / max(group['macs'], 1):.1%}",
                shorten(operator_counts(group["operators"])),
            )
        )
    return rows


def cost_lines(cost: Description) -> list[str]:
    """Return lines with the totals, and with the groups and nodes that take most of the time."""
    peak = cost["peak"]
    rates = peak["macs_per_second"]  # a type without faster arithmetic on the chip has the rate of FLOAT32
    own = {dtype: rate for dtype, rate in rates.items() if dtype == "FLOAT32" or rate != rates["FLOAT32"]}
    macs = ", ".join(f"{rate / 1e12:g} TMAC/s {dtype}" for dtype, rate in own.items())
    lines = [
        f"on {cost['chip']} at {macs}, {peak['bytes_per_second'] / 1e9:g} GB/s:",
        f"  {cost['macs'] / 1e6:,.1f} million multiply-accumulate steps, "
        f"{cost['repeated_macs'] / 1e6:,.1f} million repeated",
        f"  global-memory traffic: {_saving(cost)}",
        f"  least time: {_milliseconds(cost['seconds_node_by_node'])} node by node, "
        f"{_milliseconds(cost['seconds'])} with groups",
    ]
    if cost["not_known"]:
        lines.append(f"  {several(cost['not_known'], 'node')} not counted: extents are known when the model runs")
    return lines


def _saving(cost: Description) -> str:
    before, after = cost["bytes_node_by_node"], cost["bytes"]
    return f"{bytes_text(before)} -> {bytes_text(after)} ({cost['saved']:.1%} saved)"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def cost_node_lines(description: Description, cost: Description) -> list[str]:
    """Return one table line per node: multiply-accumulates, bytes and minimum time of the node alone, and its group."""
    rows: list[tuple[str, ...]] = [("#", "operator", "result", "MACs", "bytes", "least time", "group")]
    for layer, costs in zip(description["layers"], cost["layers"], strict=True):
        rows.append(
            (
                str(layer["index"]),
                layer["op"],
                shorten(layer["outputs"][0]["name"]),
                "?" if costs["macs"] is None else f"{costs['macs']:,}",
                "?" if costs["bytes"] is None else f"{costs['bytes']:,}",
                _milliseconds(costs["seconds"]),
                "-" if costs["group"] is None else str(costs["group"]),
            )
        )
    return table(rows)
