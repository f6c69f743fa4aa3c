"""dequant_int_to_fp32: convert quantized integers to floats."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.rescaling import dequantize
from tpuconvert.schema.definition.op import LOCAL, Op, Operand, Trait, case, on_bm1686, tpu_op
from tpuconvert.schema.ops.quantization.per_channel import along_channels, check_channels
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, Array, TensorType


@tpu_op("dequant_int_to_fp32")
class DequantIntToFp32(Op):
    """Dequantize: y = (x - offset) * scale. The exact difference is rounded to binary32, then the product.

    Shapes: x [...], y the same; per-channel vectors have one value per index of axis 1.
    Source: docs/inside/semantics.md, section 9.3.
    """

    is_scale_pc: bool = False
    scale_val: float = 1.0
    scale_vec: tuple[float, ...] = ()
    is_offset_pc: bool = False
    offset_val: int = 0
    offset_vec: tuple[int, ...] = ()

    inputs = (Operand("tensor_i"),)
    dtypes = on_bm1686(case({"tensor_i": (I8, U8, I16, U16), "tensor_o": (F32,)}, compute="FLOAT32"))
    locality = LOCAL
    traits = Trait.ELEMENTWISE

    def __post_init__(self) -> None:
        for value in (self.offset_val, *self.offset_vec):
            if not I32.holds(value):
                raise ValueError(f"dequant_int_to_fp32: offsets are INT32, found {value}")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        check_channels(self, self.is_scale_pc, x, "scale_vec")
        check_channels(self, self.is_offset_pc, x, "offset_vec")
        return (TensorType(F32, x.shape),)

    def reference(self, x: Array) -> tuple[Array]:
        scale = along_channels(self.scale_vec if self.is_scale_pc else self.scale_val, np.float32, x.ndim)
        offset = along_channels(self.offset_vec if self.is_offset_pc else self.offset_val, np.int64, x.ndim)
        return (dequantize(x, offset, scale),)
