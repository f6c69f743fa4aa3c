"""Comparisons of two tensors (gt, ge, lt, le, eq, ne) and of a tensor and a scalar (gts, ges, lts, les, eqs, nes).

The result is 1 or 0 in the data type of the operands. If an operand is NaN, only "not equal" is true.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from tpuconvert.schema.arithmetic.finite import InfinityUse
from tpuconvert.schema.definition.extents import broadcast_shapes
from tpuconvert.schema.definition.op import LOCAL, Op, Operand, Trait, UnaryOp, on, op_base, same, tpu_op
from tpuconvert.schema.types import F16, F32, SMALL, Array, Scalar, TensorType

_MIRROR = str.maketrans("gl", "lg")  # gt and lt, ge and le


class Comparison(enum.Enum):
    """Comparison operations."""

    GT = "gt"
    GE = "ge"
    LT = "lt"
    LE = "le"
    EQ = "eq"
    NE = "ne"

    @property
    def mirror(self) -> Comparison:
        """The relation of ``b`` to ``a`` that is equivalent to this one of ``a`` to ``b``."""
        return Comparison(self.value.translate(_MIRROR))

    def of_tensors(self) -> TensorComparison:
        """Return the operator that compares two tensors."""
        return next(op for op in TensorComparison.__subclasses__() if op.comparison is self)()

    def with_scalar(self, number: Scalar) -> ScalarComparison:
        """Return the operator that compares a tensor with a scalar."""
        kind = next(op for op in ScalarComparison.__subclasses__() if op.comparison is self)
        return kind(number)


_HOLDS: dict[Comparison, Callable[[Array, Array], Array]] = {
    Comparison.GT: np.greater,
    Comparison.GE: np.greater_equal,
    Comparison.LT: np.less,
    Comparison.LE: np.less_equal,
    Comparison.EQ: np.equal,
    Comparison.NE: np.not_equal,
}

_SMALL = same(*SMALL)
_DTYPES = on(bm1682=(F32,), bm1684=(same(F32), _SMALL), bm1686=(same(F32), same(F16), _SMALL))


class TensorComparison(Op):
    """Base of element-wise operators on two tensors, which broadcast along axes of extent 1."""

    infinity = InfinityUse.DEFINED
    inputs = (Operand("tensor_i0", coeff=True), Operand("tensor_i1", coeff=True))
    decides_by = ("tensor_i0", "tensor_i1")
    decides_elements = True
    dtypes = _DTYPES
    locality = LOCAL
    traits = Trait.BINARY | Trait.COMPARISON
    comparison: ClassVar[Comparison]

    def infer(self, x0: TensorType, x1: TensorType) -> tuple[TensorType]:
        """Shapes: equal ranks; extents are equal or one of them is 1."""
        return (TensorType(x0.dtype, broadcast_shapes(self.name, x0, x1)),)

    def reference(self, x0: Array, x1: Array) -> tuple[Array]:
        """1 if the relation is true, else 0."""
        return (_HOLDS[self.comparison](x0, x1).astype(x0.dtype),)


@tpu_op("gt")
class Gt(TensorComparison):
    """``y = 1 if x0 > x1 else 0``, element-wise."""

    comparison = Comparison.GT


@tpu_op("ge")
class Ge(TensorComparison):
    """``y = 1 if x0 >= x1 else 0``, element-wise."""

    comparison = Comparison.GE


@tpu_op("lt")
class Lt(TensorComparison):
    """``y = 1 if x0 < x1 else 0``, element-wise."""

    comparison = Comparison.LT


@tpu_op("le")
class Le(TensorComparison):
    """``y = 1 if x0 <= x1 else 0``, element-wise."""

    comparison = Comparison.LE


@tpu_op("eq")
class Eq(TensorComparison):
    """``y = 1 if x0 == x1 else 0``, element-wise."""

    comparison = Comparison.EQ
    traits = Trait.BINARY | Trait.COMPARISON | Trait.COMMUTATIVE


@tpu_op("ne")
class Ne(TensorComparison):
    """``y = 1 if x0 != x1 else 0``, element-wise. It is 1 if an operand is NaN."""

    comparison = Comparison.NE
    traits = Trait.BINARY | Trait.COMPARISON | Trait.COMMUTATIVE


@op_base
class ScalarComparison(UnaryOp):
    """Base of element-wise operators on a tensor and a scalar."""

    infinity = InfinityUse.DEFINED
    inputs = (Operand("tensor_i0"),)
    decides_by = ("tensor_i0",)
    decides_elements = True
    dtypes = _DTYPES
    locality = LOCAL
    traits = Trait.LUT | Trait.COMPARISON
    comparison: ClassVar[Comparison]

    scalar_i1: Scalar

    def reference(self, x: Array) -> tuple[Array]:
        """1 if the relation is true, else 0."""
        return (_HOLDS[self.comparison](x, self.scalar_i1.array).astype(x.dtype),)


@tpu_op("gts")
class Gts(ScalarComparison):
    """``y = 1 if x > scalar else 0``, element-wise."""

    comparison = Comparison.GT


@tpu_op("ges")
class Ges(ScalarComparison):
    """``y = 1 if x >= scalar else 0``, element-wise."""

    comparison = Comparison.GE


@tpu_op("lts")
class Lts(ScalarComparison):
    """``y = 1 if x < scalar else 0``, element-wise."""

    comparison = Comparison.LT


@tpu_op("les")
class Les(ScalarComparison):
    """``y = 1 if x <= scalar else 0``, element-wise."""

    comparison = Comparison.LE


@tpu_op("eqs")
class Eqs(ScalarComparison):
    """``y = 1 if x == scalar else 0``, element-wise."""

    comparison = Comparison.EQ


@tpu_op("nes")
class Nes(ScalarComparison):
    """``y = 1 if x != scalar else 0``, element-wise. It is 1 if an operand is NaN."""

    comparison = Comparison.NE
