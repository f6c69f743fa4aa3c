"""Epilogue of an integer linear operator: requantize, clamp, lookup table. See int8/epilogue/epilogue.h."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from tpuconvert.runtime.native.builder.loader import native
from tpuconvert.runtime.native.matchers.matcher import operators_of
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.array_fields import numbers_of
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import F32, I8, I32, Array, DType

STORED_BIAS = 128
NO_RESCALE, TWO_ROUNDINGS, ONE_ROUNDING, LOW_PRECISION, HIGH_SYMMETRIC, FLOAT = (
    "NONE",
    "TWO_ROUNDINGS",
    "ONE_ROUNDING",
    "LOW_PRECISION",
    "HIGH_SYMMETRIC",
    "FLOAT",
)
"""Rounding modes of ``requant_int32``, mapped to names of ``Rescale`` in the extension."""


_LARGEST_ZERO = 2**23
_NO_TABLE = np.empty(0, np.uint8)


def bias_of(dtype: DType) -> int:
    """Return the integer that is added to a value when it is stored: 128 for INT8."""
    return STORED_BIAS if dtype is I8 else 0


class Epilogue(NamedTuple):
    """Parameters of ``EpilogueSpec``. Bounds and offsets apply to stored values, to which 128 is added for INT8.

    ``dequantize`` is the zero point of stored values and the scale, for a binary32 result.
    """

    dtype: DType
    rescale: str = NO_RESCALE
    rounding: int = int(RoundingMode.HALF_UP)
    multiplier: Sequence[int] | Array = ()
    shift: Sequence[int] | Array = ()
    offset: Sequence[int] = ()
    scale: float = 1.0
    late_bias: Sequence[float] = ()
    narrow: tuple[int, int] = (0, 0)
    low: int = 0
    high: int = 0
    lut: Array = _NO_TABLE
    dequantize: tuple[int, float] | None = None

    @staticmethod
    def of(dtype: DType, **parameters: object) -> Epilogue:
        """Create an epilogue that clamps to the range of its result type."""
        bias = bias_of(dtype)
        fields = {"offset": (bias,)} | parameters
        return Epilogue(dtype=dtype, low=dtype.min + bias, high=dtype.max + bias, **fields)  # type: ignore[arg-type]  # by name

    def compile(self, channels: int, isa: str = "scalar") -> Any:
        """Return the ``Epilogue`` of the extension. ``isa`` selects its implementation for rows of accumulators."""
        module = native()
        spec = module.EpilogueSpec(
            rescale=getattr(module.Rescale, self.rescale),
            rounding=self.rounding,
            multiplier=_vector(self.multiplier, np.int32),
            shift=_vector(self.shift, np.int32),
            offset=_vector(self.offset, np.int32),
            scale=self.scale,
            late_bias=_vector(self.late_bias, np.float32),
            narrow_low=self.narrow[0],
            narrow_high=self.narrow[1],
            low=self.low,
            high=self.high,
            bytes=self.dtype.bits // 8,
            lut=self.lut if self.lut.size else None,
            dequantize=self.dequantize,
        )
        return module.Epilogue(spec, channels, isa)

    def followed_by(self, node: Node) -> Epilogue | None:
        """Return this epilogue followed by one more operator, or None if they cannot be fused."""
        return None if self.lut.size or self.dequantize is not None else _follow(node.op, self, node)

    def with_limits(self, low: float, high: float) -> Epilogue | None:
        """Return this epilogue with narrower limits, or None if the limits are not integers of its type."""
        bias = bias_of(self.dtype)
        if low != int(low) or high != int(high) or not (self.dtype.holds(low) and self.dtype.holds(high)):
            return None
        least, largest = int(low) + bias, int(high) + bias
        return self._replace(low=min(max(self.low, least), largest), high=min(max(self.high, least), largest))


@singledispatch
def _follow(op: Op, before: Epilogue, node: Node) -> Epilogue | None:
    """Return an epilogue that also applies ``op``, or None if that cannot be fused."""
    return None


@_follow.register
def _(op: RequantInt32, before: Epilogue, node: Node) -> Epilogue | None:
    return _requant_epilogue(op) if before.rescale == NO_RESCALE and before.dtype is I32 else None


@_follow.register
def _(op: Clamp, before: Epilogue, node: Node) -> Epilogue | None:
    return before.with_limits(op.min.value, op.max.value) if before.dtype.bits <= 16 else None


@_follow.register
def _(op: Active, before: Epilogue, node: Node) -> Epilogue | None:
    is_relu = op.active_type is ActiveType.ACTIVE_RELU and op.out_dtype in (None, before.dtype)
    return before.with_limits(0, before.dtype.max) if is_relu else None


@_follow.register
def _(op: Cast, before: Epilogue, node: Node) -> Epilogue | None:
    dtype = op.out_dtype
    if dtype is None or not dtype.is_integer or max(dtype.bits, before.dtype.bits) > 16:
        return None
    move = bias_of(dtype) - bias_of(before.dtype)
    low, high = before.low + move, before.high + move
    least, largest = dtype.min + bias_of(dtype), dtype.max + bias_of(dtype)
    return before._replace(
        dtype=dtype,
        offset=tuple(value + move for value in before.offset),
        low=min(max(low, least), largest),
        high=max(min(high, largest), least),
    )


@_follow.register
def _(op: DequantIntToFp32, before: Epilogue, node: Node) -> Epilogue | None:
    if op.is_scale_pc or op.is_offset_pc or before.dtype.bits > 16 or abs(op.offset_val) > _LARGEST_ZERO:
        return None
    return before._replace(dtype=F32, dequantize=(op.offset_val + bias_of(before.dtype), op.scale_val))


@_follow.register
def _(op: Lut, before: Epilogue, node: Node) -> Epilogue | None:
    table = node.inputs[1]
    if table is None or not table.is_constant or table.dtype.bits != 8 or before.dtype.bits != 8:
        return None
    entries = table.array.reshape(-1).view(np.uint8) ^ np.uint8(bias_of(table.dtype))
    middle = bias_of(before.dtype)  # Position in the table of the entry for index 0, if indices are signed.
    return before._replace(dtype=table.dtype, lut=np.concatenate((entries[middle:], entries[:middle])))


EPILOGUE_OPS = operators_of(_follow)
"""Operators that an epilogue may contain."""

SUMS = Epilogue.of(I32)
"""The epilogue that stores the accumulators."""


def _vector(values: Sequence[float] | Array, dtype: type[np.generic]) -> Array | None:
    if isinstance(values, np.ndarray):  # The operator has checked the range of its parameters.
        return values.astype(dtype)
    return np.fromiter(values, dtype, len(values)) if values else None


def _requant_epilogue(op: RequantInt32) -> Epilogue:
    dtype = op.out_dtype or I8
    bias = bias_of(dtype)
    two = op.mode is not RequantMode.MULTIPLIER_SHIFT
    return Epilogue.of(
        dtype,
        rescale=TWO_ROUNDINGS if two else ONE_ROUNDING,
        rounding=int(op.round_mode),
        multiplier=numbers_of(op, "multiplier_vec") if op.is_mul_shift_pc else (op.multiplier_val,),
        shift=numbers_of(op, "shift_vec") if op.is_mul_shift_pc else (op.shift_val,),
        offset=tuple(value + bias for value in (op.offset_vec if op.is_offset_pc else (op.offset_val,))),
    )
