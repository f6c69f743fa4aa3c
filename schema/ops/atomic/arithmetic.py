"""bm_atomic_tensor_arithmetic: element-wise operations on 32-bit words; there is one operator per operation code.

Either operand may be a scalar constant, which is a binary32 number. Bitwise operations use its bit pattern. Only input1
is broadcast, along N, H and W.
"""

from __future__ import annotations

import abc
import enum
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tpuconvert.schema.arithmetic.elementwise import Arithmetic, combine
from tpuconvert.schema.arithmetic.fixed_point import shift_wrapping
from tpuconvert.schema.definition.op import LOCAL, Op, Operand, OpKind, Support, on, same, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.atomic.operands import check_data_types, check_same_shape, combined_shape
from tpuconvert.schema.types import F32, I32, U32, Array, Chip, DType, TensorType


class BmAtomicOp(enum.IntEnum):
    """All operation codes. A code without an operator is not available in these instructions."""

    BM_MUL = 0
    BM_MAC = 1
    BM_ADD = 2
    BM_SUB = 3
    BM_MAX = 4
    BM_MIN = 5
    BM_SHIFT = 6
    BM_AND = 7
    BM_OR = 8
    BM_XOR = 9
    BM_SG = 10
    BM_SE = 11
    BM_DIV = 12
    BM_TAYLOR = 13
    BM_FP32_INT32 = 14
    BM_NORMALIZE_INT32 = 15
    BM_NORMALIZE_FP32 = 16
    BM_RSQRT = 17
    BM_CPY = 19
    BM_SQR_SUM = 20
    BM_SQR_DIFF = 21


class ShiftType(enum.IntEnum):
    """Bits that a right shift inserts: zeros, or the sign."""

    LOGICAL = 0
    ARITHMETIC = 1


FIRST = Operand("input0", (4,), "NCHW, strided", coeff=True, optional=True)
SECOND = Operand("input1", (4,), "NCHW, strided", coeff=True, optional=True)
OLD = Operand("output_old", (4,), "NCHW, strided")

WIDTH_AXES = (0, 2, 3)
"""Axes along which input1 may be broadcast."""


def _bm1684(*dtypes: DType) -> Support:
    """Declare support on BM1684, which is inferred because the vendor's documentation does not name the chip."""
    return Support((same(*dtypes),), inferred=True)


_FLOAT = on(bm1682=None, bm1684=_bm1684(F32), bm1686=None)
_WORDS = on(bm1682=None, bm1684=_bm1684(F32, I32, U32), bm1686=None)
_INTEGERS = on(bm1682=None, bm1684=_bm1684(I32, U32), bm1686=None)


def check_code(op: Op, code: BmAtomicOp) -> None:
    """Check that the parameter ``op`` of an operator has the only valid value, which is its default.

    Raises:
        ValueError: it has another value.
    """
    expected: Any = op.__dataclass_fields__["op"].default
    if BmAtomicOp(code) is not expected:
        raise ValueError(f"{op.name}: the operation code is {expected.name}, found {BmAtomicOp(code).name}")


def infer_copy(op: Op, x: TensorType | None) -> tuple[TensorType]:
    """Shapes: y as x.

    Raises:
        ShapeError: x is absent.
    """
    if x is None:
        raise ShapeError(f"{op.name}: there is no tensor to copy")
    return (TensorType(x.dtype, combined_shape(op, x, None, lambda _: False)),)


def words(x: Array) -> Array:
    """Reinterpret the bits of 32-bit elements as INT32."""
    result: Array = np.ascontiguousarray(x).view(np.int32)
    return result


