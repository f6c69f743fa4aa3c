"""Per-channel scales for activations, at no cost on the chip.

The requantization of a linear operator has a multiplier per output channel, so each channel of its result can have a
separate scale. The users of the result must compensate for it: a linear operator folds the ratios into its weights
(they multiply input channels), an add into the rescale of its operands, and a dequantization is per-channel. Pooling,
clamps and upsampling process every channel separately, so that their results have the scales of the operand. A
concatenation of channels concatenates the scales, so that its operands need no common scale.

On BM1684 a linear operator has one multiplier. The scales of its output channels are then folded into its weights,
which share one step: the smaller the scale of a channel, the more steps its weights have. Only linear operators can
use such a result, because adds and dequantizations have one multiplier too. This is the cross-layer equalization of
Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction (2019), section 4.1, within the
ranges of the activations.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tpuconvert.optimizer.engine.node_properties import concatenates_channels, operand, operands
from tpuconvert.optimizer.quantize.lowering.lowering import params_of
from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.optimizer.quantize.traits import (
    has_constant_weight,
    has_whole_windows,
    is_average_pool,
    is_max_pool,
    is_nearest_resize,
)
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv3d import Conv3d
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import I16, Array, DType, QuantParams

Vector = npt.NDArray[np.float64]

SHARES = (0.0, 0.25, 0.5)
"""Candidate exponents of the ratio of a channel's range to the tensor's: 0 keeps one scale, 1 would give every channel
its full range. More range for activations leaves less for the weights that absorb the ratios; the exponent is chosen
for every tensor by the expected error of both at its users. Exponents above one half overfit the calibration samples:
on SqueezeNet they tripled the divergence of the results, measured on the images of the accuracy test."""

WEIGHT_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Candidate exponents if the weights have one step."""

WEIGHT_POWERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
"""Exponents of the factor of the scales of candidates that follow from the weights."""

_MOST_HEADROOM = 8.0
"""Largest headroom. The calibrated range of a channel is widened by the ratio of its two largest samples, since a new
sample may exceed them by as much again, but at most by this factor."""

_UNEVEN = 8.0
"""Smallest ratio of the largest weight of an operator to the median of the largest ones of its output channels, for
which a 16-bit result gets scales per channel: one step for all weights would leave most channels less than 4 bits."""

_SMALLEST = 2.0**-6
"""Smallest ratio of a channel's scale to the tensor's: the channel may be inactive in all calibration samples."""


@dataclass(frozen=True)
class OneMultiplier:
    """Linear operators with one multiplier for all output channels.

    Args:
        two_terms: names of operators whose weights are sums of two terms, so that rounding them adds almost no noise.
    """

    two_terms: Collection[str] = ()


def scale_channels(
    graph: Graph, ranges: Mapping[str, Range], floats: set[str], layers: OneMultiplier | None = None
) -> None:
    """Replace per-tensor by per-channel scales, in place, if the producer and all users support it.

    Args:
        graph: annotated graph with zero points of 0.
        ranges: calibrated ranges of its values, by name.
        floats: names of the nodes that stay float.
        layers: the linear operators have one multiplier for all output channels.
    """
    chosen = _candidates(graph, ranges, floats, layers)
    order = [node for node in graph.sorted_nodes() if node.outputs[0] in chosen]
    scaled_values = [node.outputs[0] for node in order if not _passes_on(node) and not concatenates_channels(node)]
    for value, scales in choose_scales(scaled_values, chosen, ranges, layers).items():
        value.quant = per_channel(scales.tolist(), params_of(value).dtype)
    for node in order:
        x, y = operand(node), node.outputs[0]
        if concatenates_channels(node):
            y.quant = _concat_scales(node, params_of(y).dtype)
        elif _passes_on(node) and x.quant is not None:
            y.quant = _passed_on(node, x.quant, ranges)
    for node in order:
        node.outputs[0].quant = _canonicalize(node.outputs[0].quant)


