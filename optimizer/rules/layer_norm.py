"""Recognition of decomposed layer normalization.

With c = x - mean(x) over the last axes and v = mean(c * c) over the same axes,

    layer_norm(x) = c / sqrt(v + epsilon) * scale + bias.

The division may be a multiply by rsqrt, and the square ``c * c``. A scale and bias that follow are
folded into it if they vary along the normalized axes only; otherwise they were folded into a following linear operator
before.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, Pattern, p
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds
from tpuconvert.schema.ops.normalization import LayerNorm
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.types import F32


def _is_mean(node: Node) -> bool:
    return isinstance(node.op, Reduce) and node.op.method == ReduceMethodType.REDUCE_MEAN and node.op.keep_dims


def _is_square(node: Node) -> bool:
    return isinstance(node.op, Active) and node.op.active_type == ActiveType.ACTIVE_SQUARE


def _is_root(node: Node) -> bool:
    return isinstance(node.op, Active) and node.op.active_type == ActiveType.ACTIVE_SQRT


def _is_reciprocal_root(node: Node) -> bool:
    return isinstance(node.op, Active) and node.op.active_type == ActiveType.ACTIVE_RSQRT


def _is_float(node: Node) -> bool:
    return node.outputs[0].dtype is F32


CENTRED = p(Sub, "x", p(Reduce, "x", name="mean", where=_is_mean, sole_user=True), name="centred")
SQUARES = (
    p(Active, CENTRED, name="square", where=_is_square, sole_user=True),
    p(Mul, CENTRED, CENTRED, name="square", sole_user=True),
)
SHIFTED = tuple(
    p(Adds, p(Reduce, square, name="variance", where=_is_mean, sole_user=True), name="shifted", sole_user=True)
    for square in SQUARES
)


def _equivalent_patterns() -> list[Pattern]:
    found = []
    for shifted in SHIFTED:
        reciprocal = p(Active, shifted, name="root", where=_is_reciprocal_root, sole_user=True)
        root = p(Active, shifted, name="root", where=_is_root, sole_user=True)
        found += [
            p(Mul, CENTRED, reciprocal, name="quotient", where=_is_float),
            p(Mul, reciprocal, CENTRED, name="quotient", where=_is_float),
            p(Div, CENTRED, root, name="quotient", where=_is_float),
        ]
    return found


@rule(*_equivalent_patterns(), stage="canonicalize")
def recognize_layer_norm(graph: Graph, m: Match) -> Replacement:
    """``(x - mean) / sqrt(mean((x - mean)^2) + epsilon) -> layer_norm(x)``."""
    rank = m.x.rank
    axes = sorted(axis % rank for axis in m.mean.op.axis_list)
    if axes != sorted(axis % rank for axis in m.variance.op.axis_list):
        return Skip("mean and variance are taken over different axes")
    if axes != list(range(axes[0], rank)):
        return Skip("it does not normalize the last axes")
    epsilon = m.shifted.op.scalar.value
    if not (epsilon >= 0 and math.isfinite(epsilon)):
        return Skip("epsilon is negative")
    if set(m.centred.output.users) - {m.square, m.quotient} or graph.is_output(m.centred.output):
        return Skip("centred has other users")
    return graph.add(LayerNorm(axes[0], epsilon), m.x)


def _has_no_scale(node: Node) -> bool:
    return len(node.inputs) == 1


def _has_no_bias(node: Node) -> bool:
    return len(node.inputs) < 3 or node.inputs[2] is None


@rule(
    p(Mul, p(LayerNorm, "x", name="norm", sole_user=True, where=_has_no_scale), "C", name="op"),
    p(Mul, "C", p(LayerNorm, "x", name="norm", sole_user=True, where=_has_no_scale), name="op"),
    stage="canonicalize",
    formerly="layer_norm_with_scale",
)
def fold_scale_into_layer_norm(graph: Graph, m: Match) -> Replacement:
    """``layer_norm(x) * C -> layer_norm(x, C)``."""
    scale = _own_extents(graph, m)
    return scale if isinstance(scale, Skip) else graph.add(_with_positive_axis(m), m.x, scale)


@rule(
    p(Add, p(LayerNorm, "x", "SCALE?", name="norm", sole_user=True, where=_has_no_bias), "C", name="op"),
    p(Add, "C", p(LayerNorm, "x", "SCALE?", name="norm", sole_user=True, where=_has_no_bias), name="op"),
    stage="canonicalize",
    formerly="layer_norm_with_bias",
)
def fold_bias_into_layer_norm(graph: Graph, m: Match) -> Replacement:
    """``layer_norm(x, scale) + C -> layer_norm(x, scale, C)``."""
    bias = _own_extents(graph, m)
    return bias if isinstance(bias, Skip) else graph.add(_with_positive_axis(m), m.x, m.SCALE, bias)


def _with_positive_axis(m: Match) -> LayerNorm:
    op: LayerNorm = m.norm.op
    return dataclasses.replace(op, axis=op.axis % m.x.rank)


def _own_extents(graph: Graph, m: Match) -> Value | Skip:
    """The constant with the extents of the normalized axes."""
    constant: Value = m.C
    wanted = m.x.shape[m.norm.op.axis % m.x.rank :]
    if constant.stored is not None or constant.dtype is not F32 or m.op.output.type != m.x.type:
        return Skip("the constant is not a plain one")
    shape = constant.array.shape
    lead, own = shape[: len(shape) - len(wanted)], shape[len(shape) - len(wanted) :]
    fits = len(own) == len(wanted) and all(a in (1, b) for a, b in zip(own, wanted, strict=True))
    if not fits or any(extent != 1 for extent in lead) or any(not isinstance(extent, int) for extent in wanted):
        return Skip("the constant does not vary along the normalized axes alone")
    return graph.constant(np.ascontiguousarray(np.broadcast_to(constant.array.reshape(own), wanted)), constant.name)
