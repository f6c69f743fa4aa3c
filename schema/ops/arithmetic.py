"""The six arithmetic operations on two tensors."""

from __future__ import annotations

from typing import ClassVar

from tpuconvert.schema.arithmetic.elementwise import Arithmetic, combine
from tpuconvert.schema.arithmetic.finite import InfinityUse
from tpuconvert.schema.definition.dtype_rules import U16_OUT_NO_I16_IN
from tpuconvert.schema.definition.extents import broadcast_shapes
from tpuconvert.schema.definition.op import LOCAL, Op, Operand, Trait, case, on, same, todo, tpu_op
from tpuconvert.schema.types import BYTES, F16, F32, I32, SMALL, U32, Array, Chip, DType, TensorType

VIA_FLOAT = same(I32, compute="FLOAT32")
EXACT_I32 = same(I32, compute="EXACT_INT")
EXACT_U32 = same(U32, compute="EXACT_INT")

FIXED_SUM = case(
    {"tensor_i0": SMALL, "tensor_i1": SMALL, "tensor_o": SMALL},
    U16_OUT_NO_I16_IN,
    compute="EXACT_INT",
)
FIXED_PRODUCT = case({"tensor_i0": BYTES, "tensor_i1": BYTES, "tensor_o": SMALL}, compute="EXACT_INT")

_SUM = on(
    same(F32),
    VIA_FLOAT,
    bm1684=(same(F32), VIA_FLOAT, FIXED_SUM),
    bm1686=(same(F32), same(F16), EXACT_I32, EXACT_U32, FIXED_SUM),
)
SELECTION = on(
    same(F32),
    VIA_FLOAT,
    bm1684=(same(F32), VIA_FLOAT, same(*SMALL)),
    bm1686=(same(F32), same(F16), same(I32), same(U32), same(*SMALL)),
)


_OF_TENSORS: dict[Arithmetic, type[BinaryArithmetic]] = {}  # each definition below adds itself


def of_tensors(arithmetic: Arithmetic) -> BinaryArithmetic:
    """Return the operator that computes ``arithmetic`` of two tensors."""
    return _OF_TENSORS[arithmetic]()


class BinaryArithmetic(Op):
    """Base of element-wise operators on two tensors, which broadcast along axes of extent 1."""

    inputs = (Operand("tensor_i0", coeff=True), Operand("tensor_i1", coeff=True))
    locality = LOCAL
    traits = Trait.BINARY
    chip_dependent = True
    arithmetic: ClassVar[Arithmetic]

    def __init_subclass__(cls) -> None:
        if "arithmetic" in cls.__dict__:
            _OF_TENSORS[cls.arithmetic] = cls

    def infer(self, x0: TensorType, x1: TensorType) -> tuple[TensorType]:
        """Shapes: equal ranks; extents are equal or one of them is 1."""
        return (TensorType(self.result_dtype(x0.dtype), broadcast_shapes(self.name, x0, x1)),)

    def reference(self, x0: Array, x1: Array, *, chip: Chip) -> tuple[Array]:
        """Compute as ``chip`` does; chips differ for INT32."""
        return (combine(self.arithmetic, x0, x1, self.result_dtype(DType.of(x0.dtype)), chip),)


@tpu_op("add")
class Add(BinaryArithmetic):
    """``y = sat(x0 + x1)``: add two tensors element-wise. Integers saturate.

    Shapes: x0 and x1 broadcast against each other.
    """

    infinity = InfinityUse.ADDED

    out_dtype: DType | None = None

    arithmetic = Arithmetic.ADD
    dtypes = _SUM
    traits = Trait.BINARY | Trait.AFFINE | Trait.COMMUTATIVE | Trait.KEEPS_SIGN


@tpu_op("sub")
class Sub(BinaryArithmetic):
    """``y = sat(x0 - x1)``: subtract two tensors element-wise. Integers saturate.

    Shapes: x0 and x1 broadcast against each other.
    """

    infinity = InfinityUse.ADDED

    out_dtype: DType | None = None

    arithmetic = Arithmetic.SUB
    traits = Trait.BINARY | Trait.AFFINE
    dtypes = _SUM


@tpu_op("mul")
class Mul(BinaryArithmetic):
    """``y = sat(x0 * x1)``: multiply two tensors element-wise. Integers saturate.

    Shapes: x0 and x1 broadcast against each other.
    """

    out_dtype: DType | None = None

    arithmetic = Arithmetic.MUL
    dtypes = on(
        same(F32),
        VIA_FLOAT,
        bm1684=(same(F32), VIA_FLOAT, FIXED_PRODUCT),
        bm1686=(same(F32), same(F16), EXACT_I32, FIXED_PRODUCT),
    )
    traits = Trait.BINARY | Trait.AFFINE | Trait.COMMUTATIVE | Trait.KEEPS_SIGN | Trait.KEEPS_BOOLEAN


@tpu_op("div")
class Div(BinaryArithmetic):
    """``y = x0 / x1``: divide two tensors element-wise as IEEE 754 does: x/0 is a signed infinity, 0/0 is NaN.

    Shapes: x0 and x1 broadcast against each other.
    """

    arithmetic = Arithmetic.DIV
    rewrite_weight = 5
    dtypes = on(same(F32), bm1686=todo(same(F32), same(F16)))
    traits = Trait.BINARY | Trait.AFFINE | Trait.KEEPS_SIGN


@tpu_op("max")
class Max(BinaryArithmetic):
    """``y = max(x0, x1)``, element-wise; NaN if either operand is NaN.

    Shapes: x0 and x1 broadcast against each other.
    """

    infinity = InfinityUse.DEFINED

    arithmetic = Arithmetic.MAX
    dtypes = SELECTION
    traits = Trait.BINARY | Trait.COMMUTATIVE_INTEGERS | Trait.KEEPS_SIGN | Trait.KEEPS_BOOLEAN


@tpu_op("min")
class Min(BinaryArithmetic):
    """``y = min(x0, x1)``, element-wise; NaN if either operand is NaN.

    Shapes: x0 and x1 broadcast against each other.
    """

    infinity = InfinityUse.DEFINED

    arithmetic = Arithmetic.MIN
    dtypes = SELECTION
    traits = Trait.BINARY | Trait.COMMUTATIVE_INTEGERS | Trait.KEEPS_SIGN | Trait.KEEPS_BOOLEAN
