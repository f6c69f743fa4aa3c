"""upsample: repeat every pixel."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.definition.extents import times
from tpuconvert.schema.definition.op import LOCAL, Op, Operand, Trait, on, tpu_op
from tpuconvert.schema.definition.shape_checks import check_ranks
from tpuconvert.schema.types import F32, I8, U8, Array, TensorType


@tpu_op("upsample")
class Upsample(Op):
    """``y[n, c, h, w] = x[n, c, h // scale, w // scale]``: nearest-neighbor upsampling.

    Shapes: x [N, C, H, W], y [N, C, H * scale, W * scale].
    """

    scale: int

    inputs = (Operand("tensor_i", (4,), "NCHW"),)
    outputs = (Operand("tensor_o", (4,), "NCHW"),)
    dtypes = on(F32, I8, U8, bm1682=(F32,))
    locality = LOCAL
    traits = Trait.MOVES_INTEGERS

    def __post_init__(self) -> None:
        if self.scale < 1:
            raise ValueError(f"upsample: scale must be at least 1, found {self.scale}")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        check_ranks(self, x)
        n, c, h, w = x.shape
        return (TensorType(x.dtype, (n, c, times(h, self.scale), times(w, self.scale))),)

    def reference(self, x: Array) -> tuple[Array]:
        n, c, h, w = x.shape
        repeated = np.broadcast_to(x[:, :, :, None, :, None], (n, c, h, self.scale, w, self.scale))
        return (repeated.reshape(n, c, h * self.scale, w * self.scale),)
