"""Weights of BM1684 as sums of two INT8 terms, where one scale for all output channels is too coarse.

BM1684 has one multiplier per linear operator. The channels of a depthwise convolution often have weights of very
different size, and the step of the largest one leaves a few levels for the others. Such an operator becomes two, with
weights ``w = a * step + b * step / 254``, whose 16-bit results are added and rounded to 8 bits. The second term has the
rounding errors of the first one, so that weights have about 16 bits.

This takes twice the multiply-accumulates of the operator, so that it is for operators with few of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from tpuconvert.optimizer.engine.node_properties import operands
from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.optimizer.quantize.traits import has_constant_weight
from tpuconvert.schema.graph.cost import macs
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.types import Array

FINE_STEPS = 254
"""Step of the first term divided by the step of the second, whose weights are then within -127..127."""

_MOST_COST = 0.125
"""Largest number of further multiply-accumulates, relative to the graph."""

_LEVEL = 127.0


def choose_two_term_nodes(graph: Graph, ranges: Mapping[str, Range], floats: Collection[str]) -> set[str]:
    """Choose the convolutions whose weights become sums of two terms.

    They are those in which rounding the weights with one scale adds more noise than rounding operand and result, the
    ones with the largest reduction of the noise per multiply-accumulate first.

    Args:
        graph: annotated float graph.
        ranges: calibrated ranges of its values, by name.
        floats: names of the nodes that stay float.

    Returns:
        Names of nodes.
    """
    costs = {node: macs(node, open_extent=1) or 0 for node in graph.nodes if has_constant_weight(node)}
    gains: dict[Node, float] = {}
    for node, cost in costs.items():
        if isinstance(node.op, Conv) and node.name not in floats and cost:
            gain = _noise_reduction(node, ranges)
            if gain > 0:
                gains[node] = gain / cost
    left = _MOST_COST * sum(costs.values())
    chosen = set()
    for node in sorted(gains, key=lambda node: (-gains[node], node.name)):
        if costs[node] <= left:
            left -= costs[node]
            chosen.add(node.name)
    return chosen


def _noise_reduction(node: Node, ranges: Mapping[str, Range]) -> float:
    """Reduction of the squared error of the result by two terms; 0 if it is smaller than the error that remains.

    Errors are relative to the variance of a channel, at most 1, and averaged over the channels: a channel with small
    values is as important as the others, because the next weights scale it.
    """
    x, w, *_ = operands(node)
    operand_channels, result = ranges[x.name].channels, ranges[node.name].channels
    if (
        operand_channels is None
        or result is None
        or x.quant is None
        or node.output.quant is None
        or w.quant is not None
    ):
        return 0.0
    exact = w.array.astype(np.float64)
    weights = exact.reshape(*exact.shape[:2], -1)
    ratios = np.asarray(node.output.quant.scale) / max(node.output.quant.scale)
    squares, taps = np.square(weights).sum(axis=(1, 2)), weights.shape[2]
    variance = np.asarray(operand_channels.variance)
    if weights.shape[1] == 1 and variance.size > 1:  # depthwise: one input channel per output channel
        inputs = np.repeat(variance, weights.shape[0] // variance.size)
    else:  # of several groups, the average
        inputs = np.full(weights.shape[0], variance.mean() * weights.shape[1])
    power = np.maximum(np.asarray(result.variance), np.finfo(np.float64).tiny)
    step = np.abs(weights / ratios.reshape(-1, 1, 1)).max() / _LEVEL * ratios
    others = max(x.quant.scale) ** 2 * squares + np.square(node.output.quant.scale)
    remaining = np.minimum(others / 12 / power, 1.0)
    reduction = np.minimum((others + taps * inputs * step**2) / 12 / power, 1.0) - remaining
    # A channel that rounding operand and result makes useless has nothing to gain.
    return float(reduction.mean()) if reduction.sum() > remaining[remaining < 1].sum() else 0.0


def second_term(exact: Array, first: Array) -> Array:
    """Return the second term of weights, INT8.

    Args:
        exact: weights divided by the step of the first term.
        first: the first term.
    """
    error: Array = np.clip(np.rint((exact - first) * FINE_STEPS), -_LEVEL, _LEVEL).astype(np.int8)
    return error
