"""bm_atomic_tensor_arithmetic_quantized: element-wise operations on 8- and 16-bit words, one operator per code.

A constant operand is a tensor of one element. input1 is broadcast along the axes whose parameter ``input1_*_is1`` is
True.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tpuconvert.schema.arithmetic.elementwise import Arithmetic, combine
from tpuconvert.schema.arithmetic.fixed_point import rrs, saturate, wrap
from tpuconvert.schema.definition.dtype_rules import INPUTS_SAME_WIDTH
from tpuconvert.schema.definition.op import LOCAL, ChipTable, Op, Operand, OpKind, Rule, Support, case, on, same, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.atomic.arithmetic import (
    FIRST,
    OLD,
    SECOND,
    BmAtomicOp,
    ShiftType,
    check_code,
    infer_copy,
    shift_pattern,
)
from tpuconvert.schema.ops.atomic.operands import check_data_types, check_same_shape, combined_shape
from tpuconvert.schema.types import BYTES, I16, SMALL, U16, Array, Chip, DType, TensorType

_HALVES = (I16, U16)


def _bm1684(*rules: Rule, **operands: tuple[DType, ...]) -> ChipTable:
    """Declare support on BM1684, which is inferred because the vendor's documentation does not name the chip."""
    return on(bm1682=None, bm1684=Support((case(operands, *rules),), inferred=True), bm1686=None)


def _one_dtype(*dtypes: DType) -> ChipTable:
    return on(bm1682=None, bm1684=Support((same(*dtypes),), inferred=True), bm1686=None)


_SUMS = _bm1684(INPUTS_SAME_WIDTH, input0=SMALL, input1=SMALL, output=SMALL)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FixedPointArithmetic(Op, abc.ABC):
    """Base of these operators: constant operands, broadcasting of input1, and shape inference."""

    op: BmAtomicOp
    input0_is_const: bool = False
    input1_is_const: bool = False
    input1_n_is1: bool = False
    input1_h_is1: bool = False
    input1_w_is1: bool = False

    inputs: ClassVar[tuple[Operand, ...]] = (FIRST, SECOND)
    outputs = (Operand("output", (4,), "NCHW; 8-bit data in 4N, 16-bit in 2N storage"),)
    locality = LOCAL

    def __post_init__(self) -> None:
        check_code(self, self.op)

    def infer(
        self, x0: TensorType | None = None, x1: TensorType | None = None, old: TensorType | None = None
    ) -> tuple[TensorType]:
        """Shapes: x0 [N, C, H, W]; extents of x1 are the same, or 1 on axes along which it is broadcast; y as x0."""
        if x0 is None or x1 is None:
            raise ShapeError(f"{self.name} lacks an operand; a constant is a tensor of one element")
        check_data_types(self, x0, x1, old)
        for is_const, operand_type in ((self.input0_is_const, x0), (self.input1_is_const, x1)):
            if is_const and operand_type.shape != (1, 1, 1, 1):
                raise ShapeError(f"{self.name}: a constant has one element, got {operand_type}")
        if self.input0_is_const or self.input1_is_const:
            shape = combined_shape(self, x1 if self.input0_is_const else x0, None, lambda _: False)
        else:
            is_one = (self.input1_n_is1, False, self.input1_h_is1, self.input1_w_is1)
            shape = combined_shape(self, x0, x1, lambda axis: is_one[axis])
        if old is not None:
            check_same_shape(self, shape, old)
        return (TensorType(self.result_dtype(x0.dtype if old is None else old.dtype), shape),)


class _Combination(FixedPointArithmetic):
    """Base of operators whose result is computed exactly and saturated once."""

    arithmetic: ClassVar[Arithmetic]

    def reference(self, x0: Array, x1: Array) -> tuple[Array]:
        return (combine(self.arithmetic, x0, x1, self.result_dtype(DType.of(x0.dtype)), Chip.BM1684),)


@tpu_op("bm_atomic_tensor_arithmetic_quantized.BM_ADD", OpKind.ATOMIC, kw_only=True)
class BmQuantizedAdd(_Combination):
    """``y = sat(x0 + x1)``."""

    op: BmAtomicOp = BmAtomicOp.BM_ADD
    out_dtype: DType | None = None

    dtypes = _SUMS
    arithmetic = Arithmetic.ADD


@tpu_op("bm_atomic_tensor_arithmetic_quantized.BM_SUB", OpKind.ATOMIC, kw_only=True)
class BmQuantizedSub(_Combination):
    """``y = sat(x0 - x1)``."""

    op: BmAtomicOp = BmAtomicOp.BM_SUB
    out_dtype: DType | None = None

    dtypes = _SUMS
    arithmetic = Arithmetic.SUB


@tpu_op("bm_atomic_tensor_arithmetic_quantized.BM_MAX", OpKind.ATOMIC, kw_only=True)
class BmQuantizedMax(_Combination):
    """``y = max(x0, x1)``."""

    op: BmAtomicOp = BmAtomicOp.BM_MAX

    dtypes = _one_dtype(*SMALL)
    arithmetic = Arithmetic.MAX


