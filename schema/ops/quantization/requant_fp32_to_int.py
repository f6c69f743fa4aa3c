"""requant_fp32_to_int: quantize to 8 or 16 bits with a binary32 scale."""

from __future__ import annotations

import enum

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import rhaz_i32, saturate
from tpuconvert.schema.arithmetic.rescaling import requantize
from tpuconvert.schema.definition.op import LOCAL, Op, Operand, Trait, case, on_bm1686, tpu_op
from tpuconvert.schema.ops.quantization.per_channel import along_channels, check_channels
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, Array, DType, TensorType


class RequantFp32Mode(enum.IntEnum):
    """Order of rounding and offset: an integer offset is added after rounding, a float offset before."""

    SCALE_ROUND_OFFSET = 0
    SCALE_OFFSET_ROUND = 1


_RESULTS = (I8, U8, I16, U16)


@tpu_op("requant_fp32_to_int")
class RequantFp32ToInt(Op):
    """``y = sat(round(x * scale) + offset)``; in mode 1 ``y = sat(round(x * scale + offset_fp))``: quantize.

    Each operation is rounded to binary32, in the written order. ``round`` rounds ties away from zero; NaN gives 0.

    Shapes: x [...], y the same; per-channel vectors have one value per index of axis 1.
    Units: ``scale`` is a factor: the reciprocal of the scale of the quantized tensor.
    ``out_dtype`` None means INT8.
    Source: docs/inside/semantics.md, section 9.2.
    """

    is_scale_pc: bool = False
    scale_val: float = 1.0
    scale_vec: tuple[float, ...] = ()
    is_offset_pc: bool = False
    offset_val: int = 0
    offset_vec: tuple[int, ...] = ()
    offset_fp_val: float = 0.0
    offset_fp_vec: tuple[float, ...] = ()
    mode: RequantFp32Mode = RequantFp32Mode.SCALE_ROUND_OFFSET
    out_dtype: DType | None = None

    inputs = (Operand("tensor_i"),)
    dtypes = on_bm1686(
        case(
            {"tensor_i": (F32,), "tensor_o": _RESULTS},
            when=lambda op: op.mode == RequantFp32Mode.SCALE_ROUND_OFFSET,
            when_text="mode == 0",
            compute="FLOAT32",
        ),
        case(
            {"tensor_i": (I32, I16, U16), "tensor_o": _RESULTS},
            when=lambda op: op.mode == RequantFp32Mode.SCALE_OFFSET_ROUND,
            when_text="mode == 1",
            compute="FLOAT32",
        ),
    )
    locality = LOCAL
    traits = Trait.ELEMENTWISE

    def is_unfinished(self) -> bool:
        """The vendor marks mode 1 as unfinished."""
        return self.mode == RequantFp32Mode.SCALE_OFFSET_ROUND

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", RequantFp32Mode(self.mode))
        for value in (self.offset_val, *self.offset_vec):
            if not I32.holds(value):
                raise ValueError(f"requant_fp32_to_int: integer offsets are INT32, found {value}")

    @property
    def _offsets(self) -> str:
        return "offset" if self.mode is RequantFp32Mode.SCALE_ROUND_OFFSET else "offset_fp"

    def infer(self, x: TensorType) -> tuple[TensorType]:
        check_channels(self, self.is_scale_pc, x, "scale_vec")
        check_channels(self, self.is_offset_pc, x, f"{self._offsets}_vec")
        return (TensorType(self.out_dtype or I8, x.shape),)

    def reference(self, x: Array) -> tuple[Array]:
        scale = along_channels(self.scale_vec if self.is_scale_pc else self.scale_val, np.float32, x.ndim)
        offset = getattr(self, f"{self._offsets}_{'vec' if self.is_offset_pc else 'val'}")
        out = self.out_dtype or I8
        if self.mode is RequantFp32Mode.SCALE_OFFSET_ROUND:
            return (requantize(x, scale, along_channels(offset, np.float32, x.ndim), out),)
        with np.errstate(all="ignore"):
            scaled = x.astype(np.float32, copy=False) * scale
        return (saturate(rhaz_i32(scaled) + along_channels(offset, np.int64, x.ndim), out),)
