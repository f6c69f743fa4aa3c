"""What quantization asks of an operator: which ones move data, which are functions of one element."""

from __future__ import annotations

from tpuconvert.schema.graph import Node
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.deconv import Deconv
from tpuconvert.schema.ops.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pool import Pool, PoolType

WEIGHTED = (Conv, Deconv, MatrixMul)
"""Products with constant weights: what integers are for."""

MOVES_DATA = frozenset(
    {
        "batch_to_space",
        "concat",
        "copy",
        "expand_dims",
        "extract",
        "pad",
        "permute",
        "reshape",
        "space_to_batch",
        "split",
        "squeeze",
        "tile",
        "upsample",
    }
)
"""Results consist of operand elements: integers pass through unchanged when the scales agree."""

ELEMENTWISE_UNARY = frozenset(
    {
        "active",
        "active_param",
        "adds",
        "ceil",
        "clamp",
        "cos",
        "divs",
        "eqs",
        "floor",
        "gelu",
        "ges",
        "gts",
        "hard_sigmoid",
        "hard_swish",
        "les",
        "lts",
        "maxs",
        "mins",
        "mish",
        "muls",
        "nes",
        "rdivs",
        "round",
        "rsubs",
        "silu",
        "sin",
        "softplus",
        "subs",
    }
)
"""Functions of one element and constants: on 8 bits each is a table of 256 entries."""

ARITHMETIC = frozenset({"add", "max", "min", "mul", "sub"})
"""Functions of two elements that have an integer form."""


def is_max_pool(op: Op) -> bool:
    """Whether the operator is maximum pooling, which selects elements."""
    return isinstance(op, Pool) and op.pooling_type == PoolType.MAX


def is_average_pool(op: Op) -> bool:
    """Whether the operator is average pooling."""
    return isinstance(op, Pool) and op.pooling_type == PoolType.AVE


def keeps_scale(op: Op) -> bool:
    """Whether the result's elements are elements of the operands."""
    return op.name in MOVES_DATA or is_max_pool(op)


def whole_window(node: Node) -> tuple[int, int] | None:
    """Kernel height and width when every window lies inside the image, else None."""
    op, x, y = node.op, node.inputs[0], node.outputs[0]
    assert isinstance(op, Pool) and x is not None
    height, width, rows, columns = (*x.shape[2:], *y.shape[2:])
    if not all(isinstance(extent, int) for extent in (height, width, rows, columns)):
        return None
    if op.is_global_pooling:
        return int(height), int(width)
    if op.pad_h or op.pad_w or op.pad_h_offset or op.pad_w_offset:
        return None
    last_row = (int(rows) - 1) * op.stride_h + op.kernel_h
    last_column = (int(columns) - 1) * op.stride_w + op.kernel_w
    return (op.kernel_h, op.kernel_w) if last_row <= int(height) and last_column <= int(width) else None


def has_constant_weight(node: Node) -> bool:
    """Whether the second operand of a product is constant."""
    weight = node.inputs[1]
    return weight is not None and weight.is_constant
