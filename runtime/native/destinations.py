"""Where results have to lie in the end: in the caller's arrays, perhaps moved, reshaped and a part of a concatenation.

A step that writes there spares the copies behind it. Only memory is decided here; the operators in between find that
their results are where they belong.
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
    """Answers for one graph.

    Args:
        graph: the graph.
        outputs: the callers' arrays, one buffer per output.
    """

    def __init__(self, graph: Graph, outputs: list[Buffer]) -> None:
        self._graph = graph
        self._roots: dict[Value, Stored] = {}
        for value, buffer in zip(graph.outputs, outputs, strict=True):
            # INT8 changes its form on the way out; what others read as well must lie in the plan's own memory.
            if value.dtype is not I8 and not value.uses and graph.outputs.count(value) == 1:
                self._roots[value] = Stored(buffer, value.dtype, static(value.shape), row_major(value.rank))

    def of(self, value: Value) -> Stored | None:
        """Where a value should be written, or None where it does not matter."""
        if value in self._roots or not self._graph.is_sole_use(value):
            return self._roots.get(value)
        ((node, index),) = value.uses
        if not isinstance(node.op, (Concat, Permute, Reshape, Squeeze, ExpandDims)):
            return None
        behind = self.of(node.outputs[0])
        return None if behind is None else _before(node, index, behind)


def _before(node: Node, index: int, behind: Stored) -> Stored | None:
    """Where operand ``index`` lies when the result of a node lies there."""
    x, op = node.inputs[index], node.op
    assert x is not None
    if x.dtype is not behind.dtype:
        return None
    shape = static(x.shape)
    if isinstance(op, Permute):
        return behind.permuted(tuple(op.order.index(axis) for axis in range(len(op.order))))
    if not isinstance(op, Concat):
        return behind.reshaped(shape)
    axis = op.axis % len(shape)
    outside = behind.order[: behind.order.index(axis)]
    if not behind.is_dense or prod(behind.shape[other] for other in outside) != 1:
        return None  # parts are not blocks
    start = sum(static(value.shape)[axis] for value in node.inputs[:index] if value is not None)
    return behind._replace(shape=shape, offset=behind.offset + start * behind.strides[axis])
