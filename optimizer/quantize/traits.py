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
        "ges",
        "gts",
        "les",
        "lts",
        "maxs",
        "mins",
        "muls",
        "nes",
        "rdivs",
        "round",
        "rsubs",
        "sin",
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


def has_constant_weight(node: Node) -> bool:
    """Whether the second operand of a product is constant."""
    weight = node.inputs[1]
    return weight is not None and weight.is_constant
