"""Repetition along open extents.

The operator set repeats by numbers only, but its arithmetic broadcasts: ``x + zeros`` repeats x along every axis where
the zeros are longer. Zeros as long as an open extent are made from an input of the model that has it: ``v < v`` holds
for no v, NaN and infinities included.
"""

from __future__ import annotations

from tpuconvert.frontends.onnx import emit
from tpuconvert.frontends.onnx.open_extents import OpenExtent, OpenExtentError
from tpuconvert.schema.extents import factorize
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.compare import Lt
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import DType

_WITH_SUMS = (DType.FLOAT32, DType.INT32)


def repeat(g: Graph, x: Value, axis: int, extent: OpenExtent) -> Value:
    """Repeat a value along an axis of extent 1.

    Raises:
        OpenExtentError: no input of the model has the extent, or a divisor of it.

    """
    if x.dtype not in _WITH_SUMS:
        raise OpenExtentError(extent.name)
    shape = [1] * x.rank
    shape[axis] = emit.extents(zeros := _zeros(g, extent))[0]
    return emit.add(g, x, emit.cast(g, emit.reshape(g, zeros, shape), x.dtype))


def _zeros(g: Graph, extent: OpenExtent) -> Value:
    """Return zeros of shape [extent]."""
    times, names = factorize((extent.name,))
    for value in g.inputs:
        if names.total() != 1 or (name := next(iter(names))) not in value.shape:
            continue
        axis = value.shape.index(name)
        for other in range(value.rank):
            if other != axis:
                value = emit.cut(g, value, other, 0, 1)
        one = emit.reshape(g, emit.as_float(g, value), (emit.extents(value)[axis], 1))
        zeros = g.add(Lt(), one, one)
        if times > 1:
            zeros = g.add(Tile((1, times)), zeros)
        return emit.reshape(g, zeros, (emit.extents(zeros)[0] * times,))
    raise OpenExtentError(extent.name)
