"""Expectations of a network about its input: batch norm statistics of training, and biases against their signal.

Batch norm stores the mean and variance that its operand had in training. Its result then has mean beta and standard
deviation |gamma| per channel. The optimizer folds it into the conv before, but the result keeps its name, and so
calibration measures exactly this tensor.

Where batch norm is folded already in the source, biases contain the rest of it. They are beta - gamma * mean / sigma,
about as large as the standard deviation |gamma| of the result. A signal that is a hundred times smaller than the biases
cannot be seen by the network. If the mean of the input cancels large biases, the network subtracts the mean of features
that are large compared with their spread; then nothing is wrong with the samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.samples.finding import Finding
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import Array

MOST_RATIO = 8.0
"""Largest ratio, or its inverse, of the measured standard deviation after the first batch norm to that in training.
Correct preprocessing gives ratios of 0.4 to 1.6 on the test models; a scale that is wrong by a factor of 255 gives
about that factor."""

MOST_SHIFT = 3.0
"""Largest distance of the mean from that in training, in standard deviations. Correct preprocessing gives up to
0.42."""

MOST_OF_MEDIAN = 10.0
"""A channel counts in the signal with at most this many times the median standard deviation: an outlier channel says
nothing about the scale of the input."""

CANCELED = 0.5
"""Largest ratio of the mean of the result to its biases for which the mean of the input cancels the biases."""

LEAST_SIGNAL = 0.03
"""Smallest ratio of the signal of the first linear operator to its biases. Correct preprocessing gives 0.09 to 600 on
the test models; a scale that is 255 times too small gives up to 0.023."""

MOST_SIGNAL = 100.0
"""Largest ratio of the signal of the first linear operator to its biases, if the median ratio of the later linear
operators is below ``USUAL_SIGNAL``."""

USUAL_SIGNAL = 30.0
"""Upper limit of the median signal-to-bias ratio of the linear operators after the first, for networks whose biases
come from batch norm. Without batch norm, biases can be tiny: the ratio is 95 in a CIFAR-10 network and 2200 in
SqueezeNet."""


@dataclass(frozen=True)
class Expected:
    """Distribution of a tensor in training, per channel."""

    mean: Array
    deviation: Array


def expectations(graph: Graph) -> dict[str, Expected]:
    """Find the distributions implied by the first batch norm with stored statistics, by tensor name."""
    for node in graph.nodes:
        if isinstance(node.op, BatchNorm) and node.op.use_global_stats:
            distributions = _distributions(node)
            if distributions:
                return distributions
    return {}


def _distributions(node: Node) -> dict[str, Expected]:
    """Return the distribution of a batch norm's result, and of the results of constant mul and add that follow it."""
    operands = [*node.inputs, None, None][:5]
    gamma, beta = operands[3], operands[4]
    value = node.outputs[0]
    channels = value.shape[1]
    if not isinstance(channels, int):
        return {}
    scale = np.ones(channels) if gamma is None else gamma.array.astype(np.float64).reshape(-1)
    shift = np.zeros(channels) if beta is None else beta.array.astype(np.float64).reshape(-1)
    distributions = {value.name: Expected(shift, np.abs(scale))}
    while len(value.users) == 1:
        user = value.users[0]
        constants = [operand for operand in user.inputs if operand is not None and operand.is_constant]
        if user.op.name not in ("mul", "add") or len(constants) != 1 or constants[0].array.size not in (1, channels):
            break
        factor = constants[0].array.astype(np.float64).reshape(-1)
        scale, shift = (scale * factor, shift * factor) if user.op.name == "mul" else (scale, shift + factor)
        value = user.outputs[0]
        distributions[value.name] = Expected(shift, np.abs(scale))
    return distributions


def check_activations(graph: Graph, ranges: Mapping[str, Range], expected: Mapping[str, Expected]) -> list[Finding]:
    """Compare measured activations with the batch norm statistics or, without them, with the biases.

    Args:
        graph: the float graph that was calibrated.
        ranges: measured ranges by tensor name.
        expected: result of ``expectations``.

    """
    inputs = {port.name: ranges[port.name] for port in graph.input_ports if port.name in ranges}
    value_range = ", ".join(f"'{name}' from {item.low:.4g} to {item.high:.4g}" for name, item in inputs.items())
    for name, distribution in expected.items():
        measured = _moments(ranges.get(name), distribution.mean.size)
        if measured is not None:
            return _compare(name, distribution, *measured, value_range)
    return _compare_biases(graph, ranges, value_range)


