"""Arithmetic on strided samples of tensors: stride_add, ..., stride_cpy, and forms with a start offset.

On every axis, index o of the result reads index offset + o * stride of the operands. An operand with extent 1 on an
axis is broadcast along this axis instead.
"""

from __future__ import annotations

from typing import ClassVar

from tpuconvert.schema.arithmetic.elementwise import Arithmetic, combine
from tpuconvert.schema.definition.extents import broadcast_shapes, ceil_div, check_length, plus, shapes_of
from tpuconvert.schema.definition.op import LOCAL, ChipTable, Op, Operand, on, op_base, same, todo, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.arithmetic import FIXED_PRODUCT, FIXED_SUM
from tpuconvert.schema.types import F16, F32, SMALL, Array, Chip, Dim, DType, Shape, TensorType

_SUM_DTYPES = on(bm1682=(F32,), bm1684=(same(F32), FIXED_SUM), bm1686=todo(same(F32), same(F16), FIXED_SUM))
_PRODUCT_DTYPES = on(bm1682=(F32,), bm1684=(same(F32), FIXED_PRODUCT), bm1686=todo(same(F32), same(F16), FIXED_PRODUCT))
_QUOTIENT_DTYPES = on(bm1682=(F32,), bm1684=(F32,), bm1686=todo(same(F32), same(F16)))
_CHOICE_DTYPES = on(bm1682=(F32,), bm1684=(same(F32), same(*SMALL)), bm1686=todo(same(F32), same(F16), same(*SMALL)))
_COPY_DTYPES: ChipTable = on(bm1682=(F32,), bm1684=(F32, *SMALL), bm1686=todo(F32, F16, *SMALL))


@op_base
class Sampling(Op):
    """Base of these operators: a stride per axis, and an offset per axis, which is 0 unless there is a parameter."""

    locality = LOCAL

    stride: tuple[int, ...]

    @property
    def offsets(self) -> tuple[int, ...]:
        """First index that is read, per axis."""
        return (0,) * len(self.stride)

    def __post_init__(self) -> None:
        if any(step < 1 for step in self.stride) or any(first < 0 for first in self.offsets):
            raise ValueError(f"{self.name}: strides {self.stride} from {self.offsets}")
        if len(self.stride) != len(self.offsets):
            raise ValueError(f"{self.name}: {len(self.stride)} strides with {len(self.offsets)} offsets")

    def sample_count(self, extent: Dim, axis: int, *types: TensorType) -> Dim:
        """Number of elements that are read along an axis.

        Raises:
            ShapeError: the offset is outside of the axis.
        """
        if isinstance(extent, int) and self.offsets[axis] >= extent:
            raise ShapeError(
                f"{self.name}: offset {self.offsets[axis]} is outside of axis {axis} of {shapes_of(types)}"
            )
        return ceil_div(plus(extent, -self.offsets[axis]), self.stride[axis])

    def sample(self, x: Array, expand: bool) -> Array:
        """Return the sampled elements of an operand. With ``expand``, axes of extent 1 are not sampled."""
        places = zip(x.shape, self.offsets, self.stride, strict=True)
        return x[tuple(slice(None) if expand and n == 1 else slice(first, None, step) for n, first, step in places)]


@op_base
class StartsAtOffset(Sampling):
    """Mixin with the parameter ``offset``; list it after the class that computes."""

    offset: tuple[int, ...]

    @property
    def offsets(self) -> tuple[int, ...]:
        """The parameter ``offset``."""
        return self.offset


class SampledArithmetic(Sampling):
    """Base of sampled operators on two tensors, which broadcast along axes of extent 1."""

    inputs = (Operand("tensor_i0", coeff=True), Operand("tensor_i1", coeff=True))
    arithmetic: ClassVar[Arithmetic]

    def infer(self, x0: TensorType, x1: TensorType) -> tuple[TensorType]:
        """Shapes: operands are broadcast, then axes with an extent other than 1 are sampled."""
        broadcast = broadcast_shapes(self.name, x0, x1)
        check_length(self.name, "stride", self.stride, x0.rank, x0)
        shape: Shape = tuple(n if n == 1 else self.sample_count(n, axis, x0, x1) for axis, n in enumerate(broadcast))
        return (TensorType(self.result_dtype(x0.dtype), shape),)

    def reference(self, x0: Array, x1: Array) -> tuple[Array]:
        """Sample, then compute as the operator without strides. Without INT32, the chips do not differ."""
        out = self.result_dtype(DType.of(x0.dtype))
        return (combine(self.arithmetic, self.sample(x0, True), self.sample(x1, True), out, Chip.BM1686),)


