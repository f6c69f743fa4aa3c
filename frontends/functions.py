"""Functions that need several TPU operators, for the converters of all frontends. Operands are FLOAT32.

Functions of a single operator, and erf and sign, are in ``formulas``. Composites such as gelu are TPU operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.open_extents import is_open
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.activation import ActiveParam, ActiveType
from tpuconvert.schema.ops.compare import Eq, Eqs, Gts, Le, Lt, Lts
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.quantization.round_to_integer import Ceil, Floor
from tpuconvert.schema.ops.reduce import ReduceMethodType
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import Array, Scalar

# Activations


def leaky_relu(g: Graph, x: Value, slope: float) -> Value:
    """``max(x, 0) + slope * min(x, 0)`` with one constant slope."""
    return g.add(ActiveParam(ActiveType.ACTIVE_LEAKY_RELU, (float(np.float32(slope)),)), x)


def prelu(g: Graph, x: Value, slope: Value) -> Value:
    """``max(x, 0) + slope * min(x, 0)`` with a slope that broadcasts to x."""
    return emit.add(g, formulas.relu(g, x), emit.mul(g, emit.mins(g, x, 0), slope))


def elu(g: Graph, x: Value, alpha: float, inner: float = 1.0) -> Value:
    """``max(x, 0) + alpha * (exp(min(x, 0) / inner) - 1)``."""
    if alpha == inner == 1:
        return formulas.active(g, ActiveType.ACTIVE_ELU, x)
    below = emit.mins(g, x, 0)
    if inner != 1:
        below = emit.divs(g, below, inner)
    negative = formulas.active(g, ActiveType.ACTIVE_ELU, below)  # exp - 1 without cancellation near 0
    return emit.add(g, formulas.relu(g, x), emit.muls(g, negative, alpha))


def softsign(g: Graph, x: Value) -> Value:
    """``x / (1 + |x|)``."""
    return emit.div(g, x, emit.adds(g, formulas.absolute(g, x), 1))


# Normalization


def log_softmax(g: Graph, x: Value, axis: int) -> Value:
    """``x - max - ln(sum(exp(x - max)))`` along an axis."""
    shifted = emit.sub(g, x, emit.reduce(g, ReduceMethodType.REDUCE_MAX, x, (axis,)))
    return emit.sub(g, shifted, formulas.ln(g, emit.total(g, formulas.exp(g, shifted), (axis,))))


def center(g: Graph, x: Value, axes: Sequence[int]) -> Value:
    """``x - mean(x)`` over axes."""
    return emit.sub(g, x, emit.mean(g, x, axes))


def standardize(g: Graph, x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """``(x - mean) / (standard deviation + epsilon)`` over axes."""
    centered = center(g, x, axes)
    deviation = formulas.sqrt(g, emit.mean(g, formulas.square(g, centered), axes))
    return emit.div(g, centered, emit.adds(g, deviation, epsilon))


# Rounding


def sign(g: Graph, x: Value) -> Value:
    """Sign of each element: 1, 0, -1, or NaN."""
    is_number = g.add(Eq(), x, x)
    return g.add(ConditionSelect(), is_number, formulas.sign(g, x), x)


def truncate(g: Graph, x: Value) -> Value:
    """Round toward zero: floor above 0, ceil below."""
    return g.add(ConditionSelect(), g.add(Lts(Scalar.f32(0)), x), g.add(Ceil(), x), g.add(Floor(), x))


def round_half_even(g: Graph, x: Value) -> Value:
    """Round to the nearest integer, ties to even; exact for every finite x.

    This is floor, plus 1 above one half, plus 1 on a tie with an odd floor.
    """
    low = g.add(Floor(), x)
    rest = emit.sub(g, x, low)
    up, tie = g.add(Gts(Scalar.f32(0.5)), rest), g.add(Eqs(Scalar.f32(0.5)), rest)
    odd = emit.sub(g, low, emit.muls(g, g.add(Floor(), emit.muls(g, low, 0.5)), 2))
    return emit.add(g, emit.add(g, low, up), emit.mul(g, tie, odd))


# Sums


def chain(g: Graph, op: Op, values: Sequence[Value]) -> Value:
    """Left fold of the values by a binary operator: ``op(op(a, b), c)``."""
    total, *rest = values
    for value in rest:
        total = g.add(op, total, value)
    return total


def multiply_along_axis(g: Graph, x: Value, axis: int, matrix: Array | Value) -> Value:
    """Multiply every vector along an axis by a matrix [extent, new extent]."""
    shape = emit.extents(x)
    order = [k for k in range(x.rank) if k != axis] + [axis]
    lead = [shape[k] for k in order[:-1]]
    rows = emit.reshape(g, emit.permute(g, x, order), (math.prod(lead), shape[axis]))
    factor = matrix if isinstance(matrix, Value) else emit.float_constant(g, np.ascontiguousarray(matrix), "matrix")
    y = emit.reshape(g, g.add(MatrixMul(), rows, factor), (*lead, emit.extents(factor)[1]))
    return emit.permute(g, y, [order.index(k) for k in range(x.rank)])


def cumulative_sum(g: Graph, x: Value, axis: int, *, exclusive: bool, reverse: bool) -> Value:
    """Cumulative sum along an axis, as a matmul with a triangular matrix of ones."""
    extent = emit.extents(x)[axis]
    if is_open(extent):
        numbers = emit.as_float(g, emit.positions(g, extent))
        rows, columns = emit.reshape(g, numbers, (extent, 1)), emit.reshape(g, numbers, (1, extent))
        compare = Lt() if exclusive else Le()
        return multiply_along_axis(g, x, axis, g.add(compare, *((columns, rows) if reverse else (rows, columns))))
    ones = np.ones((extent,) * 2, np.float32)
    triangle = np.tril(ones, -1 if exclusive else 0) if reverse else np.triu(ones, 1 if exclusive else 0)
    return multiply_along_axis(g, x, axis, triangle)


# Windows


def same_padding(extent: int, kernel: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """SAME padding (before, after) of one axis: the output extent of the window is ``ceil(extent / stride)``."""
    total = max((-(-extent // stride) - 1) * stride + dilation * (kernel - 1) + 1 - extent, 0)
    return total // 2, total - total // 2


def plane_convolution(
    operator: type[Conv] | type[Deconv],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    groups: int = 1,
) -> Conv | Deconv:
    """Create a Conv or Deconv over height and width; pads are top, bottom, left, right."""
    return operator(
        stride_h=strides[0],
        stride_w=strides[1],
        dh=dilations[0],
        dw=dilations[1],
        pad_h_t=pads[0],
        pad_h_b=pads[1],
        pad_w_l=pads[2],
        pad_w_r=pads[3],
        groups=groups,
    )
