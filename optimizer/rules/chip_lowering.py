"""Lowering of float operators that a chip does not support to operators that it supports.

| operator | lowered to |
|---|---|
| axpy | muls, add |
| batch_norm with constant statistics | per-channel mul and add |
| ceil, floor, round | active with the function of that name |
| clshift, crshift | two slices in the other order, concatenated |
| interpolate | upsample, index_select or matmul: ``interpolate_lowering`` |
| lshift, rshift | a slice, padded with zeros on one side |
| rdivs | div with a constant of one element |
| softmax | exp(x - max(x)) / sum(exp(x - max(x))) with two reductions |
"""

from __future__ import annotations

import numpy as np

from tpuconvert.optimizer.affine import read_affine
from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Axpy, Muls, Rdivs
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.channel_shift import Clshift, Crshift, Lshift, Rshift
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.round_to_integer import Rounding
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import Scalar


@rule(p(Axpy, "x", name="op"), stage="chip lowering", formerly="axpy_as_sum")
def lower_axpy_to_mul_add(graph: Graph, m: Match) -> Replacement:
    """``axpy(x, y) -> a * x + y`` as two operators, which round like the one."""
    scaled = graph.add(Muls(m.op.op.scalar), m.x, name=f"{m.op.name}:scaled")
    return graph.add(Add(), scaled, m.op.inputs[1])


@rule(p(BatchNorm, "x", name="op"), stage="chip lowering", formerly="normalization_as_product_and_sum")
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


@rule(p(Rounding, "x", name="op"), stage="chip lowering", formerly="rounding_as_activation")
def lower_rounding_to_activation(graph: Graph, m: Match) -> Replacement:
    """``round(x) -> active(x)``, and likewise for floor and ceil."""
    return graph.add(Active(ActiveType[f"ACTIVE_{m.op.op.name.upper()}"]), m.x)


@rule(p(Rdivs, "x", name="op"), stage="chip lowering", formerly="reciprocal_as_quotient")
def lower_rdivs_to_div(graph: Graph, m: Match) -> Replacement:
    """``c / x -> div(C, x)`` with a constant of one element, which is broadcast."""
    scalar = np.full((1,) * m.x.rank, m.op.op.scalar.value, dtype=np.float32)
    return graph.add(Div(), graph.constant(scalar, f"{m.op.name}:dividend"), m.x)


@rule(p(Softmax, "x", name="op"), stage="chip lowering", formerly="softmax_as_quotient")
def lower_softmax_to_exp_div(graph: Graph, m: Match) -> Replacement:
    """``softmax(x) -> exp(x - max(x)) / sum(exp(x - max(x)))``. Subtracting the maximum prevents overflow."""
    name, axis = m.op.name, m.op.op.axis % m.x.rank
    largest = graph.add(Reduce((axis,), ReduceMethodType.REDUCE_MAX), m.x, name=f"{name}:max")
    centred = graph.add(Sub(), m.x, largest, name=f"{name}:centred")
    powers = graph.add(Active(ActiveType.ACTIVE_EXP), centred, name=f"{name}:powers")
    total = graph.add(Reduce((axis,), ReduceMethodType.REDUCE_SUM), powers, name=f"{name}:sum")
    return graph.add(Div(), powers, total)


@rule(p((Clshift, Crshift), "x", name="op"), stage="chip lowering", formerly="rotation_as_slices")
def lower_channel_rotation_to_slices(graph: Graph, m: Match) -> Replacement:
    """Split axis 1 in two and concatenate the slices in the other order."""
    channels = m.x.shape[1]
    if not m.x.type.is_static or 0 in m.x.shape:
        return Skip("its shape is dynamic")
    first = (m.op.op.num if isinstance(m.op.op, Clshift) else -m.op.op.num) % channels
    if first == 0:
        return graph.add(Copy(), m.x)
    return graph.add(Concat(1), _slices(graph, m, first, channels), _slices(graph, m, 0, first))


@rule(p((Lshift, Rshift), "x", name="op"), stage="chip lowering", formerly="shift_as_border")
def lower_channel_shift_to_pad(graph: Graph, m: Match) -> Replacement:
    """Slice the channels that remain, and pad with zeros on the other side."""
    channels = m.x.shape[1]
    if not m.x.type.is_static or 0 in m.x.shape:
        return Skip("its shape is dynamic")
    count = min(m.op.op.num, channels)
    if count == channels:
        return graph.add(Muls(Scalar.f32(0)), m.x)
    is_left = isinstance(m.op.op, Lshift)
    kept = _slices(graph, m, count, channels) if is_left else _slices(graph, m, 0, channels - count)
    paddings = (0, 0, *((0, count) if is_left else (count, 0)), *(0, 0) * (m.x.rank - 2))
    return graph.add(Pad(Scalar.f32(0), paddings), kept)


def _slices(graph: Graph, m: Match, begin: int, end: int) -> Value:
    shape = m.x.type.static_shape
    start, stop = (0, begin, *(0 for _ in shape[2:])), (shape[0], end, *shape[2:])
    return graph.add(Extract(start, stop, (1,) * len(shape)), m.x, name=f"{m.op.name}:from{begin}")
