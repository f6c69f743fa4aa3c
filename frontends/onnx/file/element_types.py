"""Element types of ONNX tensors: width in bits, NumPy type of constants, and dtype in the graph.

Types that NumPy does not have are widened when they are read: bfloat16 and float8 to float32, 4- and 2-bit integers to
8 bits. The graph has neither BOOL nor 64-bit types (docs/inside/semantics.md, section 1).
Unsigned integers of 32 bits become INT32 with the same check of their range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tpuconvert.schema.types import Array, DType

SMALL = (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16)
"""Dtypes of the graph whose arithmetic is computed in INT32: see ``small_integers.py``."""


@dataclass(frozen=True)
class Element:
    """One element type.

    Attributes:
        code: value of ``TensorProto.DataType``.
        name: ONNX name in lower case, or the NumPy name if NumPy has the type.
        bits: width in the file.
        numpy: NumPy type of constants after reading.
    """

    code: int
    name: str
    bits: int
    numpy: np.dtype[Any]

    @property
    def is_float(self) -> bool:
        """True for floating point of any width."""
        return self.numpy.kind == "f"

    @property
    def is_integer(self) -> bool:
        """True for integers of any width, but not for BOOL."""
        return self.numpy.kind in "iu"

    @property
    def is_signed(self) -> bool:
        """True for signed integers and floating point."""
        return self.numpy.kind in "if"

    @property
    def integer_range(self) -> tuple[int, int]:
        """Lowest and highest value of an integer type, also of 2- and 4-bit integers."""
        if self.numpy.kind == "u":
            return 0, (1 << self.bits) - 1
        return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1

    @property
    def graph(self) -> DType:
        """Dtype of a graph value with this element type."""
        if self.numpy.kind in "fb":
            return DType.FLOAT32
        if self.bits == 64 or self.numpy == np.uint32:  # few TPU operators accept UINT32; values are checked
            return DType.INT32
        return DType.of(self.numpy)

    @property
    def port(self) -> str:
        """Name of the type of a model input or output for the user."""
        return self.name if self.name == "bfloat16" else self.numpy.name

    def __str__(self) -> str:
        return self.name


def _element(code: int, name: str, bits: int, numpy: str = "") -> Element:
    return Element(code, name, bits, np.dtype(numpy or name))


FLOAT = _element(1, "float32", 32)
UINT8 = _element(2, "uint8", 8)
INT8 = _element(3, "int8", 8)
UINT16 = _element(4, "uint16", 16)
INT16 = _element(5, "int16", 16)
INT32 = _element(6, "int32", 32)
INT64 = _element(7, "int64", 64)
BOOL = _element(9, "bool", 8)
FLOAT16 = _element(10, "float16", 16)
DOUBLE = _element(11, "float64", 64)
UINT32 = _element(12, "uint32", 32)
UINT64 = _element(13, "uint64", 64)
BFLOAT16 = _element(16, "bfloat16", 16, "float32")
FLOAT8E4M3FN = _element(17, "float8e4m3fn", 8, "float32")
FLOAT8E4M3FNUZ = _element(18, "float8e4m3fnuz", 8, "float32")
FLOAT8E5M2 = _element(19, "float8e5m2", 8, "float32")
FLOAT8E5M2FNUZ = _element(20, "float8e5m2fnuz", 8, "float32")
UINT4 = _element(21, "uint4", 4, "uint8")
INT4 = _element(22, "int4", 4, "int8")
UINT2 = _element(25, "uint2", 2, "uint8")
INT2 = _element(26, "int2", 2, "int8")

ELEMENTS: dict[int, Element] = {value.code: value for value in tuple(globals().values()) if isinstance(value, Element)}
_BY_NUMPY = {
    e.numpy: e for e in (FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, BOOL, FLOAT16, DOUBLE, UINT32, UINT64)
}
UNREADABLE = {0: "undefined", 8: "string", 14: "complex64", 15: "complex128", 23: "float4e2m1", 24: "float8e8m0"}
"""Names of element types that are not supported, by code."""


def element_of(numpy_type: np.dtype[Any]) -> Element:
    """Return the element type for a NumPy type."""
    return _BY_NUMPY[np.dtype(numpy_type)]


def describe(code: int) -> str:
    """Name of the element type with a code, for messages."""
    return ELEMENTS[code].name if code in ELEMENTS else UNREADABLE.get(code, f"type {code}")


def narrow(array: Array) -> Array:
    """Convert an array to the NumPy type of its dtype in the graph.

    Raises:
        OverflowError: a 64-bit integer does not fit 32 bits.
    """
    if array.dtype is FLOAT.numpy:  # the most common case
        return array
    target = element_of(array.dtype).graph.numpy
    if array.dtype == target:
        return array
    if array.dtype.kind in "iu" and array.size:
        low, high = int(array.min()), int(array.max())
        limits = np.iinfo(target)
        if low < limits.min or high > limits.max:
            worst = low if low < limits.min else high
            raise OverflowError(f"{worst} does not fit {target}")
    with np.errstate(over="ignore"):
        return array.astype(target)
