"""Recognition of nodes that compute y = k * x + b, and their folding into linear operators.

There is one k and one b per index of an axis. These nodes are batch_norm with constant statistics (k = gamma /
sqrt(var / s + epsilon), b = beta - mean / s * k), add, sub, mul or div with a constant that varies along that axis
only, and the same operators with a scalar. k and b are computed in float64 and rounded once, when the new constant is
stored. The engine switches off NumPy's warnings about non-finite values, so that this module checks for them.

Folding into a linear operator with weights W and bias B:
- after it: (x * W + B) * k + b = x * (W * k) + (B * k + b), k per output channel;
- before it: (k * x + b) * W + B = x * (k * W) + (B + b * W), k per input channel. Padding adds zeros, not b, so that b
  must be 0 where a conv pads, and for every deconv, whose windows differ at the edges.
"""

import math
from typing import NamedTuple

import numpy as np

from tpuconvert.optimizer.engine.engine import Skip
from tpuconvert.optimizer.engine.node_properties import computed_operands, operand, operands
from tpuconvert.schema.arithmetic.elementwise import Arithmetic
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value, static
from tpuconvert.schema.ops.arithmetic import BinaryArithmetic, Div
from tpuconvert.schema.ops.arithmetic_with_scalar import ScalarArithmetic
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv3d import Conv3d
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import Array


class Affine(NamedTuple):
    """Coefficients of y = k * x + b: one element of k and of b per index of an axis."""

    k: Array
    b: Array


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
    """Read the coefficients of a node for which ``is_affine`` is true.

    Returns:
        k and b per index of ``axis`` of the operand, or the reason why the node is not y = k * x + b along this axis.
    """
    (x,) = computed_operands(node)
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
        first, second = operand(node), operand(node, 1)
        constant, scalar_first = (first, True) if first.is_constant else (second, False)
        aligned = (1,) * (x.rank - constant.rank) + constant.array.shape
        if any(length != 1 for position, length in enumerate(aligned) if position != axis):
            return Skip("the constant is not a per-channel vector")
        c = np.broadcast_to(_vector(constant), (extent,)).copy()
    assert isinstance(node.op, (BinaryArithmetic, ScalarArithmetic))
    if node.op.arithmetic is Arithmetic.ADD:
        return Affine(ones, c)
    if node.op.arithmetic is Arithmetic.SUB:
        return Affine(-ones, c) if scalar_first else Affine(ones, -c)
    if node.op.arithmetic is Arithmetic.MUL:
        return Affine(c, zeros)
    k = 1.0 / c
    return Affine(k, zeros) if _is_finite(k) else Skip("a divisor is zero")


def _of_batch_norm(graph: Graph, node: Node, op: BatchNorm) -> Affine | Skip:
    if not op.use_global_stats:
        return Skip("its statistics are not constant")
    if any(value.uses or graph.is_output(value) for value in node.outputs[1:]):
        return Skip("its statistics have users")
    factor = 0.0 if op.scale == 0 else 1.0 / op.scale
    mean, variance = (_vector(operand(node, index)) * factor for index in (1, 2))
    gamma, beta = _optional(node, 3), _optional(node, 4)
    k = 1.0 / np.sqrt(variance + op.epsilon)
    if not _is_finite(k):
        return Skip("variance + epsilon is not positive in every channel")
    k = k if gamma is None else k * gamma
    return Affine(k, -mean * k + (0.0 if beta is None else beta))


def fold_affine_after(graph: Graph, linear: Node, affine: Affine, name: str | None = None) -> Value | Skip:
    """Return a new linear operator that computes k * y + b for the result y of the old one, per output channel."""
    if declined := _why_not(linear):
        return declined
    old_w = operand(linear, 1)
    if isinstance(linear.op, Deconv):
        # The weights are [ic, oc / groups, kh, kw]: the rows of a group have the same output channels.
        per_group = static(old_w.shape)[0] // linear.op.groups
        factor = np.repeat(affine.k.reshape(linear.op.groups, -1), per_group, axis=0)[:, :, None, None]
    else:
        factor = affine.k if isinstance(linear.op, MatrixMul) else affine.k.reshape(-1, *(1,) * (old_w.rank - 1))
    w: Array = np.empty(old_w.array.shape, old_w.dtype.numpy)
    # Each product is rounded once; the multiplication makes no float64 copy of the weights.
    np.multiply(old_w.array, factor, out=w, dtype=np.float64, casting="same_kind")
    bias = affine.b if (old := _optional(linear, 2)) is None else old * affine.k + affine.b
    return _rebuilt(graph, linear, linear.inputs[0], w, bias, name)


def fold_affine_before(graph: Graph, linear: Node, x: Value, affine: Affine) -> Value | Skip:
    """Return a linear operator whose result for x equals the result of the old one for k * x + b, per input channel."""
    if declined := _why_not(linear):
        return declined
    w, bias, shifts = operand(linear, 1).array.astype(np.float64), _optional(linear, 2), bool(affine.b.any())
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
    w, *rest = operands(linear)[1:]
    if 0 in w.shape:
        return Skip("it has no weights")
    if any(value.stored is not None for value in (w, *rest)):
        return Skip("the source file quantizes the weights")
    if not all(value.is_constant for value in rest):
        return Skip("its bias is not constant")
    if not w.dtype.is_float or not linear.outputs[0].dtype.is_float:
        return Skip("the linear operator is not float")
    return None


def _rebuilt(
    graph: Graph, linear: Node, x: Value | None, w: Array, bias: Array | None, name: str | None
) -> Value | Skip:
    old_w, old_b = operand(linear, 1), linear.inputs[2] if len(linear.inputs) > 2 else None
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
    """Return True if all elements are finite. A finite sum of squares proves it; otherwise check the bounds."""
    flat = array.reshape(-1)
    return math.isfinite(flat.dot(flat)) or (math.isfinite(flat.min()) and math.isfinite(flat.max()))


def _optional(node: Node, index: int) -> Array | None:
    """Return the elements of a constant operand as a float64 vector; None if the operand is absent."""
    value = node.inputs[index] if len(node.inputs) > index else None
    return None if value is None else _vector(value)


def _vector(value: Value) -> Array:
    return value.array.astype(np.float64).reshape(-1)