def scale_wide_channels(graph: Graph, ranges: Mapping[str, Range], floats: Collection[str], headroom: float) -> None:
    """Give 16-bit results that only float nodes use scales in proportion to the largest weights of their channels.

    The linear operators have one multiplier for all output channels. With these scales, the weights of all channels
    have the same range, and a dequantization has a factor per channel.

    Args:
        graph: annotated graph; values are changed in place.
        ranges: calibrated ranges of its values, by name.
        floats: names of the nodes that stay float.
        headroom: range of a 16-bit result, relative to the largest magnitude of a channel.
    """
    for node in graph.nodes:
        value = node.outputs[0]
        quant, channels = value.quant, ranges[value.name].channels if value.name in ranges else None
        if quant is None or quant.dtype is not I16 or quant.axis is not None or channels is None:
            continue
        is_read_by_float = all(user.name in floats for user in value.users)
        if not is_read_by_float or not _has_plain_weights(node) or len(channels.largest) != value.shape[1]:
            continue
        _, magnitudes, _ = by_channel(node, operands(node)[1].array.astype(np.float64))
        steps = params_of(operand(node)).scale
        rows = (magnitudes * (np.asarray(steps) if len(steps) == magnitudes.shape[1] else 1.0)).max(axis=1)
        rows = np.maximum(rows, rows.max() * _SMALLEST**2)
        if rows.max() <= _UNEVEN * np.median(rows):
            continue
        unit = float(np.max(headroom * np.asarray(channels.largest) / rows)) / I16.max
        if unit > 0.0:
            tiny = float(np.finfo(np.float32).tiny)
            value.quant = per_channel([max(float(np.float32(unit * row)), tiny) for row in rows], I16)


def _has_plain_weights(node: Node) -> bool:
    """Return True for a convolution or matmul with constant weights of the float network."""
    has_weights = has_constant_weight(node) and isinstance(node.op, (Conv, MatrixMul))
    return has_weights and operand(node).quant is not None and operands(node)[1].stored is None


def _canonicalize(quant: QuantParams | None) -> QuantParams | None:
    """Replace equal per-channel scales by one per-tensor scale, which saves a rescale where both forms meet."""
    if quant is None or quant.axis is None or len(set(quant.scale)) > 1:
        return quant
    return QuantParams.per_tensor(quant.scale[0], 0, quant.dtype)


def choose_scales(
    results: list[Value],
    chosen: set[Value],
    ranges: Mapping[str, Range],
    layers: OneMultiplier | None = None,
    readers: Mapping[Value, Sequence[Node]] | None = None,
) -> dict[Value, Vector]:
    """Choose per-channel scales for the results of linear operators and adds.

    With ``readers``, only those users of a value have the scales, and the value has another form with 16 bits.

    Try every candidate for one value at a time with the others fixed, in two rounds; keep the one with the smallest
    expected error at the operators that the scales affect: the users of the value, and its producer if the weights have
    one step.
    """
    shares = SHARES if layers is None else WEIGHT_SHARES
    is_clipped = readers is not None
    options = {value: [_channel_scales(value, ranges, share, is_clipped) for share in shares] for value in results}
    scales = {value: options[value][0] for value in results}
    affected = {value: _scale_users(value, chosen) if readers is None else [*readers[value]] for value in results}
    if layers is not None:
        for value in results:
            options[value] += _scales_for_weights(value, options[value], chosen)
            affected[value] += [node for node in [value.producer] if node is not None]
    others = {value: _scale_sources(affected[value], scales, chosen, layers) - {value} for value in results}
    compared: dict[Value, list[Vector]] = {}
    for _ in range(2):
        for value in results:
            fixed = [scales[other] for other in results if other in others[value]]
            if value in compared and all(map(operator.is_, compared[value], fixed)):
                continue  # The second round would repeat the first.
            compared[value] = fixed
            statistics = [(node, _NodeStatistics.of(node, ranges)) for node in affected[value]]
            costs = []
            for option in options[value]:
                scales[value] = option
                costs.append(sum(_expected_error(node, item, scales, chosen, layers) for node, item in statistics))
            scales[value] = options[value][int(np.argmin(costs))]
    return scales


def _scales_for_weights(value: Value, options: list[Vector], chosen: set[Value]) -> list[Vector]:
    """Scales in proportion to the largest weight of each output channel, within the range that the channel needs.

    Candidates limit the ratio to the largest weights to several powers of two.
    """
    node = value.producer
    assert node is not None
    _, largest, _ = by_channel(node, operands(node)[1].array.astype(np.float64))
    rows = largest.max(axis=1)
    ratio = rows / (rows.max() or 1.0)
    least = options[-1] / options[0].max()
    candidates = [np.clip(ratio * 2.0**power, least, 1.0) * options[0].max() for power in WEIGHT_POWERS]
    return [scales.astype(np.float32).astype(np.float64) for scales in candidates]


