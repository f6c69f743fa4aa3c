"""Placeholders for TPU operators whose parameters follow from symbolic extents."""

from __future__ import annotations

from tpuconvert.schema.graph.composite import Composite, expansion
from tpuconvert.schema.types import Array, DType, TensorType


class DeferredOp(Composite):
    """Base of composites that exist only while extents are symbolic.

    ``graph_copy`` replaces such a node by its expansion as soon as the operands have static shapes, so that a model
    with symbolic extents runs the same TPU operators as one that was converted for these extents.
    """

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        """Run the references of the operators in the expansion."""
        types = [None if item is None else TensorType(DType.of(item.dtype), item.shape) for item in arrays]
        graph = expansion(self, types)
        results = dict(zip(graph.inputs, (item for item in arrays if item is not None), strict=True))
        for node in graph.sorted_nodes():
            operands = [None if x is None else x.array if x.is_constant else results[x] for x in node.inputs]
            results.update(zip(node.outputs, node.op.evaluate(*operands), strict=True))
        return tuple(value.array if value.is_constant else results[value] for value in graph.outputs)
