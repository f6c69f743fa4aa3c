"""lut: look up every byte in a table of 256 entries."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.schema.definition.dtype_rules import TABLE_SAME_OUT
from tpuconvert.schema.definition.op import LOCAL, Op, Operand, case, on, todo, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import F32, I8, U8, Array, TensorType

_CASE = case({"tensor_i": (I8, U8), "table": (I8, U8, F32), "tensor_o": (I8, U8, F32)}, TABLE_SAME_OUT)


@tpu_op("lut")
class Lut(Op):
    """Table look-up: y = table[x]. The index is the bit pattern of x as UINT8, so that -1 selects entry 255.

    Shapes: x [...], table of 256 elements in any shape, y as x, with the type of the table.
    """

    inputs = (Operand("tensor_i", coeff=True), Operand("table", coeff=True))
    dtypes = on(bm1682=None, bm1684=(_CASE,), bm1686=todo(_CASE))
    locality = LOCAL

    def infer(self, x: TensorType, table: TensorType) -> tuple[TensorType]:
        if table.is_static and math.prod(table.static_shape) != 256:
            raise ShapeError(f"lut: the table needs 256 elements, got {x} and {table}")
        return (TensorType(table.dtype, x.shape),)

    def reference(self, x: Array, table: Array) -> tuple[Array]:
        return (table.reshape(-1)[x.view(np.uint8)],)