class SampledCopy(Sampling):
    """Base of sampled copies of one tensor."""

    inputs = (Operand("tensor_i"),)
    dtypes = _COPY_DTYPES

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: every axis is sampled."""
        check_length(self.name, "stride", self.stride, x.rank, x)
        return (TensorType(x.dtype, tuple(self.sample_count(n, axis, x) for axis, n in enumerate(x.shape))),)

    def reference(self, x: Array) -> tuple[Array]:
        """Return a copy of the sampled elements."""
        return (self.sample(x, False).copy(),)


@tpu_op("stride_add")
class StrideAdd(SampledArithmetic):
    """``y[o] = sat(x0[o * stride] + x1[o * stride])``: add strided samples."""

    out_dtype: DType | None = None

    arithmetic = Arithmetic.ADD
    dtypes = _SUM_DTYPES


@tpu_op("stride_sub")
class StrideSub(SampledArithmetic):
    """``y[o] = sat(x0[o * stride] - x1[o * stride])``: subtract strided samples."""

    out_dtype: DType | None = None

    arithmetic = Arithmetic.SUB
    dtypes = _SUM_DTYPES


@tpu_op("stride_mul")
class StrideMul(SampledArithmetic):
    """``y[o] = sat(x0[o * stride] * x1[o * stride])``: multiply strided samples."""

    out_dtype: DType | None = None

    arithmetic = Arithmetic.MUL
    dtypes = _PRODUCT_DTYPES


@tpu_op("stride_div")
class StrideDiv(SampledArithmetic):
    """``y[o] = x0[o * stride] / x1[o * stride]``: divide strided samples."""

    arithmetic = Arithmetic.DIV
    dtypes = _QUOTIENT_DTYPES


@tpu_op("stride_max")
class StrideMax(SampledArithmetic):
    """``y[o] = max(x0[o * stride], x1[o * stride])``."""

    arithmetic = Arithmetic.MAX
    dtypes = _CHOICE_DTYPES


@tpu_op("stride_min")
class StrideMin(SampledArithmetic):
    """``y[o] = min(x0[o * stride], x1[o * stride])``."""

    arithmetic = Arithmetic.MIN
    dtypes = _CHOICE_DTYPES


@tpu_op("stride_cpy")
class StrideCpy(SampledCopy):
    """``y[o] = x[o * stride]``: copy strided samples."""


@tpu_op("stride_add_offset")
class StrideAddOffset(SampledArithmetic, StartsAtOffset):
    """``y[o] = sat(x0[offset + o * stride] + x1[offset + o * stride])``."""

    out_dtype: DType | None = None

    arithmetic = Arithmetic.ADD
    dtypes = _SUM_DTYPES


@tpu_op("stride_sub_offset")
class StrideSubOffset(SampledArithmetic, StartsAtOffset):
    """``y[o] = sat(x0[offset + o * stride] - x1[offset + o * stride])``."""

    out_dtype: DType | None = None

    arithmetic = Arithmetic.SUB
    dtypes = _SUM_DTYPES


@tpu_op("stride_mul_offset")
class StrideMulOffset(SampledArithmetic, StartsAtOffset):
    """``y[o] = sat(x0[offset + o * stride] * x1[offset + o * stride])``."""

    out_dtype: DType | None = None

    arithmetic = Arithmetic.MUL
    dtypes = _PRODUCT_DTYPES


@tpu_op("stride_div_offset")
class StrideDivOffset(SampledArithmetic, StartsAtOffset):
    """``y[o] = x0[offset + o * stride] / x1[offset + o * stride]``."""

    arithmetic = Arithmetic.DIV
    dtypes = _QUOTIENT_DTYPES


@tpu_op("stride_max_offset")
class StrideMaxOffset(SampledArithmetic, StartsAtOffset):
    """``y[o] = max(x0[offset + o * stride], x1[offset + o * stride])``."""

    arithmetic = Arithmetic.MAX
    dtypes = _CHOICE_DTYPES


@tpu_op("stride_min_offset")
class StrideMinOffset(SampledArithmetic, StartsAtOffset):
    """``y[o] = min(x0[offset + o * stride], x1[offset + o * stride])``."""

    arithmetic = Arithmetic.MIN
    dtypes = _CHOICE_DTYPES


@tpu_op("stride_cpy_offset")
class StrideCpyOffset(SampledCopy, StartsAtOffset):
    """``y[o] = x[offset + o * stride]``: copy strided samples from an offset."""