def shift_pattern(x: Array, amount: Array, shift_type: ShiftType) -> Array:
    """Shift the bits of every element by its own amount, to the left if positive. The result has the type of x.

    An arithmetic right shift of an unsigned type inserts zeros.
    """
    if shift_type is ShiftType.ARITHMETIC:
        return shift_wrapping(x, amount)
    pattern = np.ascontiguousarray(x).view(np.dtype(f"u{x.dtype.itemsize}"))
    return shift_wrapping(pattern, amount).view(x.dtype)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AtomicArithmetic(Op, abc.ABC):
    """Base of these operators: constant operands, and inference of shapes and data types."""

    op: BmAtomicOp
    input0_is_const: bool = False
    input0_const: float = 0.0
    input1_is_const: bool = False
    input1_const: float = 0.0

    inputs: ClassVar[tuple[Operand, ...]] = (FIRST, SECOND)
    outputs = (Operand("output", (4,), "NCHW, strided"),)
    dtypes = _FLOAT
    locality = LOCAL

    def __post_init__(self) -> None:
        check_code(self, self.op)

    def infer(
        self, x0: TensorType | None = None, x1: TensorType | None = None, old: TensorType | None = None
    ) -> tuple[TensorType]:
        """Shapes: x0 [N, C, H, W]; extents of x1 are the same or, for N, H and W, 1; y as x0."""
        for name, is_const, operand_type in (
            ("input0", self.input0_is_const, x0),
            ("input1", self.input1_is_const, x1),
        ):
            if is_const == (operand_type is not None):
                raise ShapeError(f"{self.name}: {name}_is_const is {is_const}, and the operand is {operand_type}")
        check_data_types(self, x0, x1, old)
        first, second = (x1, None) if x0 is None else (x0, x1)
        if old is not None and first is None:
            first = old
        shape = combined_shape(
            self, first, second, lambda axis: axis in WIDTH_AXES and second is not None and second.shape[axis] == 1
        )
        if old is not None:
            check_same_shape(self, shape, old)
        dtypes = [operand.dtype for operand in (x0, x1, old) if operand is not None]
        return (TensorType(dtypes[0], shape),)

    def reference(self, x0: Array | None = None, x1: Array | None = None, old: Array | None = None) -> tuple[Array]:
        """Apply ``compute`` or ``accumulate`` to the operands and constants."""
        dtype = next(array.dtype for array in (x0, x1, old) if array is not None)
        first = _constant(self.input0_const, dtype) if x0 is None else x0
        second = _constant(self.input1_const, dtype) if x1 is None else x1
        return (self.compute(first, second) if old is None else self.accumulate(first, second, old),)

    @abc.abstractmethod
    def compute(self, x0: Array, x1: Array) -> Array:
        """Compute the result for two operands of one data type, which broadcast."""

    def accumulate(self, x0: Array, x1: Array, old: Array) -> Array:
        """Compute the result of an operation that also reads the previous content of its result."""
        raise ValueError(f"{self.name} does not read its result")


def _constant(value: float, dtype: np.dtype[np.generic]) -> Array:
    """Return a constant operand: the bit pattern of a float32 value, reinterpreted as the given type."""
    with np.errstate(over="ignore"):
        pattern: Array = np.array([value], np.float32).view(dtype)
    return pattern


class _FloatArithmetic(AtomicArithmetic):
    """Base of operators that are one IEEE operation."""

    arithmetic: ClassVar[Arithmetic]

    def compute(self, x0: Array, x1: Array) -> Array:
        return combine(self.arithmetic, x0, x1, F32, Chip.BM1684)


@tpu_op("bm_atomic_tensor_arithmetic.BM_ADD", OpKind.ATOMIC, kw_only=True)
class BmAdd(_FloatArithmetic):
    """``y = x0 + x1``."""

    op: BmAtomicOp = BmAtomicOp.BM_ADD

    arithmetic = Arithmetic.ADD


@tpu_op("bm_atomic_tensor_arithmetic.BM_SUB", OpKind.ATOMIC, kw_only=True)
class BmSub(_FloatArithmetic):
    """``y = x0 - x1``."""

    op: BmAtomicOp = BmAtomicOp.BM_SUB

    arithmetic = Arithmetic.SUB


@tpu_op("bm_atomic_tensor_arithmetic.BM_MUL", OpKind.ATOMIC, kw_only=True)
class BmMul(_FloatArithmetic):
    """``y = x0 * x1``."""

    op: BmAtomicOp = BmAtomicOp.BM_MUL

    arithmetic = Arithmetic.MUL


@tpu_op("bm_atomic_tensor_arithmetic.BM_DIV", OpKind.ATOMIC, kw_only=True)
class BmDiv(_FloatArithmetic):
    """``y = x0 / x1``."""

    op: BmAtomicOp = BmAtomicOp.BM_DIV

    arithmetic = Arithmetic.DIV


@tpu_op("bm_atomic_tensor_arithmetic.BM_MAX", OpKind.ATOMIC, kw_only=True)
class BmMax(_FloatArithmetic):
    """``y = max(x0, x1)``; NaN if either operand is NaN."""

    op: BmAtomicOp = BmAtomicOp.BM_MAX

    arithmetic = Arithmetic.MAX


@tpu_op("bm_atomic_tensor_arithmetic.BM_MIN", OpKind.ATOMIC, kw_only=True)
class BmMin(_FloatArithmetic):
    """``y = min(x0, x1)``; NaN if either operand is NaN."""

    op: BmAtomicOp = BmAtomicOp.BM_MIN

    arithmetic = Arithmetic.MIN


