"""deconv: two-dimensional transposed convolution; float, or integer in calculation mode 0."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.convolution import convolve_transposed
from tpuconvert.schema.arithmetic.integer_product import integer_transposed_convolution
from tpuconvert.schema.arithmetic.quantized_sums import low_precision
from tpuconvert.schema.definition.op import Support, on, same, tpu_op
from tpuconvert.schema.ops.convolution.conv import QuantizedConvolution
from tpuconvert.schema.ops.convolution.convolution_params import convolution_inputs
from tpuconvert.schema.ops.matmul.quantized_modes import QCalMode, mode_0_case
from tpuconvert.schema.types import F16, F32, Array, DType

__all__ = ["Deconv", "QCalMode"]

_INTEGER = mode_0_case("tensor_input", "tensor_weight", "tensor_bias", "tensor_o")


@tpu_op("deconv")
class Deconv(QuantizedConvolution):
    """Transposed convolution: every x adds its multiple of the kernel to y, then b; integers are rescaled by ``scale``.

    Shapes: x [N, ic, H, W], w [ic, oc/groups, kh, kw], b [1, oc, 1, 1], y [N, oc, oh, ow] with
    oh = (H-1)*stride_h + dh*(kh-1) + 1 - pad_h_t - pad_h_b, ow alike. A negative pad_h_b or pad_w_r, down to
    1 - stride, appends rows or columns that contain only the bias.
    Units: only mode 0 is legal for integers. ``out_dtype`` None means the type of x.
    """

    weight_layout = "IOHW"
    inputs = convolution_inputs("IOHW")
    dtypes = on(
        F32,
        bm1684=(F32, _INTEGER),
        bm1686=Support((same(F32), _INTEGER, same(F16)), todo_dtypes=(F16,)),
    )

    def reference(self, x: Array, w: Array, b: Array | None = None) -> tuple[Array]:
        out = self.out_dtype or DType.of(x.dtype)
        if out.is_float:
            with np.errstate(all="ignore"):
                bias = None if b is None else b.astype(np.float64)
                return (convolve_transposed(x, w, self.window(w), out.numpy, bias=bias),)
        sums = integer_transposed_convolution(x, w, self.window(w))
        return (low_precision(sums, b, self.scale, out),)
