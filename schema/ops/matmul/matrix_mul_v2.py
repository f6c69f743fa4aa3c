"""matrix_mul_v2: batched integer matmul with zero points and a 32-bit result."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tpuconvert.schema.arithmetic.integer_product import add_bias, integer_matmul
from tpuconvert.schema.definition.extents import may_equal, merge
from tpuconvert.schema.definition.op import GLOBAL, Extents, Op, Operand, tpu_op
from tpuconvert.schema.definition.shape_checks import check_bias, check_extent, check_ranks, format_types
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.matmul.zero_points import check_has_bias, check_zero_points, exact_dtypes, zero_point
from tpuconvert.schema.types import I32, Array, DType, Shape, TensorType


@tpu_op("matrix_mul_v2")
class MatrixMulV2(Op):
    """Exact matmul of left - lzp with right - rzp, plus bias, saturated once.

    Shapes: left [..., M, K] or [..., K, M] when ``is_left_trans``, right [..., K, N] or [..., N, K] when
    ``is_right_trans``, bias [N], y [..., M, N]. Both operands have the same rank (2 to 5) and equal leading extents.
    ``lzp_vec`` has one value per row of y, ``rzp_vec`` one per column.
    ``out_dtype`` None means INT32.
    """

    has_bias: bool = False
    is_left_trans: bool = False
    is_right_trans: bool = False
    is_lzp_const: bool = True
    lzp_val: int = 0
    lzp_vec: tuple[int, ...] = ()
    is_rzp_const: bool = True
    rzp_val: int = 0
    rzp_vec: tuple[int, ...] = ()
    out_dtype: DType | None = None

    inputs = (
        Operand("matrix_left", (2, 3, 4, 5), coeff=True),
        Operand("matrix_right", (2, 3, 4, 5), coeff=True),
        Operand("bias", (1,), coeff=True, optional=True),
    )
    outputs = (Operand("matrix_result", (2, 3, 4, 5)),)
    dtypes = exact_dtypes("matrix_left", "matrix_right", "bias", "matrix_result")
    locality = GLOBAL

    def count_macs(self, operands: Sequence[Extents], results: Sequence[Extents]) -> int:
        """One MAC per element of a left row for each element of the result."""
        return math.prod(results[0]) * operands[0][-2 if self.is_left_trans else -1]

    def infer(self, left: TensorType, right: TensorType, bias: TensorType | None = None) -> tuple[TensorType]:
        types = (left, right, bias)
        check_ranks(self, *types)
        check_has_bias(self, bias, *types)
        batch, other = left.shape[:-2], right.shape[:-2]
        if len(batch) != len(other) or not all(map(may_equal, batch, other)):
            raise ShapeError(f"matrix_mul_v2: leading extents must be equal, got {format_types(types)}")
        m, k = _matrix(left, self.is_left_trans)
        depth, n = _matrix(right, self.is_right_trans)
        check_extent(self, "the number of rows of matrix_right", depth, k, *types)
        check_bias(self, bias, (n,), *types)
        check_zero_points(self, "lzp", m, "rows", *types)
        check_zero_points(self, "rzp", n, "columns", *types)
        return (TensorType(self.out_dtype or I32, (*map(merge, batch, other), m, n)),)

    def reference(self, left: Array, right: Array, bias: Array | None = None) -> tuple[Array]:
        left = left.swapaxes(-1, -2) if self.is_left_trans else left
        right = right.swapaxes(-1, -2) if self.is_right_trans else right
        sums = integer_matmul(left, right, left_zero=zero_point(self, "lzp"), right_zero=zero_point(self, "rzp"))
        return (add_bias(sums, bias, self.out_dtype or I32),)


def _matrix(x: TensorType, is_transposed: bool) -> Shape:
    """Rows and columns of the matrix, which may be stored transposed."""
    return x.shape[:-3:-1] if is_transposed else x.shape[-2:]