def _channel_scales(value: Value, ranges: Mapping[str, Range], share: float, is_clipped: bool = False) -> Vector:
    """Interpolate geometrically between the tensor's scale and the scale of each channel's own range.

    With ``is_clipped``, channels whose values exceed the range of the tensor keep its scale.
    """
    value_range = ranges[_after_clamps(value).name]
    assert value_range.channels is not None
    largest, second = np.asarray(value_range.channels.largest), np.asarray(value_range.channels.second)
    headroom = np.minimum(largest / np.maximum(second, largest / _MOST_HEADROOM + 1e-30), _MOST_HEADROOM)
    params = params_of(value)
    limit = params.dtype.max * params.scale[0] if is_clipped else math.inf
    ratio = np.clip(headroom * largest / (min(largest.max(), limit) or 1.0), _SMALLEST, 1.0) ** share
    scales: Vector = (params.scale[0] * ratio).astype(np.float32).astype(np.float64)
    return scales


def _after_clamps(value: Value) -> Value:
    """Return the result of the chain of clamps that follow a value as sole users. They all share its scale."""
    users = value.users
    while len(value.uses) == 1 and users[0].op.clamp_range() is not None and _same_type(users[0]):
        value = users[0].outputs[0]
        users = value.users
    return value


def _scale_users(value: Value, chosen: set[Value]) -> list[Node]:
    """Linear operators and adds that use the value, directly or through nodes that pass its scales on."""
    users: list[Node] = []
    for user in value.users:
        if user.outputs[0] in chosen and (_passes_on(user) or concatenates_channels(user)):
            users += _scale_users(user.outputs[0], chosen)
        elif has_constant_weight(user) or _can_sum_absorb(user):
            users.append(user)
    return users


def _scale_sources(
    nodes: list[Node], scales: Mapping[Value, Vector], chosen: set[Value], layers: OneMultiplier | None
) -> set[Value]:
    """Values whose chosen scales determine the expected errors of nodes."""
    sources: set[Value] = set()
    pending = []
    for node in nodes:
        pending += operands(node)[:1] if Trait.LINEAR in node.op.traits else operands(node)
        pending += node.outputs if layers is not None else []
    while pending:
        value = pending.pop()
        if value in scales:
            sources.add(value)
        elif value in chosen and value.producer is not None:
            pending += operands(value.producer)
    return sources


