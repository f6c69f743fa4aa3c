"""conv3d_v2 and deconv3d_v2: three-dimensional integer convolutions with zero points and a 32-bit result."""

from __future__ import annotations

from tpuconvert.schema.arithmetic.volume_convolution import (
    integer_volume_convolution,
    integer_volume_transposed_convolution,
)
from tpuconvert.schema.definition.op import Operand, op_base, tpu_op
from tpuconvert.schema.ops.convolution.conv_v2 import ExactConvolution
from tpuconvert.schema.ops.convolution.convolution_params import ConvolutionGeometry
from tpuconvert.schema.ops.convolution.volume_params import VolumeConvolution, volume_convolution_inputs


@op_base
class ExactVolumeConvolution(VolumeConvolution):
    """Geometry of conv3d_v2 and deconv3d_v2.

    Units: t, h and w are the axes; pads whose name ends with 0 are before the first element, with 1 after the last.
    """

    dt: int = 1
    dh: int = 1
    dw: int = 1
    pad_t_0: int = 0
    pad_t_1: int = 0
    pad_h_0: int = 0
    pad_h_1: int = 0
    pad_w_0: int = 0
    pad_w_1: int = 0
    stride_t: int = 1
    stride_h: int = 1
    stride_w: int = 1
    groups: int = 1

    outputs = (Operand("tensor_o", (5,), "NCTHW"),)

    @property
    def geometry(self) -> ConvolutionGeometry:
        """Strides, dilations and pads per spatial axis, and the number of groups."""
        return ConvolutionGeometry(
            (self.dt, self.dh, self.dw),
            (self.stride_t, self.stride_h, self.stride_w),
            ((self.pad_t_0, self.pad_t_1), (self.pad_h_0, self.pad_h_1), (self.pad_w_0, self.pad_w_1)),
            self.groups,
        )


@tpu_op("conv3d_v2")
class Conv3dV2(ExactConvolution, ExactVolumeConvolution):
    """Exact convolution: y = (x - izp) * (w - kzp) + b, saturated once. Padding contributes 0.

    Shapes: x [N, ic, T, H, W], w [oc, ic/groups, kt, kh, kw], b [oc] or [1, oc, 1, 1, 1], y [N, oc, ot, oh, ow] as
    conv3d.
    ``out_dtype`` None means INT32.
    """

    inputs = volume_convolution_inputs("NCTHW", "OITHW")

    convolve = staticmethod(integer_volume_convolution)


@tpu_op("deconv3d_v2")
class Deconv3dV2(ExactConvolution, ExactVolumeConvolution):
    """Exact transposed convolution of x - izp with w - kzp, plus b, saturated once.

    Shapes: x [N, ic, T, H, W], w [ic, oc/groups, kt, kh, kw], b [oc] or [1, oc, 1, 1, 1], y [N, oc, ot, oh, ow] with
    ot = (T-1)*stride + dilation*(kt-1) + 1 - pads, oh and ow alike. A negative last pad, down to 1 - stride, appends
    planes, rows or columns that contain only the bias.
    ``out_dtype`` None means INT32.
    """

    weight_layout = "IOTHW"
    inputs = volume_convolution_inputs("NCTHW", "IOTHW")

    convolve = staticmethod(integer_volume_transposed_convolution)
