"""Integer matmuls of two operands computed at run time, and attention as one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tpuconvert.runtime.native.builder.builder import Builder, Group
from tpuconvert.runtime.native.builder.storage import Order, Stored
from tpuconvert.runtime.native.matchers.epilogue import EPILOGUE_OPS, SUMS, Epilogue, bias_of
from tpuconvert.runtime.native.matchers.linear_int import BYTES
from tpuconvert.runtime.native.matchers.matcher import Site, ends_with, names_of, order_for_permute
from tpuconvert.runtime.native.matchers.norm_quantize import ByteQuantization, byte_quantization
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import I32, Array


@dataclass(frozen=True)
class Matmul:
    """A matmul of two tensors with its fused epilogue.

    Args:
        op: the operator, with per-tensor zero points.
        left: [..., M, K], or [..., K, M].
        right: [..., K, N], or [..., N, K].
        bias: one integer per column, or None.
        epilogue: applied to the accumulators.
        order: memory order of the result.
    """

    op: MatrixMulV2
    left: Value
    right: Value
    bias: Array | None
    epilogue: Epilogue
    order: Order


@dataclass(frozen=True)
class Attention:
    """Attention: scores, their softmax as bytes, and its matmul with the values.

    Args:
        scores: a matmul with a float result.
        probabilities: quantization of the result of the softmax.
        values: a matmul with the probabilities as left operand.
    """

    scores: Matmul
    probabilities: ByteQuantization
    values: Matmul


@ends_with(
    MatrixMulV2.name,
    *names_of(*EPILOGUE_OPS),
    kernels=("batch_matmul_int8", "attention_int8"),
    dtypes="INT8, UINT8",
    conditions=(
        "two operands computed at run time, then as for conv_int8; attention_int8 with a softmax and a second matmul"
    ),
    priority=9,
)
def matmul(node: Node, site: Site) -> Group | None:
    """Match a matmul with its epilogue, or an attention that ends with it."""
    product, nodes = _matmul_ending_at(node, site)
    y = node.outputs[0]
    if product is None:
        return None
    attention = _attention(product, nodes, site)
    if attention is not None:
        return Group(tuple(nodes), lambda builder: _emit_attention(builder, attention, y))
    return Group(tuple(nodes), lambda builder: _emit(builder, product, y))


def _matmul_ending_at(node: Node, site: Site) -> tuple[Matmul | None, list[Node]]:
    """Return the matmul with an epilogue that ends with ``node``, and its nodes in topological order."""
    nodes, y = site.chain(node, EPILOGUE_OPS, (MatrixMulV2,)), node.outputs[0]
    epilogue = _fuse_epilogue(SUMS, nodes[1:])
    if not nodes or epilogue is None or epilogue.dtype is not y.dtype:
        return None, []
    return _matmul(nodes[0], epilogue, order_for_permute(y, site.graph)), nodes


def _attention(values: Matmul, nodes: list[Node], site: Site) -> Attention | None:
    """Return the attention that ends with a matmul. Its other nodes are inserted before the nodes of the matmul."""
    requant = site.absorbable(values.left, RequantFp32ToInt)
    softmax = None if requant is None else site.absorbable(requant.inputs[0], Softmax)
    if requant is None or softmax is None or values.op.is_left_trans or not _is_along_rows(softmax):
        return None
    probabilities = byte_quantization(requant)
    end = site.absorbable(softmax.inputs[0], *EPILOGUE_OPS)
    scores, further = (None, []) if end is None else _matmul_ending_at(end, site)
    if scores is None or scores.epilogue.dequantize is None or probabilities is None:
        return None
    nodes[:0] = [*further, softmax, requant]
    return Attention(scores, probabilities, values)


def _is_along_rows(softmax: Node) -> bool:
    op, rank = softmax.op, softmax.outputs[0].rank
    assert isinstance(op, Softmax)
    return op.axis % rank == rank - 1


def _fuse_epilogue(epilogue: Epilogue | None, chain: list[Node]) -> Epilogue | None:
    for follower in chain:
        op = follower.op
        is_per_channel = isinstance(op, RequantInt32) and (op.is_mul_shift_pc or op.is_offset_pc)
        if epilogue is None or (is_per_channel and follower.outputs[0].rank != 2):
            return None
        epilogue = epilogue.followed_by(follower)
    return epilogue


def _matmul(node: Node, epilogue: Epilogue, order: Order) -> Matmul | None:
    op, (left, right, *rest) = node.op, node.inputs
    assert isinstance(op, MatrixMulV2) and left is not None and right is not None
    bias = rest[0] if rest else None
    if left.dtype not in BYTES or right.dtype not in BYTES or op.out_dtype not in (None, I32):
        return None
    if not (op.is_lzp_const and op.is_rzp_const):
        return None
    if bias is not None and not (bias.is_constant and bias.dtype is I32):
        return None
    return Matmul(op, left, right, None if bias is None else bias.array.reshape(-1), epilogue, order)


def _emit(builder: Builder, matmul_op: Matmul, result: Value) -> None:
    left, right = _left(builder, matmul_op), _right(builder, matmul_op)
    y = builder.write(result, matmul_op.order)
    spec = _matmul_spec(builder, matmul_op, left, right, y)
    builder.step("batch_matmul_int8", spec, (left, right), (y,))


def _emit_attention(builder: Builder, attention: Attention, result: Value) -> None:
    query, key, value = (
        _left(builder, attention.scores),
        _right(builder, attention.scores),
        _right(builder, attention.values),
    )
    y = builder.write(result, attention.values.order)
    spec = builder.native.AttentionInt8Spec(
        scores=_matmul_spec(builder, attention.scores, query, key, None),
        probabilities=builder.native.ByteQuantization(**attention.probabilities._asdict()),
        values=_matmul_spec(builder, attention.values, None, value, y),
    )
    builder.step("attention_int8", spec, (query, key, value), (y,))


def _left(builder: Builder, matmul_op: Matmul) -> Stored:
    rank = matmul_op.left.rank
    return _with_contiguous_axis(builder, matmul_op.left, rank - 2 if matmul_op.op.is_left_trans else rank - 1)


def _right(builder: Builder, matmul_op: Matmul) -> Stored:
    last = matmul_op.right.rank - 1
    return _with_contiguous_axis(builder, matmul_op.right, last, last - 1)


def _matmul_spec(builder: Builder, matmul_op: Matmul, left: Stored | None, right: Stored, y: Stored | None) -> Any:
    """Return the spec of the extension. A missing left operand or result is in scratch memory of the attention step."""
    op, rank = matmul_op.op, matmul_op.right.rank
    row = rank - 1 if op.is_left_trans else rank - 2
    depth, column = (rank - 1, rank - 2) if op.is_right_trans else (rank - 2, rank - 1)
    columns = right.shape[column]
    scratch = (0,) * (rank - 2)
    return builder.native.MatmulInt8Spec(
        left=None if left is None else builder.place(left),
        right=builder.place(right),
        output=None if y is None else builder.place(y),
        batch=right.shape[:-2],
        left_batch=scratch if left is None else left.strides[:-2],
        right_batch=right.strides[:-2],
        output_batch=scratch if y is None else y.strides[:-2],
        rows=matmul_op.left.type.static_shape[row],
        depth=right.shape[depth],
        columns=columns,
        left_row=0 if left is None else left.strides[row],
        right_row=_step(right, depth),
        right_column=_step(right, column),
        output_row=0 if y is None else y.strides[-2],
        epilogue=matmul_op.epilogue.compile(columns),
        left_zero=op.lzp_val + bias_of(matmul_op.left.dtype),
        right_zero=op.rzp_val + bias_of(matmul_op.right.dtype),
        bias=matmul_op.bias,
    )


def _with_contiguous_axis(builder: Builder, value: Value, axis: int, *others: int) -> Stored:
    """Return an operand that is contiguous along an axis or along one of ``others``. It is copied only if necessary."""
    stored = builder.read(value, dense=False)
    if any(_step(stored, candidate) == 1 for candidate in (axis, *others)):
        return stored
    return builder.read(value, (*(other for other in stored.order if other != axis), axis), dense=False)


def _step(stored: Stored, axis: int) -> int:
    """Stride of an axis in bytes; a unit axis has stride 1."""
    return 1 if stored.shape[axis] == 1 else stored.strides[axis]
