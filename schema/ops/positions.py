"""positions, formula_positions: positions along an axis with a dynamic extent."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.finite import InfinityUse
from tpuconvert.schema.definition.extents import normalize_axis, substitute
from tpuconvert.schema.definition.op import Operand, OpKind, Trait, tpu_op
from tpuconvert.schema.graph.composite import Composite
from tpuconvert.schema.graph.deferred import DeferredOp
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.types import I32, Array, TensorType


@tpu_op("positions", OpKind.COMPOSITE)
class Positions(Composite):
    """``y = 0, 1, ..., n - 1`` for the extent n of x on ``axis``; with ``is_reversed``, ``y = n - 1, ..., 1, 0``.

    The elements of x are not used. With static shapes, y is a constant.

    Shapes: y [n], INT32.
    """

    axis: int = 0
    is_reversed: bool = False

    infinity = InfinityUse.DEFINED
    inputs = (Operand("tensor_i"),)
    traits = Trait.SHAPE_ONLY

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: x has any shape."""
        return (TensorType(I32, (x.shape[normalize_axis(self.name, self.axis, x)],)),)

    def reference(self, x: Array) -> tuple[Array]:
        """Return a new array."""
        return (self._numbers(x.shape[self.axis]),)

    def expand(self, g: Graph, x: Value) -> tuple[Value]:
        """Return a constant."""
        return (g.constant(self._numbers(f.extents(self, x)[self.axis])),)

    def _numbers(self, count: int) -> Array:
        numbers = np.arange(count, dtype=np.int32)
        return numbers[::-1].copy() if self.is_reversed else numbers


@tpu_op("formula_positions", OpKind.COMPOSITE)
class FormulaPositions(DeferredOp):
    """``y = 0, 1, ..., n - 1`` for an extent n that is a formula of extents of x.

    In the formula, ``names[k]`` is the extent of x on the axis ``axes[k]``. The elements of x are not used.

    Shapes: y [n], INT32.
    """

    formula: str
    names: tuple[str, ...]
    axes: tuple[int, ...]

    infinity = InfinityUse.DEFINED
    inputs = (Operand("tensor_i"),)
    traits = Trait.SHAPE_ONLY

    def __post_init__(self) -> None:
        if len(self.names) != len(self.axes) or min(self.axes, default=0) < 0:
            raise ValueError(f"{self.name}: needs one axis for each name, found {self}")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: y has the extent of the formula, in which numbers replace known extents."""
        for axis in self.axes:
            normalize_axis(self.name, axis, x)
        extents = {name: x.shape[axis] for name, axis in zip(self.names, self.axes, strict=True)}
        return (TensorType(I32, (substitute(self.formula, extents),)),)

    def expand(self, g: Graph, x: Value) -> tuple[Value]:
        """Return a constant."""
        f.extents(self, x)
        return (g.constant(np.arange(self.infer(x.type)[0].static_shape[0], dtype=np.int32)),)
