"""conv: two-dimensional convolution; float, or integer with a fused rescale in one of three calculation modes."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.convolution import convolve
from tpuconvert.schema.arithmetic.fixed_point import rhaz_i32, saturate
from tpuconvert.schema.arithmetic.integer_product import integer_convolution
from tpuconvert.schema.arithmetic.quantized_sums import (
    floor_shift,
    high_precision_asymmetric,
    high_precision_symmetric,
    low_precision,
    offline_bias,
)
from tpuconvert.schema.definition.op import LOCAL, Support, Trait, on, op_base, same, tpu_op
from tpuconvert.schema.ops.convolution.convolution_params import ConvolutionParams, convolution_inputs
from tpuconvert.schema.ops.matmul.quantized_modes import LATE_BIASES_OF_CONV, QCalMode, check_scale, mode_cases
from tpuconvert.schema.types import F16, F32, Array, Chip, DType, TensorType

__all__ = ["Conv", "QCalMode"]

_INTEGER = mode_cases("tensor_input", "tensor_weight", "tensor_bias", "tensor_o", LATE_BIASES_OF_CONV)


@op_base
class QuantizedConvolution(ConvolutionParams):
    """Base of conv and deconv: the parameters of integer calculation, and the result type."""

    scale: float = 1.0
    mode: QCalMode = QCalMode.LowPrecisionSymmetric
    left_zero_point: int = 0
    right_zero_point: int = 0
    output_zero_point: int = 0
    out_dtype: DType | None = None

    locality = LOCAL
    traits = Trait.LINEAR

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "mode", QCalMode(self.mode))
        check_scale(self, self.scale)

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType]:
        return (TensorType(self.out_dtype or x.dtype, self.result_shape(x, w, b)),)


@tpu_op("conv")
class Conv(QuantizedConvolution):
    """Convolution: y = x * w + b. Integers are then rescaled by ``scale`` in one of three modes, ``mode``.

    Shapes: x [N, ic, H, W], w [oc, ic/groups, kh, kw], b [1, oc, 1, 1], y [N, oc, oh, ow] with
    oh = floor((H + pad_h_t + pad_h_b - dh*(kh-1) - 1) / stride_h) + 1, ow alike.
    Units: ``left_zero_point`` belongs to x, ``right_zero_point`` to w. These, ``scale`` and
    ``mode`` are for integers only.
    ``out_dtype`` None means the type of x.
    Source: docs/inside/semantics.md, section 7.
    """

    inputs = convolution_inputs("OIHW")
    dtypes = on(
        F32,
        bm1684=(F32, *_INTEGER),
        bm1686=Support((same(F32), *_INTEGER, same(F16)), todo_dtypes=(F16,)),
    )
    chip_dependent = True

    def reference(self, x: Array, w: Array, b: Array | None = None, *, chip: Chip = Chip.BM1686) -> tuple[Array]:
        out = self.out_dtype or DType.of(x.dtype)
        if out.is_float:
            with np.errstate(all="ignore"):
                bias = None if b is None else b.reshape(-1).astype(np.float64)
                return (convolve(x, w.astype(np.float64), self.window(w), out.numpy, bias=bias),)
        is_depthwise = x.shape[1] == w.shape[0] == self.groups
        if is_depthwise and chip is Chip.BM1684 and self.mode != QCalMode.LowPrecisionSymmetric:
            return (self._depthwise_in_float(x, w, b, out),)
        if self.mode == QCalMode.HighPrecisionAsymmetric:
            return (self._asymmetric(x, w, b, out),)
        sums = integer_convolution(x, w, self.window(w))
        if self.mode == QCalMode.HighPrecisionSymmetric:
            return (high_precision_symmetric(sums, b, self.scale, out),)
        return (low_precision(sums, b, self.scale, out),)

    def _asymmetric(self, x: Array, w: Array, b: Array | None, out: DType) -> Array:
        window, zero_x, zero_w = self.window(w), self.left_zero_point, self.right_zero_point
        sums = integer_convolution(x, w, window, pad=zero_x)
        zero_sums: Array | int = 0
        if zero_w:
            # The result is equal for all output channels of a group, so that one kernel per group suffices.
            kernel = np.full((self.groups, *w.shape[1:]), zero_w, w.dtype)
            per_group = integer_convolution(x, kernel, window, pad=zero_x)
            zero_sums = np.repeat(per_group, len(w) // self.groups, axis=1)
        zero_products = zero_x * (w.astype(np.int64) - zero_w).sum(axis=(1, 2, 3)).reshape(1, -1, 1, 1)
        bias = offline_bias(b, zero_products)
        shift = floor_shift(np.float32(self.scale))
        return high_precision_asymmetric(sums, zero_sums, bias, self.scale, shift, self.output_zero_point, out)

    def _depthwise_in_float(self, x: Array, w: Array, b: Array | None, out: DType) -> Array:
        """Depthwise convolution on BM1684: the exact sums are rescaled in float32, without the 16-bit intermediate."""
        exact = integer_convolution(
            x, w, self.window(w), x_zero=self.left_zero_point, w_zero=self.right_zero_point
        ).astype(np.int64)
        if b is not None and b.dtype != np.float32:
            exact += b.astype(np.int64)
        result = exact.astype(np.float32)
        with np.errstate(all="ignore"):
            if b is not None and b.dtype == np.float32:
                result = result + b
            return saturate(rhaz_i32(result * np.float32(self.scale)) + self.output_zero_point, out)
