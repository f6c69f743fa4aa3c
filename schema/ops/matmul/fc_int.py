"""fc_int: integer fully connected layer over the last axis with zero points and a 32-bit result."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.arithmetic.integer_product import add_bias, integer_matmul
from tpuconvert.schema.definition.op import GLOBAL, Extents, Op, Operand, tpu_op
from tpuconvert.schema.definition.shape_checks import check_bias, check_extent, check_ranks
from tpuconvert.schema.ops.matmul.zero_points import check_has_bias, check_zero_points, exact_dtypes, zero_point
from tpuconvert.schema.types import I32, Array, DType, TensorType


@tpu_op("fc_int")
class FcInt(Op):
    """Exact matmul of x - izp with kernel - kzp, plus bias, saturated once.

    Shapes: x [B, M, K], kernel [K, N] or [N, K] when ``weight_trans``, bias [N], y [B, M, N]; ``izp_vec`` has one value
    per row M, ``kzp_vec`` one per column N.
    ``out_dtype`` None means INT32.
    """

    has_bias: bool = False
    weight_trans: bool = False
    is_izp_const: bool = True
    izp_val: int = 0
    izp_vec: tuple[int, ...] = ()
    is_kzp_const: bool = True
    kzp_val: int = 0
    kzp_vec: tuple[int, ...] = ()
    out_dtype: DType | None = None

    inputs = (
        Operand("tensor_input", (3,)),
        Operand("tensor_kernel", (2,), coeff=True),
        Operand("tensor_bias", (1,), coeff=True, optional=True),
    )
    outputs = (Operand("tensor_o", (3,)),)
    dtypes = exact_dtypes("tensor_input", "tensor_kernel", "tensor_bias", "tensor_o")
    locality = GLOBAL

    def count_macs(self, operands: Sequence[Extents], results: Sequence[Extents]) -> int:
        """One MAC per element of a left row for each element of the result."""
        return math.prod(results[0]) * operands[0][-1]

    def infer(self, x: TensorType, kernel: TensorType, bias: TensorType | None = None) -> tuple[TensorType]:
        types = (x, kernel, bias)
        check_ranks(self, *types)
        check_has_bias(self, bias, *types)
        depth, n = reversed(kernel.shape) if self.weight_trans else kernel.shape
        check_extent(self, "the length of a kernel column", depth, x.shape[2], *types)
        check_bias(self, bias, (n,), *types)
        check_zero_points(self, "izp", x.shape[1], "rows", *types)
        check_zero_points(self, "kzp", n, "columns", *types)
        return (TensorType(self.out_dtype or I32, (*x.shape[:2], n)),)

    def reference(self, x: Array, kernel: Array, bias: Array | None = None) -> tuple[Array]:
        rows = zero_point(self, "izp")
        sums = integer_matmul(
            x.reshape(-1, x.shape[2]),
            kernel.T if self.weight_trans else kernel,
            left_zero=np.tile(rows, len(x)) if rows.ndim else rows,
            right_zero=zero_point(self, "kzp"),
        )
        return (add_bias(sums.reshape(*x.shape[:2], -1), bias, self.out_dtype or I32),)
