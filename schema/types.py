"""Data types, chips, tensor types and quantization parameters.

Source: docs/inside/semantics.md, sections 1 and 17.
"""

from __future__ import annotations

import enum
import functools
import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tpuconvert.schema.array_fields import numbers_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]
else:
    Array = np.ndarray  # importing numpy.typing takes time, and annotations are not evaluated

MAX_RANK = 8
"""Largest rank: the shape field of the operators has eight extents (docs/inside/semantics.md, section 1)."""

EXACT_FLOAT32 = 1 << 24
"""Float32 represents all integers up to this magnitude: its significand has 24 bits. The next integer is rounded."""


class DType(enum.Enum):
    """The eight element types of TPU operators. BOOL and 64-bit types do not exist."""

    FLOAT32 = "FLOAT32"
    FLOAT16 = "FLOAT16"
    INT32 = "INT32"
    UINT32 = "UINT32"
    INT16 = "INT16"
    UINT16 = "UINT16"
    INT8 = "INT8"
    UINT8 = "UINT8"

    __hash__ = object.__hash__  # members are singletons; hashing their names dominates look-ups

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy type with the same bits."""
        return _NUMPY[self]

    @property
    def bits(self) -> int:
        """Width of one element in bits."""
        return self.numpy.itemsize * 8

    @property
    def is_float(self) -> bool:
        """True for the two floating-point types."""
        return self in (DType.FLOAT32, DType.FLOAT16)

    @property
    def is_integer(self) -> bool:
        """True for every type that is not floating point."""
        return not self.is_float

    @property
    def is_signed(self) -> bool:
        """True for floating point and two's complement types."""
        return self.numpy.kind != "u"

    @property
    def min(self) -> int:
        """Lowest value of an integer type.

        Raises:
            ValueError: for a floating-point type.

        """
        return _limits(self)[0]

    @property
    def max(self) -> int:
        """Highest value of an integer type.

        Raises:
            ValueError: for a floating-point type.

        """
        return _limits(self)[1]

    def holds(self, value: float) -> bool:
        """Return True if the type represents ``value`` without rounding."""
        if self.is_float:
            with np.errstate(over="ignore"):
                return math.isnan(value) or float(self.numpy.type(value)) == value
        low, high = _limits(self)
        return low <= value <= high and float(value).is_integer()

    @staticmethod
    def of(numpy_type: npt.DTypeLike) -> DType:
        """Return the data type with the representation of a NumPy type.

        Raises:
            ValueError: TPU operators have no such type (bool, 64-bit types, complex, strings).

        """
        dtype = np.dtype(numpy_type)
        if dtype not in _OF_NUMPY:
            raise ValueError(f"the operator set has no data type for {dtype}")
        return _OF_NUMPY[dtype]


_NUMPY: dict[DType, np.dtype[Any]] = {dtype: np.dtype(dtype.value.lower()) for dtype in DType}
_OF_NUMPY: dict[np.dtype[Any], DType] = {numpy_type: dtype for dtype, numpy_type in _NUMPY.items()}


@functools.cache
def _limits(dtype: DType) -> tuple[int, int]:
    """Lowest and highest value of an integer type. Cached because checks of long vectors query it for every element."""
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


F32, F16 = DType.FLOAT32, DType.FLOAT16
I32, U32 = DType.INT32, DType.UINT32
I16, U16 = DType.INT16, DType.UINT16
I8, U8 = DType.INT8, DType.UINT8

BYTES = (I8, U8)
SMALL = (I8, U8, I16, U16)
"""Integer types of 8 and 16 bits."""
NUMBERS = (F32, I32, *SMALL)
"""Data types of most data movement operators on BM1684."""
NUMBERS_F16 = (F32, F16, I32, *SMALL)
"""Data types of most data movement operators on BM1686."""


class Chip(enum.Enum):
    """The three target chips. Their differences are declared in the operator definitions."""

    BM1682 = "BM1682"
    BM1684 = "BM1684"
    BM1686 = "BM1686"


Dim = int | str
"""An extent: a number of elements, or the name of a dynamic dimension."""

