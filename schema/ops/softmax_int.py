"""softmax_int: integer softmax over the channels with a lookup table of exponentials."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import rhaz_i32, saturate
from tpuconvert.schema.definition.op import LOCAL, Op, Operand, on_bm1686, same, tpu_op
from tpuconvert.schema.definition.shape_checks import check_ranks
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import I8, U8, Array, DType, ScaleError, TensorType


@tpu_op("softmax_int")
class SoftmaxInt(Op):
    """``y = sat(round(t / sum(t) * scale) + zero_point)`` with ``t = table[max(x) - x]``: softmax over axis 1.

    All operations are in binary32. The sum is accumulated sequentially in ascending order of channels. Ties round away
    from zero.

    Shapes: x [N, C] or [N, C, H, W], y the same.
    Units: ``table[d]`` is exp(-d * scale of x); ``scale`` is the reciprocal of the scale of y.
    Source: docs/inside/semantics.md, section 10.
    """

    table: tuple[float, ...]
    scale: float
    zero_point: int

    inputs = (Operand("tensor_i", (2, 4), "NC or NCHW"),)
    outputs = (Operand("tensor_o", (2, 4), "as tensor_i"),)
    dtypes = on_bm1686(same(I8, U8, compute="FLOAT32"))
    locality = LOCAL

    def __post_init__(self) -> None:
        if len(self.table) != 256:
            raise ValueError(f"softmax_int: the table needs 256 entries, found {len(self.table)}")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ScaleError(f"softmax_int: scale must be positive and finite, found {self.scale}")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        check_ranks(self, x)
        if not x.dtype.holds(self.zero_point):
            raise ShapeError(f"softmax_int: zero_point {self.zero_point} is not in the range of {x}")
        return (x,)

    def reference(self, x: Array) -> tuple[Array]:
        wide = x.astype(np.int16)
        powers = np.array(self.table, dtype=np.float32)[wide.max(axis=1, keepdims=True) - wide]
        with np.errstate(all="ignore"):
            total = np.add.accumulate(powers, axis=1, dtype=np.float32)[:, -1:]
            scaled = powers / total * np.float32(self.scale)
        return (saturate(rhaz_i32(scaled) + self.zero_point, DType.of(x.dtype)),)
