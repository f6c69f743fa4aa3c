"""Memory of the tensors while a model runs: live bytes at each node, and the size of one arena for all of them.

Both follow from the graph, so that they are the same on every machine. Constants are not counted. The native engine
needs less, because it computes several nodes in one step; ``Session.memory`` has the arena of its plan.
"""

from __future__ import annotations

import math
from typing import Annotated, TypedDict

from tpuconvert.optimizer.engine.node_properties import computed_operands
from tpuconvert.runtime.native.builder.arena import live_bytes, place
from tpuconvert.runtime.native.builder.storage import ARENA, Buffer
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Graph, Value


class MemoryDescription(TypedDict):
    """Memory of the tensors in one run, without constants."""

    live_bytes: Annotated[list[int], "bytes that are live while each node runs"]
    peak_bytes: Annotated[int, "most bytes of tensors that are live at one node"]
    arena_bytes: Annotated[int | None, "size of one arena for all tensors; no value if there are too many"]


_MOST_BUFFERS = 3000
"""Largest number of tensors that are placed in an arena. The time grows with its square: 0.4 s for 3,000."""


def describe_memory(graph: Graph) -> MemoryDescription | None:
    """Return the memory of one run as plain values; None if extents are known only when the model runs.

    A tensor is live from the node that computes it to its last use. Inputs are live from the start, and outputs to the
    end. Reshapes share the memory of their operand.
    """
    lifetimes = _lifetimes(graph)
    if lifetimes is None:
        return None
    buffers = [
        Buffer(index, ARENA, size, first, last) for index, (size, first, last) in enumerate(lifetimes.values()) if size
    ]
    live = live_bytes(buffers, len(graph), 0)
    return {
        "live_bytes": live[: len(graph)],
        "peak_bytes": max(live),
        "arena_bytes": place(buffers, 0) if len(buffers) <= _MOST_BUFFERS else None,
    }


def _lifetimes(graph: Graph) -> dict[Value, tuple[int, int, int]] | None:
    """Return size, first and last node of each tensor with memory; None if a size is not known."""
    nodes = graph.nodes
    owner: dict[Value, Value] = {}
    lifetimes: dict[Value, tuple[int, int, int]] = {}
    for value in graph.inputs:
        size = _size(value)
        if size is None:
            return None
        owner[value], lifetimes[value] = value, (size, 0, 0)
    for index, node in enumerate(nodes):
        owners = [owner[value] for value in computed_operands(node) if value in owner]
        for operand in owners:
            size, first, _ = lifetimes[operand]
            lifetimes[operand] = size, first, index
        for value in node.outputs:
            size = _size(value)
            if size is None:
                return None
            if Trait.FREE in node.op.traits and owners:
                owner[value] = owners[0]
            else:
                owner[value], lifetimes[value] = value, (size, index, index)
    for value in graph.outputs:
        if value in owner:
            size, first, _ = lifetimes[owner[value]]
            lifetimes[owner[value]] = size, first, max(len(nodes) - 1, 0)
    return lifetimes


def _size(value: Value) -> int | None:
    if not all(isinstance(extent, int) for extent in value.shape):
        return None
    return math.prod(value.type.static_shape) * value.dtype.numpy.itemsize
