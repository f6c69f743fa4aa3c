"""Scales of the results of recurrent layers, and with them of the states."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.recurrent.recurrent import Gru, Lstm
from tpuconvert.schema.types import I8, I16, QuantParams

_MOST_CELL_BITS = 6  # of tanh in 16-bit fixed point
_HEADROOM = 1.25
"""Range of a cell, relative to the largest calibrated magnitude. A cell accumulates over a sequence, and a sequence
that is longer than the samples may go beyond their range; a further bit costs less than saturation."""


def layer_params(node: Node, ranges: Mapping[str, Range]) -> list[QuantParams]:
    """Return the parameters of the results of a recurrent layer: y, last hidden state, last cell, all cells.

    y and a hidden state are symmetric INT8. A cell, and the hidden state of a GRU, are INT16 with a scale that is a
    power of two; they accumulate small changes, which 8 bits would lose.
    """
    y = node.outputs[0]
    threshold = max(ranges[y.name].threshold, _largest_initial(node, 5, ranges))
    narrow = QuantParams.per_tensor(_scale(threshold), 0, I8)
    if isinstance(node.op, Lstm):
        output_ranges = [ranges[value.name] for value in node.outputs[2:]]
        largest = max(*(_largest(item) for item in output_ranges), _largest_initial(node, 6, ranges))
        cell = _fixed_point(min(integer_bits(largest * _HEADROOM), _MOST_CELL_BITS))
        return [narrow, narrow, *[cell] * len(output_ranges)]
    if isinstance(node.op, Gru):
        largest = max(_largest(ranges[y.name]), _largest_initial(node, 5, ranges))
        return [narrow, _fixed_point(integer_bits(largest))]
    return [narrow, narrow]


def integer_bits(largest: float) -> int:
    """Number of integer bits of a 16-bit fixed-point number for this magnitude, at least 0."""
    return min(max(math.ceil(math.log2(largest)), 0), 14) if largest > 0 else 0


def _fixed_point(bits: int) -> QuantParams:
    return QuantParams.per_tensor(2.0 ** (bits - 15), 0, I16)


def _scale(threshold: float) -> float:
    return max(float(np.float32((threshold or 1.0) / 127)), float(np.finfo(np.float32).tiny))


def _largest(value_range: Range) -> float:
    return max(-value_range.low, value_range.high, 0.0)


def _largest_initial(node: Node, index: int, ranges: Mapping[str, Range]) -> float:
    """Largest magnitude of an initial state, 0 if there is none."""
    value: Value | None = node.inputs[index] if len(node.inputs) > index else None
    if value is None:
        return 0.0
    return float(np.abs(value.array).max(initial=0.0)) if value.is_constant else _largest(ranges[value.name])
