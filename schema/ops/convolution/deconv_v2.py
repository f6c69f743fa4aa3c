"""deconv_v2: two-dimensional integer transposed convolution with zero points and a 32-bit result."""

from __future__ import annotations

from tpuconvert.schema.arithmetic.integer_product import integer_transposed_convolution
from tpuconvert.schema.definition.op import tpu_op
from tpuconvert.schema.ops.convolution.conv_v2 import ExactConvolution
from tpuconvert.schema.ops.convolution.convolution_params import ConvolutionParams, convolution_inputs


@tpu_op("deconv_v2")
class DeconvV2(ExactConvolution, ConvolutionParams):
    """Exact transposed convolution of x - izp with w - kzp, plus b, saturated once.

    Shapes: x [N, ic, H, W], w [ic, oc/groups, kh, kw], b [1, oc, 1, 1], y [N, oc, oh, ow] as deconv; ``izp_vec`` has
    one value per input channel, ``kzp_vec`` one per output channel.
    ``out_dtype`` None means INT32.
    """

    weight_layout = "IOHW"
    inputs = convolution_inputs("IOHW")

    convolve = staticmethod(integer_transposed_convolution)
