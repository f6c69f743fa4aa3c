"""Layout of the graph view: positions of the blocks, and of the nodes inside each block.

The layout has two levels, so that expanding a block moves the others and recomputes nothing: the page gives an expanded
block the size of its inner plan, and stretches the rows and columns that it covers. Both levels are layered drawings
(``layered_layout``); all numbers are integers, in CSS pixels at zoom 1.

A tensor that enters a block passes through an entry at its top, and one that leaves it through an exit at its bottom.
Entries and exits are vertices of the inner plan, without size. Blocks with equal inner graphs share one plan, so that
the size of the layout of a deep network depends on its different blocks only.

Form of the layout in the report (``describe_layout``)::

    {"kinds": {"conv": "linear"},    # operator -> kind, for the colors of the boxes
     "groups": {...},                # the same for one block per group of on-chip memory, if the model has groups
     "box": [width, height],         # of a node
     "block": [width, height],       # of a collapsed block
     "port": [width, height],        # of an input or output of the graph
     "blocks": [                     # two or more, or none
       {"name": "layer1/0",          # scope of the source names, or names of its first and last node
        "nodes": [12, 13, 14],       # indices of its nodes, in the order of the vertices of its plan
        "entries": [11],             # nodes outside that produce a tensor used inside
        "exits": [14],               # nodes inside that produce a tensor used outside
        "plan": 0}],                 # index in "plans"
     "items": [-1, 5],               # vertices of the top plan: -1 - b is block b, others are nodes, inputs and outputs
     "top": PLAN,                    # nets start with the index of the node that produces the tensor, then items
     "plans": [PLAN]}                # vertices: entries, nodes, exits

    PLAN = {"width": 400,            # boxes and lines are between 0 and this x coordinate
            "layer": [0, 1],         # layer of each vertex
            "x": [84, 84],           # horizontal center of each vertex
            "gaps": [38],            # vertical distance below each layer; the last has none
            "nets": [[0, 1]],        # for each tensor its producer and its users
            "trunks": [[], [210]]}   # for each net the x coordinates in the layers between producer and last user,
                                     # or one for all of them; empty: lines to lower layers are direct curves

The height of a layer follows from the boxes in it: a layer of entries or exits has none.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tpuconvert.model.description import Description
from tpuconvert.report.graph_blocks import Blocks, adjacency, find_blocks, label_blocks
from tpuconvert.report.layered_layout import Net, Plan, arrange
from tpuconvert.schema.definition.op import Op, Trait, find_op

BOX = (176, 56)
"""Width and height of a node."""

BLOCK = (208, 64)
"""Width and height of a collapsed block."""

PORT = (136, 30)
"""Width and height of an input or output of the graph."""


class OperatorKind(enum.StrEnum):
    """Kind of an operator, which its boxes show by their color."""

    LINEAR = "linear"
    ARITHMETIC = "arithmetic"
    ACTIVATION = "activation"
    OTHER = "other"
    CONVERSION = "conversion"
    DATA_MOVEMENT = "data movement"


KIND_LEGEND = {
    OperatorKind.LINEAR: "conv, matmul",
    OperatorKind.ARITHMETIC: "arithmetic",
    OperatorKind.ACTIVATION: "activation",
    OperatorKind.OTHER: "pool, norm, other",
    OperatorKind.CONVERSION: "quantize, cast",
    OperatorKind.DATA_MOVEMENT: "data movement",
}
"""Texts of the legend, in the order of the colors of series."""


@dataclass(frozen=True)
class BlockPlan:
    """A block with its tensors to and from the outside, and the index of its plan."""

    name: str
    nodes: list[int]
    entries: list[int]
    exits: list[int]
    plan: int


@dataclass(frozen=True)
class Layout:
    """Layout of a graph: the plan of its blocks, and the plans inside them with their nets."""

    blocks: list[BlockPlan]
    items: list[int]
    top: tuple[Plan, list[Net]]
    plans: list[tuple[Plan, list[Net]]]

    def to_dict(self) -> dict[str, Any]:
        """Return the layout as plain values; the docstring of the module describes the form."""
        return {
            "box": list(BOX),
            "block": list(BLOCK),
            "port": list(PORT),
            "blocks": [dict(vars(block)) for block in self.blocks],
            "items": self.items,
            "top": _plan_mapping(*self.top),
            "plans": [_plan_mapping(plan, nets) for plan, nets in self.plans],
        }


def describe_layout(layers: Sequence[Description], edges: Sequence[int], vertices: int) -> dict[str, Any]:
    """Return the layout of a model as plain values; the docstring of the module describes the form.

    Args:
        layers: the nodes of the description of a model; with ``group``, the index of the group of each node, the layout
            by groups is added.
        edges: flat list ``[from, to, from, to, ...]`` of indices of nodes, and of inputs and outputs after them.
        vertices: number of nodes, inputs and outputs.
    """
    names = [_source_name(layer) for layer in layers]
    labels = [_block_label(name, layer["op"]) for name, layer in zip(names, layers, strict=True)]
    layout = lay_out(names, edges, vertices, labels=labels).to_dict()
    layout["kinds"] = operator_kinds(layer["op"] for layer in layers)
    groups = [layer.get("group") for layer in layers]
    if any(group is not None for group in groups):
        members = [None if group is None else f"group {group}" for group in groups]
        layout["groups"] = lay_out([], edges, vertices, members).to_dict() | {"kinds": layout["kinds"]}
    return layout


def operator_kinds(names: Iterable[str]) -> dict[str, OperatorKind]:
    """Return the kind of each operator, by its traits: it is the color of its boxes."""
    return {name: _kind(name) for name in sorted(set(names))}


def _kind(name: str) -> OperatorKind:
    definition = find_op(name)
    if definition is None:
        return OperatorKind.OTHER
    traits = definition.traits
    if name == "cast" or "quant" in name:
        return OperatorKind.CONVERSION
    # Operators that count multiply-accumulates and have weights; pooling counts them too.
    if definition.count_macs is not Op.count_macs and len(definition.inputs) > 1:
        return OperatorKind.LINEAR
    if Trait.MOVES_DATA in traits:
        return OperatorKind.DATA_MOVEMENT
    has_scalar = "scalar" in definition.__dataclass_fields__ or Trait.AFFINE in traits
    if name == "lut" or (Trait.UNARY in traits and not has_scalar):
        return OperatorKind.ACTIVATION
    return OperatorKind.ARITHMETIC if Trait.ELEMENTWISE in traits else OperatorKind.OTHER


def _source_name(layer: Description) -> str:
    """Return the name of the first source node, whose scopes become blocks, or the name of the result."""
    quoted = re.search("'(.*)'$", layer["sources"][0], re.DOTALL) if layer["sources"] else None
    return quoted[1] if quoted else str(layer["name"])


def _block_label(name: str, operator: str) -> str:
    """Return the text of a node in the name of a block without scope: its name, with the operator if it is a number."""
    return f"{operator} {name}" if name.isdecimal() else name


def lay_out(
    names: Sequence[str],
    edges: Sequence[int],
    vertices: int,
    groups: Sequence[Hashable | None] | None = None,
    labels: Sequence[str] = (),
) -> Layout:
    """Return the layout of a graph.

    Args:
        names: for each node the name of its source node, which gives the scopes; the name of its result otherwise.
        edges: flat list ``[from, to, from, to, ...]`` of indices of nodes, and of inputs and outputs after them.
        vertices: number of nodes, inputs and outputs.
        groups: the name of the group of each node, for blocks by groups of on-chip memory instead of scopes.
        labels: texts of the nodes for the names of blocks without scope; by default their names.
    """
    blocks = find_blocks(names, edges, vertices, labels) if groups is None else label_blocks(groups, edges, vertices)
    return lay_out_blocks(blocks, edges, len(names if groups is None else groups))


def lay_out_blocks(blocks: Blocks, edges: Sequence[int], nodes: int) -> Layout:
    """Return the layout for given blocks. ``nodes`` is the number of vertices that are not inputs or outputs."""
    contents = [[item] if item >= 0 else blocks.members[-1 - item] for item in blocks.items]
    vertices = sum(map(len, contents))
    users, producers = adjacency(edges, vertices)
    item_of = [0] * vertices
    for number, content in enumerate(contents):
        for v in content:
            item_of[v] = number
    plans: dict[tuple[Any, ...], int] = {}
    arranged: list[tuple[Plan, list[Net]]] = []
    planned: list[BlockPlan] = []
    for name, members in zip(blocks.names, blocks.members, strict=True):
        inside = item_of[members[0]]
        entries = list(dict.fromkeys(u for v in members for u in producers[v] if item_of[u] != inside))
        exits = [v for v in members if any(item_of[user] != inside for user in users[v])]
        nets = _inner_nets(members, entries, exits, users)
        key = (len(members), len(entries), tuple(nets))
        if key not in plans:
            plans[key] = len(arranged)
            widths = [0] * len(entries) + [BOX[0]] * len(members) + [0] * len(exits)
            arranged.append((arrange(widths, nets, len(entries), len(exits)), nets))
        planned.append(BlockPlan(name, members, entries, exits, plans[key]))
    widths = [BLOCK[0] if item < 0 else BOX[0] if item < nodes else PORT[0] for item in blocks.items]
    outer: list[tuple[int, Net]] = []
    for number, content in enumerate(contents):
        for v in content:
            if targets := sorted({item_of[user] for user in users[v]} - {number}):
                outer.append((v, (number, *targets)))
    top = arrange(widths, [net for _, net in outer])
    return Layout(planned, blocks.items, (top, [(v, *targets) for v, (_, *targets) in outer]), arranged)


def _inner_nets(
    members: Sequence[int], entries: Sequence[int], exits: Sequence[int], users: Sequence[Sequence[int]]
) -> list[Net]:
    """Return the nets of the plan of a block, whose vertices are the entries, the members, and the exits."""
    position = {v: len(entries) + i for i, v in enumerate(members)}
    exit_of = {v: len(entries) + len(members) + i for i, v in enumerate(exits)}
    nets: list[Net] = [(i, *(position[u] for u in users[v] if u in position)) for i, v in enumerate(entries)]
    for v in members:
        targets = [position[u] for u in users[v] if u in position] + ([exit_of[v]] if v in exit_of else [])
        if targets:
            nets.append((position[v], *targets))
    return nets


def _plan_mapping(plan: Plan, nets: Sequence[Net]) -> dict[str, Any]:
    return {
        "width": plan.width,
        "layer": list(plan.layer),
        "x": list(plan.x),
        "gaps": list(plan.gaps),
        "nets": [list(net) for net in nets],
        "trunks": [list(trunk[:1] if len(set(trunk)) == 1 else trunk) for trunk in plan.trunks],
    }
