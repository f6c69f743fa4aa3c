"""host_max_positions, host_max_unpool: positions of pooled maxima, and their inverse, on the host."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.schema.definition.extents import may_equal, plus, shapes_of, times
from tpuconvert.schema.definition.op import Op, Operand, OpKind, case, on, tpu_op
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.types import I32, NUMBERS_F16, Array, Dim, DType, TensorType

_RANKS = (3, 4, 5)


@tpu_op("host_max_positions", OpKind.HOST, kw_only=True)
class HostMaxPositions(Op):
    """Positions in x of the maxima that a max pooling has, the first one of equal elements.

    A position is the index of an element in the flattened x. With ``is_column_major``, the last spatial axis is the
    slowest one instead. Only the shape of ``maxima`` is used, which is the result of the pooling.

    Shapes: x [N, C, ...] with one to three spatial axes, maxima and y [N, C, ...]; ``pads`` has the padding before
    each of these axes.
    Source: output Indices of ONNX MaxPool-12.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    is_column_major: bool = False

    inputs = (Operand("tensor_i", _RANKS), Operand("maxima", _RANKS))
    shape_operands = ("maxima",)
    dtypes = on(case({"tensor_i": NUMBERS_F16, "maxima": NUMBERS_F16, "tensor_o": (I32,)}))

    def __post_init__(self) -> None:
        lengths = {len(self.kernel), len(self.strides), len(self.dilations), len(self.pads)}
        if len(lengths) != 1 or min(*self.kernel, *self.strides, *self.dilations) < 1 or min(self.pads) < 0:
            raise ValueError(f"{self.name}: needs one size, stride, dilation and pad per spatial axis, found {self}")

    def infer(self, x: TensorType, maxima: TensorType) -> tuple[TensorType]:
        """Shapes: see the class."""
        same_lead = all(map(may_equal, x.shape[:2], maxima.shape[:2]))
        if x.rank != maxima.rank or len(self.kernel) != x.rank - 2 or not same_lead:
            raise ShapeError(f"{self.name}: {len(self.kernel)} spatial axes for {shapes_of((x, maxima))}")
        if 0 in x.shape and 0 not in maxima.shape:
            raise ShapeError(f"{self.name}: windows of {shapes_of((x, maxima))}, where x has no elements")
        return (TensorType(DType.INT32, maxima.shape),)

    def reference(self, x: Array, maxima: Array) -> tuple[Array]:
        """Compare the elements of all windows at one offset after the other."""
        axes, counts = range(2, x.ndim), maxima.shape[2:]
        line = np.arange(math.prod(x.shape[2:]), dtype=np.int64)
        numbers: Array = line.reshape(x.shape[2:], order="F" if self.is_column_major else "C")
        best = np.zeros(maxima.shape, x.dtype)
        positions = np.full(maxima.shape, -1, np.int64)
        for offsets in np.ndindex(*self.kernel):
            places, inside = [], np.ones(counts, bool)
            for k, axis in enumerate(axes):
                index = np.arange(counts[k]) * self.strides[k] + offsets[k] * self.dilations[k] - self.pads[k]
                is_valid = (index >= 0) & (index < x.shape[axis])
                inside &= is_valid.reshape([-1 if j == k else 1 for j in range(len(counts))])
                places.append(np.clip(index, 0, x.shape[axis] - 1))
            grid = np.ix_(*places)
            values = x[(slice(None), slice(None), *grid)]
            better = inside & ((positions < 0) | (values > best))
            best = np.where(better, values, best)
            positions = np.where(better, numbers[grid], positions)
        planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1 for _ in axes))
        return ((planes * numbers.size + positions).astype(np.int32),)


@tpu_op("host_max_unpool", OpKind.HOST, kw_only=True)
class HostMaxUnpool(Op):
    """Write each element of x to its position in a larger tensor; the other elements are 0.

    A position is an index of the flattened y. The spatial extents of y are copied from ``like``, of which only the
    shape is used, or given by ``sizes``; without both they are ``(extent - 1) * stride + kernel - pads``.

    Shapes: x and positions [N, C, ...] with one to three spatial axes, like the rank of x; ``pads`` has the sum of both
    sides per axis; ``sizes`` has the spatial extents of y, or is empty.
    Errors: UsageError for a position outside of y.
    Source: ONNX MaxUnpool-11.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    sizes: tuple[int, ...] = ()

    inputs = (
        Operand("tensor_i", _RANKS),
        Operand("positions", _RANKS, coeff=True),
        Operand("like", _RANKS, optional=True),
    )
    shape_operands = ("like",)
    dtypes = on(
        case({"tensor_i": NUMBERS_F16, "positions": (I32,), "like": (*NUMBERS_F16, I32), "tensor_o": NUMBERS_F16})
    )
    decides_by = ("positions",)

    def __post_init__(self) -> None:
        lengths = {len(self.kernel), len(self.strides), len(self.pads), len(self.sizes or self.kernel)}
        if len(lengths) != 1 or min(*self.kernel, *self.strides) < 1:
            raise ValueError(f"{self.name}: needs one size, stride and pad per spatial axis, found {self}")

    def infer(self, x: TensorType, positions: TensorType, like: TensorType | None = None) -> tuple[TensorType]:
        """Shapes: see the class."""
        same = x.rank == positions.rank and all(map(may_equal, x.shape, positions.shape))
        if not same or len(self.kernel) != x.rank - 2 or (like is not None and like.rank != x.rank):
            raise ShapeError(f"{self.name}: {len(self.kernel)} spatial axes for {shapes_of((x, positions))}")
        sizes = self.sizes if like is None else like.shape[2:]
        inferred = tuple(self._unpooled(k, extent) for k, extent in enumerate(x.shape[2:]))
        pairs = list(zip(inferred, sizes or inferred, strict=True))
        if any(isinstance(size, int) and size < 1 for _, size in pairs):
            raise ShapeError(f"{self.name}: the result of {x} would have the extents {[size for _, size in pairs]}")
        if any(isinstance(have, int) and isinstance(want, int) and want < have for have, want in pairs):
            raise ShapeError(f"{self.name}: the extents {list(sizes)} are smaller than {list(inferred)}")
        return (TensorType(x.dtype, (*x.shape[:2], *(size for _, size in pairs))),)

    def _unpooled(self, k: int, extent: Dim) -> Dim:
        return plus(times(extent, self.strides[k]), self.kernel[k] - self.strides[k] - self.pads[k])

    def reference(self, x: Array, positions: Array, like: Array | None = None) -> tuple[Array]:
        """Write in row-major order: the last element of a position stays."""
        operands = (x, positions) if like is None else (x, positions, like)
        shape = self.infer(*(TensorType(DType.of(item.dtype), item.shape) for item in operands))[0].static_shape
        flat = np.zeros(math.prod(shape), x.dtype)
        outside = positions[(positions < 0) | (positions >= flat.size)]
        if outside.size:
            raise UsageError(f"{self.name}: position {outside[0]} of {flat.size} elements")
        flat[positions.reshape(-1)] = x.reshape(-1)
        return (flat.reshape(shape),)