@tpu_op("bm_atomic_tensor_arithmetic_quantized.BM_MIN", OpKind.ATOMIC, kw_only=True)
class BmQuantizedMin(_Combination):
    """``y = min(x0, x1)``."""

    op: BmAtomicOp = BmAtomicOp.BM_MIN

    dtypes = _one_dtype(*SMALL)
    arithmetic = Arithmetic.MIN


def _check_shift(op: Op, name: str, shift: int) -> None:
    if not 0 <= shift <= 31:
        raise ValueError(f"{op.name}: {name} must be in 0..31, found {shift}")


@tpu_op("bm_atomic_tensor_arithmetic_quantized.BM_MUL", OpKind.ATOMIC, kw_only=True)
class BmQuantizedMul(FixedPointArithmetic):
    """``y = sat(round(x0 * x1 / 2^rshift_bit))``; ties round up."""

    op: BmAtomicOp = BmAtomicOp.BM_MUL
    rshift_bit: int = 0
    out_dtype: DType | None = None

    dtypes = _bm1684(input0=BYTES, input1=BYTES, output=SMALL)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_shift(self, "rshift_bit", self.rshift_bit)

    def reference(self, x0: Array, x1: Array) -> tuple[Array]:
        product = x0.astype(np.int64) * x1
        return (saturate(rrs(product, self.rshift_bit), self.result_dtype(DType.of(x0.dtype))),)


@tpu_op("bm_atomic_tensor_arithmetic_quantized.BM_MAC", OpKind.ATOMIC, kw_only=True)
class BmQuantizedMac(FixedPointArithmetic):
    """y = (x0 * x1 + old * 2^lshift_bit) / 2^rshift_bit, ties round up, saturated; old is the previous y.

    ``out_dtype`` None means the type of old.
    """

    op: BmAtomicOp = BmAtomicOp.BM_MAC
    rshift_bit: int = 0
    lshift_bit: int = 0
    out_dtype: DType | None = None

    inputs = (FIRST, SECOND, OLD)
    dtypes = _bm1684(input0=BYTES, input1=BYTES, output_old=_HALVES, output=_HALVES)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_shift(self, "rshift_bit", self.rshift_bit)
        _check_shift(self, "lshift_bit", self.lshift_bit)

    def reference(self, x0: Array, x1: Array, old: Array) -> tuple[Array]:
        total = x0.astype(np.int64) * x1 + (old.astype(np.int64) << self.lshift_bit)
        return (saturate(rrs(total, self.rshift_bit), self.result_dtype(DType.of(old.dtype))),)


@tpu_op("bm_atomic_tensor_arithmetic_quantized.BM_SHIFT", OpKind.ATOMIC, kw_only=True)
class BmQuantizedShift(FixedPointArithmetic):
    """y = x0 shifted by x1, to the left if x1 > 0, without rounding. Bits beyond the width of y are dropped."""

    op: BmAtomicOp = BmAtomicOp.BM_SHIFT
    shift_type: ShiftType
    out_dtype: DType | None = None

    dtypes = _bm1684(input0=_HALVES, input1=(I16,), output=_HALVES)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shift_type", ShiftType(self.shift_type))

    def reference(self, x0: Array, x1: Array) -> tuple[Array]:
        out = self.result_dtype(DType.of(x0.dtype))
        return (wrap(shift_pattern(x0, x1.astype(np.int64), self.shift_type), out),)


class _BitLogic(FixedPointArithmetic):
    """Base of bitwise operators on two operands."""

    dtypes = _one_dtype(*SMALL)
    logic: ClassVar[np.ufunc]

    def reference(self, x0: Array, x1: Array) -> tuple[Array]:
        return (self.logic(x0, x1),)


@tpu_op("bm_atomic_tensor_arithmetic_quantized.BM_AND", OpKind.ATOMIC, kw_only=True)
class BmQuantizedAnd(_BitLogic):
    """``y = x0 & x1``: bitwise AND."""

    op: BmAtomicOp = BmAtomicOp.BM_AND

    logic = np.bitwise_and


@tpu_op("bm_atomic_tensor_arithmetic_quantized.BM_OR", OpKind.ATOMIC, kw_only=True)
class BmQuantizedOr(_BitLogic):
    """``y = x0 | x1``: bitwise OR."""

    op: BmAtomicOp = BmAtomicOp.BM_OR

    logic = np.bitwise_or


@tpu_op("bm_atomic_tensor_arithmetic_quantized.BM_XOR", OpKind.ATOMIC, kw_only=True)
class BmQuantizedXor(_BitLogic):
    """``y = x0 ^ x1``: bitwise XOR."""

    op: BmAtomicOp = BmAtomicOp.BM_XOR

    logic = np.bitwise_xor


@tpu_op("bm_atomic_tensor_arithmetic_quantized.BM_CPY", OpKind.ATOMIC, kw_only=True)
class BmQuantizedCpy(FixedPointArithmetic):
    """``y = x0``. x1 is not read."""

    op: BmAtomicOp = BmAtomicOp.BM_CPY

    dtypes = _one_dtype(*BYTES)

    def infer(
        self, x0: TensorType | None = None, x1: TensorType | None = None, old: object = None
    ) -> tuple[TensorType]:
        return infer_copy(self, x0)

    def reference(self, x0: Array, x1: Array | None = None) -> tuple[Array]:
        return (x0.copy(),)