@dataclass(frozen=True)
class _NodeStatistics:
    """Constants of the expected error of a node, computed once for all scales that are compared.

    Args:
        power: variance of the result, added over its channels.
        variance: of the operand of a linear operator, by input channel; [output channels, 1] for a depthwise one.
        squares: sums of squares of its weights, [output channels, input channels].
        largest: largest magnitudes, like ``squares``.
        taps: kernel size.
    """

    power: float
    variance: Array = field(default_factory=lambda: np.zeros(0))
    squares: Array = field(default_factory=lambda: np.zeros(0))
    largest: Array = field(default_factory=lambda: np.zeros(0))
    taps: int = 0

    @staticmethod
    def of(node: Node, ranges: Mapping[str, Range]) -> _NodeStatistics:
        """Statistics of a linear operator or an add."""
        result = ranges[node.name].channels
        power = (sum(result.variance) if result is not None else 0.0) or 1.0
        if Trait.LINEAR not in node.op.traits:
            return _NodeStatistics(power)
        x, w = operands(node)[:2]
        channels = ranges[x.name].channels
        assert channels is not None
        variance = np.asarray(channels.variance)
        squares, largest, taps = by_channel(node, w.array.astype(np.float64))
        if squares.shape[1] == 1 and x.shape[1] != 1:  # depthwise: one input channel per output channel
            variance = np.repeat(variance, squares.shape[0] // variance.size)[:, None]
        return _NodeStatistics(power, variance, squares, largest, taps)


def _expected_error(
    node: Node,
    statistics: _NodeStatistics,
    scales: Mapping[Value, Vector],
    chosen: set[Value],
    layers: OneMultiplier | None = None,
) -> float:
    """Squared error of a linear operator's result due to rounding operand and weights, relative to its variance.

    An operand with scale s has a mean squared error of s^2 / 12. The weights ``w * s`` of an output channel have the
    same error for their scale, which is 1/127 of the largest. With one multiplier, all weights ``w * s / t``, where t
    are the scales of the output channels, have one scale, and the error is multiplied by t^2. The mean of the weight
    error is not included, because bias correction removes it.
    """
    if Trait.LINEAR not in node.op.traits:
        steps = [_scales_of(value, scales, chosen) for value in operands(node)]
        return float(sum(np.sum(step**2) for step in steps)) / 12 / statistics.power
    step = _scales_of(operand(node), scales, chosen)
    if statistics.variance.ndim > 1:
        step = np.repeat(step, len(statistics.variance) // step.size)[:, None]
    rounding = np.sum(statistics.squares * step**2, axis=1) / 12
    rows = np.max(statistics.largest * step, axis=1)
    if layers is not None:
        after = _scales_of(node.output, scales, chosen)
        rows = after * np.max(rows / after) if node.name not in layers.two_terms else np.zeros(1)
    weights = (rows / 127) ** 2 / 12 * statistics.taps * np.sum(statistics.variance / step**2, axis=-1)
    return float(np.sum(rounding + weights)) / statistics.power


def by_channel(node: Node, w: Array) -> tuple[Array, Array, int]:
    """Sum of squares and largest magnitude of the weights [output channel, input channel], and kernel size."""
    if not isinstance(node.op, (Conv, Conv3d)):  # layout [input, output, ...]
        w = w.swapaxes(0, 1)
    flat = w.reshape(w.shape[0], w.shape[1], -1)
    if flat.shape[2] == 1:  # a reduction over one element takes longer than the rest
        return np.square(flat[:, :, 0]), np.abs(flat[:, :, 0]), 1
    return np.square(flat).sum(axis=2), np.abs(flat).max(axis=2), flat.shape[2]


def _scales_of(value: Value, scales: Mapping[Value, Vector], chosen: set[Value]) -> Vector:
    """Per-channel scales of a value for the current choice of exponents.

    The scales are 0 (no rounding error) for values that stay float, and for constants, which adds store in finer units.
    """
    node = value.producer
    if value in scales:
        return scales[value]
    extent = value.shape[1]
    assert isinstance(extent, int)
    if value.quant is None:
        return np.zeros(extent)
    if value in chosen:
        assert node is not None
        sources = operands(node) if concatenates_channels(node) else [operand(node)]
        joined: Vector = np.concatenate([_scales_of(source, scales, chosen) for source in sources])
        return joined
    return np.full(extent, value.quant.scale[0])


def _candidates(
    graph: Graph, ranges: Mapping[str, Range], floats: set[str], layers: OneMultiplier | None
) -> set[Value]:
    chosen = {
        node.outputs[0]
        for node in graph.nodes
        if node.name not in floats and _can_make(node) and has_channels(node.outputs[0], node.outputs[0].quant, ranges)
    }
    if layers is not None:
        in_float = [node for node in graph.nodes if node.name in floats or _is_transposed(node)]
        used_by_float = {value for node in in_float for value in (*node.inputs, *node.outputs)}
        adds = {node.outputs[0] for node in graph.nodes if node.op.name in ("add", "sub")}
        chosen -= {*graph.outputs, *used_by_float, *adds}
    changed = True
    while changed:
        dropped = {
            value
            for value in chosen
            if not _can_users_absorb(value, chosen, floats, layers) or not _is_fed(value, chosen)
        }
        chosen -= dropped
        changed = bool(dropped)
    return chosen


def _is_transposed(node: Node) -> bool:
    """Return True for a transposed convolution: with one multiplier for all channels it has no integer form."""
    return has_constant_weight(node) and not isinstance(node.op, (Conv, MatrixMul))


def has_channels(value: Value, quant: QuantParams | None, ranges: Mapping[str, Range]) -> bool:
    """Return True if a value with these parameters can have a scale per channel."""
    channels = ranges[value.name].channels
    is_symmetric = quant is not None and quant.dtype.bits == 8 and quant.zero_point == (0,)
    has_statistics = channels is not None and len(channels.largest) == value.shape[1]
    return is_symmetric and has_statistics and value.rank in (2, 4, 5)


def _can_make(node: Node) -> bool:
    return (
        has_constant_weight(node) or node.op.name in ("add", "sub") or _passes_on(node) or concatenates_channels(node)
    )


def _passes_on(node: Node) -> bool:
    """Return True if the node processes every channel separately and keeps its operand's scale."""
    return (
        is_max_pool(node.op)
        or is_average_pool(node.op)
        or node.op.name in ("upsample", "resize_nearest")
        or is_nearest_resize(node.op)
        or (node.op.clamp_range() is not None and _same_type(node))
    )


def _same_type(node: Node) -> bool:
    """Return True if a clamp has the dtype of its operand, which then shares its scale; otherwise it needs a table."""
    x, y = operand(node).quant, node.outputs[0].quant
    return x is not None and y is not None and x.dtype is y.dtype


def _is_fed(value: Value, chosen: set[Value]) -> bool:
    """Return True if the operands of a node can have per-channel scales.

    The operands of a concat have one symmetric integer type, the operands of another node have such scales.
    """
    node = value.producer
    assert node is not None
    if concatenates_channels(node):
        types = {None if item.quant is None else item.quant.dtype for item in operands(node)}
        is_symmetric = not any(item.quant is not None and any(item.quant.zero_point) for item in operands(node))
        return len(types) == 1 and None not in types and is_symmetric
    return not _passes_on(node) or node.inputs[0] in chosen


def _can_users_absorb(value: Value, chosen: set[Value], floats: set[str], layers: OneMultiplier | None) -> bool:
    return all(
        user.name in floats
        or _can_linear_absorb(user, index, value)
        or (layers is None and _can_sum_absorb(user))
        or (
            (_passes_on(user) or concatenates_channels(user))
            and user.outputs[0] in chosen
            and (layers is None or _has_equal_bounds(user))
        )
        for user, index in value.uses
    )


def _has_equal_bounds(node: Node) -> bool:
    """Return True if the integer bounds of a clamp are right for all channels: 0, or outside of the dtype.

    Scales per channel are at most the scale of the tensor, so that a bound outside of the dtype stays outside.
    """
    bounds = node.op.clamp_range()
    if bounds is None:
        return True
    quant = params_of(operand(node))
    low, high = (bound / quant.scale[0] for bound in bounds)
    return (low == 0 or low < quant.dtype.min + 0.5) and (high == 0 or high > quant.dtype.max - 0.5)


def can_absorb_scales(user: Node, index: int, value: Value) -> bool:
    """Return True if a linear operator or an add compensates for the scales of the channels of an operand."""
    return _can_linear_absorb(user, index, value) or _can_sum_absorb(user)


def _can_linear_absorb(user: Node, index: int, value: Value) -> bool:
    weight = user.inputs[1] if len(user.inputs) > 1 else None
    if not has_constant_weight(user) or index != 0 or weight is None or weight.stored is not None:
        return False
    groups = user.op.attributes().get("groups", 1)
    return groups == 1 or (isinstance(user.op, (Conv, Conv3d)) and groups == value.shape[1] and weight.shape[1] == 1)


def _can_sum_absorb(user: Node) -> bool:
    if user.op.name not in ("add", "sub"):
        return False
    a, b = operands(user)
    return a.shape == b.shape


def _passed_on(node: Node, quant: QuantParams, ranges: Mapping[str, Range]) -> QuantParams:
    if not is_average_pool(node.op) or not has_whole_windows(node):
        return quant
    # All channels share one divisor, so that the channel with the largest averages determines the scale of all.
    channels = ranges[node.name].channels
    assert channels is not None
    after, representable = np.asarray(channels.largest), quant.dtype.max * np.asarray(quant.scale)
    ratio = min(1.0, float((after / representable).max()) or 1.0)
    return dataclasses.replace(quant, scale=tuple(float(np.float32(scale * ratio)) for scale in quant.scale))


def _concat_scales(node: Node, dtype: DType) -> QuantParams:
    scales: list[float] = []
    for value in operands(node):
        quant, extent = params_of(value), value.shape[1]
        assert isinstance(extent, int)
        scales += quant.scale if quant.axis is not None else quant.scale * extent
    return per_channel(scales, dtype)


def per_channel(scales: list[float], dtype: DType) -> QuantParams:
    """Symmetric parameters with a scale per channel."""
    return QuantParams(tuple(scales), (0,) * len(scales), dtype, axis=1)
