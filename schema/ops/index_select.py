"""IndexSelect: gather slices along one axis by a 1-D index tensor."""

from __future__ import annotations

from tpuconvert.schema.definition.dtype_rules import IO_SAME
from tpuconvert.schema.definition.extents import normalize_axis, with_extent
from tpuconvert.schema.definition.op import GLOBAL, Op, Operand, Trait, case, on, todo, tpu_op
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import F32, I32, Array, TensorType, format_shape

_CASE = case({"tensor_i": (F32,), "index": (I32,), "tensor_o": (F32,)}, IO_SAME)


@tpu_op("index_select")
class IndexSelect(Op):
    """Slice k of y along ``dim`` is slice ``index[k]`` of x.

    Shapes: index [K]; y has extent K on ``dim``.
    Errors: UsageError if an index is outside of 0..extent-1.
    """

    dim: int

    inputs = (Operand("tensor_i"), Operand("index", ranks=(1,), coeff=True))
    decides_by = ("index",)
    dtypes = on(_CASE, bm1686=todo(_CASE))
    locality = GLOBAL
    traits = Trait.MOVES_DATA

    def infer(self, x: TensorType, index: TensorType) -> tuple[TensorType]:
        """Shapes: y is x with the extent K on axis ``dim``."""
        dim = normalize_axis(self.name, self.dim, x)
        return (TensorType(x.dtype, with_extent(x.shape, dim, index.shape[0])),)

    def reference(self, x: Array, index: Array) -> tuple[Array]:
        """Negative indices are out of range too."""
        extent = x.shape[self.dim]
        outside = index[(index < 0) | (index >= extent)]
        if outside.size:
            raise UsageError(
                f"{self.name}: index {outside[0]} is outside of 0..{extent - 1}, "
                f"axis {self.dim} of {format_shape(x.shape)}"
            )
        return (x.take(index, axis=self.dim),)
