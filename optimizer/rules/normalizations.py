"""Recognition of decomposed rms_norm, instance norm and group_norm.

- rms_norm: x / sqrt(mean(x^2) + epsilon) over the last axes, then a scale with the extents of those axes.
- The L2 norm x / sqrt(sum(x^2) + e) of n elements is rms_norm with epsilon e / n and scale 1 / sqrt(n), because
  sum = n * mean. x / max(sqrt(sum(x^2)), d) is a different function and stays.
- Instance norm is layer_norm over the axes after the channels, then a per-channel scale and bias: group_norm with as
  many groups as channels. With fewer groups, a reshape before it joins the channels of each group.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, Pattern, p
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds
from tpuconvert.schema.ops.normalization import GroupNorm, LayerNorm, RmsNorm
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32


def _is_mean_or_sum(node: Node) -> bool:
    return (
        isinstance(node.op, Reduce)
        and node.op.method in (ReduceMethodType.REDUCE_MEAN, ReduceMethodType.REDUCE_SUM)
        and node.op.keep_dims
    )


def _is(kind: ActiveType, node: Node) -> bool:
    return isinstance(node.op, Active) and node.op.active_type == kind


def _is_square(node: Node) -> bool:
    return _is(ActiveType.ACTIVE_SQUARE, node)


def _is_root(node: Node) -> bool:
    return _is(ActiveType.ACTIVE_SQRT, node)


def _is_reciprocal_root(node: Node) -> bool:
    return _is(ActiveType.ACTIVE_RSQRT, node)


def _is_float(node: Node) -> bool:
    return node.outputs[0].dtype is F32


SQUARES = (
    p(Active, "x", name="square", where=_is_square, sole_user=True),
    p(Mul, "x", "x", name="square", sole_user=True),
)


def _equivalent_patterns() -> list[Pattern]:
    found = []
    for square in SQUARES:
        power = p(Reduce, square, name="power", where=_is_mean_or_sum, sole_user=True)
        for shifted in (p(Adds, power, name="shifted", sole_user=True), power):
            reciprocal = p(Active, shifted, name="root", where=_is_reciprocal_root, sole_user=True)
            root = p(Active, shifted, name="root", where=_is_root, sole_user=True)
            found += [
                p(Mul, "x", reciprocal, name="quotient", where=_is_float),
                p(Mul, reciprocal, "x", name="quotient", where=_is_float),
                p(Div, "x", root, name="quotient", where=_is_float),
            ]
    return found


@rule(*_equivalent_patterns(), stage="canonicalize")
def recognize_rms_norm(graph: Graph, m: Match) -> Replacement:
    """``x / sqrt(mean(x^2) + epsilon) -> rms_norm(x)``, also with a sum."""
    rank = m.x.rank
    axes = sorted(axis % rank for axis in m.power.op.axis_list[: m.power.op.axis_num])
    if axes != list(range(axes[0], rank)):
        return Skip("it does not normalize the last axes")
    epsilon = m.shifted.op.scalar.value if m.binds("shifted") else 0.0
    if not (epsilon >= 0 and math.isfinite(epsilon)):
        return Skip("epsilon is negative")
    if m.power.op.method == ReduceMethodType.REDUCE_MEAN:
        return graph.add(RmsNorm(axes[0], epsilon), m.x)
    extents = m.x.shape[axes[0] :]
    if not all(isinstance(extent, int) for extent in extents) or 0 in extents:
        return Skip("the number of elements is dynamic")
    count = math.prod(int(extent) for extent in extents)
    factors = np.full(extents, 1 / math.sqrt(count), np.float32)
    return graph.add(RmsNorm(axes[0], epsilon / count), m.x, graph.constant(factors, f"{m.quotient.name}:factors"))


RMS = p(RmsNorm, "x", name="norm", sole_user=True)


@rule(p(Mul, RMS, "C", name="op"), p(Mul, "C", RMS, name="op"), stage="canonicalize", formerly="rms_norm_with_scale")
def fold_scale_into_rms_norm(graph: Graph, m: Match) -> Replacement:
    """``rms_norm(x) * C -> rms_norm(x, C)`` if C has the extents of the normalized axes."""
    old = m.norm.inputs[1] if len(m.norm.inputs) > 1 else None
    if old is not None and not old.is_constant:
        return Skip("its scale is not constant")
    constant: Value = m.C
    wanted = m.x.shape[m.norm.op.axis % m.x.rank :]
    if constant.stored is not None or constant.dtype is not F32 or m.op.output.type != m.x.type:
        return Skip("the constant is not a plain one")
    shape = constant.array.shape
    lead = shape[: max(len(shape) - len(wanted), 0)]
    if any(extent != 1 for extent in lead) or any(not isinstance(extent, int) for extent in wanted):
        return Skip("the constant does not vary along the normalized axes alone")
    data = np.broadcast_to(constant.array.reshape(shape[len(lead) :]), wanted)
    scale = data if old is None else old.array.astype(np.float64) * data
    if not np.isfinite(scale).all() or np.abs(scale).max(initial=0.0) > np.finfo(np.float32).max:
        return Skip("the merged scales are beyond the range of float32")
    joined = graph.constant(np.ascontiguousarray(scale, np.float32), constant.name)
    return graph.add(RmsNorm(m.norm.op.axis % m.x.rank, m.norm.op.epsilon), m.x, joined)


def _is_bare(node: Node) -> bool:
    return len(node.inputs) == 1


def _has_no_bias(node: Node) -> bool:
    return len(node.inputs) < 3 or node.inputs[2] is None


INSTANCE = p(LayerNorm, "x", name="norm", where=_is_bare, sole_user=True)


@rule(p(Mul, INSTANCE, "C", name="op"), p(Mul, "C", INSTANCE, name="op"), stage="canonicalize")
def recognize_instance_norm(graph: Graph, m: Match) -> Replacement:
    """``layer_norm(x) * C -> group_norm(x, C)`` over all axes after the channels, with a per-channel scale."""
    channels = m.x.shape[1] if m.x.rank > 2 else None
    if m.norm.op.axis % m.x.rank != 2 or not isinstance(channels, int) or channels == 0:
        return Skip("it does not normalize the planes of channels")
    scale = _per_channel(graph, m, channels)
    return scale if isinstance(scale, Skip) else graph.add(GroupNorm(channels, m.norm.op.epsilon), m.x, scale)


BEFORE = p(Reshape, "x", name="before", sole_user=True)
GROUPED = p(LayerNorm, BEFORE, name="norm", where=_is_bare, sole_user=True)


@rule(p(Reshape, GROUPED, name="after"), stage="canonicalize")
def recognize_group_norm(graph: Graph, m: Match) -> Replacement:
    """``reshape(layer_norm(reshape(x))) -> group_norm(x)`` if the reshape joins channels to groups."""
    inner = m.before.output.shape
    if m.after.output.type != m.x.type or m.x.rank < 3 or not m.x.type.is_static or 0 in m.x.shape:
        return Skip("the second reshape does not undo the first")
    if m.norm.op.axis % len(inner) != 2 or inner[0] != m.x.shape[0] or m.x.type.static_shape[1] % int(inner[1]):
        return Skip("it does not normalize groups of channels")
    return graph.add(GroupNorm(int(inner[1]), m.norm.op.epsilon), m.x)


BARE = p(GroupNorm, "x", name="norm", where=_is_bare, sole_user=True)
SCALED = p(GroupNorm, "x", "SCALE?", name="norm", where=_has_no_bias, sole_user=True)


@rule(
    p(Mul, BARE, "C", name="op"), p(Mul, "C", BARE, name="op"), stage="canonicalize", formerly="group_norm_with_scale"
)
def fold_scale_into_group_norm(graph: Graph, m: Match) -> Replacement:
    """``group_norm(x) * C -> group_norm(x, C)`` for a per-channel scale."""
    scale = _per_channel(graph, m, m.x.shape[1])
    return scale if isinstance(scale, Skip) else graph.add(m.norm.op, m.x, scale)


@rule(
    p(Add, SCALED, "C", name="op"),
    p(Add, "C", SCALED, name="op"),
    stage="canonicalize",
    formerly="group_norm_with_bias",
)
def fold_bias_into_group_norm(graph: Graph, m: Match) -> Replacement:
    """``group_norm(x) + C -> group_norm(x, bias=C)`` for a per-channel bias."""
    bias = _per_channel(graph, m, m.x.shape[1])
    if isinstance(bias, Skip):
        return bias
    return graph.add(m.norm.op, m.x, m.SCALE, bias)


def _per_channel(graph: Graph, m: Match, channels: object) -> Value | Skip:
    """The constant as [C]."""
    constant: Value = m.C
    if constant.stored is not None or constant.dtype is not F32 or m.op.output.type != m.x.type:
        return Skip("the constant is not a plain one")
    aligned = (1,) * (m.x.rank - constant.rank) + constant.array.shape
    if not isinstance(channels, int) or aligned != (1, channels, *(1,) * (m.x.rank - 2)):
        return Skip("the constant is not a per-channel vector")
    return graph.constant(constant.array.reshape(channels), constant.name)
