"""batch_norm: batch normalization with given or computed statistics."""

from __future__ import annotations

import enum
import math

import numpy as np

from tpuconvert.schema.definition.op import LOCAL, Op, Operand, Trait, on, tpu_op
from tpuconvert.schema.definition.shape_checks import check_extent, check_ranks, format_types
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import F32, Array, TensorType


class NormMode(enum.IntEnum):
    """Normalization methods; there is only one."""

    BATCH_NORM = 0


@tpu_op("batch_norm")
class BatchNorm(Op):
    """``y = gamma * (x - mean) / sqrt(variance + epsilon) + beta``: normalize every channel.

    With ``use_global_stats`` the statistics are the operands mean and variance divided by ``scale`` (0 if ``scale`` is
    0), else the statistics of x over N, H and W. The second and third result are the statistics.

    Shapes: x [N, C, H, W], mean, variance, gamma, beta [C]; gamma and beta are both present or both absent.
    Source: Caffe BatchNorm, whose third blob is ``scale``.
    """

    epsilon: float = 1e-05
    use_global_stats: bool = True
    scale: float = 1.0
    method: NormMode = NormMode.BATCH_NORM

    inputs = (
        Operand("tensor_i", (4,), "NCHW"),
        Operand("mean_i", (1,), coeff=True),
        Operand("variance_i", (1,), coeff=True),
        Operand("gamma", (1,), coeff=True, optional=True),
        Operand("beta", (1,), coeff=True, optional=True),
    )
    outputs = (Operand("tensor_o", (4,), "NCHW"), Operand("mean_o", (1,)), Operand("variance_o", (1,)))
    dtypes = on(F32, bm1682=None)
    locality = LOCAL
    traits = Trait.AFFINE

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", NormMode(self.method))
        if not (math.isfinite(self.epsilon) and math.isfinite(self.scale)):
            raise ValueError(f"batch_norm: epsilon {self.epsilon} and scale {self.scale} must be finite")

    def infer(
        self,
        x: TensorType,
        mean: TensorType,
        variance: TensorType,
        gamma: TensorType | None = None,
        beta: TensorType | None = None,
    ) -> tuple[TensorType, TensorType, TensorType]:
        types = (x, mean, variance, gamma, beta)
        check_ranks(self, *types)
        if (gamma is None) != (beta is None):
            raise ShapeError(f"batch_norm: gamma and beta come together or not at all, got {format_types(types)}")
        for operand, operand_type in zip(self.inputs[1:], types[1:], strict=True):
            if operand_type is not None:
                check_extent(self, f"the extent of {operand.name}", operand_type.shape[0], x.shape[1], *types)
        statistics = TensorType(x.dtype, (x.shape[1],))
        return x, statistics, statistics

    def reference(
        self, x: Array, mean: Array, variance: Array, gamma: Array | None = None, beta: Array | None = None
    ) -> tuple[Array, Array, Array]:
        exact = x.astype(np.float64)
        with np.errstate(all="ignore"):
            if self.use_global_stats:
                factor = 0.0 if self.scale == 0 else 1 / self.scale
                mean, variance = mean.astype(np.float64) * factor, variance.astype(np.float64) * factor
            else:
                mean, variance = exact.mean(axis=(0, 2, 3)), exact.var(axis=(0, 2, 3))
            slope = 1 / np.sqrt(variance + self.epsilon)
            if gamma is not None:
                slope = slope * gamma
            exact -= mean.reshape(-1, 1, 1)
            exact *= slope.reshape(-1, 1, 1)
            if beta is not None:
                exact += beta.reshape(-1, 1, 1)
            return exact.astype(x.dtype), mean.astype(x.dtype), variance.astype(x.dtype)
