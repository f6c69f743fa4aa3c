"""conv_v2: two-dimensional integer convolution with zero points and a 32-bit result."""

from __future__ import annotations

from dataclasses import dataclass

from tpuconvert.schema.convolution_params import CONVOLUTION_OUTPUTS, ConvolutionParams, convolution_inputs
from tpuconvert.schema.dtype_rules import ZP_IN_RANGE_V2
from tpuconvert.schema.integer_product import add_bias, integer_convolution
from tpuconvert.schema.op import LOCAL, case, on, tpu_op
from tpuconvert.schema.types import I8, I32, U8, U32, Array, DType, TensorType
from tpuconvert.schema.zero_points import check_has_bias, check_zero_points, zero_point

EXACT_DTYPES = on(
    bm1682=None,
    bm1684=None,
    bm1686=(
        case(
            {
                "tensor_input": (I8, U8),
                "tensor_weight": (I8, U8),
                "tensor_bias": (I32, U32),
                "tensor_o": (I32, U32),
            },
            ZP_IN_RANGE_V2,
            compute="EXACT_INT",
        ),
    ),
)
"""The data types of every exact convolution, with two or three spatial axes."""


@dataclass(frozen=True, eq=False, repr=False)
class ExactConvolution(ConvolutionParams):
    """Base of conv_v2 and deconv_v2: zero points, data types, and the type of the result.

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

    outputs = CONVOLUTION_OUTPUTS
    dtypes = EXACT_DTYPES
    locality = LOCAL

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType]:
        shape = self.result_shape(x, w, b)
        check_has_bias(self, b, x, w, b)
        check_zero_points(self, "izp", x.shape[1], "input channels", x, w)
        check_zero_points(self, "kzp", shape[1], "output channels", x, w)
        return (TensorType(self.out_dtype or I32, shape),)


@tpu_op("conv_v2")
class ConvV2(ExactConvolution):
    """Exact convolution: y = (x - izp) * (w - kzp) + b, saturated once. Padding contributes 0.

    Shapes: x [N, ic, H, W], w [oc, ic/groups, kh, kw], b [1, oc, 1, 1], y [N, oc, oh, ow] as conv; ``izp_vec`` has one
    value per input channel, ``kzp_vec`` one per output channel.
    ``out_dtype`` None means INT32.
    """

    inputs = convolution_inputs("OIHW")

    def reference(self, x: Array, w: Array, b: Array | None = None) -> tuple[Array]:
        x_zero, w_zero = zero_point(self, "izp"), zero_point(self, "kzp")
        sums = integer_convolution(x, w, self.window(w), x_zero=x_zero, w_zero=w_zero)
        return (add_bias(sums, b, self.out_dtype or I32),)
