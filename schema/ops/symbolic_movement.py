"""Reshapes and slices that ``reshape`` and ``extract`` express only for extents that are numbers.

Each exists only while the extents are symbolic.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.schema.definition.extents import (
    ceil_div,
    exact_div,
    normalize_axis,
    plus,
    substitute,
    times,
    with_extent,
)
from tpuconvert.schema.definition.op import LOCAL, Operand, OpKind, Trait, on, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.deferred import DeferredOp
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, NUMBERS, NUMBERS_F16, Dim, TensorType, format_shape

_PROBES = (12, 60, 840)
"""Numbers in place of symbolic extents in the check of legality; the first is taken that leaves integers above 0."""

_MOVABLE = on(bm1682=(F32,), bm1684=NUMBERS, bm1686=NUMBERS_F16)


@tpu_op("reshape_axes", OpKind.COMPOSITE)
class ReshapeAxes(DeferredOp):
    """Reshape to products of axes of x.

    Extent k of y is ``factors[k] / divisors[k]`` times the product of the axes a of x whose bit ``1 << a`` is set in
    ``axes[k]``.

    Errors: ShapeError if an extent is not an integer, or if the number of elements changes.
    """

    factors: tuple[int, ...]
    divisors: tuple[int, ...]
    axes: tuple[int, ...]

    inputs = (Operand("tensor_i"),)
    dtypes = _MOVABLE
    traits = Trait.RESHAPES
    rewrite_weight = 2

    def __post_init__(self) -> None:
        if not len(self.factors) == len(self.divisors) == len(self.axes) > 0:
            raise ValueError(f"{self.name}: needs as many factors as divisors and axes, found {self}")
        if min(*self.factors, *self.divisors) < 1 or min(self.axes) < 0:
            raise ValueError(f"{self.name}: factors and divisors must be at least 1, found {self}")

    @property
    def sample_extent(self) -> int:
        """Return a multiple of all divisors."""
        return 2 * math.lcm(*self.divisors)

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: see the class."""
        shape = tuple(self._extent(x, *rule) for rule in zip(self.factors, self.divisors, self.axes, strict=True))
        if x.is_static and math.prod(x.static_shape) != math.prod(map(int, shape)):
            raise ShapeError(f"{self.name}: {format_shape(x.shape)} does not fit into {format_shape(shape)}")
        return (TensorType(x.dtype, shape),)

    def _extent(self, x: TensorType, factor: int, divisor: int, axes: int) -> Dim:
        if axes >> x.rank:
            raise ShapeError(f"{self.name}: axes {axes:b} (bits) do not exist in {x}")
        product = times(factor, *(extent for axis, extent in enumerate(x.shape) if axes >> axis & 1))
        if isinstance(product, int) and product % divisor:
            raise ShapeError(f"{self.name}: the extent {product} of {x} is not a multiple of {divisor}")
        return exact_div(product, divisor)

    def expand(self, g: Graph, x: Value) -> tuple[Value]:
        """Expand to reshape."""
        f.extents(self, x)
        shape = self.infer(x.type)[0].static_shape
        return (g.add(Reshape(shape), x),)


@tpu_op("reshape_like", OpKind.COMPOSITE)
class ReshapeLike(DeferredOp):
    """Reshape to the shape of another tensor, whose elements are not used.

    Shapes: x has as many elements as ``like``, y the shape of ``like``.
    """

    inputs = (Operand("tensor_i"), Operand("like"))
    shape_operands = ("like",)
    dtypes = _MOVABLE
    traits = Trait.RESHAPES
    rewrite_weight = 2

    def infer(self, x: TensorType, like: TensorType) -> tuple[TensorType]:
        """Shapes: see the class."""
        if x.is_static and like.is_static and math.prod(x.static_shape) != math.prod(like.static_shape):
            raise ShapeError(f"{self.name}: {format_shape(x.shape)} does not fit into {format_shape(like.shape)}")
        return (TensorType(x.dtype, like.shape),)

    def expand(self, g: Graph, x: Value, like: Value) -> tuple[Value]:
        """Expand to reshape."""
        f.extents(self, x)
        return (g.add(Reshape(f.extents(self, like)), x),)


