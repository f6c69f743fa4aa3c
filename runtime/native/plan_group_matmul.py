"""Float matmul with constant weights in integers of 4 or 8 bits."""

from __future__ import annotations

import numpy as np

from tpuconvert.runtime.native.builder import Builder
from tpuconvert.runtime.native.groups import computes, first_operand, operands_of
from tpuconvert.runtime.native.storage import row_major
from tpuconvert.schema.graph import Node
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.types import F32, U8


@computes(
    "group_matmul_float32",
    dtypes=(F32, U8),
    conditions="constant weights and bias",
    when=lambda op, node, site: all(value.is_constant for value in operands_of(node)[1:]),
)
def matmul_group_quantized(builder: Builder, node: Node, op: MatmulGroupQuantized) -> None:
    """Matmul with group-quantized weights, which stay packed."""
    x = first_operand(node)
    codes, scale, zero, bias = (None if value is None else value.array for value in (*node.inputs[1:], None, None)[:4])
    assert codes is not None and scale is not None
    source, target = builder.read(x, row_major(x.rank)), builder.write(node.output, row_major(x.rank))
    builder.kernel_step(
        "group_matmul_float32",
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
    )
