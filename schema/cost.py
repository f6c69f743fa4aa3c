"""What a node costs: multiply-accumulate steps, and bytes that it has to read and write at least.

Both follow from the operator's parameters and the types of its operands and results. They say how much work there is;
how long it takes at least is what a chip's peak figures make of it. A node whose extents are only known when the model
runs costs ``None``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, cast

from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.hardware import Hardware
from tpuconvert.schema.op import Op, Trait
from tpuconvert.schema.types import DType

if TYPE_CHECKING:
    from tpuconvert.schema.convolution_params import ConvolutionParams
    from tpuconvert.schema.volume_params import VolumeConvolution

Extents = tuple[int, ...]

_Count = Callable[[Op, list[Extents], list[Extents]], int]


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
    count = _rule_of(node.op)
    if count is None:
        return 0
    operands = [_extents(value, open_extent) for value in node.inputs if value is not None]
    results = [_extents(value, open_extent) for value in node.outputs]
    known_operands = [shape for shape in operands if shape is not None]
    known_results = [shape for shape in results if shape is not None]
    if len(known_operands) < len(operands) or len(known_results) < len(results):
        return None
    return count(node.op, known_operands, known_results)


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


def _rule_of(op: Op) -> _Count | None:
    """What counts the steps of an operator, or of the family that its class is derived from."""
    return next((_RULES[kind.__name__] for kind in type(op).__mro__ if kind.__name__ in _RULES), None)


def _convolution(op: Op, operands: list[Extents], results: list[Extents]) -> int:
    """Every element of the result is a sum over the kernel; transposed, every element of x is spread over it."""
    x, w = operands[:2]
    is_transposed = cast("ConvolutionParams | VolumeConvolution", op).weight_layout.startswith("I")
    # Second extent of the weight: input channels of a group, or transposed the output channels of one.
    return math.prod(x if is_transposed else results[0]) * math.prod(w[1:])


def _matrix_product(op: Op, operands: list[Extents], results: list[Extents]) -> int:
    """Rows of the left matrix are as long as a sum."""
    left = operands[0]
    is_transposed = getattr(op, "is_left_trans", False) or getattr(op, "left_transpose", False)
    return math.prod(results[0]) * left[-2 if is_transposed else -1]


def _attention(_op: Op, operands: list[Extents], results: list[Extents]) -> int:
    """Scores of every query with every key, then as many weighted rows of the value."""
    query, key = operands[:2]
    batch_and_rows = math.prod(results[0][:-1])
    return batch_and_rows * key[-2] * (query[-1] + results[0][-1])


def _recurrent_cell(op: Op, operands: list[Extents], _results: list[Extents]) -> int:
    """Two matrix products: the input and the state, each with the weights of all gates."""
    names = [operand.name for operand in op.inputs]
    weights = (operands[names.index(name)] for name in ("weight", "recurrent_weight"))
    return operands[0][0] * sum(map(math.prod, weights))


def _pooling(op: Op, operands: list[Extents], results: list[Extents]) -> int:
    """One step per element of every window."""
    if getattr(op, "is_global_pooling", False):
        return math.prod(operands[0])
    window: list[int] = [getattr(op, name) for name in ("kernel_t", "kernel_h", "kernel_w") if hasattr(op, name)]
    return math.prod(results[0]) * math.prod(window)


def _reduction(_op: Op, operands: list[Extents], _results: list[Extents]) -> int:
    return math.prod(operands[0])


_RULES: dict[str, _Count] = {
    "ConvolutionParams": _convolution,
    "VolumeConvolution": _convolution,
    **dict.fromkeys(("MatrixMul", "MatrixMulV2", "FcInt", "BatchMatmul"), _matrix_product),
    "Attention": _attention,
    "RecurrentCell": _recurrent_cell,
    **dict.fromkeys(("Pool", "PoolInt", "Pool3dInt"), _pooling),
    "Reduce": _reduction,
}
"""By the names of classes: a graph has few of these operators, and only theirs are loaded."""


def _extents(value: Value, open_extent: int | None = None) -> Extents | None:
    if value.type.is_static:
        return value.type.static_shape
    if open_extent is None:
        return None
    return tuple(extent if isinstance(extent, int) else open_extent for extent in value.shape)


def _size(value: Value) -> int | None:
    shape = _extents(value)
    return None if shape is None else math.prod(shape) * value.dtype.bits // 8
