"""What a node costs: multiply-accumulate steps, and bytes that it has to read and write at least.

Both follow from the operator's parameters and the types of its operands and results. They say how much work there is;
how long it takes at least is what a chip's peak figures make of it. A node whose extents are only known when the model
runs costs ``None``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.hardware import Hardware
from tpuconvert.schema.op import Extents, Op, Trait
from tpuconvert.schema.types import DType


def total_macs(nodes: Iterable[Node]) -> int | None:
    """Multiply-accumulate steps of all nodes, None where one is not known."""
    return sum_known(macs(node) for node in nodes)


def sum_known(counts: Iterable[int | None]) -> int | None:
    """The sum of some counts, None where one is not known."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def macs(node: Node, open_extent: int | None = None) -> int | None:
    """Multiply-accumulate steps of a node.

    Args:
        node: the node.
        open_extent: what extents that are only known when the model runs count as; by default the result is None then.

    Products with padding count like all others, and so does what a pooling or a reduction adds or compares. Operators
    that work element by element have none.
    """
    if type(node.op).count_macs is Op.count_macs:
        return 0  # whatever the extents
    operands = [_extents(value, open_extent) for value in node.inputs if value is not None]
    results = [_extents(value, open_extent) for value in node.outputs]
    known_operands = [shape for shape in operands if shape is not None]
    known_results = [shape for shape in results if shape is not None]
    if len(known_operands) < len(operands) or len(known_results) < len(results):
        return None
    return node.op.count_macs(known_operands, known_results)


def bytes_moved(*nodes: Node, leaving: Collection[Value] = ()) -> int | None:
    """Bytes that one node, or several that run as one, read and write at least.

    Operands, constants included, and results count once each. What only these nodes read of each other does not count.

    Args:
        nodes: the nodes.
        leaving: values that are outputs of the graph, so that they are written though these nodes read them too.
    """
    made = {value for node in nodes for value in node.outputs}
    read = {value for node in nodes for value in node.inputs if value is not None}
    inner = {value for value in made & read if value not in leaving and all(user in nodes for user in value.users)}
    sizes = [_size(value) for value in (made | read) - inner]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def bytes_alone(node: Node) -> int | None:
    """Bytes that a node moves when everything that it reads and writes lies in global memory."""
    return 0 if Trait.FREE in node.op.traits else bytes_moved(node)


def arithmetic_type(node: Node) -> DType:
    """The type of the first operand, which decides how fast a chip computes."""
    return next((value.dtype for value in node.inputs if value is not None), node.outputs[0].dtype)


def computing_seconds(node: Node, hardware: Hardware, steps: int | None = None) -> float:
    """The least time that arithmetic takes.

    Args:
        node: the node.
        hardware: the chip.
        steps: multiply-accumulate steps; by default those of the node, none where they are not known.
    """
    count = macs(node) if steps is None else steps
    return (count or 0) / hardware.macs_per_second(arithmetic_type(node))


def roofline_seconds(computing: float, moved: int, hardware: Hardware) -> float:
    """The least time of something that computes and moves bytes meanwhile: the longer of both."""
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
