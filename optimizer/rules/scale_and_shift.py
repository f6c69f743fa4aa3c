"""Folding y = k * x + b per channel into the product that makes x.

conv(x; W, B) * k + b = conv(x; W * k, B * k + b), with k and b one number per output channel; the same for deconv and
for the columns of matrix_mul. batch_norm with given statistics is such a y: k = gamma / sqrt(var / s + epsilon) and
b = beta - mean / s * k. The arithmetic is done in binary64 and rounded once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, Pattern, p
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.arithmetic import Add, Div, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls, Subs
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.deconv import Deconv
from tpuconvert.schema.ops.matrix_mul import MatrixMul

Vector = npt.NDArray[np.float64]

PRODUCT = p((Conv, Deconv, MatrixMul), "x", "W", "B?", name="product", sole_user=True)


def _after(operator: type, *operands: Pattern | str) -> Pattern:
    return p(operator, *operands, name="op")


@rule(_after(BatchNorm, PRODUCT, "MEAN", "VAR", "GAMMA?", "BETA?"), stage="fold")
def fold_batch_norm(graph: Graph, m: Match) -> Replacement:
    """Batch normalization with given statistics disappears into the product before it."""
    op = m.op.op
    if not op.use_global_stats:
        return Skip("its statistics are computed while the model runs")
    if any(value.uses or graph.is_output(value) for value in m.op.outputs[1:]):
        return Skip("its statistics are read")
    factor = 0.0 if op.scale == 0 else 1.0 / op.scale
    with np.errstate(all="ignore"):
        k = 1.0 / np.sqrt(_vector(m.VAR) * factor + op.epsilon)
    if m.GAMMA is not None:
        k = k * _vector(m.GAMMA)
    if not np.isfinite(k).all():
        return Skip("variance + epsilon is not positive in every channel")
    b = -_vector(m.MEAN) * factor * k + (0.0 if m.BETA is None else _vector(m.BETA))
    folded = _fold(graph, m, k, b)
    return folded if isinstance(folded, Skip) else (folded, None, None)


@rule(_after(Mul, PRODUCT, "K"), _after(Mul, "K", PRODUCT), _after(Div, PRODUCT, "K"), stage="fold")
def fold_factor(graph: Graph, m: Match) -> Replacement:
    """A constant factor per channel disappears into the weights."""
    if (k := _per_channel(m, m.K)) is None:
        return Skip("the constant is not one number per output channel")
    if isinstance(m.op.op, Div):
        with np.errstate(all="ignore"):
            k = 1.0 / k
        if not np.isfinite(k).all():
            return Skip("a divisor is zero")
    return _fold(graph, m, k, np.zeros_like(k))


@rule(
    _after(Add, PRODUCT, "C"),
    _after(Add, "C", PRODUCT),
    _after(Sub, PRODUCT, "C"),
    _after(Sub, "C", PRODUCT),
    stage="fold",
)
def fold_shift(graph: Graph, m: Match) -> Replacement:
    """A constant per channel that is added or subtracted disappears into the bias."""
    if (c := _per_channel(m, m.C)) is None:
        return Skip("the constant is not one number per output channel")
    ones = np.ones_like(c)
    if isinstance(m.op.op, Add):
        return _fold(graph, m, ones, c)
    return _fold(graph, m, -ones, c) if m.op.inputs[0] is m.C else _fold(graph, m, ones, -c)


@rule(_after(Muls, PRODUCT), _after(Divs, PRODUCT), _after(Adds, PRODUCT), _after(Subs, PRODUCT), stage="fold")
def fold_scalar(graph: Graph, m: Match) -> Replacement:
    """A scalar that multiplies, divides, is added or subtracted disappears into the product before it."""
    op = m.op.op
    zero = np.zeros(_channels(m))
    if isinstance(op, Muls):
        return _fold(graph, m, zero + op.scalar.value, zero)
    if isinstance(op, Divs):
        return Skip("division by zero") if op.scalar.value == 0 else _fold(graph, m, zero + 1.0 / op.scalar.value, zero)
    return _fold(graph, m, zero + 1.0, zero + (op.scalar.value if isinstance(op, Adds) else -op.scalar.value))


def _fold(graph: Graph, m: Match, k: Vector, b: Vector) -> Value | Skip:
    if m.W.stored is not None or m.product.output.quant is not None:
        return Skip("the source file quantizes the product")
    if not m.W.dtype.is_float or not m.product.output.dtype.is_float:
        return Skip("the product is not float")
    w = m.W.array.astype(np.float64)
    if isinstance(m.product.op, Deconv) and m.product.op.groups > 1:
        per_group = w.shape[1]  # weights are [ic, oc / groups, kh, kw]; rows of a group share its output channels
        rows = np.repeat(k.reshape(-1, per_group), w.shape[0] // m.product.op.groups, axis=0)
        scaled = w * rows[:, :, None, None]
    else:
        axis = 0 if isinstance(m.product.op, Conv) else 1
        scaled = w * k.reshape([-1 if index == axis else 1 for index in range(w.ndim)])
    bias = b if m.B is None else _vector(m.B) * k + b
    dtype = m.W.dtype.numpy
    shape = (1, -1) if isinstance(m.product.op, MatrixMul) else (1, -1, 1, 1)
    new_w = graph.constant(scaled.astype(dtype), m.W.name)
    new_b = graph.constant(
        bias.astype(dtype).reshape(shape), f"{m.product.output.name}:bias" if m.B is None else m.B.name
    )
    return graph.add(m.product.op, m.x, new_w, new_b)


def _vector(value: Value) -> Vector:
    return value.array.astype(np.float64).reshape(-1)


def _channels(m: Match) -> int:
    extent = m.product.output.shape[1]
    assert isinstance(extent, int)  # constant weights decide it
    return extent


def _per_channel(m: Match, constant: Value) -> Vector | None:
    """The constant as one number per output channel (axis 1), or None when it varies along another axis."""
    if m.op.output.type != m.product.output.type:
        return None  # it broadcasts the product
    shape = (1,) * (m.product.output.rank - constant.rank) + constant.array.shape
    if any(extent != 1 for axis, extent in enumerate(shape) if axis != 1):
        return None
    return np.broadcast_to(_vector(constant), (_channels(m),)).copy()
