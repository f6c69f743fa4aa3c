"""Final memory of results: the caller's arrays, viewed through permutes, reshapes and concats.

If a step writes directly to this memory, the data movement operators after it are no-ops.
"""

from __future__ import annotations

from math import prod

from tpuconvert.runtime.native.storage import Buffer, Stored, row_major
from tpuconvert.schema.graph import Graph, Node, Value, static
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape, Squeeze
from tpuconvert.schema.types import I8


class Destinations:
    """Final memory of the values of a graph.

    Args:
        graph: the graph.
        outputs: the caller's arrays, one buffer per output.
    """

    def __init__(self, graph: Graph, outputs: list[Buffer]) -> None:
        self._graph = graph
        self._roots: dict[Value, Stored] = {}
        for value, buffer in zip(graph.outputs, outputs, strict=True):
            # INT8 outputs have to be converted, and values with other users must be in the plan's own memory.
            if value.dtype is not I8 and not value.uses and graph.outputs.count(value) == 1:
                self._roots[value] = Stored(buffer, value.dtype, static(value.shape), row_major(value.rank))

    def of(self, value: Value) -> Stored | None:
        """Return the memory that a value should be written to, or None without a preference."""
        if 0 in value.shape:
            return None  # no step writes it
        if value in self._roots or not self._graph.is_sole_use(value):
            return self._roots.get(value)
        ((node, index),) = value.uses
        if not isinstance(node.op, (Concat, Permute, Reshape, Squeeze, ExpandDims)):
            return None
        result = self.of(node.outputs[0])
        return None if result is None else _operand_memory(node, index, result)


def _operand_memory(node: Node, index: int, result: Stored) -> Stored | None:
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
    start = sum(static(value.shape)[axis] for value in node.inputs[:index] if value is not None)
    return result._replace(shape=shape, offset=result.offset + start * result.strides[axis])