Shape = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    """Data type and shape of one tensor. Ranks are 1 to 8; rank 0 does not exist."""

    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """True if no extent is symbolic."""
        return all(isinstance(extent, int) for extent in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as integers.

        Raises:
            ValueError: an extent is symbolic.

        """
        extents = [extent for extent in self.shape if isinstance(extent, int)]
        if len(extents) != len(self.shape):
            raise ValueError(f"shape {format_shape(self.shape)} is dynamic, expected a static shape")
        return tuple(extents)

    def __str__(self) -> str:
        return f"{self.dtype.value}{format_shape(self.shape)}"


def format_shape(shape: Iterable[Dim]) -> str:
    """Format a shape for messages: ``[1, 3, H, 224]``."""
    return "[" + ", ".join(str(extent) for extent in shape) + "]"


@dataclass(frozen=True)
class Scalar:
    """A constant scalar operand with its data type.

    Raises:
        ValueError: the data type cannot represent the value without rounding.

    """

    dtype: DType
    value: float

    def __post_init__(self) -> None:
        if not self.dtype.holds(self.value):
            raise ValueError(f"scalar {self.value!r} is not representable in {self.dtype.value}")
        object.__setattr__(self, "value", float(self.value) if self.dtype.is_float else int(self.value))

    @staticmethod
    def f32(value: float) -> Scalar:
        """The nearest binary32 value as a FLOAT32 scalar."""
        return Scalar(F32, float(np.float32(value)))

    @property
    def array(self) -> Array:
        """The value as a NumPy array of rank 0."""
        return np.asarray(self.value, dtype=self.dtype.numpy)


_BLOCK = 1 << 15
"""Number of elements that are quantized together, in the L2 cache."""


class Arithmetic(enum.Enum):
    """Computation of the integers of a value of a quantized source from the integers of the operands."""

    OPERATOR = "operator"
    """The format's kernel of the operator that computes the value."""
    RECURRENT_CELL = "recurrent cell"
    """Fixed point with functions of its own, inside an integer LSTM of TFLite."""
    SHIFT = "shift"
    """One arithmetic shift, ties away from zero: an operand of a 16-bit ADD of TFLite with power-of-two scales."""
    COPY = "copy"
    """The integers of the operand at another scale: data movement of TFLite, whose kernels ignore scales."""


class ScaleError(ValueError):
    """A scale, or a ratio of scales, that is out of range."""


@dataclass(frozen=True)
class QuantParams:
    """Quantization parameters of a tensor: ``value = (q - zero_point) * scale``.

    Per-tensor parameters have one scale and zero point, per-channel parameters one per index of ``axis``. A zero point
    per channel may be outside the range of ``dtype``: the values of a channel can be far from 0.

    ``arithmetic`` says how a quantized source computes the integers. It is not compared: integers of equal parameters
    have equal meanings, however they were computed.

    Raises:
        ValueError: a scale is not positive and finite, a zero point is outside the range of ``dtype`` (per channel:
            of INT32), or the lengths differ.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    dtype: DType
    axis: int | None = None
    arithmetic: Arithmetic = field(default=Arithmetic.OPERATOR, compare=False)

    def __post_init__(self) -> None:
        scales_given, zeros = numbers_of(self, "scale"), numbers_of(self, "zero_point")
        count = len(scales_given)
        if count != len(zeros) or not count:
            raise ValueError(f"{count} scales with {len(zeros)} zero points")
        if self.axis is None and count != 1:
            raise ValueError(f"{count} scales need an axis")
        least = largest = scales_given[0]
        if count > 1:  # min and max propagate NaN
            scales = scales_given if isinstance(scales_given, np.ndarray) else np.frombuffer(array("d", scales_given))
            least, largest = np.minimum.reduce(scales), np.maximum.reduce(scales)  # faster than the array methods
        if not (least > 0 and math.isfinite(largest)):
            raise ScaleError("scales must be positive and finite")
        if isinstance(zeros, np.ndarray):
            zeros = (np.minimum.reduce(zeros), np.maximum.reduce(zeros))
        elif zeros.count(zeros[0]) == count:
            zeros = zeros[:1]
        limits = self.dtype if self.axis is None else DType.INT32
        if self.dtype.is_float or not all(map(limits.holds, set(zeros))):
            raise ValueError(f"zero points must be in the range of {limits.value}")

    @staticmethod
    def per_tensor(scale: float, zero_point: int, dtype: DType) -> QuantParams:
        """Parameters with one scale for the whole tensor."""
        return QuantParams((float(scale),), (int(zero_point),), dtype)

    def quantize(self, values: Array) -> Array:
        """Quantize in float64. Ties round away from zero, results saturate, and NaN becomes the zero point."""
        result: Array = np.empty_like(values, self.dtype.numpy)
        rows, flat = (np.atleast_1d(array) for array in (values, result))
        scale, zero_point = self._along(rows.ndim)
        step = max(1, _BLOCK * len(rows) // max(1, rows.size))
        with np.errstate(all="ignore"):
            for start in range(0, len(rows), step):
                block = slice(start, start + step)
                scales, zeros = (part[block] if self.axis == 0 else part for part in (scale, zero_point))
                scaled = rows[block].astype(np.float64)
                scaled /= scales
                np.nan_to_num(scaled, copy=False, nan=0.0, posinf=np.inf, neginf=-np.inf)
                rounded = np.abs(scaled)
                rounded += 0.5
                np.copysign(np.floor(rounded, out=rounded), scaled, out=rounded)
                rounded += zeros
                flat[block] = np.clip(rounded, self.dtype.min, self.dtype.max, out=rounded)
        return result

    def dequantize(self, quantized: Array) -> Array:
        """Dequantize to float32: computed in float64 and rounded once."""
        scale, zero_point = self._along(quantized.ndim)
        with np.errstate(over="ignore"):  # the conversion may overflow to infinity
            values: Array = ((quantized.astype(np.float64) - zero_point) * scale).astype(np.float32)
        return values

    def _along(self, rank: int) -> tuple[Array, Array]:
        """Return scale and zero point in a shape that broadcasts with a tensor of this rank; scalars if per-tensor."""
        shape = [len(self.scale) if index == self.axis else 1 for index in range(rank)] if self.axis is not None else ()
        return np.asarray(self.scale).reshape(shape), np.asarray(self.zero_point, dtype=np.float64).reshape(shape)
