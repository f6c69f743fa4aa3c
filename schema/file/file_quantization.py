"""Decode the quantization parameters of a file and check them.

Files have a set of parameters for nearly every value, and most programs look at few of them: all are checked together,
which takes a fifth of the time of creating the objects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.array_fields import make_with_arrays
from tpuconvert.schema.file import tpum_tables as tpum
from tpuconvert.schema.types import I32, DType, QuantParams, Shape

_DTYPES = {tpum.DType[dtype.name]: dtype for dtype in DType}


def dtype_of(number: tpum.DType, otherwise: str) -> DType:
    """Return the element type with a stored number; ``otherwise`` is the error message if it means no type.

    Raises:
        ValueError: the number means that there is no type.
    """
    dtype = _DTYPES.get(number)
    if dtype is None:
        raise ValueError(otherwise)
    return dtype


def quant_params(stored: tpum.Quantization | None, shape: Shape) -> QuantParams | None:
    """Create quantization parameters and check that they fit a tensor of this shape.

    Raises:
        ValueError: they do not.
    """
    if stored is None:
        return None
    axis = stored.axis if stored.per_axis else None
    dtype = dtype_of(stored.dtype, "a quantization has no data type")
    scale, zero_point = stored.scale, stored.zero_point
    if isinstance(scale, tuple):
        if len(zero_point) == 1:  # one zero point is stored if all are equal
            zero_point = tuple(zero_point) * len(scale)
        quant = QuantParams(scale, tuple(zero_point), dtype, axis)
    else:
        zeros = np.empty(len(scale) if len(zero_point) == 1 else len(zero_point), np.int64)
        zeros[:] = zero_point
        arrays = {"scale": scale, "zero_point": zeros}
        quant = make_with_arrays(QuantParams, {"dtype": dtype, "axis": axis}, arrays)
    if axis is not None:
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"quantization along axis {axis} of rank {len(shape)}")
        extent = shape[axis]
        if isinstance(extent, int) and extent != len(scale):
            raise ValueError(f"{len(scale)} scales along an axis of {extent}")
    return quant


def check_quants(items: Sequence[tuple[tpum.Quantization, Shape]]) -> None:
    """Check quantization parameters as ``quant_params`` does, without creating them.

    Args:
        items: pairs of stored parameters and the shape of their tensor.

    Raises:
        ValueError: from the first parameters that are not valid.
    """
    if not _are_valid(items):
        for stored, shape in items:
            quant_params(stored, shape)


def _are_valid(items: Sequence[tuple[tpum.Quantization, Shape]]) -> bool:
    """Return True if all parameters are valid; False also for rare ones, which are then created for a full check."""
    arrays = [np.ones(1)]
    for stored, shape in items:
        dtype, scale, zeros = _DTYPES.get(stored.dtype), stored.scale, stored.zero_point
        count = len(scale)
        if dtype is None or dtype.is_float or len(zeros) not in (1, count) or not count:
            return False
        if stored.per_axis:
            if not -len(shape) <= stored.axis < len(shape) or shape[stored.axis] != count:
                return False
            if not isinstance(zeros, tuple) or not all(I32.min <= zero <= I32.max for zero in zeros):
                return False
        elif count != 1 or not dtype.holds(zeros[0]):
            return False
        if isinstance(scale, np.ndarray):
            arrays.append(scale)
        elif not all(0 < number < math.inf for number in scale):
            return False
    together = np.concatenate(arrays)
    return bool(together.min() > 0 and together.max() < np.inf)
