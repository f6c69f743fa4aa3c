"""Matmul with constant weights in integers of 4 or 8 bits, and activations in float32 or INT8."""

from __future__ import annotations

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.storage import row_major
from tpuconvert.runtime.native.matchers.matcher import computes, first_operand, operands_of
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.types import F32, I8, U8


def _is_constant(node: Node) -> bool:
    """Return True if the weight and the bias are constant."""
    return all(value.is_constant for value in operands_of(node)[1:])


@computes(
    "group_matmul_float32",
    dtypes=(F32, U8),
    conditions="constant weights and bias",
    when=lambda op, node, site: op.activation_type is F32 and _is_constant(node),
)
def matmul_group_quantized(builder: Builder, node: Node, op: MatmulGroupQuantized) -> None:
    """Matmul with group-quantized weights, which stay packed."""
    _add_step("group_matmul_float32", builder, node, op)


@computes(
    "group_matmul_int8",
    dtypes=(F32, U8),
    conditions="INT8 activations, constant weights and bias",
    when=lambda op, node, site: op.activation_type is I8 and _is_constant(node),
)
def matmul_group_quantized_int8(builder: Builder, node: Node, op: MatmulGroupQuantized) -> None:
    """Matmul of rows that are quantized to INT8 with group-quantized weights, which stay packed."""
    _add_step("group_matmul_int8", builder, node, op)


def _add_step(kernel: str, builder: Builder, node: Node, op: MatmulGroupQuantized) -> None:
    x = first_operand(node)
    codes, scale, zero, bias = (None if value is None else value.array for value in (*node.inputs[1:], None, None)[:4])
    assert codes is not None and scale is not None
    source, target = builder.read(x, row_major(x.rank)), builder.write(node.output, row_major(x.rank))
    builder.kernel_step(
        kernel,
        "GroupMatmulSpec",
        {"x": source},
        {"y": target},
        rows=source.size // x.type.static_shape[-1],
        columns=len(scale),
        depth=x.type.static_shape[-1],
        bits=op.bits,
        group=op.group,
        codes=np.require(codes, requirements=("C_CONTIGUOUS", "ALIGNED")),
        scale=np.ascontiguousarray(scale).reshape(-1),
        zero=None if zero is None else np.ascontiguousarray(op.zero_points(scale, zero)).reshape(-1),
        bias=bias,
        is_precise=node in builder.precise,
        like=builder.step_of_earlier_plan(kernel),
    )
