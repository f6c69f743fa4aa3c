"""Float linear operators with a fused residual add and clamp."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder, Group
from tpuconvert.runtime.native.builder.storage import Stored, channels_last, row_major
from tpuconvert.runtime.native.matchers.convolution import Geometry, Image, geometry_of, transposed_phases
from tpuconvert.runtime.native.matchers.matcher import (
    Site,
    are_floats,
    computes,
    ends_with,
    names_of,
    operands_of,
    operators_of,
    order_for_permute,
)
from tpuconvert.runtime.native.matchers.tables import check_table
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs, Mins
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, Array

Interval = tuple[float, float]


Tail = tuple[tuple[str, int, float, float], ...]
"""Element-wise operations: name, operand (1 for the residual, -1 for the first scalar), two scalars."""


@dataclass(frozen=True)
class LinearOp:
    """A linear operator with constant weights and its epilogue.

    Args:
        node: the linear operator.
        residual: tensor operand of the residual add or of ``tail``; None without one.
        limits: interval of the clamp.
        tail: element-wise operations that replace residual add and clamp.
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


def emit_linear(builder: Builder, layer: LinearOp, result: Value) -> None:
    """Add the steps of a linear operator with constant weights. ``result`` is the result of the last fused node."""
    _emit(layer.node.op, builder, layer, result)


@singledispatch
def _emit(op: Op, builder: Builder, layer: LinearOp, result: Value) -> None:
    raise AssertionError(f"{op.name} is not linear")


@_emit.register
def _emit_convolution(op: Conv | Deconv, builder: Builder, layer: LinearOp, result: Value) -> None:
    x, w = operands_of(layer.node)[:2]
    order, geometry = channels_last(4), Geometry.of(op)
    source = Image.of(builder.read(x, order, dense=False))
    residual = None if layer.residual is None else builder.read(layer.residual, order)
    target = Image.of(builder.write(result, order))
    if not isinstance(op, Deconv):
        _convolve(builder, layer, source, target, residual, w.array, geometry)
        return
    for x_part, y_part, weights, phase in transposed_phases(source, target, w.array, geometry):
        start = y_part.stored.offset - target.stored.offset
        other = None if residual is None else residual._replace(offset=residual.offset + start)
        _convolve(builder, layer, x_part, y_part, other, weights, phase)


@_emit.register
def _emit_matrix(op: MatrixMul, builder: Builder, layer: LinearOp, result: Value) -> None:
    x, w = operands_of(layer.node)[:2]
    depth, columns = w.array.shape
    source = Image.of_matrix(builder.read(x, row_major(2), dense=False), depth)
    residual = None if layer.residual is None else builder.read(layer.residual, row_major(result.rank))
    target = Image.of_matrix(builder.write(result), columns)
    _convolve(builder, layer, source, target, residual, w.array.T[:, :, None, None], Geometry())


def _convolve(
    builder: Builder, layer: LinearOp, x: Image, y: Image, residual: Stored | None, weights: Array, geometry: Geometry
) -> None:
    """Add one convolution step; weights are [out, in of a group, kernel_h, kernel_w]."""
    builder.kernel_step(
        "conv_float32",
        "ConvFloatSpec",
        {"input": x.stored, "residual": residual},
        {"output": y.stored},
        geometry=geometry_of(builder, x, y, weights.shape[2:], geometry),
        weights=weights,
        bias=_bias(layer.node),
        limits=layer.limits,
        tail=list(layer.tail),
        is_precise=layer.is_precise,
        like=builder.step_of_earlier_plan("conv_float32"),
    )


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
    """Match a linear operator, at most one add of a tensor of the same shape, and clamps, in this order."""
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
    linear_op = LinearOp(step, residual, interval, is_precise=any(item in site.precise for item in nodes))
    return Group(tuple(nodes[::-1]), lambda builder: emit_linear(builder, linear_op, node.outputs[0]))


