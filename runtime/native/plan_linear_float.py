"""Float linear operators with a fused residual add and clamp."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from tpuconvert.runtime.native.builder import Builder, Group
from tpuconvert.runtime.native.float_convolution import FloatEpilogue, Image, convolve, convolve_transposed
from tpuconvert.runtime.native.groups import Site, ends_with, names_of, operators_of
from tpuconvert.runtime.native.integer_convolution import Geometry
from tpuconvert.runtime.native.storage import Order, Stored, channels_last, row_major
from tpuconvert.schema.graph import Node, Value, static
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs, Mins
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.deconv import Deconv
from tpuconvert.schema.ops.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, Array

Interval = tuple[float, float]


Tail = tuple[tuple[str, int, float, float], ...]
"""Element-wise operations: name, 1 for the residual or -1 for the first number, two numbers."""


@dataclass(frozen=True)
class LinearOp:
    """A linear operator with constant weights and its epilogue.

    Args:
        node: the linear operator.
        residual: operand of the residual add, unless there is a tail.
        limits: interval of the clamp.
        tail: element-wise operations in place of add and clamp.
        is_precise: True if the result is converted to integers later.
    """

    node: Node
    residual: Value | None = None
    limits: Interval | None = None
    tail: Tail = ()
    is_precise: bool = False


@singledispatch
def clamp_interval(op: Op) -> Interval | None:
    """Return the interval to which an operator clamps its operand, or None for another operator."""
    return None


@clamp_interval.register
def _(op: Active | ActiveParam) -> Interval | None:
    if op.out_dtype not in (None, F32):
        return None
    is_relu = op.active_type is ActiveType.ACTIVE_RELU
    if isinstance(op, Active) or not (op.params and op.params[0]):
        is_relu = is_relu or op.active_type is ActiveType.ACTIVE_LEAKY_RELU
    return (0.0, math.inf) if is_relu else None


@clamp_interval.register
def _(op: Clamp) -> Interval:
    return float(op.min.array), float(op.max.array)


@clamp_interval.register
def _(op: Maxs) -> Interval:
    return float(op.scalar.array), math.inf


@clamp_interval.register
def _(op: Mins) -> Interval:
    return -math.inf, float(op.scalar.array)


def emit_linear(builder: Builder, found: LinearOp, result: Value) -> None:
    """Add the steps of a linear operator with constant weights; ``result`` is that of the last fused node."""
    _emit(found.node.op, builder, found, result)


@singledispatch
def _emit(op: Op, builder: Builder, found: LinearOp, result: Value) -> None:
    raise AssertionError(f"{op.name} is not linear")


@_emit.register
def _emit_convolution(op: Conv | Deconv, builder: Builder, found: LinearOp, result: Value) -> None:
    x, w = found.node.inputs[:2]
    assert x is not None and w is not None
    order = channels_last(4)
    source = Image.of(builder.read(x, order, dense=False))
    epilogue = _epilogue(builder, found, order)
    target = Image.of(builder.write(result, order))
    step = convolve_transposed if isinstance(op, Deconv) else convolve
    step(builder, source, target, w.array, _bias(found.node), Geometry.of(op), epilogue)


@_emit.register
def _emit_matrix(op: MatrixMul, builder: Builder, found: LinearOp, result: Value) -> None:
    x, w = found.node.inputs[:2]
    assert x is not None and w is not None
    depth, columns = w.array.shape
    source = Image.of_matrix(builder.read(x, row_major(2), dense=False), depth)
    epilogue = _epilogue(builder, found, row_major(result.rank))
    target = Image.of_matrix(builder.write(result), columns)
    convolve(builder, source, target, w.array.T[:, :, None, None], _bias(found.node), Geometry(), epilogue)


LINEAR_OPS = operators_of(_emit)
CLAMPS = operators_of(clamp_interval)


@ends_with(
    *names_of(*LINEAR_OPS, *CLAMPS, Add),
    "reshape",
    kernels=("conv_float32",),
    dtypes="FLOAT32",
    conditions="conv, deconv or matrix_mul with constant weights, at most one residual add, then clamps",
    priority=5,
)
def linear(node: Node, site: Site) -> Group | None:
    """Match a linear operator, then at most one add of a tensor of the same shape, then clamps."""
    if any(value is None or value.dtype is not F32 for value in (*node.inputs[:2], *node.outputs)):
        return None
    nodes: list[Node] = []
    limits: list[Interval] = []
    residual: Value | None = None
    step: Node | None = node
    while step is not None:
        nodes.append(step)
        interval = clamp_interval(step.op)
        if type(step.op) in LINEAR_OPS:
            break
        operand = step.inputs[0]
        if isinstance(step.op, Add) and residual is None:
            pair = _residual_operands(step, site)
            if pair is None:
                return None
            operand, residual = pair
        elif interval is not None and residual is None:
            limits.append(interval)
        elif not isinstance(step.op, Reshape):
            return None
        step = site.absorbable(operand, *LINEAR_OPS, *CLAMPS, Add, Reshape)
    if step is None or not is_float_linear(step):
        return None
    has_reshape = any(isinstance(item.op, Reshape) for item in nodes)
    if has_reshape and (isinstance(node.op, Reshape) or not isinstance(step.op, MatrixMul)):
        return None
    interval = _compose(limits[::-1])
    if interval is not None and (interval[1] == 0 or math.copysign(1.0, interval[0]) < 0 == interval[0]):
        return None
    found = LinearOp(step, residual, interval, is_precise=any(item in site.precise for item in nodes))
    return Group(tuple(nodes[::-1]), lambda builder: emit_linear(builder, found, node.outputs[0]))


def _compose(limits: list[Interval]) -> Interval | None:
    """Compose clamps into one interval."""
    if not limits:
        return None
    low, high = limits[0]
    for next_low, next_high in limits[1:]:
        low, high = (min(max(bound, next_low), next_high) for bound in (low, high))
    return low, high


def _residual_operands(node: Node, site: Site) -> tuple[Value, Value] | None:
    """Return the operand of an add whose producer can be absorbed, and the other operand."""
    first, second = node.inputs
    for operand, other in ((first, second), (second, first)):
        assert operand is not None and other is not None
        producer = site.absorbable(operand, *LINEAR_OPS, Reshape)
        if producer is not None and operand.shape == other.shape and operand is not other:
            return operand, other
    return None


def is_float_linear(node: Node) -> bool:
    """Return True if a linear operator has float operands and constant weights."""
    x, w, *rest = node.inputs
    biases = [value for value in rest if value is not None]
    return (
        x is not None
        and w is not None
        and x.dtype is F32
        and w.dtype is F32
        and w.is_constant
        and node.outputs[0].dtype is F32
        and all(value.is_constant and value.dtype is F32 for value in biases)
        and 0 not in static(x.shape)
        and 0 not in static(w.shape)
    )


def _epilogue(builder: Builder, found: LinearOp, order: Order) -> FloatEpilogue:
    residual = None if found.residual is None else builder.read(found.residual, order)
    return FloatEpilogue(residual, found.limits, found.tail, found.is_precise)


def _bias(node: Node) -> Array | None:
    value = node.inputs[2] if len(node.inputs) > 2 else None
    return None if value is None else value.array.reshape(-1)


@ends_with(
    "matrix_mul",
    kernels=("matmul_float32",),
    dtypes="FLOAT32",
    conditions="weights computed at run time, constant bias",
)
def matmul(node: Node, site: Site) -> Group | None:
    """Match a matmul whose weights are computed at run time."""
    x, w, *rest = node.inputs
    biases = [value for value in rest if value is not None]
    if not _are_floats(node) or not all(value.is_constant for value in biases):
        return None
    assert x is not None and w is not None
    left, right, y, is_precise = x, w, node.outputs[0], node in site.precise

    def emit(builder: Builder) -> None:
        sources = builder.read(left, dense=False), builder.read(right, dense=False)
        multiply(builder, *sources, builder.write(y), bias=_bias(node), is_precise=is_precise)

    return Group((node,), emit)


@ends_with(
    "batch_matmul",
    kernels=("matmul_float32",),
    dtypes="FLOAT32",
    conditions="always",
)
def batch_matmul(node: Node, site: Site) -> Group | None:
    """Match a batched matmul. A permute of the result determines its memory order."""
    op, (left, right), y = node.op, node.inputs, node.outputs[0]
    if not isinstance(op, BatchMatmul) or left is None or right is None or not _are_floats(node):
        return None
    is_precise = node in site.precise

    def emit(builder: Builder) -> None:
        sources = [builder.read(value, dense=False) for value in (left, right)]
        swapped = [
            stored.permuted((*range(rank - 2), rank - 1, rank - 2)) if is_swapped else stored
            for stored, rank, is_swapped in (
                (sources[0], left.rank, op.left_transpose),
                (sources[1], right.rank, op.right_transpose),
            )
        ]
        multiply(builder, swapped[0], swapped[1], builder.write(y, _wanted_order(y)), is_precise=is_precise)

    return Group((node,), emit)


def multiply(
    builder: Builder, left: Stored, right: Stored, y: Stored, *, bias: Array | None = None, is_precise: bool = False
) -> None:
    """Add a batched matmul step for matrices [..., M, K] and [..., K, N] whose other axes broadcast."""
    rank = len(y.shape)
    batch = y.shape[:-2]
    starts = [_starts(item, batch) for item in (left, right, y)]
    spec = builder.native.MatmulFloatSpec(
        left=builder.place(left),
        right=builder.place(right),
        output=builder.place(y),
        rows=y.shape[-2],
        columns=y.shape[-1],
        depth=left.shape[-1],
        left_row=left.strides[-2],
        left_depth=left.strides[-1],
        right_depth=right.strides[-2],
        right_column=right.strides[-1],
        out_row=y.strides[rank - 2],
        left_starts=starts[0],
        right_starts=starts[1],
        out_starts=starts[2],
        bias=None if bias is None else np.ascontiguousarray(bias, np.float32),
        is_precise=is_precise,
    )
    builder.step("matmul_float32", spec, (left, right), (y,))


def _starts(stored: Stored, batch: tuple[int, ...]) -> list[int]:
    """Byte offsets of the matrices of a tensor, in batch order."""
    own, strides = stored.shape[:-2], stored.strides[:-2]
    starts = np.zeros(own, np.int64)
    for axis, (extent, stride) in enumerate(zip(own, strides, strict=True)):
        shape = [1] * len(own)
        shape[axis] = extent
        starts = starts + (np.arange(extent) * stride).reshape(shape)
    return np.broadcast_to(starts, batch).reshape(-1).tolist()


def _wanted_order(y: Value) -> Order:
    """Return the order that makes the result of a permute, the sole user, row-major; else row-major."""
    users = y.users
    if len(users) == 1 and isinstance(users[0].op, Permute) and users[0].op.order[-1] == y.rank - 1:
        return users[0].op.order
    return row_major(y.rank)


def _are_floats(node: Node) -> bool:
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    return all(value.dtype is F32 and 0 not in static(value.shape) for value in values)
