"""Facts about element-wise operators."""

from __future__ import annotations

from tpuconvert.schema.graph import Node
from tpuconvert.schema.types import I32


def may_round_integers(node: Node) -> bool:
    """Return True if a chip computes the node's INT32 in binary32, where even ``x + 0`` rounds beyond 2^24."""
    return node.outputs[0].dtype is I32 and any(
        case.compute == "FLOAT32" for support in node.op.dtypes.values() for case in support.cases
    )
