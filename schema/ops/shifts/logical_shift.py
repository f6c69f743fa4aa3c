"""Shifts of unsigned integers with a rounding mode: logical_shift by a scalar, logical_pc_shift by a vector.

A positive amount shifts left and drops the bits beyond the width, a negative amount shifts right and rounds.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode, Shift, round_shift, saturate, wrap
from tpuconvert.schema.definition.dtype_rules import SHIFT_NOT_WIDER
from tpuconvert.schema.definition.op import case, on_bm1686, tpu_op
from tpuconvert.schema.ops.shifts.arithmetic_shift import ShiftByOne, ShiftPerChannel
from tpuconvert.schema.types import I8, I16, I32, U8, U16, U32, Array, DType

_DATA = (U32, U16, U8)


def shift_modulo(x: Array, amount: Shift, mode: RoundingMode, out: DType) -> Array:
    """Compute ``x * 2^amount``: modulo the range of ``out`` if amount > 0, else rounded by ``mode`` and saturated."""
    amount, wide = np.asarray(amount, dtype=np.int64), x.astype(np.int64)
    left = wrap(wide << np.clip(amount, 0, 63), out)  # shifts by 32 bits or more give 32 zero bits
    right = saturate(round_shift(wide, np.maximum(-amount, 0), mode), out)
    result: Array = np.where(amount > 0, left, right)
    return result


@tpu_op("logical_shift")
class LogicalShift(ShiftByOne):
    """Shift by a scalar: y = x * 2^shift without the bits beyond the width of y, or rounded by ``rounding_mode``.

    Shapes: x [...], y the same. Widths may differ; a narrower y saturates after a right shift.
    Units: ``shift`` in bits, positive to the left; -64 to 31.

    ``out_dtype`` None means the type of x.
    """

    dtypes = on_bm1686(case({"tensor_i": _DATA, "tensor_o": _DATA}, compute="EXACT_INT"))
    shift_by = staticmethod(shift_modulo)


@tpu_op("logical_pc_shift")
class LogicalPcShift(ShiftPerChannel):
    """Shift by a vector with one amount per channel, otherwise as logical_shift.

    Shapes: x [...], s [extent of ``shift_axis``], y as x. s is not wider than x.

    ``out_dtype`` None means the type of x.
    """

    dtypes = on_bm1686(
        case(
            {"tensor_i": _DATA, "tensor_shift": (I32, I16, I8), "tensor_o": _DATA}, SHIFT_NOT_WIDER, compute="EXACT_INT"
        )
    )
    shift_by = staticmethod(shift_modulo)