def _compose(limits: list[Interval]) -> Interval | None:
    """Compose clamps into one interval; None without clamps."""
    if not limits:
        return None
    low, high = limits[0]
    for next_low, next_high in limits[1:]:
        low, high = (min(max(bound, next_low), next_high) for bound in (low, high))
    return low, high


def _residual_operands(node: Node, site: Site) -> tuple[Value, Value] | None:
    """Return the operand of an add that a linear operator computes, and the other operand; None if there is none."""
    first, second = node.inputs
    for operand, other in ((first, second), (second, first)):
        assert operand is not None and other is not None
        producer = site.absorbable(operand, *LINEAR_OPS, Reshape)
        if producer is not None and operand.shape == other.shape and operand is not other:
            return operand, other
    return None


def is_float_linear(node: Node) -> bool:
    """Return True if a linear operator has float operands and constant weights."""
    return are_floats(node) and all(value.is_constant for value in operands_of(node)[1:])


def _bias(node: Node) -> Array | None:
    value = node.inputs[2] if len(node.inputs) > 2 else None
    return None if value is None else np.ascontiguousarray(value.array.reshape(-1), np.float32)


@computes(
    "matmul_float32",
    dtypes=(F32,),
    conditions="weights computed at run time, constant bias",
    when=lambda op, node, site: all(value.is_constant for value in operands_of(node)[2:]),
)
def matmul(builder: Builder, node: Node, op: MatrixMul) -> None:
    """Matmul whose weights are computed at run time."""
    left, right = (builder.read(value, dense=False) for value in operands_of(node)[:2])
    multiply(builder, left, right, builder.write(node.output), bias=_bias(node), is_precise=node in builder.precise)


@computes("matmul_float32", dtypes=(F32,))
def batch_matmul(builder: Builder, node: Node, op: BatchMatmul) -> None:
    """Batched matmul. A permute of the result determines its memory order."""
    left, right = (builder.read(value, dense=False) for value in operands_of(node))
    left = transpose(left) if op.left_transpose else left
    right = transpose(right) if op.right_transpose else right
    target = builder.write(node.output, order_for_permute(node.output, builder.graph))
    multiply(builder, left, right, target, is_precise=node in builder.precise)


def transpose(stored: Stored) -> Stored:
    """Return a view with the last two axes swapped."""
    rank = len(stored.shape)
    return stored.permute((*range(rank - 2), rank - 1, rank - 2))


def multiply(
    builder: Builder, left: Stored, right: Stored, y: Stored, *, bias: Array | None = None, is_precise: bool = False
) -> None:
    """Add a batched matmul step for matrices [..., M, K] and [..., K, N] whose other axes broadcast."""
    starts = [_starts(item, y.shape[:-2]) for item in (left, right, y)]
    builder.kernel_step(
        "matmul_float32",
        "MatmulFloatSpec",
        {"left": left, "right": right},
        {"output": y},
        rows=y.shape[-2],
        columns=y.shape[-1],
        depth=left.shape[-1],
        left_row=left.strides[-2],
        left_depth=left.strides[-1],
        right_depth=right.strides[-2],
        right_column=right.strides[-1],
        out_row=y.strides[-2],
        left_starts=starts[0],
        right_starts=starts[1],
        out_starts=starts[2],
        bias=bias,
        is_precise=is_precise,
    )


def _starts(stored: Stored, batch: tuple[int, ...]) -> list[int]:
    """Byte offsets of the matrices of a tensor, in the order of the batches."""
    own, strides = stored.shape[:-2], stored.strides[:-2]
    check_table(math.prod(batch))
    starts = np.zeros(own, np.int64)
    for axis, (extent, stride) in enumerate(zip(own, strides, strict=True)):
        shape = [1] * len(own)
        shape[axis] = extent
        starts = starts + (np.arange(extent) * stride).reshape(shape)
    return np.broadcast_to(starts, batch).reshape(-1).tolist()
