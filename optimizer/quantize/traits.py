"""Predicates on operators for quantization: data movement, linear, unary and so on."""

from __future__ import annotations

import math

from tpuconvert.optimizer.engine.node_properties import operand, operands, scalar_factor
from tpuconvert.schema.definition.op import Op, OpKind, Trait
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.arithmetic import BinaryArithmetic, Div
from tpuconvert.schema.ops.arithmetic_with_scalar import Divs, Muls
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.types import Chip


def is_max_pool(op: Op) -> bool:
    """Return True for maximum pooling, which selects elements."""
    return isinstance(op, Pool) and op.pooling_type == PoolType.MAX


def is_average_pool(op: Op) -> bool:
    """Return True for average pooling."""
    return isinstance(op, Pool) and op.pooling_type == PoolType.AVE


def is_nearest_resize(op: Op) -> bool:
    """Return True for interpolation that selects pixels."""
    return isinstance(op, Interpolate) and op.method is InterpolateMode.NEAREST


def keeps_scale(op: Op) -> bool:
    """Return True if the elements of the result are elements of the operands."""
    return Trait.MOVES_INTEGERS in op.traits or is_max_pool(op) or is_nearest_resize(op)


def changes_shape_or_axes(op: Op) -> bool:
    """Return True if the result has all elements of the operand in another shape or order of axes.

    False for a copy: between values with different scales it requantizes.
    """
    return Trait.REARRANGES in op.traits and not isinstance(op, Copy)


def is_table(op: Op) -> bool:
    """Return True if the 8-bit form of the operator is a lookup table."""
    return Trait.LUT in op.traits


def is_arithmetic(op: Op) -> bool:
    """Return True for an element-wise arithmetic operator with two tensors that has an integer form."""
    return isinstance(op, BinaryArithmetic) and not isinstance(op, Div)


def is_product(op: Op) -> bool:
    """Return True for linear operators, with constant weights or with two computed operands."""
    return Trait.LINEAR in op.traits or isinstance(op, BatchMatmul)


def positive_factor(op: Op) -> float | None:
    """Return the positive constant that the operator multiplies by, so that it only changes the scale; or None."""
    factor = scalar_factor(op) if isinstance(op, (Muls, Divs)) else 0.0
    return factor if factor > 0 and math.isfinite(factor) else None


def why_no_runtime_product(node: Node, chip: Chip) -> str:
    """Reason why a matmul of two computed operands has no integer form, or an empty string.

    Only BM1686 has an integer form: matrix_mul_v2, for up to five axes with equal leading extents.
    """
    if chip is not Chip.BM1686 or not isinstance(node.op, (MatrixMul, BatchMatmul)) or len(node.inputs) > 2:
        return "its weights are computed while the model runs"
    left, right = operands(node)
    if left.shape[:-2] != right.shape[:-2] or left.rank > 5:
        return "its operands do not have the same leading axes, five in all at most"
    return ""


def whole_window(node: Node) -> tuple[int, int] | None:
    """Kernel height and width if every window is inside the image, else None; also None for symbolic channels."""
    op = node.op
    assert isinstance(op, Pool)
    if not isinstance(operand(node).shape[1], int):  # sums of windows need a weight for each channel
        return None
    is_padded = op.pad_h or op.pad_w or op.pad_h_offset or op.pad_w_offset
    if not (op.is_global_pooling or is_padded or op.is_ceil_mode):
        return op.kernel_h, op.kernel_w
    height, width, rows, columns = (*operand(node).shape[2:], *node.output.shape[2:])
    if not all(isinstance(extent, int) for extent in (height, width, rows, columns)):
        return None
    if op.is_global_pooling:
        return int(height), int(width)
    if is_padded:
        return None
    last_row = (int(rows) - 1) * op.stride_h + op.kernel_h
    last_column = (int(columns) - 1) * op.stride_w + op.kernel_w
    return (op.kernel_h, op.kernel_w) if last_row <= int(height) and last_column <= int(width) else None


def has_whole_windows(node: Node) -> bool:
    """Return True if every window of a pooling is inside the image, also one whose size is symbolic."""
    assert isinstance(node.op, Pool)
    return node.op.is_global_pooling or whole_window(node) is not None


def has_constant_weight(node: Node) -> bool:
    """Return True for a linear operator with constant weights."""
    weight = node.inputs[1] if Trait.LINEAR in node.op.traits else None
    return weight is not None and weight.is_constant


def has_integer_form(op: Op) -> bool:
    """Return True for a custom operator whose definition has a method ``quantized``."""
    return op.kind is OpKind.CUSTOM and callable(getattr(op, "quantized", None))