@tpu_op("reshape_by_formulas", OpKind.COMPOSITE)
class ReshapeByFormulas(DeferredOp):
    """Reshape to extents that are numbers, or formulas of the extents of a second tensor.

    In the formulas, ``names[k]`` is the extent of ``source`` on the axis ``axes[k]``. Its elements are not used.

    Errors: ShapeError if the number of elements changes.
    """

    extents: tuple[str, ...]
    names: tuple[str, ...]
    axes: tuple[int, ...]

    inputs = (Operand("tensor_i"), Operand("source"))
    shape_operands = ("source",)
    dtypes = _MOVABLE
    traits = Trait.RESHAPES
    rewrite_weight = 2

    def __post_init__(self) -> None:
        if len(self.names) != len(self.axes) or min(self.axes, default=0) < 0 or not self.extents:
            raise ValueError(f"{self.name}: needs extents, and one axis for each name, found {self}")

    def infer(self, x: TensorType, source: TensorType) -> tuple[TensorType]:
        """Shapes: see the class."""
        for axis in self.axes:
            normalize_axis(self.name, axis, source)
        extents = {name: source.shape[axis] for name, axis in zip(self.names, self.axes, strict=True)}
        shape = tuple(substitute(text, extents) for text in self.extents)
        if (
            x.is_static
            and all(isinstance(extent, int) for extent in shape)
            and math.prod(x.static_shape) != math.prod(map(int, shape))
        ):
            raise ShapeError(f"{self.name}: {format_shape(x.shape)} does not fit into {format_shape(shape)}")
        return (TensorType(x.dtype, shape),)

    def shorter_types(self, *inputs: TensorType | None) -> tuple[TensorType | None, ...]:
        """Types with consistent numbers, for the check of legality."""
        x, source = inputs
        assert x is not None and source is not None
        for number in _PROBES:
            extents = tuple(number if isinstance(extent, str) else extent for extent in source.shape)
            probe = TensorType(source.dtype, extents)
            try:
                shape = self.infer(TensorType(x.dtype, ("any",)), probe)[0].static_shape
            except ShapeError:
                if number == _PROBES[-1]:
                    raise
                continue
            if min(shape) > 0 or number == _PROBES[-1]:
                break
        return TensorType(x.dtype, (math.prod(shape),)), probe

    def expand(self, g: Graph, x: Value, source: Value) -> tuple[Value]:
        """Expand to reshape."""
        f.extents(self, x)
        return (g.add(Reshape(self.infer(x.type, source.type)[0].static_shape), x),)


@tpu_op("slice_axis", OpKind.COMPOSITE)
class SliceAxis(DeferredOp):
    """Strided slice of one axis. Negative bounds count from the end of the axis; the end 0 is the end of the axis.

    Bounds outside of the axis are clamped, so that ``start=-100`` takes all of a shorter axis.

    Shapes: y has ``ceil((end - start) / step)`` elements on the axis; none if start is not before end, which
    ``may_be_empty`` allows, except for the slice of one element, whose extent is the number 1.
    Errors: ShapeError if no element is left, unless the slice may be empty.
    """

    axis: int
    start: int
    end: int = 0
    step: int = 1
    may_be_empty: bool = False

    inputs = (Operand("tensor_i"),)
    dtypes = _MOVABLE
    locality = LOCAL
    traits = Trait.VIEWS
    rewrite_weight = 2

    def __post_init__(self) -> None:
        if self.step < 1:
            raise ValueError(f"{self.name}: needs a positive step, found {self}")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: see the class."""
        axis = normalize_axis(self.name, self.axis, x)
        extent = x.shape[axis]
        if isinstance(extent, str):
            return (TensorType(x.dtype, with_extent(x.shape, axis, ceil_div(self._length(extent), self.step))),)
        begin, end = self._bounds(extent)
        if begin >= end and (not self.may_be_empty or self.end - self.start == 1):
            raise ShapeError(f"{self} leaves none of {extent} elements")
        return (TensorType(x.dtype, with_extent(x.shape, axis, ceil_div(max(end - begin, 0), self.step))),)

    def _length(self, extent: str) -> Dim:
        """``end - start`` for a symbolic extent: at most their distance.

        ``s - k``, which slices have that drop elements at the ends, and the 1 of a single element are for a slice that
        is not empty: extents can be computed with them.
        """
        distance = self.end - self.start
        if self.start >= 0 >= self.end:
            return plus(extent, distance)
        if distance == 1:
            return 1
        if self.start < 0 < self.end:
            length = f"min({extent},{self.end})-max({plus(extent, self.start)},0)"
        else:
            length = f"min({plus(extent, -self.start if self.start >= 0 else self.end)},{distance})"
        return f"max({length},0)" if self.may_be_empty else length

    @property
    def sample_extent(self) -> int:
        """Return an extent of which an element is left."""
        return -self.start if self.start < 0 < self.end else 2 + abs(self.start) + abs(self.end)

    def _bounds(self, extent: int) -> tuple[int, int]:
        begin = self.start if self.start >= 0 else extent + self.start
        end = self.end if self.end > 0 else extent + self.end
        return min(max(begin, 0), extent), min(max(end, 0), extent)

    def expand(self, g: Graph, x: Value) -> tuple[Value]:
        """Expand to extract."""
        (result,) = self.infer(x.type)
        if 0 in result.shape:
            return (g.constant(np.empty(result.static_shape, x.dtype.numpy), name="empty"),)
        shape = f.extents(self, x)
        axis = self.axis % x.rank
        begin, end = self._bounds(shape[axis])
        starts = tuple(begin if k == axis else 0 for k in range(x.rank))
        ends = tuple(end if k == axis else extent for k, extent in enumerate(shape))
        steps = tuple(self.step if k == axis else 1 for k in range(x.rank))
        return (g.add(Extract(starts, ends, steps), x),)
