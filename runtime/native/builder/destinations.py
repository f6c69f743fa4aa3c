"""Final memory of results: the caller's arrays, viewed through permutes, reshapes and concats.

If a step writes directly to this memory, the data movement operators after it are no-ops.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from math import prod

from tpuconvert.runtime.native.builder.storage import Buffer, Stored, row_major
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value, static
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import I8


class Destinations:
    """Final memory of the values of a graph.

    Args:
        graph: the graph.
        outputs: the caller's arrays, one buffer per output.
    """

    def __init__(self, graph: Graph, outputs: list[Buffer]) -> None:
        self._graph = graph
        self._known: dict[Value, Stored | None] = {}
        self._starts: dict[Node, list[int]] = {}
        counts = Counter(graph.outputs)
        for value, buffer in zip(graph.outputs, outputs, strict=True):
            # INT8 outputs have to be converted, and values with other users must be in the plan's own memory.
            if value.dtype is not I8 and not value.uses and counts[value] == 1:
                self._known[value] = Stored(buffer, value.dtype, static(value.shape), row_major(value.rank))

    def of(self, value: Value) -> Stored | None:
        """Return the memory that a value should be written to, or None without a preference."""
        steps: list[tuple[Value, Node, int]] = []  # data movement from the value to one whose memory is known
        while value not in self._known:
            step = self._next(value)
            if step is None:
                self._known[value] = None
                break
            steps.append((value, *step))
            value = step[0].outputs[0]
        memory = self._known[value]
        for operand, node, index in reversed(steps):
            memory = None if memory is None else self._operand_memory(node, index, memory)
            self._known[operand] = memory
        return memory

    def _next(self, value: Value) -> tuple[Node, int] | None:
        """Return the only user of a value and the index of its operand, if it is data movement, else None."""
        if 0 in value.shape or not self._graph.is_sole_use(value):
            return None  # no step writes an empty value
        ((node, index),) = value.uses
        is_moved = isinstance(node.op, (Concat, Permute)) or (Trait.RESHAPES in node.op.traits and index == 0)
        return (node, index) if is_moved else None

    def _operand_memory(self, node: Node, index: int, result: Stored) -> Stored | None:
        """Return the part of the result's memory that becomes operand ``index`` of a data movement node."""
        x, op = node.inputs[index], node.op
        assert x is not None
        if x.dtype is not result.dtype:
            return None
        shape = static(x.shape)
        if isinstance(op, Permute):
            return result.permute(tuple(op.order.index(axis) for axis in range(len(op.order))))
        if not isinstance(op, Concat):
            return result.reshape(shape)
        axis = op.axis % len(shape)
        outside = result.order[: result.order.index(axis)]
        if not result.is_dense or prod(result.shape[other] for other in outside) != 1:
            return None  # Each operand would consist of several blocks of the result.
        start = self._starts_of(node, axis)[index]
        return result._replace(shape=shape, offset=result.offset + start * result.strides[axis])

    def _starts_of(self, node: Node, axis: int) -> list[int]:
        """Return the index along the axis at which each operand of a concat starts in the result."""
        cached = self._starts.get(node)
        if cached is None:
            extents = [0 if value is None else static(value.shape)[axis] for value in node.inputs]
            cached = self._starts[node] = list(accumulate(extents, initial=0))
        return cached
