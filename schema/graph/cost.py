"""Cost of nodes: the number of multiply-accumulates (MACs), and the minimum number of bytes read and written.

Both follow from the operator's parameters and the types of its operands and results. With the peak rates of a chip they
give a lower bound of the run time. The cost of a node with dynamic shapes is ``None``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from tpuconvert.schema.definition.hardware import Hardware
from tpuconvert.schema.definition.op import Extents, Op, Trait
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.types import DType


def total_macs(nodes: Iterable[Node]) -> int | None:
    """Number of MACs of all nodes, or None if the number of one node is unknown."""
    return sum_known(macs(node) for node in nodes)


def sum_known(counts: Iterable[int | None]) -> int | None:
    """Sum of counts, or None if one is None."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def macs(node: Node, open_extent: int | None = None) -> int | None:
    """Number of MACs of a node.

    Multiplications with padding are counted. Each addition or comparison of a pooling or reduction counts as a MAC.
    Element-wise operators have no MACs.

    Args:
        node: the node.
        open_extent: value that replaces symbolic extents; by default the result is None if there are any.
    """
    if type(node.op).count_macs is Op.count_macs:
        return 0  # also for symbolic extents
    operands = [_extents(value, open_extent) for value in node.inputs if value is not None]
    results = [_extents(value, open_extent) for value in node.outputs]
    known_operands = [shape for shape in operands if shape is not None]
    known_results = [shape for shape in results if shape is not None]
    if len(known_operands) < len(operands) or len(known_results) < len(results):
        return None
    return node.op.count_macs(known_operands, known_results)


def bytes_moved(*nodes: Node, leaving: Collection[Value] = ()) -> int | None:
    """Minimum number of bytes that one node, or several fused nodes, read and write.

    Each operand (including constants) and each result counts once. Values that only these nodes use do not count.

    Args:
        nodes: the nodes.
        leaving: graph outputs, which are written even if only these nodes use them.
    """
    outputs = {value for node in nodes for value in node.outputs}
    read = {value for node in nodes for value in node.inputs if value is not None}
    inner = {value for value in outputs & read if value not in leaving and all(user in nodes for user in value.users)}
    sizes = [_size(value) for value in (outputs | read) - inner]
    known_sizes = [size for size in sizes if size is not None]
    return sum(known_sizes) if len(known_sizes) == len(sizes) else None


def bytes_alone(node: Node) -> int | None:
    """Bytes that a node transfers if all operands and results are in global memory."""
    return 0 if Trait.FREE in node.op.traits else bytes_moved(node)


def arithmetic_type(node: Node) -> DType:
    """Data type of the first operand, which determines the compute rate of a chip."""
    return next((value.dtype for value in node.inputs if value is not None), node.outputs[0].dtype)


def computing_seconds(node: Node, hardware: Hardware, steps: int | None = None) -> float:
    """Lower bound of the compute time in seconds.

    Args:
        node: the node.
        hardware: the chip.
        steps: number of MACs; by default the MACs of the node, or 0 if they are unknown.
    """
    count = macs(node) if steps is None else steps
    return (count or 0) / hardware.macs_per_second(arithmetic_type(node))


def roofline_seconds(computing: float, moved: int, hardware: Hardware) -> float:
    """Lower bound of the time if computation and transfers overlap: the longer of the two."""
    return max(computing, moved / hardware.bytes_per_second)


def _extents(value: Value, open_extent: int | None = None) -> Extents | None:
    if value.type.is_static:
        return value.type.static_shape
    if open_extent is None:
        return None
    return tuple(extent if isinstance(extent, int) else open_extent for extent in value.shape)


def _size(value: Value) -> int | None:
    shape = _extents(value)
    return None if shape is None else math.prod(shape) * value.dtype.bits // 8
