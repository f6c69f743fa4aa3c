"""Float attention: two batched matmuls with a softmax between them, in intermediate buffers."""

from __future__ import annotations

import math

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.storage import Stored, row_major
from tpuconvert.runtime.native.matchers.float_rows import emit_softmax
from tpuconvert.runtime.native.matchers.linear_float import multiply, transpose
from tpuconvert.runtime.native.matchers.matcher import computes
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.attention import Attention, causal_mask
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.types import F32


@computes(
    "matmul_float32",
    "chain_float32",
    "softmax_float32",
    dtypes=(F32,),
    conditions="the result does not decide an integer later",
    when=lambda op, node, site: node not in site.precise,
)
def attention(builder: Builder, node: Node, op: Attention) -> None:
    """Attention. Declined if the result is later converted to integers, because scores are rounded to float32."""
    query, key, value, mask = (*node.inputs, None)[:4]
    assert query is not None and key is not None and value is not None
    shape = BatchMatmul(right_transpose=True).infer(query.type, key.type)[0].static_shape
    factor = 1 / math.sqrt(query.type.static_shape[-1]) if op.scale is None else op.scale
    q, k, v = (builder.read(item, dense=False) for item in (query, key, value))
    scores = builder.temporary(F32, shape)
    multiply(builder, q, transpose(k), scores)
    masks = [] if mask is None else [builder.read(mask, row_major(mask.rank))]
    if op.is_causal and shape[-2] > 1:
        masks.append(builder.constant(causal_mask(*shape[-2:]).reshape((1,) * (len(shape) - 2) + shape[-2:])))
    _scale(builder, scores, factor, masks)
    emit_softmax(builder, scores, scores, shape[-1], is_guarded=bool(masks))
    multiply(builder, scores, v, builder.write(node.output))


def _scale(builder: Builder, scores: Stored, factor: float, masks: list[Stored]) -> None:
    """Add a step that scales the scores in place and adds masks that broadcast."""
    operands = [(builder.place(scores), list(scores.strides))]
    operations = [("mul", -1, factor, 0.0)]
    for index, mask in enumerate(masks):
        strides = [0 if extent == 1 else stride for extent, stride in zip(mask.shape, mask.strides, strict=True)]
        operands.append((builder.place(mask), strides))
        operations.append(("add", index + 1, 0.0, 0.0))
    spec = builder.native.ChainFloatSpec(
        output=builder.place(scores), shape=scores.shape, operands=operands, ops=operations
    )
    builder.step("chain_float32", spec, (scores, *masks), (scores,))
