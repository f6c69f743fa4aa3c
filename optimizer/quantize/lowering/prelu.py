"""PReLU on BM1686 for calibrated scales, with one rounding from the accumulator to the result.

The graph contains relu(x) + SLOPES * min(x, 0), which is max(x, s * x) for a slope s up to 1 and min(x, s * x) above.
With the integers X = x / u of x, and the scale t of the result:

    max(round(X * u / t), round(X * s * u / t)):

two requant_int32, whose offset is the zero point of the result, and a maximum. Rounding and saturation are monotone, so
this equals the rounded exact result. If x is requantized from an accumulator (of a linear operator or an add), X is
this accumulator. Then x is not rounded, and needs no operator unless it has other users. If some slopes are larger than
1, a minimum follows the maximum. In channels that need only one of the two, the other one gets a neutral operand: the
smallest or the largest integer, computed with a multiplier of 0 and an offset.

This takes 3 or 5 operators. As an add it would take 8 besides the rescale of x: two tables, a multiply and its rescale,
two operands, their sum and its rescale.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpuconvert.optimizer.quantize.lowering.lower_shared import result_params
from tpuconvert.optimizer.quantize.lowering.lowering import Declined, Lowered, Lowering, params_of, ratios, with_quant
from tpuconvert.schema.arithmetic.fixed_point import multiplier_shift
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.arithmetic import Add, Max, Min, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Mins
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import I32, Array, QuantParams


def lower_prelu(node: Node, lowering: Lowering) -> Lowered | None:
    """Lower an add that forms a PReLU; return None for any other add."""
    parts = _match_prelu(node)
    if parts is None:
        return None
    x, slopes = parts
    name, params = node.output.name, result_params(node)
    integers, units = _finest(lowering.quantized_value(x), lowering, f"{name}:wide")
    rising = np.broadcast_to(ratios(units, params.scale), slopes.shape)
    falling, is_steep = rising * slopes, slopes > 1
    zero, limits = params.zero_point[0], params.dtype
    flat, steep = _unless(is_steep, falling, limits.min, zero), _unless(~is_steep, falling, limits.max, zero)
    a = _rescale(lowering, integers, (rising, np.full(slopes.shape, zero)), params, f"{name}:rising")
    b = _rescale(lowering, integers, flat, params, f"{name}:falling")
    if not is_steep.any():
        return lowering.moves(Max(), a, b, names=(name,))
    larger = lowering.moves(Max(), a, b, names=(f"{name}:larger",))
    c = _rescale(lowering, integers, steep, params, f"{name}:steep")
    return larger if isinstance(larger, Declined) else lowering.moves(Min(), *larger, c, names=(name,))


def _match_prelu(node: Node) -> tuple[Value, Array] | None:
    """Match ``relu(x) + SLOPES * min(x, 0)``: return x and one slope per index of axis 1."""
    if not isinstance(node.op, Add) or any(value is None or value.producer is None for value in node.inputs):
        return None
    for positive, sloped in (node.inputs, node.inputs[::-1]):
        assert positive is not None and sloped is not None and positive.producer is not None
        negative = _negative_part(sloped.producer)
        if negative is not None and positive.producer.op.clamp_range() == (0, np.inf):
            x, slopes = negative
            is_one_per_channel = slopes.size == x.shape[1] and node.output.type == x.type
            return (x, slopes) if positive.producer.inputs[0] is x and is_one_per_channel else None
    return None


def _negative_part(node: Node | None) -> tuple[Value, Array] | None:
    """Match ``SLOPES * min(x, 0)``, as a multiply or a depthwise convolution: return x and the slopes."""
    if node is None or len(node.inputs) < 2 or not isinstance(node.op, (Conv, Mul)):
        return None
    least, factors, *bias = node.inputs
    limit = None if least is None else least.producer
    if limit is None or factors is None or not factors.is_constant or factors.stored is not None:
        return None
    if not isinstance(limit.op, Mins) or limit.op.scalar.value != 0 or limit.inputs[0] is None:
        return None
    slopes = factors.array.reshape(-1).astype(np.float64)
    if isinstance(node.op, Conv):
        is_factor = node.op == Conv(groups=slopes.size) and factors.shape == (slopes.size, 1, 1, 1)
        has_bias = any(value is not None and value.array.any() for value in bias)
        return (limit.inputs[0], slopes) if is_factor and not has_bias else None
    per_channel = (1, slopes.size, *(1,) * (node.output.rank - 2))
    return (limit.inputs[0], slopes) if factors.shape == per_channel else None


def _finest(x: Value, lowering: Lowering, name: str) -> tuple[Value, Sequence[float]]:
    """Integers and scales that a value is requantized from; else the value itself, widened if it has 8 bits."""
    rescale = x.producer
    above = rescale.inputs[0] if rescale is not None and isinstance(rescale.op, RequantInt32) else None
    if above is not None and above.dtype is I32 and above.quant is not None:
        return above, above.quant.scale
    return (x if x.dtype.bits == 16 else lowering.widen(x, 0, name)), params_of(x).scale


_Part = tuple[Array, Array]
"""Per-channel factors and offsets."""


def _unless(excluded: Array, factors: Array, instead: int, zero: int) -> _Part:
    """Return the factors with the offset ``zero``. Excluded channels get a factor of 0 and the offset ``instead``."""
    return np.where(excluded, 0.0, factors), np.where(excluded, instead, zero)


def _rescale(lowering: Lowering, x: Value, part: _Part, params: QuantParams, name: str) -> Value:
    """Multiply integers by per-channel factors, which may be negative, and add per-channel offsets."""
    factors, offsets = part
    pairs = [multiplier_shift(float(np.float32(abs(factor)))) for factor in factors]
    signs = np.where(factors < 0, -1, 1).tolist()
    op = RequantInt32(
        is_mul_shift_pc=True,
        multiplier_vec=tuple(sign * multiplier for sign, (multiplier, _) in zip(signs, pairs, strict=True)),
        shift_vec=tuple(shift - 31 for _, shift in pairs),
        is_offset_pc=bool(offsets.any()),
        offset_vec=tuple(offsets.astype(int).tolist()) if offsets.any() else (),
        mode=RequantMode.MULTIPLIER_SHIFT,
        out_dtype=params.dtype,
    )
    return with_quant(lowering.g.add(op, x, name=name), params)
