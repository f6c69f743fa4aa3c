"""Gather rows of a table of integers of 4 or 8 bits, with a scale per group of columns."""

from __future__ import annotations

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.storage import row_major
from tpuconvert.runtime.native.matchers.matcher import computes, operands_of
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.gather_group_quantized import GatherGroupQuantized
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.types import F32, I32, U8


@computes(
    "group_gather_float32",
    dtypes=(I32, U8, F32),
    conditions="a constant table",
    when=lambda op, node, site: all(value.is_constant for value in operands_of(node)[1:]),
)
def gather_group_quantized(builder: Builder, node: Node, op: GatherGroupQuantized) -> None:
    """Dequantize the rows that INT32 indices select; the table is read where it is."""
    index, codes, scale, *zero = operands_of(node)
    zeros = None
    if zero:
        zeros = builder.constant(MatmulGroupQuantized(op.bits, op.group).zero_points(scale.array, zero[0].array))
    builder.kernel_step(
        "group_gather_float32",
        "GroupGatherSpec",
        {
            "indices": builder.read(index),
            "codes": builder.read_exactly(codes),
            "scale": builder.read_exactly(scale),
            "zeros": zeros,
        },
        {"target": builder.write(node.output, row_major(2))},
        count=builder.shape(index)[0],
        extent=builder.shape(codes)[0],
        depth=op.depth,
        bits=op.bits,
        group=op.group,
    )
