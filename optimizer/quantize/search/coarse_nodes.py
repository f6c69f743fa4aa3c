"""Nodes for which 8 bits are too coarse, found from calibrated ranges alone.

A tensor can have parts of very different size: features in other units, an outlier channel, samples a hundred times as
large as others. Its scale follows from the largest part, and a few integers are left for the others. A function can
amplify the rounding of its operand: the sine of numbers up to 100 has nothing in common with the sine of the rounded
numbers. For every node, the noise of its 8-bit form is compared with the variance of its result:

- Rounding a value with scale s adds noise with the variance s^2 / 12 to each of its channels; saturation adds more.
- A linear operator adds the noise of its input channels, weighted with the squares of its weights. Rounding a weight
  adds a product of the variances of the input channel and of the rounding.
- An element-wise function is evaluated at operands of the distribution of each channel, taken as normal within its
  range, and at operands that differ from them by the standard deviation of the noise.
- A binary operator adds the noise of both operands, multiplied by the other one in a multiplication.

What a channel matters follows from the weights of the linear operators that use it, else all channels are equal. A node
is coarse if the noise is more than a hundredth of the variance, averaged over the channels of the result: 20 dB. All
samples matter equally: the variance is computed for a typical sample, which is smaller than the mean of all if a few
samples are a hundred times as large.

Remedies: an element-wise node computes in float. Its operand then has 16 bits, if a linear operator computes it, and
its result a scale per channel (``balancing``). For a linear operator, the nodes that compute its operand are in float,
so that this operand has a scale per channel, too; if there are none, the operator itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from tpuconvert.optimizer.engine.node_properties import computed_operands, operand
from tpuconvert.optimizer.quantize.ranges.ranges import Channels, Range
from tpuconvert.optimizer.quantize.scales.channel_scales import by_channel
from tpuconvert.optimizer.quantize.traits import (
    has_constant_weight,
    is_arithmetic,
    is_product,
    is_table,
    keeps_scale,
)
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.types import Chip

Vector = npt.NDArray[np.float64]

COARSE = 0.01
"""Noise of a node, as a share of the variance of its result, above which 8 bits are too coarse for it."""

_AMPLIFIED = 2.0
"""Smallest ratio of the noise of a result to the noise of the operand for a function that amplifies noise."""

_POINTS = 65
"""Number of operands for which a function is evaluated: quantiles of a normal distribution."""

_LEVEL = 127.0


@dataclass(frozen=True)
class Coarse:
    """A node for which 8 bits are too coarse.

    Args:
        node: the node.
        noise: noise of its result as a share of its variance, at most 1.
        remedy: names of the nodes that are to compute in float.
        is_costly: whether a linear operator is among them.
    """

    node: Node
    noise: float
    remedy: tuple[str, ...]
    is_costly: bool = False


class CoarseNodes:
    """Search for nodes for which 8 bits are too coarse.

    Args:
        graph: annotated float graph.
        ranges: calibrated ranges of its values, by name.
        floats: names of the nodes that stay float.
        chip: BM1684 has one scale for all weights of a linear operator.
        two_terms: names of linear operators whose weights are sums of two terms.
    """

    def __init__(
        self,
        graph: Graph,
        ranges: Mapping[str, Range],
        floats: Collection[str],
        chip: Chip,
        two_terms: Collection[str] = (),
    ) -> None:
        self._graph = graph
        self._ranges = ranges
        self._floats = floats
        self._chip = chip
        self._two_terms = two_terms

    def find(self, least: float = COARSE) -> list[Coarse]:
        """Return the coarse nodes in execution order.

        Args:
            least: smallest noise of a node as a share of the variance of its result.
        """
        return list(self._found(least))

    def _found(self, least: float) -> Iterator[Coarse]:
        for node in self._graph.sorted_nodes():
            if has_constant_weight(node):
                noise = self._of_linear(node)
                if noise is not None and node.name not in self._floats and self._mean(noise, node.output) > least:
                    before = self._before(node)
                    share = self._mean(noise, node.output)
                    if before or share > COARSE:
                        yield Coarse(node, share, before or (node.name,), is_costly=not before)
            elif is_table(node.op) and len(node.inputs) == 1:
                yield from self._of_function(node, least)
            elif is_arithmetic(node.op) and node.name not in self._floats:
                noise = self._of_arithmetic(node)
                share = 0.0 if noise is None else self._at_users(node.outputs[0], noise)
                if share > least:
                    yield Coarse(node, share, (node.name,))

    def _of_function(self, node: Node, least: float) -> Iterator[Coarse]:
        x, y = operand(node), node.outputs[0]
        channels, rounding = self._channels(x), self._rounding(x)
        if channels is None or rounding is None:
            return
        inherited, path = self._inherited(x)
        if node.name not in self._floats:
            noise = _noise_of(node, channels, rounding + inherited)
            own = self._rounding(y)
            share = self._at_users(y, noise if own is None or own.shape != noise.shape else noise + own)
            if share > least:
                yield Coarse(node, share, (node.name,))
        if inherited.any():
            share = self._at_users(y, _noise_of(node, channels, inherited), is_fixed=False)
            if share > max(COARSE, _AMPLIFIED * self._mean(inherited, x)):
                yield Coarse(node, share, (*path, node.name), is_costly=True)

    def _inherited(self, value: Value) -> tuple[Vector, tuple[str, ...]]:
        """Noise of a value by channel before it is rounded, and the nodes that add it.

        It is the noise of the linear operator before the value, and what functions and data movement between them
        leave.
        """
        channels = self._channels(value)
        nothing = np.zeros(0 if channels is None else len(channels.variance)), ()
        node = value.producer
        if channels is None or node is None or len(node.outputs) != 1:
            return nothing
        if has_constant_weight(node):
            noise = None if node.name in self._floats else self._of_linear(node)
            return nothing if noise is None or noise.size != nothing[0].size else (noise, (node.name,))
        is_moved = keeps_scale(node.op)
        if len(node.inputs) != 1 or not (is_moved or Trait.ELEMENTWISE in node.op.traits):
            return nothing
        x = operand(node)
        before, rounding = self._channels(x), self._rounding(x)
        noise, path = self._inherited(x)
        if before is None or rounding is None:
            return nothing
        noise = noise + rounding
        if not noise.any():
            return nothing
        if not is_moved:
            noise = _noise_of(node, before, noise)
        elif noise.size != nothing[0].size:
            noise = np.full(nothing[0].size, noise.mean())
        return noise, (*path, node.name)

    def _of_linear(self, node: Node) -> Vector | None:
        """Noise of the result of a linear operator by output channel: rounding of operand and weights."""
        x = operand(node)
        channels, rounding = self._channels(x), self._rounding(x)
        if channels is None or rounding is None or node.output.quant is None:
            return None
        squares, magnitudes, taps = by_channel(node, operand(node, 1).array.astype(np.float64))
        variance, scales = np.asarray(channels.variance), _scales_of(x, rounding.size)
        if squares.shape[1] != rounding.size:
            if squares.shape[1] != 1 or squares.shape[0] % rounding.size:
                return None  # several groups
            rounding, variance, scales = (
                np.repeat(each, squares.shape[0] // each.size)[:, np.newaxis] for each in (rounding, variance, scales)
            )
        noise: Vector = np.sum(squares * rounding, axis=1)
        if node.output.quant.dtype.bits > 8:  # a result of 8 bits counts at its users
            noise = noise + np.square(_scales_of(node.output, noise.size)) / 12
        if node.name not in self._two_terms and (scales > 0).all():
            rows = (magnitudes * scales).max(axis=1) / _LEVEL
            if self._chip is Chip.BM1684:
                after = np.asarray(node.output.quant.scale)
                rows = after * np.max(rows / after)
            noise = noise + rows**2 / 12 * taps * np.atleast_2d(variance / scales**2).sum(axis=1)
        return noise

    def _of_arithmetic(self, node: Node) -> Vector | None:
        """Noise of the result of an element-wise operator with two operands."""
        values = [value for value in node.inputs if value is not None]
        noise = self._rounding(node.outputs[0])
        if noise is None or len(values) != 2:
            return None
        for value, other in (values, values[::-1]):
            if value.is_constant:
                continue
            rounding, channels = self._rounding(value), self._channels(other)
            if rounding is None or rounding.size != noise.size:
                return None
            if node.op.name == "mul":
                if channels is None or len(channels.mean) != noise.size:
                    return None
                rounding = rounding * (np.asarray(channels.variance) + np.square(channels.mean))
            noise = noise + rounding
        return noise

    def _at_users(self, value: Value, noise: Vector, *, is_fixed: bool = True) -> float:
        """Noise of a value as a share of the variance, where linear operators use it at their results.

        Args:
            value: the value.
            noise: its noise by channel.
            is_fixed: whether small samples have the same noise as large ones.
        """
        shares = []
        for user in value.users:
            if not has_constant_weight(user) or user.inputs[0] is not value:
                continue
            squares, _, _ = by_channel(user, operand(user, 1).array.astype(np.float64))
            if squares.shape[1] == noise.size:
                shares.append(self._mean(np.sum(squares * noise, axis=1), user.output, is_fixed=is_fixed))
        return max(shares) if shares else self._mean(noise, value, is_fixed=is_fixed)

    def _mean(self, noise: Vector, value: Value, *, is_fixed: bool = True) -> float:
        """Mean over the channels of the noise as a share of the variance. Constant channels have no share."""
        channels = self._channels(value)
        if channels is None or len(channels.variance) != noise.size:
            return 0.0
        variance = np.asarray(channels.variance)
        counts = variance > 0.0
        uneven = self._ranges[value.name].unevenness if is_fixed else 1.0
        shares = np.minimum(uneven * noise[counts] / variance[counts], 1.0)
        return float(shares.mean()) if shares.size else 0.0

    def _channels(self, value: Value) -> Channels | None:
        value_range = self._ranges.get(value.name)
        return (
            None
            if value_range is None or value_range.channels is None or not value_range.channels.low
            else value_range.channels
        )

    def _rounding(self, value: Value) -> Vector | None:
        """Variance of rounding and saturating a value by channel; None if its channels are unknown."""
        channels = self._channels(value)
        if channels is None:
            return None
        count, quant = len(channels.variance), value.quant
        is_float = value.producer is not None and value.producer.name in self._floats
        if quant is None or (is_float and self._is_read_by_float_only(value)):
            return np.zeros(count)
        if len(quant.scale) not in (1, count):
            return None
        scales, zeros = np.asarray(quant.scale), np.asarray(quant.zero_point)
        x = _operands(channels)
        beyond = x - np.clip(x, (quant.dtype.min - zeros) * scales, (quant.dtype.max - zeros) * scales)
        result: Vector = np.square(scales) / 12 + np.square(beyond).mean(axis=0)
        return result

    def _is_read_by_float_only(self, value: Value) -> bool:
        return all(user.name in self._floats for user in value.users)

    def _before(self, node: Node) -> tuple[str, ...]:
        """Nodes that are to compute in float, so that the operand of a linear operator has scales per channel."""
        names: list[str] = []
        value = operand(node)
        while (
            value.producer is not None and not is_product(value.producer.op) and value.producer.name not in self._floats
        ):
            producer = value.producer
            names.append(producer.name)
            if not keeps_scale(producer.op) or len(computed_operands(producer)) != 1:
                break
            value = operand(producer)
        return tuple(names)


def _scales_of(value: Value, channels: int) -> Vector:
    """Scales of a value by channel; zeros if it is float."""
    scales = np.zeros(1) if value.quant is None else np.asarray(value.quant.scale)
    result: Vector = np.broadcast_to(scales, channels)
    return result


def _noise_of(node: Node, channels: Channels, noise: Vector) -> Vector:
    """Mean squared change of a function by noise of its operand, by channel."""
    low, high, x = np.asarray(channels.low), np.asarray(channels.high), _operands(channels)
    change = np.sqrt(noise)
    with np.errstate(all="ignore"):
        y, above, below = (
            node.op.evaluate(np.clip(each, low, high).astype(np.float32))[0].astype(np.float64)
            for each in (x, x + change, x - change)
        )
    squares = np.square(above - y) / 2 + np.square(below - y) / 2
    result: Vector = np.where(np.isfinite(squares), squares, 0.0).mean(axis=0)
    return result


def _operands(channels: Channels) -> Vector:
    """Values [points, channels] that represent the distribution of each channel."""
    quantiles = np.array([NormalDist().inv_cdf((index + 0.5) / _POINTS) for index in range(_POINTS)])
    x = np.asarray(channels.mean) + quantiles[:, np.newaxis] * np.sqrt(channels.variance)
    result: Vector = np.clip(x, channels.low, channels.high)
    return result
