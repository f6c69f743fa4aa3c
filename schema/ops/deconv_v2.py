"""deconv_v2: two-dimensional integer transposed convolution with zero points and a 32-bit result."""

from __future__ import annotations

from tpuconvert.schema.convolution_params import convolution_inputs
from tpuconvert.schema.integer_product import add_bias, integer_transposed_convolution
from tpuconvert.schema.op import tpu_op
from tpuconvert.schema.ops.conv_v2 import ExactConvolution
from tpuconvert.schema.types import I32, Array
from tpuconvert.schema.zero_points import zero_point


@tpu_op("deconv_v2")
class DeconvV2(ExactConvolution):
    """Exact transposed convolution of x - izp with w - kzp, plus b, saturated once.

    Shapes: x [N, ic, H, W], w [ic, oc/groups, kh, kw], b [1, oc, 1, 1], y [N, oc, oh, ow] as deconv; ``izp_vec`` has
    one value per input channel, ``kzp_vec`` one per output channel.
    ``out_dtype`` None means INT32.
    """

    weight_layout = "IOHW"
    inputs = convolution_inputs("IOHW")

    def reference(self, x: Array, w: Array, b: Array | None = None) -> tuple[Array]:
        x_zero, w_zero = zero_point(self, "izp"), zero_point(self, "kzp")
        sums = integer_transposed_convolution(x, w, self.window(w), x_zero=x_zero, w_zero=w_zero)
        return (add_bias(sums, b, self.out_dtype or I32),)
