"""Mod with and without ``fmod``, also for an infinite divisor."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.onnx.elementwise import as_float_operand, operands
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.compare import Eq, Eqs, Lts
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.round_to_integer import Floor
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import Scalar


@onnx_op("Mod", since=10)
def modulo(node: OnnxNode, g: Graph) -> Result:
    """``x - y * floor(x / y)``; with ``fmod`` the division truncates. Integers are cast to FLOAT32."""
    a, b = operands(node)
    x, y = (as_float_operand(g, value) for value in (a, b))
    quotient = emit.div(g, x, y)
    is_truncated = bool(node.attr("fmod", 0))
    whole = functions.truncate(g, quotient) if is_truncated else g.add(Floor(), quotient)
    rest = emit.sub(g, x, emit.mul(g, whole, y))
    if a.dtype.is_integer:
        return node.elementwise(emit.cast(g, rest, a.dtype))
    is_finite = y.is_constant and bool(np.isfinite(y.array).all())
    return node.elementwise(rest if is_finite else _rest(g, x, y, rest, is_truncated))


def _rest(g: Graph, x: Value, y: Value, rest: Value, is_truncated: bool) -> Value:
    """Replace the remainder for infinite ``y``, where the formula gives NaN."""
    x, y, rest = emit.align(g, x, y, rest)
    shape = emit.broadcast_shape(emit.extents(x), emit.extents(y))
    wide = widened_to(g, x, shape)
    is_infinite = g.add(Eqs(Scalar.f32(math.inf)), formulas.absolute(g, widened_to(g, y, shape)))
    other = wide
    if not is_truncated:  # y itself if the signs differ
        is_other_sign = g.add(Lts(Scalar.f32(0)), emit.mul(g, wide, y))
        other = g.add(ConditionSelect(), is_other_sign, widened_to(g, y, shape), wide)
    is_finite = g.add(Eq(), emit.sub(g, wide, wide), emit.muls(g, wide, 0))
    is_infinite = emit.mul(g, is_infinite, is_finite)
    return g.add(ConditionSelect(), is_infinite, other, rest)


def widened_to(g: Graph, x: Value, shape: tuple[int, ...]) -> Value:
    """Return a computed value in the full shape: ``condition_select`` does not accept a constant there."""
    return emit.expand(g, g.add(Constdata(), x) if x.is_constant else x, shape)
