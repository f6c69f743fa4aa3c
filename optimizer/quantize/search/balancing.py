"""Per-channel scales and zero points for the float operands of linear operators: SmoothQuant-like balancing.

A few channels of the normalized activations of a transformer are 20 to 100 times larger than the others, for all
tokens; the features of an input have the ranges of their units. One scale for the tensor then leaves a few integers for
all other channels. Where the operand is an input of the graph, or a float operator computes it, the chip quantizes
every channel with its own scale and zero point at no or little cost, and linear operators with constant weights take
both into their constants:

    sum over j of (q[j] - z[j]) * s[j] * w[j] + b = sum over j of q[j] * (s[j] * w[j]) + (b - sum of z[j] * s[j] * w[j])

The padding of a convolution consists of zeros, which are another integer for every zero point. Operands of convolutions
with padding have scales per channel, but no zero points.

The scale of a channel is a compromise: what the operand gains, the weights that absorb the ratio lose. The exponent of
the ratio is chosen for every tensor by the expected error of both. A zero point in the middle of the range of a channel
removes its mean, which is most of the magnitude of an outlier channel. Tensors whose expected error does not decrease
to half keep one scale, and all do if the error at the outputs of the network does not decrease on held-out samples.

Sources: Xiao et al., SmoothQuant (2022), section 4, for the scales; Wei et al., Outlier Suppression+ (2023), section 3,
for the zero points.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tpuconvert.optimizer.engine.node_properties import operand
from tpuconvert.optimizer.quantize.legalize import Legalized
from tpuconvert.optimizer.quantize.ranges.ranges import Channels, Range
from tpuconvert.optimizer.quantize.scales.annotate import SMALLEST_SCALE
from tpuconvert.optimizer.quantize.scales.channel_scales import by_channel
from tpuconvert.optimizer.quantize.search.output_error import OutputError
from tpuconvert.optimizer.quantize.traits import changes_shape_or_axes, has_constant_weight
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv3d import Conv3d
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import I8, U8, Chip, QuantParams

Vector = npt.NDArray[np.float64]

EXPONENTS = (0.0, 0.25, 0.5)
"""Candidate exponents of the ratio of a channel's range to the largest one: 0 gives all channels the same scale, 1 the
scale of their own range. Larger ones depend more on the calibration samples: on the BERT layer of the benchmark, with
samples whose channels have other ranges, 0.75 doubled the error at the outputs compared with one scale."""

FULL_EXPONENTS = (*EXPONENTS, 0.75, 1.0)
"""The same for inputs of the graph and for feature maps. The ranges of inputs depend on units and sensors, so
that other samples have the same. A channel of a feature map has many values in every sample."""

_SMALLEST = 2.0**-6
"""Smallest ratio of a channel's scale to the largest: the channel may be inactive in all calibration samples. It does
not apply to inputs of the graph, whose channels can have any ratio."""

_WORTHWHILE = 0.5
"""Largest ratio of the expected error with a scale per channel to that with one scale. Without outliers the ratio is
close to 1, and one scale lets engines compute a normalization and the quantization of its result together."""

_DEVIATIONS = 4.0
"""Least range of a channel on both sides of its mean, in standard deviations: few samples do not show the extremes."""

_LARGEST_ZERO_POINT = 2**20
"""Largest magnitude of a zero point. Quantization computes it in binary32, which is exact up to 2^24."""


@dataclass(frozen=True)
class Balancing:
    """Tensors with a scale and a zero point per channel, and the relative error at the outputs without and with them.

    Args:
        names: names of the tensors.
        before: squared error relative to the power of the outputs, for one scale per tensor.
        after: the same with the scales per channel.
    """

    names: tuple[str, ...] = ()
    before: float = 0.0
    after: float = 0.0


Quantize = Callable[[Collection[str]], Legalized]
"""Annotates and legalizes a float graph; the argument has the names of the tensors to balance."""


def choose_balancing(candidates: Collection[str], quantize: Quantize, error: OutputError) -> Balancing:
    """Return the candidates as chosen tensors if the error at the outputs decreases with them, otherwise none.

    They are chosen as well if the score of a task rises, and not if one falls.

    Args:
        candidates: names of the tensors whose expected error decreases.
        quantize: annotates and legalizes the graph.
        error: measurement on held-out samples.
    """
    before, after = (error.measure(quantize(names).graph) for names in ((), candidates))
    is_lower = after.minus(before).is_lower and not after.loses(before)
    names = tuple(candidates) if is_lower or after.gains(before) else ()
    return Balancing(names, before.mean, after.mean)


def balance(
    graph: Graph,
    ranges: Mapping[str, Range],
    floats: Collection[str],
    chip: Chip,
    names: Collection[str] | None = None,
) -> list[str]:
    """Give float operands of linear operators a scale and a zero point per channel, in place, if this halves the error.

    Args:
        graph: annotated graph.
        ranges: calibrated ranges of its values, by name.
        floats: names of the nodes that stay float.
        chip: BM1684 has one scale for all weights of a linear operator.
        names: names of the values that can change; None for all.

    Returns:
        The names of the changed values.
    """
    changed = []
    inputs = _moved_inputs(graph, floats)
    for value in (*graph.inputs, *(value for node in graph.sorted_nodes() for value in node.outputs)):
        if (names is not None and value.name not in names) or not _is_float_operand(value, floats):
            continue
        channels = ranges[value.name].channels
        users = _users(value, floats)
        if not users or channels is None or len(channels.low) != value.shape[1]:
            continue
        if value not in inputs and any(len(operand(user, 1).uses) > 1 for user in users):
            continue  # a weight of several operators, as of the steps of an unrolled LSTM, would be copied for each
        params = _choose(value, channels, users, ranges, chip, is_input=value in inputs)
        if params is not None:
            changed.append(value.name)
            _annotate(value, params, floats)
    return changed


def _moved_inputs(graph: Graph, floats: Collection[str]) -> set[Value]:
    """Return the inputs of the graph, and the results of float nodes that change their shape or axes."""
    moved = set(graph.inputs)
    for node in graph.sorted_nodes():
        if node.name in floats and changes_shape_or_axes(node.op) and node.inputs[0] in moved:
            moved.update(node.outputs)
    return moved


def _is_float_operand(value: Value, floats: Collection[str]) -> bool:
    """Return True for a float value [N, C, ...] that is quantized to 8 bits for its users."""
    quant, producer = value.quant, value.producer
    is_quantized = quant is not None and quant.dtype.bits == 8 and quant.axis is None
    return (producer is None or producer.name in floats) and is_quantized and value.rank in (2, 4, 5)


def _users(value: Value, floats: Collection[str]) -> list[Node]:
    """Linear operators with constant weights that use the integers of a value; empty if it has other integer users."""
    users = []
    for user, index in value.uses:
        if user.name in floats:
            continue
        if _keeps_channels(user):
            after = _users(user.outputs[0], floats)
            if not after:
                return []
            users += after
        elif _absorbs(user, index):
            users.append(user)
        else:
            return []
    return users


def _absorbs(node: Node, index: int) -> bool:
    """Return True if a node takes scales per channel of an operand into its weights, and zero points into its bias."""
    if index != 0 or not has_constant_weight(node) or len(node.inputs) != 3 or operand(node, 1).stored is not None:
        return False
    if isinstance(node.op, MatrixMul):
        return True
    if not isinstance(node.op, (Conv, Conv3d)):
        return False
    return node.op.groups == 1 or (node.op.groups == operand(node).shape[1] and operand(node, 1).shape[1] == 1)


def _keeps_channels(node: Node) -> bool:
    """Return True for a slice of axis 0."""
    return isinstance(node.op, Extract) and node.outputs[0].shape[1:] == operand(node).shape[1:]


class _Weights(NamedTuple):
    """Constants of a linear operator for the expected error.

    Args:
        magnitudes: largest magnitudes of the weights, [input channel, output channel], or [1, output channel] if it is
            depthwise.
        squares: sums of their squares, like ``magnitudes``.
        power: variance of the result, added over the output channels.
        taps: kernel size.
    """

    magnitudes: Vector
    squares: Vector
    power: float
    taps: int


def _weights_of(node: Node, ranges: Mapping[str, Range]) -> _Weights:
    squares, magnitudes, taps = by_channel(node, operand(node, 1).array.astype(np.float64))
    channels = ranges[node.name].channels
    power = sum(channels.variance) if channels is not None else 0.0
    return _Weights(magnitudes.T, squares.T, power or 1.0, taps)


def _choose(
    value: Value, channels: Channels, users: list[Node], ranges: Mapping[str, Range], chip: Chip, *, is_input: bool
) -> QuantParams | None:
    """Return the parameters with the smallest expected error, or None if the current ones are about as good."""
    assert value.quant is not None
    weights = [_weights_of(node, ranges) for node in users]
    variance = np.asarray(channels.variance)
    has_zeros = not any(_pads(node) for node in users)
    own = np.full(variance.size, value.quant.scale[0])
    best, least = None, _WORTHWHILE * _expected_error(own, variance, weights, chip)
    for exponent in FULL_EXPONENTS if is_input or value.rank > 2 else EXPONENTS:
        params = _parameters(channels, exponent, 0.0 if is_input else _SMALLEST, has_zeros=has_zeros)
        error = _expected_error(np.asarray(params.scale), variance, weights, chip)
        if error < least:
            best, least = params, error
    return best


def _pads(node: Node) -> bool:
    """Return True for a convolution with padding."""
    return isinstance(node.op, (Conv, Conv3d)) and any(map(any, node.op.geometry.pads))


def _parameters(channels: Channels, exponent: float, smallest: float, *, has_zeros: bool) -> QuantParams:
    """Scales and zero points: the middle of the range of a channel becomes 0. Without zero points, 0 does.

    The range of a channel that is constant in all samples is unknown: it reaches from 0 to twice the constant, or is
    the range of the other channels.

    Args:
        channels: statistics of the operand.
        exponent: exponent of the ratio of a channel's range to the largest one.
        smallest: smallest such ratio.
        has_zeros: whether there are zero points.
    """
    mean, tail = np.asarray(channels.mean), _DEVIATIONS * np.sqrt(channels.variance)
    low, high = np.minimum(channels.low, mean - tail), np.maximum(channels.high, mean + tail)
    dtype = I8
    if not has_zeros:
        dtype = U8 if min(channels.low) >= 0.0 else I8
        low = -np.maximum(-low, high) if dtype is I8 else -high
        high = -low
    half, middle = (high - low) / 2, (high + low) / 2
    half = np.where(half > 0.0, half, np.abs(middle))
    half = np.where(half > 0.0, half, np.median(half[half > 0.0]) if half.any() else 1.0)
    largest = float(half.max())
    ratios = np.maximum(half / largest, max(smallest, SMALLEST_SCALE)) ** exponent
    scales = np.maximum(largest / dtype.max * ratios, np.abs(middle) / _LARGEST_ZERO_POINT)
    scales = np.maximum(scales, SMALLEST_SCALE).astype(np.float32).astype(np.float64)
    zeros = -np.rint(middle / scales).astype(np.int64)
    return QuantParams(tuple(scales.tolist()), tuple(zeros.tolist()), dtype, axis=1)


def _expected_error(scales: Vector, variance: Vector, users: list[_Weights], chip: Chip) -> float:
    """Squared error of the results of linear operators due to rounding operand and weights, relative to their variance.

    An operand with scale s has a mean squared error of s^2 / 12. The weights ``w * s`` of an output channel have the
    same error for their scale, which is 1/127 of the largest; BM1684 has one scale for all. The mean of the weight
    error is not included, because bias correction removes it.
    """
    total = 0.0
    for user in users:
        inputs, outputs = user.magnitudes.shape
        is_depthwise = inputs == 1
        step = np.repeat(scales, outputs // scales.size)[np.newaxis] if is_depthwise else scales[:, np.newaxis]
        signal = np.repeat(variance, step.size // scales.size).reshape(step.shape)
        steps = (user.magnitudes * step).max(axis=0) / I8.max
        if chip is Chip.BM1684:
            steps = np.full(steps.size, steps.max())
        rounding = float(np.sum(user.squares * np.square(step)))
        weights = float(np.sum(np.square(steps) * (signal / np.square(step)).sum(axis=0))) * user.taps
        total += (rounding + weights) / 12 / user.power
    return total


def _annotate(value: Value, params: QuantParams, floats: Collection[str]) -> None:
    """Annotate a value and the slices of it."""
    value.quant = params
    for user in value.users:
        if user.name not in floats and _keeps_channels(user):
            _annotate(user.outputs[0], params, floats)
