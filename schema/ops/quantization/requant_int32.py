"""requant_int32: rescale integers with a multiplier and a shift."""

from __future__ import annotations

import enum
from types import MappingProxyType

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode, rescale_one_rounding, rescale_two_roundings, saturate
from tpuconvert.schema.array_fields import range_of
from tpuconvert.schema.definition.op import LOCAL, Op, Operand, Trait, case, on_bm1686, tpu_op
from tpuconvert.schema.ops.quantization.per_channel import along_channels, channel_blocks, check_channels
from tpuconvert.schema.types import I8, I16, I32, U8, U16, Array, DType, TensorType

__all__ = ["RequantInt32", "RequantMode", "RoundingMode"]


class RequantMode(enum.IntEnum):
    """Number of roundings of a requantized value: two as in TFLite, or one."""

    TFLITE_LSHIFT = 0
    TFLITE = 1
    MULTIPLIER_SHIFT = 2


_TFLITE = (RequantMode.TFLITE_LSHIFT, RequantMode.TFLITE)


@tpu_op("requant_int32", kw_only=True)
class RequantInt32(Op):
    """``y = sat(x * multiplier * 2^shift + offset)``, with ``2^(shift - 31)`` in the TFLite modes: requantize.

    Modes TFLITE_LSHIFT and TFLITE shift the product right by 31 bits, ties up, saturate to INT32, and apply a negative
    shift, ties away from zero; only TFLITE_LSHIFT accepts a positive shift. Mode MULTIPLIER_SHIFT rounds once, by
    ``round_mode``.

    Shapes: x [...], y the same; with ``is_mul_shift_pc`` and ``is_offset_pc`` the vectors have one value per index of
    axis 1.
    Units: shifts are -64 to 31; positive ones shift left.
    ``scale_val`` and ``scale_vec``, the vendor's names of the shifts, are aliases of ``shift_val`` and ``shift_vec``.
    ``out_dtype`` None means INT8, which all modes support.
    Source: docs/inside/semantics.md, section 9.1.
    """

    is_mul_shift_pc: bool = False
    multiplier_val: int = 1
    shift_val: int = 0
    multiplier_vec: tuple[int, ...] = ()
    shift_vec: tuple[int, ...] = ()
    is_offset_pc: bool = False
    offset_val: int = 0
    offset_vec: tuple[int, ...] = ()
    mode: RequantMode
    round_mode: RoundingMode = RoundingMode.HALF_UP
    out_dtype: DType | None = None

    parameter_aliases = MappingProxyType({"scale_val": "shift_val", "scale_vec": "shift_vec"})
    inputs = (Operand("tensor_i"),)
    dtypes = on_bm1686(
        case(
            {"tensor_i": (I32, I8, U8, I16, U16), "tensor_o": (I32, I16, I8)},
            when=lambda op: op.mode in _TFLITE,
            when_text="mode is TFLITE_LSHIFT or TFLITE",
            compute="EXACT_INT",
        ),
        case(
            {"tensor_i": (I32, I16, U16), "tensor_o": (I8, U8, I16, U16)},
            when=lambda op: op.mode == RequantMode.MULTIPLIER_SHIFT,
            when_text="mode is MULTIPLIER_SHIFT",
            compute="EXACT_INT",
        ),
    )
    locality = LOCAL
    traits = Trait.ELEMENTWISE

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", RequantMode(self.mode))
        object.__setattr__(self, "round_mode", RoundingMode(self.round_mode))
        if self.round_mode is RoundingMode.UNKNOWN:
            raise ValueError("requant_int32: round_mode UNKNOWN is reserved")
        highest = 0 if self.mode is RequantMode.TFLITE else 31
        for shift in (self.shift_val, *range_of(self, "shift_vec")):
            if not -64 <= shift <= highest:
                raise ValueError(
                    f"requant_int32: shifts must be in -64..{highest} in mode {self.mode.name}, found {shift}"
                )
        for value in (
            *(self.multiplier_val, self.offset_val),
            *range_of(self, "multiplier_vec"),
            *range_of(self, "offset_vec"),
        ):
            if not I32.min <= value <= I32.max:
                raise ValueError(f"requant_int32: multipliers and offsets are INT32, found {value}")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        check_channels(self, self.is_mul_shift_pc, x, "multiplier_vec", "shift_vec")
        check_channels(self, self.is_offset_pc, x, "offset_vec")
        return (TensorType(self.out_dtype or I8, x.shape),)

    def reference(self, x: Array) -> tuple[Array]:
        parameters = (
            along_channels(self.multiplier_vec if self.is_mul_shift_pc else self.multiplier_val, np.int64, x.ndim),
            along_channels(self.shift_vec if self.is_mul_shift_pc else self.shift_val, np.int64, x.ndim),
            along_channels(self.offset_vec if self.is_offset_pc else self.offset_val, np.int64, x.ndim),
        )
        out = self.out_dtype or I8
        y = np.empty(x.shape, out.numpy)
        for block in channel_blocks(x.shape):
            multiplier, shift, offset = (item[block[1]] if item.ndim else item for item in parameters)
            y[block] = self._rescale(x[block], multiplier, shift, offset, out)
        return (y,)

    def _rescale(self, x: Array, multiplier: Array, shift: Array, offset: Array, out: DType) -> Array:
        if self.mode in _TFLITE:
            result = rescale_two_roundings(x, multiplier, shift)
        else:
            result = rescale_one_rounding(x, multiplier, shift, self.round_mode)
        result += offset
        return saturate(result, out)
