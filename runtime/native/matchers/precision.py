"""Analysis of float nodes whose results are converted to integers later."""

from __future__ import annotations

from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.types import F16, F32

_FLOATS = (F32, F16)


def deciding_nodes(graph: Graph) -> set[Node]:
    """Return the float nodes on whose results a conversion to integers depends.

    A difference in rounding could change such an integer, so kernels sum these nodes in float64, as the references do.
    There are none in an estimate.
    """
    if graph.is_estimate:
        return set()
    deciding: set[Node] = set()
    for node in reversed(graph.sorted_nodes()):
        if Trait.SHAPE_ONLY in node.op.traits:
            continue
        values = [value for value in node.inputs if value is not None and value.dtype in _FLOATS]
        floats = [value.producer for value in values if value.producer is not None]
        if floats and (node in deciding or any(value.dtype not in _FLOATS for value in node.outputs)):
            deciding.update(floats)
    return deciding
