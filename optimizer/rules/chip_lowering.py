"""Lowering of float operators that a chip does not support to operators that it supports.

| operator | lowered to |
|---|---|
| axpy | muls, add |
| batch_norm with constant statistics | per-channel mul and add |
| ceil, floor, round | active with the same function |
| clshift, crshift | two slices in the other order, concatenated |
| interpolate | upsample, index_select or matmul |
| lshift, rshift | a slice, padded with zeros on one side |
| resize_nearest, resize_weighted | the same without interpolate |
| rdivs | div with a constant of one element |
| softmax | exp(x - max(x)) / sum(exp(x - max(x))) with two reductions |

With symbolic extents, interpolate becomes a resize that is expanded when the extents have numbers. A resize is linear
in the pixels and separable: ``y = R @ x @ C`` with two constant matrices, which are the results of the operator for
unit images. If every result pixel equals one source pixel (nearest), a matrix only selects: this is upsample if it
repeats every pixel, otherwise index_select. In all other cases each axis becomes a matmul.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.optimizer.rules.affine import read_affine
from tpuconvert.schema.arithmetic.resize_weights import Coordinates, NearestRounding
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Axpy, Muls, Rdivs
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.channel_shift import Clshift, Crshift, Lshift, Rshift
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.quantization.round_to_integer import Rounding
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.resize import ResizeNearest, ResizeWeighted
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import Array, Scalar

_SWAP = (0, 1, 3, 2)


@rule(p(Axpy, "x", name="op"), stage="chip lowering")
def lower_axpy_to_mul_add(graph: Graph, m: Match) -> Replacement:
    """``axpy(x, y) -> a * x + y`` as muls and add, with the same rounding."""
    scaled = graph.add(Muls(m.op.op.scalar), m.x, name=f"{m.op.name}:scaled")
    return graph.add(Add(), scaled, m.op.inputs[1])


@rule(p(BatchNorm, "x", name="op"), stage="chip lowering")
def lower_batch_norm_to_mul_add(graph: Graph, m: Match) -> Replacement:
    """``batch_norm(x) -> k * x + b`` with constants of shape [1, C, 1, 1]."""
    affine = read_affine(graph, m.op, 1)
    if isinstance(affine, Skip):
        return affine
    k, b = (
        graph.constant(vector.astype(np.float32).reshape(1, -1, 1, 1), f"{m.op.name}:{name}")
        for vector, name in ((affine.k, "factors"), (affine.b, "shifts"))
    )
    scaled = graph.add(Mul(), m.x, k, name=f"{m.op.name}:scaled")
    return graph.add(Add(), scaled, b), None, None


@rule(p(Rounding, "x", name="op"), stage="chip lowering")
def lower_rounding_to_activation(graph: Graph, m: Match) -> Replacement:
    """``round(x) -> active(x)``, and likewise for floor and ceil."""
    return graph.add(Active(ActiveType[f"ACTIVE_{m.op.op.name.upper()}"]), m.x)


@rule(p(Rdivs, "x", name="op"), stage="chip lowering")
def lower_rdivs_to_div(graph: Graph, m: Match) -> Replacement:
    """``c / x -> div(C, x)`` with a constant of one element, which is broadcast."""
    scalar = np.full((1,) * m.x.rank, m.op.op.scalar.value, dtype=np.float32)
    return graph.add(Div(), graph.constant(scalar, f"{m.op.name}:dividend"), m.x)


@rule(p(Softmax, "x", name="op"), stage="chip lowering")
def lower_softmax_to_exp_div(graph: Graph, m: Match) -> Replacement:
    """``softmax(x) -> exp(x - max(x)) / sum(exp(x - max(x)))``. Subtracting the maximum prevents overflow."""
    name, axis = m.op.name, m.op.op.axis % m.x.rank
    largest = graph.add(Reduce((axis,), ReduceMethodType.REDUCE_MAX), m.x, name=f"{name}:max")
    centred = graph.add(Sub(), m.x, largest, name=f"{name}:centred")
    powers = graph.add(Active(ActiveType.ACTIVE_EXP), centred, name=f"{name}:powers")
    total = graph.add(Reduce((axis,), ReduceMethodType.REDUCE_SUM), powers, name=f"{name}:sum")
    return graph.add(Div(), powers, total)


@rule(p((Clshift, Crshift), "x", name="op"), stage="chip lowering")
def lower_channel_rotation_to_slices(graph: Graph, m: Match) -> Replacement:
    """Split axis 1 in two and concatenate the slices in the other order."""
    channels = m.x.shape[1]
    if not m.x.type.is_static or 0 in m.x.shape:
        return Skip("its shape is dynamic")
    first = (m.op.op.num if isinstance(m.op.op, Clshift) else -m.op.op.num) % channels
    if first == 0:
        return graph.add(Copy(), m.x)
    return graph.add(Concat(1), _slices(graph, m, first, channels), _slices(graph, m, 0, first))


@rule(p((Lshift, Rshift), "x", name="op"), stage="chip lowering")
def lower_channel_shift_to_pad(graph: Graph, m: Match) -> Replacement:
    """Slice the channels that remain, and pad with zeros on the other side."""
    channels = m.x.shape[1]
    if not m.x.type.is_static or 0 in m.x.shape:
        return Skip("its shape is dynamic")
    count = min(m.op.op.num, channels)
    if count == channels:
        return graph.add(Muls(Scalar.f32(0)), m.x)
    is_left = isinstance(m.op.op, Lshift)
    remaining = _slices(graph, m, count, channels) if is_left else _slices(graph, m, 0, channels - count)
    paddings = (0, 0, *((0, count) if is_left else (count, 0)), *(0, 0) * (m.x.rank - 2))
    return graph.add(Pad(Scalar.f32(0), paddings), remaining)


def _slices(graph: Graph, m: Match, begin: int, end: int) -> Value:
    shape = m.x.type.static_shape
    start, stop = (0, begin, *(0 for _ in shape[2:])), (shape[0], end, *shape[2:])
    return graph.add(Extract(start, stop, (1,) * len(shape)), m.x, name=f"{m.op.name}:from{begin}")


@rule(p((ResizeNearest, ResizeWeighted), "x", name="op"), stage="chip lowering")
def lower_symbolic_resize(graph: Graph, m: Match) -> Replacement:
    """Expand to one matmul or index_select per axis when the extents have numbers, instead of to interpolate."""
    if not m.op.op.has_interpolate:
        return Skip("it does not need interpolate")
    return graph.add(dataclasses.replace(m.op.op, has_interpolate=False), *m.op.inputs)


@rule(p(Interpolate, "x", name="op"), stage="chip lowering")
def lower_interpolate(graph: Graph, m: Match) -> Replacement:
    """Lower to upsample, index_select or one matmul per axis."""
    x, name = m.x, m.op.outputs[0].name
    if 0 in x.shape:
        return Skip("its operand is empty")
    if not x.type.is_static:
        resize = _symbolic_resize(m.op.op)
        return Skip("its size is dynamic, and its platform OPENCV") if resize is None else graph.add(resize, x)
    height, width = m.op.outputs[0].type.static_shape[2:]
    rows = _interpolation_matrix(m.op.op, x.type.static_shape[2], height)
    columns = _interpolation_matrix(m.op.op, x.type.static_shape[3], width)
    picked_rows, picked_columns = _selection(rows), _selection(columns)
    if picked_rows is None or picked_columns is None:
        along = _multiply_last_axis(graph, x, columns, f"{name}:columns")
        turned = graph.add(Permute(_SWAP), along, name=f"{name}:turned")
        down = _multiply_last_axis(graph, turned, rows, f"{name}:rows")
        return graph.add(Permute(_SWAP), down)
    factor = height // x.type.static_shape[2]
    if (
        factor > 1
        and _is_repetition(picked_rows, factor)
        and _is_repetition(picked_columns, factor)
        and width == factor * x.shape[3]
    ):
        return graph.add(Upsample(factor), x)
    along = graph.add(IndexSelect(3), x, graph.constant(picked_columns, f"{name}:columns"), name=f"{name}:along")
    return graph.add(IndexSelect(2), along, graph.constant(picked_rows, f"{name}:rows"))


def _interpolation_matrix(op: Interpolate, extent: int, result: int) -> Array:
    """The [source extent, result extent] matrix of interpolation weights along one axis.

    The operator is applied to a unit image, whose row r has its only non-zero pixel in column r. The number of rows is
    not changed, so that rows are not mixed.
    """
    unit = np.eye(extent, dtype=np.float32).reshape(1, 1, extent, extent)
    (weights,) = dataclasses.replace(op, size=(extent, result), scale_factor=()).reference(unit)
    matrix: Array = weights.reshape(extent, result)
    return matrix


def _selection(matrix: Array) -> Array | None:
    """Return the source pixel of every result pixel, or None if a result pixel combines several source pixels."""
    if not ((matrix == 1).sum(axis=0) == 1).all() or not ((matrix != 0).sum(axis=0) == 1).all():
        return None
    picked: Array = matrix.argmax(axis=0).astype(np.int32)
    return picked


def _is_repetition(picked: Array, factor: int) -> bool:
    return bool(len(picked) % factor == 0 and (picked == np.arange(len(picked)) // factor).all())


def _multiply_last_axis(graph: Graph, x: Value, matrix: Array, name: str) -> Value:
    """Multiply the last axis of x by a matrix."""
    *front, extent = x.type.static_shape
    flat = graph.add(Reshape((int(np.prod(front)), extent)), x, name=f"{name}.flat")
    mixed = graph.add(MatrixMul(), flat, graph.constant(matrix, f"{name}.weights"), name=f"{name}.mixed")
    return graph.add(Reshape((*front, matrix.shape[1])), mixed, name=name)


def _symbolic_resize(op: Interpolate) -> ResizeNearest | ResizeWeighted | None:
    """Resize with the weights of interpolate, expanded when extents have numbers; None for another platform."""
    if op.platform is not PlatForm.TENSORFLOW:
        return None
    scales, sizes = op.scale_factor or (0.0, 0.0), op.size or (0, 0)
    coordinates = Coordinates.align_corners if op.align_corners else Coordinates.asymmetric
    if op.method is InterpolateMode.BILINEAR:
        coordinates = Coordinates.half_pixel if op.half_pixel_centers else coordinates
        return ResizeWeighted(scales=scales, sizes=sizes, coordinates=coordinates, has_interpolate=False)
    coordinates = Coordinates.tf_half_pixel_for_nn if op.half_pixel_centers else coordinates
    rounding = NearestRounding.round_prefer_ceil if op.align_corners else NearestRounding.floor
    return ResizeNearest(scales=scales, sizes=sizes, coordinates=coordinates, rounding=rounding, has_interpolate=False)
