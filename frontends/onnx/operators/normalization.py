"""Softmax and normalizations, whose statistics are computed at run time or stored in the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.pooling import power_of_magnitude, root
from tpuconvert.frontends.open_extents import is_open
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import TOO_LARGE
from tpuconvert.schema.graph.graph import Graph, Value, static
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.compare import Eq, Eqs, Ne
from tpuconvert.schema.ops.normalization import GroupNorm, LayerNorm, Lrn, RmsNorm
from tpuconvert.schema.ops.ordering import Arg, ArgMethod
from tpuconvert.schema.ops.reduce import ReduceMethodType
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import DType, Scalar, Shape

_MOST_ELEMENTS = 1 << 24
"""Largest number of elements of a constant with the extents of normalized axes."""

AlongAxis = Callable[[Graph, Value, int], Value]
"""A function that adds an operator along one axis: graph, value and axis -> result."""


def apply_flattened(g: Graph, function: AlongAxis, x: Value, axis: int, always_flatten: bool = False) -> Value:
    """Flatten all axes from ``axis`` to the last, apply a function along this axis, and restore the shape."""
    shape = emit.extents(x)
    if axis == x.rank - 1 and not always_flatten:
        return function(g, x, axis)
    flat = emit.reshape(g, x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
    return emit.reshape(g, function(g, flat, 1), shape)


def along_axis(
    name: str, formula: str, function: AlongAxis, kind: Kind = Kind.DECOMPOSED, always_flatten: bool = False
) -> None:
    """Register an operator along one axis; before opset 13 it flattens all axes from ``axis`` to the last.

    With ``always_flatten`` the last axis is reshaped too, which does not change the result.
    """

    def convert(node: OnnxNode, g: Graph) -> Value:
        x, rank = emit.floats(node.input(0)), node.rank(0)
        if node.version >= 13:
            return function(g, x, node.axis(node.attr("axis", -1), rank))
        axis = node.axis(node.attr("axis", 1 if rank > 1 else 0), rank)  # the default of a vector is its only axis
        return apply_flattened(g, function, x, axis, always_flatten)

    convert.__doc__ = formula
    for since in (1, 13):
        onnx_op(name, since=since, kind=kind)(convert)


def softmax(g: Graph, x: Value, axis: int) -> Value:
    """``exp(x) / sum(exp(x))`` along an axis."""
    return g.add(Softmax(axis), x)


def _hardmax(g: Graph, x: Value, axis: int) -> Value:
    """1 at the first maximum along the axis, else 0: compare its index with all indices."""
    shape = emit.extents(x)
    if isinstance(shape[axis], int) and shape[axis] > _MOST_ELEMENTS:
        raise CannotConvertError(TOO_LARGE, f"axis {axis} has {shape[axis]} elements, more than {_MOST_ELEMENTS}")
    line = [shape[axis] if k == axis else 1 for k in range(x.rank)]
    if is_open(shape[axis]):  # which may be empty, so that arg has no result
        counter = emit.reshape(g, emit.as_float(g, emit.positions(g, shape[axis])), line)
        largest = emit.reduce(g, ReduceMethodType.REDUCE_MAX, x, [axis])
        others = emit.muls(g, g.add(Ne(), x, largest), 2 * _MOST_ELEMENTS)
        position = emit.reduce(g, ReduceMethodType.REDUCE_MIN, emit.add(g, others, counter), [axis])
    else:
        position = emit.cast(g, g.add(Arg(axis=axis, method=ArgMethod.max), x), DType.FLOAT32)
        counter = emit.float_constant(g, np.arange(shape[axis], dtype=np.float32).reshape(line), "counter")
    reduced = [1 if k == axis else extent for k, extent in enumerate(shape)]
    return g.add(Eq(), emit.reshape(g, position, reduced), counter)


along_axis("Softmax", "``exp(x) / sum(exp(x))`` along an axis.", softmax, Kind.DIRECT)
along_axis("LogSoftmax", "Logarithm of softmax along an axis.", functions.log_softmax)
along_axis("Hardmax", "1 at the first maximum along the axis, else 0.", _hardmax, always_flatten=True)


def normalize_last(
    g: Graph, op: LayerNorm | RmsNorm, x: Value, scale: Value | None = None, bias: Value | None = None
) -> Value:
    """Add a normalization of the last axes, with a scale and a bias that broadcast to x.

    If scale and bias have the extents of the normalized axes, or are constants that broadcast to these extents, they
    are operands of the normalization. Otherwise a multiply and an add follow it.
    """
    floats = [None if value is None else emit.floats(value) for value in (scale, bias)]
    factors = [None if value is None else _factor(g, value, x.shape[op.axis :]) for value in floats]
    if [value is None for value in factors] == [value is None for value in floats]:
        return g.add(op, x, *(factors if bias is not None else factors[:1]))
    y = g.add(op, x)
    y = y if floats[0] is None else emit.mul(g, y, floats[0])
    return y if floats[1] is None else emit.add(g, y, floats[1])


def _factor(g: Graph, value: Value, shape: Shape) -> Value | None:
    """Broadcast a scale or bias to the extents of the normalized axes; None if impossible or if it is quantized."""
    lead, own = value.shape[: max(value.rank - len(shape), 0)], value.shape[-len(shape) :]
    if value.stored is not None or any(extent != 1 for extent in lead):
        return None
    if own == shape:
        return emit.reshape(g, value, emit.extents(value)[-len(shape) :])
    if value.is_constant and all(isinstance(extent, int) for extent in shape):
        extents = static(shape)
        if math.prod(extents) > _MOST_ELEMENTS:
            return None
        array = value.array.reshape(value.array.shape[-len(shape) :])
        if emit.broadcast_shape(array.shape, extents) == extents:
            return g.constant(np.ascontiguousarray(np.broadcast_to(array, extents)), value.name)
    return None


@onnx_op("LayerNormalization", since=17, limits="stash_type 1", kind=Kind.DIRECT)
def layer_normalization(node: OnnxNode, g: Graph) -> list[Result]:
    """Normalize the axes from ``axis`` on, multiply by a scale and add a bias; also the statistics if requested."""
    node.refuse_attr("stash_type", 1)
    x = emit.floats(node.input(0))
    op = LayerNorm(node.axis(node.attr("axis", -1), node.rank(0)), node.attr("epsilon", 1e-5))
    results = [node.result(normalize_last(g, op, x, node.input(1), node.optional(2)))]
    if any(node.outputs_used[1:]):
        results += [
            node.result(value, element_types.FLOAT) for value in _statistics(g, x, range(op.axis, x.rank), op.epsilon)
        ]
    return results


def _statistics(g: Graph, x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value]:
    """Mean and 1 / standard deviation over axes."""
    mean = emit.mean(g, x, axes)
    variance = emit.mean(g, formulas.square(g, emit.sub(g, x, mean)), axes)
    return mean, formulas.rsqrt(g, emit.adds(g, variance, epsilon))


@onnx_op("RMSNormalization", since=23, kind=Kind.DIRECT)
def rms_normalization(node: OnnxNode, g: Graph) -> Result:
    """``x / sqrt(mean(x * x) + epsilon) * scale``."""
    node.refuse_attr("stash_type", 1)
    op = RmsNorm(node.axis(node.attr("axis", -1), node.rank(0)), node.attr("epsilon", 1e-5))
    return node.result(normalize_last(g, op, emit.floats(node.input(0)), node.input(1)))


def _channels(node: OnnxNode) -> int:
    if node.rank(0) < 3:
        raise node.invalid(f"an input of rank {node.rank(0)} has no spatial axes")
    return node.shape(0)[1]


@onnx_op("InstanceNormalization", since=1, kind=Kind.DIRECT)
def instance_normalization(node: OnnxNode, g: Graph) -> Value:
    """Normalize the spatial axes, with a scale and a bias per channel: as many groups as channels."""
    op = GroupNorm(_channels(node), node.attr("epsilon", 1e-5))
    return g.add(op, *(emit.floats(node.input(index)) for index in range(3)))


@onnx_op("GroupNormalization", since=18, kind=Kind.DIRECT)
def group_normalization(node: OnnxNode, g: Graph) -> Value:
    """Normalize groups of channels, with a scale and a bias per group (opset 18) or per channel (opset 21)."""
    channels, groups = _channels(node), node.required_attr("num_groups", 1)
    if groups < 1 or channels % groups:
        raise node.invalid(f"{channels} channels in {groups} groups")
    if node.version >= 21:
        node.refuse_attr("stash_type", 1)
    x, *factors = (emit.floats(node.input(index)) for index in range(3))
    if node.version < 21:
        factors = [_per_channel(g, value, channels) for value in factors]
    return g.add(GroupNorm(groups, node.attr("epsilon", 1e-5)), x, *factors)


def _per_channel(g: Graph, x: Value, channels: int) -> Value:
    """Repeat a vector with one element per group for the channels of each group."""
    (groups,) = emit.extents(x)
    if x.is_constant:
        return g.constant(np.repeat(x.array, channels // groups), x.name)
    return emit.reshape(g, emit.expand(g, emit.reshape(g, x, (groups, 1)), (groups, channels // groups)), (channels,))


@onnx_op("MeanVarianceNormalization", since=9)
def mean_variance_normalization(node: OnnxNode, g: Graph) -> Value:
    """``(x - mean) / (standard deviation + 1e-9)``."""
    x = emit.floats(node.input(0))
    axes = node.axes(node.attr("axes", (0, 2, 3)), node.rank(0))
    return functions.standardize(g, x, axes, 1e-9)


@onnx_op("LpNormalization", since=1)
def lp_normalization(node: OnnxNode, g: Graph) -> Value:
    """``x / norm(x)`` along one axis."""
    x = emit.floats(node.input(0))
    axis, p = node.axis(node.attr("axis", -1), node.rank(0)), float(node.attr("p", 2))
    norm = root(g, emit.total(g, power_of_magnitude(node, g, x, p), (axis,)), p)
    return emit.div(g, x, emit.add(g, norm, g.add(Eqs(Scalar.f32(0)), norm)))


@onnx_op("LRN", since=1, kind=Kind.DIRECT)
def local_response_normalization(node: OnnxNode, g: Graph) -> Value:
    """``x / (bias + alpha / size * sum of squares of neighboring channels) ^ beta``."""
    x, shape = emit.floats(node.input(0)), node.shape(0)
    size = node.required_attr("size", 1)
    if len(shape) < 3 or size < 1:
        raise node.invalid(f"an input of rank {len(shape)} with size={size}")
    node.budget((shape[1], shape[1]), 4, "banded matrix")  # a constant of the decomposed Lrn
    return g.add(Lrn(size, node.attr("alpha", 1e-4), node.attr("beta", 0.75), node.attr("bias", 1.0)), x)


@onnx_op("BatchNormalization", since=1, kind=Kind.DIRECT)
def batch_normalization(node: OnnxNode, g: Graph) -> Value | list[Result]:
    """``scale * (x - mean) / sqrt(variance + epsilon) + bias`` per channel; if training, by the input's statistics."""
    if node.version < 9:
        node.refuse_attr("spatial", 1)
    x = emit.floats(node.input(0))
    shape = node.shape(0)
    if len(shape) < 2 or any(node.shape(index) != (shape[1],) for index in range(1, 5)):
        raise node.invalid(f"parameters do not fit the {shape[1] if len(shape) > 1 else 0} channels")
    scale, bias, mean, variance = (emit.floats(node.input(index)) for index in range(1, 5))
    epsilon = node.attr("epsilon", 1e-5)
    if _is_training(node):
        return _normalize_by_own_statistics(node, g, x, scale, bias, mean, variance)
    node.optional_attr("momentum")  # only used in training
    if any(node.outputs_used[1:]):
        raise node.invalid("statistics as outputs outside of training mode")
    plane = (shape[0], shape[1], math.prod(shape[2:]), 1) if len(shape) != 4 else shape
    y, _, _ = g.add_all(BatchNorm(epsilon), emit.reshape(g, x, plane), mean, variance, scale, bias)
    return emit.reshape(g, y, shape)