def _moments(measured: Range | None, channels: int) -> tuple[Array, Array] | None:
    """Return the measured mean and standard deviation per channel, or None if they were not measured."""
    moments = None if measured is None else measured.channels
    if moments is None or len(moments.variance) != channels or not moments.mean:
        return None
    return np.asarray(moments.mean), np.sqrt(np.asarray(moments.variance))


def _compare(name: str, want: Expected, mean: Array, deviation: Array, value_range: str) -> list[Finding]:
    used = want.deviation > 1e-3 * want.deviation.max(initial=0.0)  # pruned channels have gamma 0
    if not used.any():
        return []
    ratio = float(np.median(deviation[used] / want.deviation[used]))
    shift = float(np.median(np.abs(mean - want.mean)[used] / want.deviation[used]))
    seen = f"batch norm '{name}' has {ratio:.3g} times the standard deviation of training, input {value_range}"
    if ratio > MOST_RATIO or ratio < 1 / MOST_RATIO:
        size = "large" if ratio > 1 else "small"
        expected = "about 1; the input is too " + size
        return [Finding("batch-norm-scale", seen, expected, _scale_advice(ratio))]
    if shift > MOST_SHIFT:
        seen = f"the mean of batch norm '{name}' is {shift:.3g} standard deviations from the mean in training"
        return [Finding("batch-norm-mean", f"{seen}, input {value_range}", "less than 1", "correct --preprocess mean")]
    return []


def _compare_biases(graph: Graph, ranges: Mapping[str, Range], value_range: str) -> list[Finding]:
    signals = [
        (node.outputs[0].name, *signal)
        for node in graph.nodes
        if (signal := _signal(node, ranges)) is not None and _depends_on_input(node)
    ]
    if not signals:
        return []
    name, first, is_canceled = signals[0]
    later = float(np.median([signal for _, signal, _ in signals[1:]])) if len(signals) > 1 else first
    seen = f"the signal of the first layer '{name}' is {first:.3g} times its biases, input {value_range}"
    if first < LEAST_SIGNAL and not is_canceled:
        expected = f"at least {LEAST_SIGNAL:g}; the input is too small or nearly constant"
        return [Finding("small-input", seen, expected, _scale_advice(first))]
    if first > MOST_SIGNAL and later < USUAL_SIGNAL:
        expected = f"about the size in the layers that follow ({later:.3g}); the input is too large"
        return [Finding("large-input", seen, expected, _scale_advice(first))]
    return []


def _scale_advice(ratio: float) -> str:
    direction = "smaller" if ratio > 1 else "larger"
    return f"try a {direction} --preprocess scale (pixels 0..255, 0..1 or -1..1); tpuconvert doctor compares them"


def _signal(node: Node, ranges: Mapping[str, Range]) -> tuple[float, bool] | None:
    """Return the RMS over channels of the result's standard deviation, divided by the RMS of the biases.

    The second item is whether the mean of the input cancels the biases.
    """
    bias = _bias(node)
    if bias is None:
        return None
    measured = _moments(ranges.get(node.outputs[0].name), bias.size)
    size = _rms(bias)
    if measured is None or size == 0.0:
        return None
    mean, deviation = measured
    deviation = np.minimum(deviation, MOST_OF_MEDIAN * (np.median(deviation) or deviation.max()))
    return _rms(deviation) / size, _rms(mean) < CANCELED * size


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _bias(node: Node) -> Array | None:
    if not isinstance(node.op, Conv | MatrixMul) or len(node.inputs) < 3:
        return None
    bias: Value | None = node.inputs[2]
    if bias is None or not bias.is_constant or not bias.dtype.is_float:
        return None
    return bias.array.astype(np.float64).reshape(-1)


def _depends_on_input(node: Node) -> bool:
    """Return True if the first operand is computed, not constant."""
    first = node.inputs[0]
    return first is not None and not first.is_constant
