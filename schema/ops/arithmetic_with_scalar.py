"""Arithmetic of a tensor and a scalar: adds, subs, muls, divs, rsubs, rdivs, maxs, mins, and axpy."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from tpuconvert.schema.arithmetic.elementwise import Arithmetic, combine
from tpuconvert.schema.arithmetic.finite import InfinityUse
from tpuconvert.schema.definition.dtype_rules import U16_OUT_NO_I16_IN
from tpuconvert.schema.definition.extents import merge_shapes
from tpuconvert.schema.definition.op import (
    LOCAL,
    ChipTable,
    Op,
    Operand,
    Rule,
    Trait,
    UnaryOp,
    case,
    on,
    op_base,
    same,
    todo,
    tpu_op,
)
from tpuconvert.schema.ops.arithmetic import EXACT_I32, EXACT_U32, SELECTION, VIA_FLOAT
from tpuconvert.schema.types import BYTES, F16, F32, SMALL, Array, Chip, DType, Scalar, TensorType


def _sum(tensor: str, *rules: Rule) -> ChipTable:
    fixed = case({tensor: SMALL, "scalar": SMALL, "tensor_o": SMALL}, *rules, compute="EXACT_INT")
    return on(
        same(F32),
        VIA_FLOAT,
        bm1684=(same(F32), VIA_FLOAT, fixed),
        bm1686=(same(F32), same(F16), EXACT_I32, EXACT_U32, fixed),
    )


_PRODUCT = case({"tensor_i0": BYTES, "scalar": BYTES, "tensor_o": SMALL}, compute="EXACT_INT")


_WITH_SCALAR: dict[tuple[Arithmetic, bool], type[ScalarArithmetic]] = {}  # each definition below adds itself


def with_scalar(arithmetic: Arithmetic, number: Scalar, *, scalar_first: bool = False) -> ScalarArithmetic:
    """Return the operator for ``x OP scalar``, or for ``scalar OP x`` with ``scalar_first``."""
    kind = _WITH_SCALAR.get((arithmetic, scalar_first)) or _WITH_SCALAR[arithmetic, False]  # commutative
    return kind(number)


@op_base
class ScalarArithmetic(UnaryOp):
    """Base of element-wise operators on a tensor and a scalar."""

    inputs = (Operand("tensor_i0"),)
    locality = LOCAL
    traits = Trait.LUT
    rewrite_weight = 3
    chip_dependent = True
    arithmetic: ClassVar[Arithmetic]
    scalar_first: ClassVar[bool] = False

    scalar: Scalar

    def __init_subclass__(cls) -> None:
        if "arithmetic" in cls.__dict__:
            _WITH_SCALAR[cls.arithmetic, cls.scalar_first] = cls

    def keeps_sign(self) -> bool:
        """Return True for a non-negative scalar if the operator keeps signs in this case."""
        return Trait.KEEPS_SIGN in self.traits and self.scalar.value >= 0

    def reference(self, x: Array, *, chip: Chip) -> tuple[Array]:
        """Compute as ``chip`` does; chips differ for INT32."""
        number = self.scalar.array
        a, b = (number, x) if self.scalar_first else (x, number)
        return (combine(self.arithmetic, a, b, self.result_dtype(DType.of(x.dtype)), chip),)


@tpu_op("adds")
class Adds(ScalarArithmetic):
    """``y = sat(x + scalar)``: add a scalar to every element. Integers saturate."""

    out_dtype: DType | None = None

    arithmetic = Arithmetic.ADD
    traits = Trait.LUT | Trait.AFFINE | Trait.KEEPS_SIGN
    dtypes = _sum("tensor_i0")


@tpu_op("subs")
class Subs(ScalarArithmetic):
    """``y = sat(x - scalar)``: subtract a scalar from every element. Integers saturate."""

    out_dtype: DType | None = None

    arithmetic = Arithmetic.SUB
    traits = Trait.LUT | Trait.AFFINE
    dtypes = _sum("tensor_i0", U16_OUT_NO_I16_IN)


@tpu_op("rsubs")
class Rsubs(ScalarArithmetic):
    """``y = sat(scalar - x)``: subtract every element from a scalar. Integers saturate."""

    out_dtype: DType | None = None

    inputs = (Operand("tensor_i"),)
    arithmetic = Arithmetic.SUB
    scalar_first = True
    traits = Trait.LUT | Trait.AFFINE
    dtypes = _sum("tensor_i", U16_OUT_NO_I16_IN)


@tpu_op("muls")
class Muls(ScalarArithmetic):
    """``y = sat(x * scalar)``: multiply every element by a scalar. Integers saturate."""

    out_dtype: DType | None = None

    arithmetic = Arithmetic.MUL
    traits = Trait.LUT | Trait.AFFINE | Trait.KEEPS_SIGN
    dtypes = on(
        same(F32),
        VIA_FLOAT,
        bm1684=(same(F32), VIA_FLOAT, _PRODUCT),
        bm1686=(same(F32), same(F16), EXACT_I32, _PRODUCT),
    )


@tpu_op("divs")
class Divs(ScalarArithmetic):
    """``y = x / scalar``: divide every element by a scalar, without the extra rounding of a reciprocal."""

    arithmetic = Arithmetic.DIV
    traits = Trait.LUT | Trait.AFFINE | Trait.KEEPS_SIGN
    dtypes = on(same(F32), bm1686=todo(same(F32), same(F16)))


@tpu_op("rdivs")
class Rdivs(ScalarArithmetic):
    """``y = scalar / x``: divide a scalar by every element."""

    inputs = (Operand("tensor_i"),)
    arithmetic = Arithmetic.DIV
    scalar_first = True
    dtypes = on(same(F32), bm1682=None, bm1686=todo(same(F32), same(F16)))


@tpu_op("maxs")
class Maxs(ScalarArithmetic):
    """``y = max(x, scalar)``: limit every element from below; NaN stays NaN."""

    infinity = InfinityUse.DEFINED

    arithmetic = Arithmetic.MAX
    dtypes = SELECTION

    def clamp_range(self) -> tuple[float, float]:
        """Range of a clamp with one bound."""
        return self.scalar.value, math.inf


@tpu_op("mins")
class Mins(ScalarArithmetic):
    """``y = min(x, scalar)``: limit every element from above; NaN stays NaN."""

    infinity = InfinityUse.DEFINED

    arithmetic = Arithmetic.MIN
    traits = Trait.LUT | Trait.KEEPS_SIGN
    dtypes = SELECTION

    def clamp_range(self) -> tuple[float, float]:
        """Range of a clamp with one bound."""
        return -math.inf, self.scalar.value


@tpu_op("axpy")
class Axpy(Op):
    """``y = scalar * x + previous``, rounded after the multiplication and after the addition.

    The chip overwrites the tensor ``previous``. In the graph it is an operand, and the result is a new value.

    Shapes: x and previous are equal.
    """

    scalar: Scalar

    inputs = (Operand("tensor_i"), Operand("tensor_o_in"))
    dtypes = on(same(F32), bm1682=None, bm1686=(same(F32), same(F16)))
    locality = LOCAL
    traits = Trait.ELEMENTWISE

    def infer(self, x: TensorType, previous: TensorType) -> tuple[TensorType]:
        """Shapes: both operands are equal."""
        return (TensorType(x.dtype, merge_shapes(self.name, x, previous)),)

    def reference(self, x: Array, previous: Array) -> tuple[Array]:
        """Evaluate in binary32; FLOAT16 is rounded once, at the end."""
        with np.errstate(all="ignore"):
            product = np.float32(self.scalar.value) * x.astype(np.float32)
            return ((product + previous.astype(np.float32)).astype(x.dtype, copy=False),)