def _is_training(node: OnnxNode) -> bool:
    """Return True if the statistics are computed from the input.

    An attribute selects this since opset 14 and before opset 7, where exporters omit it for inference although its
    default is training; the number of outputs selects it in between.
    """
    if node.version >= 14:
        return bool(node.attr("training_mode", 0))
    if node.version < 7:
        is_test = node.optional_attr("is_test")
        return is_test == 0 or (is_test is None and any(node.outputs_used[1:]))
    return any(node.outputs_used[1:])


def _normalize_by_own_statistics(
    node: OnnxNode, g: Graph, x: Value, scale: Value, bias: Value, mean: Value, variance: Value
) -> list[Result]:
    """Normalize each channel by its mean and (population) variance in the batch.

    The next outputs are moving averages, ``momentum * given + (1 - momentum) * found``. Before opset 14 the statistics
    of the batch follow them: the mean, and 1 / standard deviation, as ONNX Runtime defines them.
    """
    axes = [axis for axis in range(x.rank) if axis != 1]
    channels = static(node.shape(1))
    aligned = [channels[0] if axis == 1 else 1 for axis in range(x.rank)]
    centre = emit.mean(g, x, axes)
    centred = emit.sub(g, x, centre)
    spread = emit.mean(g, formulas.square(g, centred), axes)
    factor = formulas.rsqrt(g, emit.adds(g, spread, node.attr("epsilon", 1e-5)))
    weight = emit.mul(g, factor, emit.reshape(g, scale, aligned))
    y = emit.add(g, emit.mul(g, centred, weight), emit.reshape(g, bias, aligned))
    momentum = node.attr("momentum", 0.9)
    results = [y]
    for old, new in ((mean, centre), (variance, spread)):
        new = emit.muls(g, emit.reshape(g, new, channels), 1.0 - momentum)
        results.append(emit.add(g, emit.muls(g, old, momentum), new))
    results += [emit.reshape(g, value, channels) for value in (centre, factor)]
    return [node.result(value) for value in results[: len(node.output_names)]]
