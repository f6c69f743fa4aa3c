"""gather_group_quantized: gather rows of a table of packed 4-bit or 8-bit codes with one scale per group of columns."""

from __future__ import annotations

from tpuconvert.schema.definition.op import Operand, OpKind, case, on, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.composite import Composite
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.types import F32, I32, U8, Array, TensorType


@tpu_op("gather_group_quantized", OpKind.COMPOSITE)
class GatherGroupQuantized(Composite):
    """``y[m, k] = (code[n, k] - zero_point[n, g]) * scale[n, g]`` for ``n = index[m]`` and ``g = k // group``.

    Shapes: index [M], codes [N, G * group * bits / 8] with G = ceil(depth / group), scale [N, G], zero_point as for
    ``matmul_group_quantized``, y [M, depth].
    Units: as for ``matmul_group_quantized``, whose weight can be the same table.
    Errors: UsageError if an index is outside of 0..N-1.
    Source: GatherBlockQuantized of the domain com.microsoft.
    """

    depth: int
    bits: int = 4
    group: int = 32

    decides_by = ("index",)
    half_operands = (2,)
    inputs = (
        Operand("index", (1,)),
        Operand("codes", (2,), coeff=True),
        Operand("scale", (2,), coeff=True),
        Operand("zero_point", (2,), coeff=True, optional=True),
    )
    dtypes = on(case({"index": (I32,), "codes": (U8,), "scale": (F32,), "zero_point": (F32, U8), "tensor_o": (F32,)}))

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ValueError(f"{self.name}: depth is {self.depth}, expected at least 1")
        self._table()

    def _table(self) -> MatmulGroupQuantized:
        """Return the operator that defines the dequantized table; it checks the parameters."""
        return MatmulGroupQuantized(self.bits, self.group)

    def infer(
        self, index: TensorType, codes: TensorType, scale: TensorType, zero_point: TensorType | None = None
    ) -> tuple[TensorType]:
        if index.dtype is not I32 or len(index.shape) != 1:
            raise ShapeError(f"{self.name} takes an index [M] in INT32, got {index}")
        self._table().infer(TensorType(F32, (1, self.depth)), codes, scale, zero_point)
        return (TensorType(F32, (index.shape[0], self.depth)),)

    def reference(self, index: Array, codes: Array, scale: Array, zero_point: Array | None = None) -> tuple[Array]:
        """Dequantize the selected rows only."""
        tables = (codes, scale, *(() if zero_point is None else (zero_point,)))
        rows = [IndexSelect(dim=0).reference(table, index)[0] for table in tables]
        return (self._table().weights(rows[0], rows[1], rows[2] if len(rows) > 2 else None, self.depth),)

    def expand(
        self, g: Graph, index: Value, codes: Value, scale: Value, zero_point: Value | None = None
    ) -> tuple[Value]:
        """Dequantize the table in float32, then gather. If the table is constant, only the gather remains."""
        table = self._table().expand_weights(g, codes, scale, zero_point, self.depth)
        return (g.add(IndexSelect(dim=0), table, index),)
