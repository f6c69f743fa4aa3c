"""Matrix products that the fast kernels do not take: zero points per row, mode 2, run-time biases, FLOAT16."""

from __future__ import annotations

from functools import singledispatch
from math import prod

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder, Group
from tpuconvert.runtime.native.builder.storage import row_major
from tpuconvert.runtime.native.matchers.any_conv import Arithmetic, Layout, add_products, arithmetic_of_mode, has_types
from tpuconvert.runtime.native.matchers.matcher import GENERAL, Site, ends_with, names_of, operators_of
from tpuconvert.schema.arithmetic.quantized_sums import ceil_shift
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.matmul.fc_int import FcInt
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.matmul.zero_points import zero_point


@singledispatch
def _arithmetic(op: Op, node: Node) -> Arithmetic | None:
    return None


@_arithmetic.register
def _by_mode(op: MatrixMul, node: Node) -> Arithmetic:
    return arithmetic_of_mode(op, node, ceil_shift, mode=op.mode)


@_arithmetic.register
def _exact(op: FcInt | MatrixMulV2, node: Node) -> Arithmetic:
    rows, columns = (zero_point(op, prefix) for prefix in (("izp", "kzp") if isinstance(op, FcInt) else ("lzp", "rzp")))
    *batch, _, _ = node.outputs[0].type.static_shape
    is_shared = isinstance(op, FcInt)  # all matrices have the same weights and are one matrix
    x_zeros = [0] if rows.ndim else [int(rows)]
    row_zeros = np.tile(rows, prod(batch) if is_shared else 1).tolist() if rows.ndim else []
    w_zeros = np.tile(columns, 1 if is_shared else prod(batch)).tolist() if columns.ndim else [int(columns)]
    return Arithmetic({"mode": "exact"}, x_zeros, w_zeros, row_zeros)


@ends_with(
    *names_of(*operators_of(_arithmetic)),
    kernels=("any_conv",),
    dtypes="INT8, UINT8, FLOAT32, FLOAT16",
    conditions="what the other matchers and kernels of the operator decline",
    priority=GENERAL,
)
def any_matmul(node: Node, site: Site) -> Group | None:
    """Match a matrix product by itself."""
    arithmetic = _arithmetic(node.op, node)
    if arithmetic is None or not has_types(arithmetic, node):
        return None
    return Group((node,), lambda builder: _emit(builder, node, arithmetic))


def _emit(builder: Builder, node: Node, arithmetic: Arithmetic) -> None:
    """Add the step: rows are positions, columns of the result are channels, and each matrix of a batch is a group."""
    left, right = node.inputs[:2]
    assert left is not None and right is not None
    op, y = node.op, node.outputs[0]
    is_left_transposed = isinstance(op, MatrixMulV2) and op.is_left_trans
    is_right_transposed = op.is_right_trans if isinstance(op, MatrixMulV2) else getattr(op, "weight_trans", False)
    *batch, rows, columns = builder.shape(y)
    depth = builder.shape(left)[-2 if is_left_transposed else -1]
    groups = prod(batch)
    if isinstance(op, FcInt):
        groups, rows = 1, groups * rows
    tensors = tuple(builder.read(value, row_major(value.rank)) for value in (left, right))
    target = builder.write(y, row_major(y.rank))
    row_step, depth_step = (1, rows) if is_left_transposed else (depth, 1)
    channel_step, weight_depth_step = (depth, 1) if is_right_transposed else (1, columns)
    layout = Layout(
        groups,
        depth,
        columns,
        (1, 1, rows),
        (1, 1, rows),
        (0, rows * depth, depth_step, 0, 0, row_step),
        (columns * depth, channel_step, weight_depth_step, 0, 0, 0),
        (0, rows * columns, 1, 0, 0, columns),
    )
    add_products(builder, node, arithmetic, layout, (*tensors, target))  # type: ignore[arg-type]  # three tensors
