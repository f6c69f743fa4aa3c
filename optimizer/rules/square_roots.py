"""Replacement of divisions by a square root with one reciprocal square root per vector.

The L2 norm at the end of many networks divides by the length of a vector, with a lower limit d: x / max(sqrt(sum(x^2)),
d). The square root is monotone, so that for s >= 0

    max(sqrt(s), d) = sqrt(max(s, d^2)), and x / max(sqrt(s), d) = x * rsqrt(max(s, d^2)).

For s < 0 the root is NaN but the maximum is not: s must be known to be non-negative. d^2 must be a normal float32
number. With a sum s + e instead of the maximum, over the last axes, it is rms_norm, which is recognized before.
"""

from __future__ import annotations

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.optimizer.value_properties import is_never_negative
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Div, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs
from tpuconvert.schema.types import F32, Scalar

_SMALLEST, _LARGEST = 2.0**-63, 2.0**63
"""Between these the square is a normal number."""


def _is_root(node: Node) -> bool:
    return isinstance(node.op, Active) and node.op.active_type == ActiveType.ACTIVE_SQRT


def _is_float(node: Node) -> bool:
    return all(value is not None and value.dtype is F32 for value in (*node.inputs, *node.outputs))


ROOT = p(Active, "y", name="root", where=_is_root, sole_user=True)


@rule(
    p(Div, "x", ROOT, name="op", where=_is_float),
    p(Div, "x", p(Maxs, ROOT, name="limit", sole_user=True), name="op", where=_is_float),
    stage="fuse",
    formerly="quotient_by_root",
)
def replace_div_by_sqrt_by_rsqrt(graph: Graph, m: Match) -> Replacement:
    """``x / sqrt(y) -> x * rsqrt(y)``, and ``x / max(sqrt(y), d) -> x * rsqrt(max(y, d^2))``."""
    y, name = m.y, m.op.output.name
    if m.binds("limit"):
        least = m.limit.op.scalar.value
        if not _SMALLEST <= least <= _LARGEST:
            return Skip("the square of the limit is beyond the range of float32")
        if not is_never_negative(y):
            return Skip("the operand of the root may be negative")
        y = graph.add(Maxs(Scalar.f32(least * least)), y, name=f"{name}:limited")
    reciprocal = graph.add(Active(ActiveType.ACTIVE_RSQRT), y, name=f"{name}:reciprocal")
    return graph.add(Mul(), m.x, reciprocal)
