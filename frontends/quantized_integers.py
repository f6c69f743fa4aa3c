"""The integers of a quantized tensor, for operators that compute with them instead of with dequantized values."""

from __future__ import annotations

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import Array, DType, QuantParams


def integers_of(g: Graph, x: Value, quant: QuantParams, dtype: DType) -> Value:
    """``saturate(round_half_even(x / scale) + zero_point)`` of dequantized values.

    The quotient of a value that is on the grid of the scale differs from an integer by rounding only.
    """
    quotient = emit.div(g, x, _along_axis(g, quant.scale, quant, x.rank))
    steps = emit.add(g, functions.round_half_even(g, quotient), _along_axis(g, quant.zero_point, quant, x.rank))
    return emit.cast(g, steps, dtype)


def _along_axis(g: Graph, numbers: object, quant: QuantParams, rank: int) -> Value:
    array: Array = np.asarray(numbers, np.float32).reshape(-1)
    if quant.axis is not None:
        array = array.reshape([-1 if axis == quant.axis else 1 for axis in range(rank)])
    return emit.float_constant(g, array, "quantization")
