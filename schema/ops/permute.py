"""Permute: reorder the axes."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.definition.extents import check_length
from tpuconvert.schema.definition.op import GLOBAL, Op, Operand, Trait, on, tpu_op
from tpuconvert.schema.types import F32, I8, I32, NUMBERS, NUMBERS_F16, U8, Array, TensorType


@tpu_op("permute")
class Permute(Op):
    """Permute axes: axis k of y is axis ``order[k]`` of x.

    Shapes: y.shape[k] = x.shape[order[k]].
    """

    order: tuple[int, ...]

    inputs = (Operand("tensor_i"),)
    dtypes = on(bm1682=(F32, I32, I8, U8), bm1684=NUMBERS, bm1686=NUMBERS_F16)
    locality = GLOBAL
    traits = Trait.REARRANGES
    rewrite_weight = 3

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.order))):
            raise ValueError(f"permute: order {self.order} is not a permutation of 0..{len(self.order) - 1}")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: the rank must equal the length of ``order``."""
        check_length(self.name, "order", self.order, x.rank, x)
        return (TensorType(x.dtype, tuple(x.shape[axis] for axis in self.order)),)

    def reference(self, x: Array) -> tuple[Array]:
        """Return a permuted copy in row-major order."""
        return (np.ascontiguousarray(x.transpose(self.order)),)
