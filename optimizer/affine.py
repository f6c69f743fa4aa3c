"""Reading of a node as y = k * x + b with one k and b per index of an axis, and folding into linear operators.

Such nodes are batch_norm with constant statistics (k = gamma / sqrt(var / s + epsilon), b = beta - mean / s * k), add,
sub, mul or div with a constant that varies along that axis only, and the same with a scalar. All values are computed
in float64 and rounded once when they become a constant. The engine switches off NumPy's warnings about non-finite
values; they are checked here.

Folding into a linear operator with weights W and bias B:
- after it: (x * W + B) * k + b = x * (W * k) + (B * k + b), k per output channel;
- before it: (k * x + b) * W + B = x * (k * W) + (B + b * W), k per input channel. Padding adds zeros, not b, so that b
  must be 0 where a conv pads, and for every deconv, whose windows differ at the edges.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tpuconvert.optimizer.engine import Skip
from tpuconvert.schema.graph import Graph, Node, Value, static
from tpuconvert.schema.op import Trait
from tpuconvert.schema.ops.arithmetic import Add, Div, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Muls, Rsubs, ScalarArithmetic, Subs
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.conv3d import Conv3d
from tpuconvert.schema.ops.deconv import Deconv
from tpuconvert.schema.ops.matrix_mul import MatrixMul
from tpuconvert.schema.types import Array

if TYPE_CHECKING:
    import numpy.typing as npt

    Vector = npt.NDArray[np.float64]
else:
    Vector = np.ndarray


class Affine(NamedTuple):
    """y = k * x + b, with one element of k and b per index of an axis."""

    k: Vector
    b: Vector


def is_affine(node: Node) -> bool:
    """Return True if exactly one operand is computed and all others are constant, as in y = k * x + b."""
    if Trait.AFFINE not in node.op.traits:
        return False
    if Trait.BINARY not in node.op.traits:
        return Trait.UNARY in node.op.traits or _has_given_statistics(node)
    first, second = (value is not None and value.is_constant for value in node.inputs)
    return first != second and not (first and isinstance(node.op, Div))


def _has_given_statistics(node: Node) -> bool:
    return isinstance(node.op, BatchNorm) and all(value is None or value.is_constant for value in node.inputs[1:])


def read_affine(graph: Graph, node: Node, axis: int) -> Affine | Skip:
    """Read a node for which ``is_affine`` is true.

    Returns:
        k and b per index of ``axis`` of the operand, or the reason why the node has no such form.
    """
    (x,) = (value for value in node.inputs if value is not None and not value.is_constant)
    extent = x.shape[axis]
    if not isinstance(extent, int):
        return Skip("the number of channels is dynamic")
    if not x.dtype.is_float or node.outputs[0].type != x.type:
        return Skip("it is not a float operator that keeps the shape")
    if isinstance(node.op, BatchNorm):
        return _of_batch_norm(graph, node, node.op) if axis == 1 else Skip("it normalizes along another axis")
    ones, zeros = np.ones(extent), np.zeros(extent)
    if isinstance(node.op, ScalarArithmetic):
        c, scalar_first = zeros + node.op.scalar.value, node.op.scalar_first
    else:
        constant, scalar_first = _constant(node)
        aligned = (1,) * (x.rank - constant.rank) + constant.array.shape
        if any(length != 1 for position, length in enumerate(aligned) if position != axis):
            return Skip("the constant is not a per-channel vector")
        c = np.broadcast_to(_vector(constant), (extent,)).copy()
    if isinstance(node.op, (Add, Adds)):
        return Affine(ones, c)
    if isinstance(node.op, (Sub, Subs, Rsubs)):
        return Affine(-ones, c) if scalar_first else Affine(ones, -c)
    if isinstance(node.op, (Mul, Muls)):
        return Affine(c, zeros)
    k = 1.0 / c
    return Affine(k, zeros) if _is_finite(k) else Skip("a divisor is zero")


def _constant(node: Node) -> tuple[Value, bool]:
    first, second = node.inputs
    assert first is not None and second is not None
    return (first, True) if first.is_constant else (second, False)


def _of_batch_norm(graph: Graph, node: Node, op: BatchNorm) -> Affine | Skip:
    if not op.use_global_stats:
        return Skip("its statistics are not constant")
    if any(value.uses or graph.is_output(value) for value in node.outputs[1:]):
        return Skip("its statistics have users")
    mean, variance, *rest = [None if value is None else _vector(value) for value in node.inputs[1:]]
    gamma, beta = (*rest, None, None)[:2]
    assert mean is not None and variance is not None
    if op.scale != 1:
        factor = 0.0 if op.scale == 0 else 1.0 / op.scale
        mean, variance = mean * factor, variance * factor
    k = 1.0 / np.sqrt(variance + op.epsilon)
    if not _is_finite(k):
        return Skip("variance + epsilon is not positive in every channel")
    k = k if gamma is None else k * gamma
    return Affine(k, -mean * k + (0.0 if beta is None else beta))


def fold_affine_after(graph: Graph, linear: Node, affine: Affine, name: str | None = None) -> Value | Skip:
    """Return a new linear operator with the result k * y + b, per output channel."""
    if declined := _why_not(linear):
        return declined
    old_w = linear.inputs[1]
    assert old_w is not None
    if isinstance(linear.op, Deconv):
        # [ic, oc / groups, kh, kw]; the rows of a group share its output channels
        per_group = static(old_w.shape)[0] // linear.op.groups
        factor = np.repeat(affine.k.reshape(linear.op.groups, -1), per_group, axis=0)[:, :, None, None]
    else:
        factor = affine.k if isinstance(linear.op, MatrixMul) else affine.k.reshape(-1, *(1,) * (old_w.rank - 1))
    w = _scaled(old_w, factor)
    bias = affine.b if (old := _bias(linear)) is None else old * affine.k + affine.b
    return _rebuilt(graph, linear, linear.inputs[0], w, bias, name)


def fold_affine_before(graph: Graph, linear: Node, x: Value, affine: Affine) -> Value | Skip:
    """Return a new linear operator on x with the result of the old one on k * x + b, per input channel."""
    if declined := _why_not(linear):
        return declined
    w, shifts = _weights(linear), bool(affine.b.any())
    bias = _bias(linear)
    if isinstance(linear.op, MatrixMul):
        added, w = affine.b @ w, w * affine.k[:, None]
    elif isinstance(linear.op, Deconv):
        if shifts:
            return Skip("a bias before a deconv would differ at the edges")
        added, w = affine.b, w * affine.k[:, None, None, None]
    else:
        op = linear.op
        assert isinstance(op, (Conv, Conv3d))
        if shifts and any(op.pad if isinstance(op, Conv3d) else (op.pad_h_t, op.pad_h_b, op.pad_w_l, op.pad_w_r)):
            return Skip("a bias before a padding conv would differ at the edges")
        per_output, spatial = len(w) // op.groups, (1,) * (w.ndim - 2)
        k, b = (
            np.repeat(vector.reshape(op.groups, -1), per_output, axis=0).reshape(len(w), -1, *spatial)
            for vector in (affine.k, affine.b)
        )
        added, w = (w * b).reshape(len(w), -1).sum(axis=1), w * k
    if shifts:
        bias = added if bias is None else bias + added
    return _rebuilt(graph, linear, x, w, bias, None)


def _why_not(linear: Node) -> Skip | None:
    _, w, *rest = linear.inputs
    assert w is not None
    if w.stored is not None or any(value is not None and value.stored is not None for value in rest):
        return Skip("the source file quantizes the weights")
    if any(value is not None and not value.is_constant for value in rest):
        return Skip("its bias is not constant")
    if not w.dtype.is_float or not linear.outputs[0].dtype.is_float:
        return Skip("the linear operator is not float")
    return None


def _rebuilt(
    graph: Graph, linear: Node, x: Value | None, w: Array, bias: Vector | None, name: str | None
) -> Value | Skip:
    old_w, old_b = linear.inputs[1], linear.inputs[2] if len(linear.inputs) > 2 else None
    assert old_w is not None
    dtype = old_w.dtype.numpy
    w = w.astype(dtype, copy=False)
    b = None if bias is None else bias.astype(dtype, copy=False)
    if not _is_finite(w) or not (b is None or _is_finite(b)):
        return Skip("the folded weights are beyond the range of their type")
    inputs = [x, graph.constant(w, old_w.name)]
    if b is not None:
        shape = (1, -1, *(1,) * (old_w.rank - 2))
        bias_name = f"{linear.outputs[0].name}:bias" if old_b is None else old_b.name
        inputs.append(graph.constant(b.reshape(shape), bias_name))
    return graph.add(linear.op, *inputs, name=name)


def _is_finite(array: Array) -> bool:
    """Return True if all elements are finite. A finite sum of squares shows it in one step."""
    flat = array.reshape(-1)
    return math.isfinite(flat.dot(flat)) or (math.isfinite(flat.min()) and math.isfinite(flat.max()))


def _scaled(w: Value, factor: Vector) -> Array:
    """Multiply weights by a factor in float64, rounded once, without a float64 copy of the weights."""
    assert w.data is not None
    result: Array = np.empty(w.data.shape, w.dtype.numpy)
    np.multiply(w.data, factor, out=result, dtype=np.float64, casting="same_kind")
    return result


def _weights(linear: Node) -> Vector:
    w = linear.inputs[1]
    assert w is not None
    return w.array.astype(np.float64)


def _bias(linear: Node) -> Vector | None:
    value = linear.inputs[2] if len(linear.inputs) > 2 else None
    return None if value is None else _vector(value)


def _vector(value: Value) -> Vector:
    return value.array.astype(np.float64).reshape(-1)
