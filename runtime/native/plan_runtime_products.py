"""Integer matrix products of two operands that are both made during the run, such as those of attention."""

from __future__ import annotations

from dataclasses import dataclass

from tpuconvert.runtime.native.builder import Builder
from tpuconvert.runtime.native.epilogue import Epilogue, bias_of
from tpuconvert.runtime.native.groups import Group, Site, ends_with
from tpuconvert.runtime.native.plan_products import BYTES, FOLLOWERS
from tpuconvert.runtime.native.storage import Order, Stored, row_major
from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.ops.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.requant_int32 import RequantInt32
from tpuconvert.schema.types import I32, Array


@dataclass(frozen=True)
class Product:
    """A product of two tensors, with everything that follows it in the same step.

    Args:
        op: with zero points that are one number each.
        left: [..., M, K], or [..., K, M].
        right: [..., K, N], or [..., N, K].
        bias: one integer per column, or None.
        epilogue: what happens to the sums.
        order: of the result's axes in memory.
    """

    op: MatrixMulV2
    left: Value
    right: Value
    bias: Array | None
    epilogue: Epilogue
    order: Order


@ends_with(MatrixMulV2.name, *(kind.name for kind in FOLLOWERS), priority=9)
def product(node: Node, site: Site) -> Group | None:
    """A product, then at most a rescale, limits and a table, or real numbers."""
    chain = [node]
    while isinstance(chain[-1].op, FOLLOWERS):
        producer = site.absorbable(chain[-1].inputs[0], *FOLLOWERS, MatrixMulV2)
        if producer is None:
            return None
        chain.append(producer)
    source, y = chain.pop(), node.outputs[0]
    epilogue = _followed(Epilogue.sums(), chain)
    if epilogue is None or epilogue.dtype is not y.dtype or 0 in y.type.static_shape:
        return None
    found = _product(source, epilogue, _order(y, site))
    if found is None:
        return None
    return Group((source, *reversed(chain)), lambda builder: _emit(builder, found, y))


def _followed(epilogue: Epilogue | None, chain: list[Node]) -> Epilogue | None:
    for follower in reversed(chain):
        op = follower.op
        is_per_channel = isinstance(op, RequantInt32) and (op.is_mul_shift_pc or op.is_offset_pc)
        if epilogue is None or (is_per_channel and follower.outputs[0].rank != 2):
            return None
        epilogue = epilogue.followed_by(follower)
    return epilogue


def _product(node: Node, epilogue: Epilogue, order: Order) -> Product | None:
    op, (left, right, *rest) = node.op, node.inputs
    assert isinstance(op, MatrixMulV2) and left is not None and right is not None
    bias = rest[0] if rest else None
    if left.dtype not in BYTES or right.dtype not in BYTES or op.out_dtype not in (None, I32):
        return None
    if not (op.is_lzp_const and op.is_rzp_const) or 0 in left.type.static_shape:
        return None
    if bias is not None and not (bias.is_constant and bias.dtype is I32):
        return None
    return Product(op, left, right, None if bias is None else bias.array.reshape(-1), epilogue, order)


def _order(y: Value, site: Site) -> Order:
    """Row-major, or so that the permutation that alone reads the result makes it row-major."""
    users = y.users
    if len(users) == 1 and isinstance(users[0].op, Permute) and site.graph.is_sole_use(y):
        order = users[0].op.order
        if order[-1] == y.rank - 1:
            return tuple(order)
    return row_major(y.rank)


def _emit(builder: Builder, found: Product, result: Value) -> None:
    op, rank = found.op, result.rank
    row, depth = (rank - 1, rank - 2) if op.is_left_trans else (rank - 2, rank - 1)
    own_depth, column = (rank - 1, rank - 2) if op.is_right_trans else (rank - 2, rank - 1)
    left = _with_adjacent(builder, found.left, depth)
    right = _with_adjacent(builder, found.right, column, own_depth)
    y = builder.write(result, found.order)
    columns = y.shape[-1]
    step = builder.native.product_int8(
        builder.place(left),
        builder.place(right),
        builder.place(y),
        [*y.shape[:-1], left.shape[depth], columns],
        [*left.strides[: rank - 2], left.strides[row]],
        [*right.strides[: rank - 2], _step(right, own_depth), _step(right, column)],
        list(y.strides[:-1]),
        found.epilogue.compiled(columns),
        builder.isa,
        left_zero=op.lzp_val + bias_of(found.left.dtype),
        right_zero=op.rzp_val + bias_of(found.right.dtype),
        bias=found.bias,
    )
    builder.step(step, (left, right), (y,))


def _with_adjacent(builder: Builder, value: Value, axis: int, *others: int) -> Stored:
    """An operand with adjacent elements along an axis, or along one of others; copied only if there is none."""
    stored = builder.read(value, dense=False)
    if any(_step(stored, candidate) == 1 for candidate in (axis, *others)):
        return stored
    return builder.read(value, (*(other for other in stored.order if other != axis), axis), dense=False)


def _step(stored: Stored, axis: int) -> int:
    """Bytes between neighbours along an axis; 1 where there are none."""
    return 1 if stored.shape[axis] == 1 else stored.strides[axis]