@tpu_op("bm_atomic_tensor_arithmetic.BM_MAC", OpKind.ATOMIC, kw_only=True)
class BmMac(_FloatArithmetic):
    """``y = x0 * x1 + old``, rounded after each operation. The previous content ``old`` is an operand here."""

    op: BmAtomicOp = BmAtomicOp.BM_MAC

    inputs = (FIRST, SECOND, OLD)
    arithmetic = Arithmetic.MUL

    def accumulate(self, x0: Array, x1: Array, old: Array) -> Array:
        return combine(Arithmetic.ADD, self.compute(x0, x1), old, F32, Chip.BM1684)


class _BitLogic(AtomicArithmetic):
    """Base of bitwise operators, for every data type."""

    dtypes = _WORDS
    logic: ClassVar[np.ufunc]

    def compute(self, x0: Array, x1: Array) -> Array:
        result: Array = self.logic(words(x0), words(x1)).view(x0.dtype)
        return result


@tpu_op("bm_atomic_tensor_arithmetic.BM_AND", OpKind.ATOMIC, kw_only=True)
class BmAnd(_BitLogic):
    """``y = x0 & x1``: bitwise AND."""

    op: BmAtomicOp = BmAtomicOp.BM_AND

    logic = np.bitwise_and


@tpu_op("bm_atomic_tensor_arithmetic.BM_OR", OpKind.ATOMIC, kw_only=True)
class BmOr(_BitLogic):
    """``y = x0 | x1``: bitwise OR."""

    op: BmAtomicOp = BmAtomicOp.BM_OR

    logic = np.bitwise_or


@tpu_op("bm_atomic_tensor_arithmetic.BM_XOR", OpKind.ATOMIC, kw_only=True)
class BmXor(_BitLogic):
    """``y = x0 ^ x1``: bitwise XOR."""

    op: BmAtomicOp = BmAtomicOp.BM_XOR

    logic = np.bitwise_xor


@tpu_op("bm_atomic_tensor_arithmetic.BM_SHIFT", OpKind.ATOMIC, kw_only=True)
class BmShift(AtomicArithmetic):
    """y = x0 shifted by the signed integer in the lowest six bits of x1, -32 to 31; positive amounts shift left.

    A left shift drops high bits, a right shift drops low bits without rounding.
    """

    op: BmAtomicOp = BmAtomicOp.BM_SHIFT
    shift_type: ShiftType

    dtypes = _INTEGERS

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shift_type", ShiftType(self.shift_type))

    def compute(self, x0: Array, x1: Array) -> Array:
        amount = ((x1.astype(np.int64) & 63) ^ 32) - 32
        return shift_pattern(x0, amount, self.shift_type)


class _Selection(AtomicArithmetic):
    """Base of operators that give ``select_value`` if a condition is true, else 0."""

    select_value: float

    def select(self, condition: Array, dtype: np.dtype[np.generic]) -> Array:
        return np.where(condition, _constant(self.select_value, dtype), _constant(0.0, dtype))


@tpu_op("bm_atomic_tensor_arithmetic.BM_SG", OpKind.ATOMIC, kw_only=True)
class BmSg(_Selection):
    """``y = select_value if x0 > x1 else 0``; 0 for NaN."""

    op: BmAtomicOp = BmAtomicOp.BM_SG
    select_value: float

    def compute(self, x0: Array, x1: Array) -> Array:
        return self.select(x0 > x1, x0.dtype)


@tpu_op("bm_atomic_tensor_arithmetic.BM_SE", OpKind.ATOMIC, kw_only=True)
class BmSe(_Selection):
    """y = bit pattern of ``select_value`` if x0 and x1 have equal bits, else 0."""

    op: BmAtomicOp = BmAtomicOp.BM_SE
    select_value: float

    dtypes = _WORDS

    def compute(self, x0: Array, x1: Array) -> Array:
        return self.select(words(x0) == words(x1), x0.dtype)


@tpu_op("bm_atomic_tensor_arithmetic.BM_CPY", OpKind.ATOMIC, kw_only=True)
class BmCpy(AtomicArithmetic):
    """``y = x0``, bit for bit. x1 is not read."""

    op: BmAtomicOp = BmAtomicOp.BM_CPY

    dtypes = _WORDS

    def infer(
        self, x0: TensorType | None = None, x1: TensorType | None = None, old: object = None
    ) -> tuple[TensorType]:
        return infer_copy(self, x0)

    def compute(self, x0: Array, x1: Array) -> Array:
        return x0.copy()
