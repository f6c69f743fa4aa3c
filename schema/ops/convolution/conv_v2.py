"""conv_v2: two-dimensional integer convolution with zero points and a 32-bit result."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tpuconvert.schema.arithmetic.integer_product import add_bias, integer_convolution
from tpuconvert.schema.definition.op import LOCAL, op_base, tpu_op
from tpuconvert.schema.ops.convolution.convolution_params import (
    ConvolutionParams,
    SpatialConvolution,
    convolution_inputs,
)
from tpuconvert.schema.ops.matmul.zero_points import check_has_bias, check_zero_points, exact_dtypes, zero_point
from tpuconvert.schema.types import I32, Array, DType, TensorType


@op_base
class ExactConvolution(SpatialConvolution):
    """Mixin with zero points, data types and arithmetic of conv_v2, deconv_v2, conv3d_v2 and deconv3d_v2.

    List it before the class with the geometry.

    Shapes: ``izp_vec`` has one value per input channel, ``kzp_vec`` one per output channel.
    """

    has_bias: bool = False
    is_izp_const: bool = True
    izp_val: int = 0
    izp_vec: tuple[int, ...] = ()
    is_kzp_const: bool = True
    kzp_val: int = 0
    kzp_vec: tuple[int, ...] = ()
    out_dtype: DType | None = None

    dtypes = exact_dtypes("tensor_input", "tensor_weight", "tensor_bias", "tensor_o")
    locality = LOCAL
    convolve: ClassVar[Callable[..., Array]]

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType]:
        shape = self.result_shape(x, w, b)
        check_has_bias(self, b, x, w, b)
        check_zero_points(self, "izp", x.shape[1], "input channels", x, w)
        check_zero_points(self, "kzp", shape[1], "output channels", x, w)
        return (TensorType(self.out_dtype or I32, shape),)

    def reference(self, x: Array, w: Array, b: Array | None = None) -> tuple[Array]:
        x_zero, w_zero = zero_point(self, "izp"), zero_point(self, "kzp")
        sums = self.convolve(x, w, self.window(w), x_zero=x_zero, w_zero=w_zero)
        bias = None if b is None else b.reshape(1, -1, *(1 for _ in x.shape[2:]))
        return (add_bias(sums, bias, self.out_dtype or I32),)


@tpu_op("conv_v2")
class ConvV2(ExactConvolution, ConvolutionParams):
    """Exact convolution: y = (x - izp) * (w - kzp) + b, saturated once. Padding contributes 0.

    Shapes: x [N, ic, H, W], w [oc, ic/groups, kh, kw], b [1, oc, 1, 1], y [N, oc, oh, ow] as conv; ``izp_vec`` has one
    value per input channel, ``kzp_vec`` one per output channel.

    ``out_dtype`` None means INT32.
    """

    inputs = convolution_inputs("OIHW")
    convolve = staticmethod(integer_convolution)
