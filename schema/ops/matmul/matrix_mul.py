"""matrix_mul: matmul of two matrices with optional bias; float, or integer in one of three calculation modes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.arithmetic.integer_product import integer_matmul
from tpuconvert.schema.arithmetic.quantized_sums import (
    ceil_shift,
    high_precision_asymmetric,
    high_precision_symmetric,
    low_precision,
    offline_bias,
)
from tpuconvert.schema.definition.op import GLOBAL, Extents, Op, Operand, Support, Trait, on, same, tpu_op
from tpuconvert.schema.definition.shape_checks import check_bias, check_extent, check_ranks
from tpuconvert.schema.ops.matmul.quantized_modes import LATE_BIASES_OF_MATRIX_MUL, QCalMode, check_scale, mode_cases
from tpuconvert.schema.types import F16, F32, Array, DType, TensorType

__all__ = ["MatrixMul", "QCalMode"]

_INTEGER = mode_cases("matrix_left", "matrix_right", "bias", "matrix_result", LATE_BIASES_OF_MATRIX_MUL)


@tpu_op("matrix_mul")
class MatrixMul(Op):
    """Matmul: y = left @ right + bias. Integers are then rescaled by ``scale`` in one of three modes, ``mode``.

    Shapes: left [M, K], right [K, N], bias [1, N], y [M, N].
    Units: ``left_zero_point`` belongs to left, ``right_zero_point`` to right; they, ``scale`` and ``mode`` are for
    integers only.
    ``out_dtype`` None means the type of left.
    Source: docs/inside/semantics.md, section 7.
    """

    scale: float = 1.0
    mode: QCalMode = QCalMode.LowPrecisionSymmetric
    left_zero_point: int = 0
    right_zero_point: int = 0
    output_zero_point: int = 0
    out_dtype: DType | None = None

    inputs = (
        Operand("matrix_left", (2,), coeff=True),
        Operand("matrix_right", (2,), coeff=True),
        Operand("bias", (2,), coeff=True, optional=True),
    )
    outputs = (Operand("matrix_result", (2,)),)
    dtypes = on(F32, bm1684=(F32, *_INTEGER), bm1686=Support((same(F32), *_INTEGER, same(F16))))
    locality = GLOBAL
    traits = Trait.LINEAR

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", QCalMode(self.mode))
        check_scale(self, self.scale)

    def count_macs(self, operands: Sequence[Extents], results: Sequence[Extents]) -> int:
        """One MAC per element of a left row for each element of the result."""
        return math.prod(results[0]) * operands[0][-1]

    def infer(self, left: TensorType, right: TensorType, bias: TensorType | None = None) -> tuple[TensorType]:
        types = (left, right, bias)
        check_ranks(self, *types)
        check_extent(self, "the number of rows of matrix_right", right.shape[0], left.shape[1], *types)
        check_bias(self, bias, (1, right.shape[1]), *types)
        return (TensorType(self.out_dtype or left.dtype, (left.shape[0], right.shape[1])),)

    def reference(self, left: Array, right: Array, bias: Array | None = None) -> tuple[Array]:
        out = self.out_dtype or DType.of(left.dtype)
        if out.is_float:
            with np.errstate(all="ignore"):
                product = np.matmul(left.astype(np.float64), right.astype(np.float64))
                return ((product if bias is None else product + bias).astype(out.numpy),)
        sums = integer_matmul(left, right)
        match self.mode:
            case QCalMode.LowPrecisionSymmetric:
                return (low_precision(sums, bias, self.scale, out),)
            case QCalMode.HighPrecisionSymmetric:
                return (high_precision_symmetric(sums, bias, self.scale, out),)
            case QCalMode.HighPrecisionAsymmetric:
                return (self._asymmetric(sums, left, right, bias, out),)

    def _asymmetric(self, sums: Array, left: Array, right: Array, bias: Array | None, out: DType) -> Array:
        zero_left, zero_right = self.left_zero_point, self.right_zero_point
        zero_sums = left.sum(axis=1, dtype=np.int64, keepdims=True) * zero_right
        zero_products = zero_left * (right.astype(np.int64) - zero_right).sum(axis=0, keepdims=True)
        prepared = offline_bias(bias, zero_products)
        shift = ceil_shift(np.float32(self.scale))
        return high_precision_asymmetric(sums, zero_sums, prepared, self.scale, shift, self.output_zero_point, out)
