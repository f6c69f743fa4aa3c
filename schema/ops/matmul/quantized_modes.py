"""The three integer calculation modes of conv, deconv and matrix_mul: names and data types.

``quantized_sums`` implements their arithmetic.

Source: docs/inside/semantics.md, section 7.
"""

from __future__ import annotations

import enum

import numpy as np

from tpuconvert.schema.definition.dtype_rules import ZP_ALL_ZERO, ZP_IN_RANGE
from tpuconvert.schema.definition.op import Case, Op, case
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, DType, ScaleError


class QCalMode(enum.IntEnum):
    """Calculation modes: methods of rescaling integer results."""

    LowPrecisionSymmetric = 0
    HighPrecisionSymmetric = 1
    HighPrecisionAsymmetric = 2


def check_scale(op: Op, scale: float) -> None:
    """Check that a scale is positive and finite in float32.

    Raises:
        ScaleError: it is not.
    """
    with np.errstate(over="ignore"):
        rounded = np.float32(scale)
    if not (rounded > 0 and np.isfinite(rounded)):
        raise ScaleError(f"{op.name}: scale must be positive and finite in binary32, found {scale}")


def mode_cases(left: str, right: str, bias: str, result: str, late_biases: tuple[DType, ...]) -> tuple[Case, ...]:
    """Data types of the three modes. Modes 1 and 2 accept 16-bit biases and the types ``late_biases``."""
    data, wide = (I8, U8), (I8, U8, I16, U16)
    late = (I16, U16, *late_biases)
    return (
        mode_0_case(left, right, bias, result),
        case(
            {left: data, right: data, bias: late, result: wide},
            ZP_ALL_ZERO,
            when=lambda op: op.mode == QCalMode.HighPrecisionSymmetric,
            when_text="mode == 1",
            compute="MODE1",
        ),
        case(
            {left: data, right: data, bias: late, result: wide},
            ZP_IN_RANGE,
            when=lambda op: op.mode == QCalMode.HighPrecisionAsymmetric,
            when_text="mode == 2",
            requires_coeff=(right,),
            compute="MODE2",
        ),
    )


def mode_0_case(left: str, right: str, bias: str, result: str) -> Case:
    """Data types of mode 0."""
    return case(
        {left: (I8, U8), right: (I8, U8), bias: (I16, U16), result: (I8, U8)},
        ZP_ALL_ZERO,
        when=lambda op: op.mode == QCalMode.LowPrecisionSymmetric,
        when_text="mode == 0",
        compute="MODE0",
    )


LATE_BIASES_OF_CONV = (I32, F32)
LATE_BIASES_OF_MATRIX_MUL = (I32,)
