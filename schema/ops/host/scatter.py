"""host_scatter_nd, host_scatter_elements: write to computed indices, on the host."""

from __future__ import annotations

import enum

import numpy as np

from tpuconvert.schema.definition.extents import may_equal, normalize_axis, shapes_of
from tpuconvert.schema.definition.op import Op, Operand, OpKind, case, on, op_base, tpu_op
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.types import I32, NUMBERS_F16, Array, TensorType, format_shape

_DTYPES = on(case({"data": NUMBERS_F16, "indices": (I32,), "updates": NUMBERS_F16, "tensor_o": NUMBERS_F16}))


class Reduction(enum.Enum):
    """Combination of an update with the element at its index."""

    NONE = "none"
    ADD = "add"
    MUL = "mul"
    MAX = "max"
    MIN = "min"


_FUNCTIONS = {
    Reduction.ADD: np.add,
    Reduction.MUL: np.multiply,
    Reduction.MAX: np.maximum,
    Reduction.MIN: np.minimum,
}


@op_base
class _Scatter(Op):
    reduction: Reduction = Reduction.NONE

    inputs = (Operand("data", coeff=True), Operand("indices", coeff=True), Operand("updates", coeff=True))
    dtypes = _DTYPES
    decides_by = ("indices",)

    def _write(self, data: Array, index: tuple[Array, ...], updates: Array) -> Array:
        """Write updates in row-major order; the last update of an element wins."""
        result = data.copy()
        function = _FUNCTIONS.get(self.reduction)
        if function is None:
            result[index] = updates
        else:
            function.at(result, index, updates)
        return result

    def _check_types(self, data: TensorType, updates: TensorType) -> None:
        if data.dtype is not updates.dtype:
            raise ShapeError(f"{self.name}: data are {data.dtype.value}, but updates {updates.dtype.value}")

    def _from_front(self, indices: Array, extent: int, axis: int) -> Array:
        outside = indices[(indices < -extent) | (indices >= extent)]
        if outside.size:
            raise UsageError(f"{self.name}: index {outside[0]} is outside of -{extent}..{extent - 1}, axis {axis}")
        return np.where(indices < 0, indices + extent, indices)


@tpu_op("host_scatter_nd", OpKind.HOST)
class HostScatterNd(_Scatter):
    """y = data, where slice ``y[indices[k]]`` is ``updates[k]``, or combined with it by ``reduction``.

    Negative indices count from the end. Updates are applied in row-major order of indices.

    Shapes: indices [..., K] with K up to the rank of data; updates have the leading extents of indices, then the
    extents of data after the first K axes; y as data.
    Errors: UsageError if an index is outside of its axis.
    """

    def infer(self, data: TensorType, indices: TensorType, updates: TensorType) -> tuple[TensorType]:
        """Shapes: the last extent of indices must be known."""
        self._check_types(data, updates)
        depth = indices.shape[-1]
        if not isinstance(depth, int) or not 1 <= depth <= data.rank:
            raise ShapeError(f"{self.name}: indices {format_shape(indices.shape)} of data {format_shape(data.shape)}")
        expected = (indices.shape[:-1] + data.shape[depth:]) or (1,)
        if len(expected) != updates.rank or not all(map(may_equal, expected, updates.shape)):
            raise ShapeError(f"{self.name}: updates {format_shape(updates.shape)}, expected {format_shape(expected)}")
        return (data,)

    def reference(self, data: Array, indices: Array, updates: Array) -> tuple[Array]:
        """Index the leading axes of data by the columns of indices."""
        depth = indices.shape[-1]
        rows = indices.reshape(-1, depth)
        index = tuple(self._from_front(rows[:, k], data.shape[k], k) for k in range(depth))
        return (self._write(data, index, updates.reshape(len(rows), *data.shape[depth:])),)


@tpu_op("host_scatter_elements", OpKind.HOST)
class HostScatterElements(_Scatter):
    """y = data, where the element with index ``indices[i]`` on ``axis``, and the index i on other axes, is an update.

    The element is ``updates[i]``, or combined with it by ``reduction``. Negative indices count from the end.

    Shapes: indices and updates have equal shapes and the rank of data; y as data.
    Errors: UsageError if an index is outside of its axis.
    """

    axis: int = 0

    def infer(self, data: TensorType, indices: TensorType, updates: TensorType) -> tuple[TensorType]:
        """Shapes: y as data."""
        self._check_types(data, updates)
        normalize_axis(self.name, self.axis, data)
        fits = len({data.rank, indices.rank, updates.rank}) == 1
        if not fits or not all(map(may_equal, indices.shape, updates.shape)):
            raise ShapeError(
                f"{self.name} needs updates with the shape of indices, got {shapes_of((indices, updates))}"
            )
        return (data,)

    def reference(self, data: Array, indices: Array, updates: Array) -> tuple[Array]:
        """Replace the grid of indices along the axis."""
        axis = self.axis % data.ndim
        if any(
            extent > limit for k, (extent, limit) in enumerate(zip(indices.shape, data.shape, strict=True)) if k != axis
        ):
            raise UsageError(f"{self.name}: indices {list(indices.shape)} are larger than data {list(data.shape)}")
        grids: list[Array] = list(np.indices(indices.shape, sparse=True))
        grids[axis] = self._from_front(indices, data.shape[axis], axis)
        index = tuple(np.broadcast_to(grid, indices.shape) for grid in grids)
        return (self._write(data, index, updates),)
