"""Recognition of decomposed layer_norm, rms_norm, instance norm and group_norm.

- layer_norm: c / sqrt(mean(c * c) + epsilon) with c = x - mean(x), both means over the last axes. The division may be a
  multiply by rsqrt, and the square ``c * c``. A scale and bias that follow are folded into it if they vary along the
  normalized axes only; others are folded into a following linear operator, if possible.
- TensorFlow writes normalizations as ``x * r + (b - mean(x) * r)`` with ``r = g / sqrt(variance + epsilon)``. This
  becomes ``(x - mean(x)) * r + b``, from which ``((x - mean(x)) / sqrt(...)) * g + b`` is recognized.
- rms_norm: x / sqrt(mean(x^2) + epsilon) over the last axes, then a scale with the extents of those axes.
- The L2 norm x / sqrt(sum(x^2) + e) of n elements is rms_norm with epsilon e / n and scale 1 / sqrt(n), because
  sum = n * mean. x / max(sqrt(sum(x^2)), d) is a different function and is not changed.
- Instance norm is layer_norm over the axes after the channels, then a per-channel scale and bias: group_norm with one
  group per channel. With fewer groups, a reshape before the layer_norm joins the channels of each group.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import is_active, is_float32, operand, reduced_axes
from tpuconvert.optimizer.engine.pattern import Match, Pattern, either_order, p
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds
from tpuconvert.schema.ops.normalization import GroupNorm, LayerNorm, RmsNorm
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, Array

_MOST_FACTORS = 1 << 24
"""Largest number of elements of a scale or bias that is repeated along normalized axes: 64 MiB."""

_IS_SQUARE, _IS_ROOT, _IS_RECIPROCAL_ROOT = map(
    is_active, (ActiveType.ACTIVE_SQUARE, ActiveType.ACTIVE_SQRT, ActiveType.ACTIVE_RSQRT)
)


def _is_mean(node: Node) -> bool:
    return isinstance(node.op, Reduce) and node.op.method == ReduceMethodType.REDUCE_MEAN and node.op.keep_dims


def _is_mean_or_sum(node: Node) -> bool:
    methods = (ReduceMethodType.REDUCE_MEAN, ReduceMethodType.REDUCE_SUM)
    return isinstance(node.op, Reduce) and node.op.method in methods and node.op.keep_dims


MEAN = p(Reduce, "x", name="mean", where=_is_mean)


def _scales_and_biases() -> Iterator[Pattern]:
    for scaled in either_order(Mul, "x", "r", name="scaled", sole_user=True, where=is_float32):
        for shift in either_order(Mul, MEAN, "r", name="shift", sole_user=True, where=is_float32):
            rest = p(Sub, "b", shift, name="rest", sole_user=True)
            yield from either_order(Add, scaled, rest, name="sum", sole_user=True, where=is_float32)


@rule(*_scales_and_biases(), stage="canonicalize")
def factor_out_centered_value(graph: Graph, m: Match) -> Replacement:
    """``x * r + (b - mean(x) * r) -> (x - mean(x)) * r + b``, where x - mean(x) is multiplied by each factor of r."""
    factors = _factors(m.r)
    if factors is None:
        return Skip("the factor is not 1 / sqrt(...), alone or times a constant")
    mean: Value = m.mean.output
    centered = next((user.outputs[0] for user in mean.users if user.op == Sub() and user.inputs == (m.x, mean)), None)
    if centered is None:
        return Skip("x - mean(x) is not computed elsewhere")
    for factor in factors:
        centered = graph.add(Mul(), centered, factor, name=f"{m.sum.name}:centred")
    if centered.type != m.sum.output.type:
        return Skip("adding b changes the shape")
    return graph.add(Add(), centered, m.b)


def _factors(r: Value) -> list[Value] | None:
    """Return the factors of r: the reciprocal root, then the constant factor if there is one. None for another r."""
    node = r.producer
    if node is None:
        return None
    if isinstance(node.op, Mul):
        first, second = operand(node), operand(node, 1)
        root, constant = (second, first) if first.is_constant else (first, second)
        return [root, constant] if constant.is_constant and _is_reciprocal_root(root) else None
    return [r] if _is_reciprocal_root(r) else None


def _is_reciprocal_root(value: Value) -> bool:
    return value.producer is not None and _IS_RECIPROCAL_ROOT(value.producer)


def _squares(x: Pattern | str) -> tuple[Pattern, Pattern]:
    return (
        p(Active, x, name="square", where=_IS_SQUARE, sole_user=True),
        p(Mul, x, x, name="square", sole_user=True),
    )


def _divided_by_root(x: Pattern | str, squared: Pattern) -> list[Pattern]:
    """Return the patterns of ``x / sqrt(squared)`` and ``x * (1 / sqrt(squared))``."""
    root = p(Active, squared, name="root", where=_IS_ROOT, sole_user=True)
    reciprocal = p(Active, squared, name="root", where=_IS_RECIPROCAL_ROOT, sole_user=True)
    products = either_order(Mul, x, reciprocal, name="quotient", where=is_float32)
    return [*products, p(Div, x, root, name="quotient", where=is_float32)]


CENTERED = p(Sub, "x", dataclasses.replace(MEAN, sole_user=True), name="centered")


def _layer_norms() -> Iterator[Pattern]:
    for square in _squares(CENTERED):
        variance = p(Reduce, square, name="variance", where=_is_mean, sole_user=True)
        yield from _divided_by_root(CENTERED, p(Adds, variance, name="shifted", sole_user=True))


@rule(*_layer_norms(), stage="canonicalize")
def recognize_layer_norm(graph: Graph, m: Match) -> Replacement:
    """``(x - mean) / sqrt(mean((x - mean)^2) + epsilon) -> layer_norm(x)``."""
    axes = reduced_axes(m.mean)
    if axes != reduced_axes(m.variance):
        return Skip("mean and variance are taken over different axes")
    if axes != list(range(axes[0], m.x.rank)):
        return Skip("it does not normalize the last axes")
    epsilon = m.shifted.op.scalar.value
    if not (epsilon >= 0 and math.isfinite(epsilon)):
        return Skip("epsilon is negative")
    if set(m.centered.output.users) - {m.square, m.quotient} or graph.is_output(m.centered.output):
        return Skip("centered has other users")
    return graph.add(LayerNorm(axes[0], epsilon), m.x)


def _rms_norms() -> Iterator[Pattern]:
    for square in _squares("x"):
        power = p(Reduce, square, name="power", where=_is_mean_or_sum, sole_user=True)
        for shifted in (p(Adds, power, name="shifted", sole_user=True), power):
            yield from _divided_by_root("x", shifted)


@rule(*_rms_norms(), stage="canonicalize")
def recognize_rms_norm(graph: Graph, m: Match) -> Replacement:
    """``x / sqrt(mean(x^2) + epsilon) -> rms_norm(x)``, also with a sum in place of the mean."""
    axes = reduced_axes(m.power)
    if axes != list(range(axes[0], m.x.rank)):
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
    if count > _MOST_FACTORS:
        return Skip(f"a constant of {count} factors is too large")
    factors = np.full(extents, 1 / math.sqrt(count), np.float32)
    return graph.add(RmsNorm(axes[0], epsilon / count), m.x, graph.constant(factors, f"{m.quotient.name}:factors"))


def _has_no_scale(node: Node) -> bool:
    return len(node.inputs) == 1


def _has_no_bias(node: Node) -> bool:
    return len(node.inputs) < 3 or node.inputs[2] is None


BARE_LAYER_NORM = p(LayerNorm, "x", name="norm", sole_user=True, where=_has_no_scale)
SCALED_LAYER_NORM = p(LayerNorm, "x", "SCALE?", name="norm", sole_user=True, where=_has_no_bias)


@rule(*either_order(Mul, BARE_LAYER_NORM, "C", name="op"), stage="canonicalize")
def fold_scale_into_layer_norm(graph: Graph, m: Match) -> Replacement:
    """``layer_norm(x) * C -> layer_norm(x, C)``."""
    scale = _over_normalized_axes(m)
    if isinstance(scale, Skip):
        return scale
    return graph.add(_with_positive_axis(m), m.x, graph.constant(np.ascontiguousarray(scale), m.C.name))


@rule(*either_order(Add, SCALED_LAYER_NORM, "C", name="op"), stage="canonicalize")
def fold_bias_into_layer_norm(graph: Graph, m: Match) -> Replacement:
    """``layer_norm(x, scale) + C -> layer_norm(x, scale, C)``."""
    bias = _over_normalized_axes(m)
    if isinstance(bias, Skip):
        return bias
    return graph.add(_with_positive_axis(m), m.x, m.SCALE, graph.constant(np.ascontiguousarray(bias), m.C.name))


def _with_positive_axis(m: Match) -> LayerNorm | RmsNorm:
    op: LayerNorm | RmsNorm = m.norm.op
    return dataclasses.replace(op, axis=op.axis % m.x.rank)


@rule(*either_order(Mul, p(RmsNorm, "x", name="norm", sole_user=True), "C", name="op"), stage="canonicalize")
def fold_scale_into_rms_norm(graph: Graph, m: Match) -> Replacement:
    """``rms_norm(x) * C -> rms_norm(x, C)`` if C has the extents of the normalized axes."""
    old = m.norm.inputs[1] if len(m.norm.inputs) > 1 else None
    if old is not None and not old.is_constant:
        return Skip("its scale is not constant")
    data = _over_normalized_axes(m)
    if isinstance(data, Skip):
        return data
    scale = data if old is None else old.array.astype(np.float64) * data
    if not np.isfinite(scale).all() or np.abs(scale).max(initial=0.0) > np.finfo(np.float32).max:
        return Skip("the merged scales are beyond the range of float32")
    joined = graph.constant(np.ascontiguousarray(scale, np.float32), m.C.name)
    return graph.add(_with_positive_axis(m), m.x, joined)


def _over_normalized_axes(m: Match) -> Array | Skip:
    """Return the constant, broadcast to the extents of the normalized axes."""
    if not _has_plain_constant(m):
        return Skip("the constant is not a plain one")
    shape, normalized_shape = m.C.array.shape, m.x.shape[m.norm.op.axis % m.x.rank :]
    lead = shape[: max(len(shape) - len(normalized_shape), 0)]
    if any(extent != 1 for extent in lead) or any(not isinstance(extent, int) for extent in normalized_shape):
        return Skip("the constant does not vary along the normalized axes alone")
    return np.broadcast_to(m.C.array.reshape(shape[len(lead) :]), normalized_shape)


def _has_plain_constant(m: Match) -> bool:
    return m.C.stored is None and m.C.dtype is F32 and bool(m.op.output.type == m.x.type)


@rule(*either_order(Mul, BARE_LAYER_NORM, "C", name="op"), stage="canonicalize")
def recognize_instance_norm(graph: Graph, m: Match) -> Replacement:
    """``layer_norm(x) * C -> group_norm(x, C)`` over all axes after the channels, with a per-channel scale."""
    channels = m.x.shape[1] if m.x.rank > 2 else None
    if m.norm.op.axis % m.x.rank != 2 or not isinstance(channels, int) or channels == 0:
        return Skip("it does not normalize the planes of channels")
    scale = _per_channel(graph, m)
    return scale if isinstance(scale, Skip) else graph.add(GroupNorm(channels, m.norm.op.epsilon), m.x, scale)


GROUPED = dataclasses.replace(BARE_LAYER_NORM, operands=(p(Reshape, "x", name="before", sole_user=True),))


@rule(p(Reshape, GROUPED, name="after"), stage="canonicalize")
def recognize_group_norm(graph: Graph, m: Match) -> Replacement:
    """``reshape(layer_norm(reshape(x))) -> group_norm(x)`` if the reshape joins channels to groups."""
    inner = m.before.output.shape
    if m.after.output.type != m.x.type or m.x.rank < 3 or not m.x.type.is_static or 0 in m.x.shape:
        return Skip("the second reshape does not undo the first")
    if m.norm.op.axis % len(inner) != 2 or inner[0] != m.x.shape[0] or m.x.type.static_shape[1] % int(inner[1]):
        return Skip("it does not normalize groups of channels")
    return graph.add(GroupNorm(int(inner[1]), m.norm.op.epsilon), m.x)


BARE_GROUP_NORM = p(GroupNorm, "x", name="norm", where=_has_no_scale, sole_user=True)
SCALED_GROUP_NORM = p(GroupNorm, "x", "SCALE?", name="norm", where=_has_no_bias, sole_user=True)


@rule(*either_order(Mul, BARE_GROUP_NORM, "C", name="op"), stage="canonicalize")
def fold_scale_into_group_norm(graph: Graph, m: Match) -> Replacement:
    """``group_norm(x) * C -> group_norm(x, C)`` for a per-channel scale."""
    scale = _per_channel(graph, m)
    return scale if isinstance(scale, Skip) else graph.add(m.norm.op, m.x, scale)


@rule(*either_order(Add, SCALED_GROUP_NORM, "C", name="op"), stage="canonicalize")
def fold_bias_into_group_norm(graph: Graph, m: Match) -> Replacement:
    """``group_norm(x) + C -> group_norm(x, bias=C)`` for a per-channel bias."""
    bias = _per_channel(graph, m)
    return bias if isinstance(bias, Skip) else graph.add(m.norm.op, m.x, m.SCALE, bias)


def _per_channel(graph: Graph, m: Match) -> Value | Skip:
    """Return the constant in the shape [C]."""
    if not _has_plain_constant(m):
        return Skip("the constant is not a plain one")
    channels, shape = m.x.shape[1], m.C.array.shape
    aligned = (1,) * (m.x.rank - len(shape)) + shape
    if not isinstance(channels, int) or aligned != (1, channels, *(1,) * (m.x.rank - 2)):
        return Skip("the constant is not a per-channel vector")
    return graph.constant(m.C.array.reshape(channels), m.C.name)
