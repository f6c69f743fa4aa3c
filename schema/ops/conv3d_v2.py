"""conv3d_v2 and deconv3d_v2: three-dimensional integer convolutions with zero points and a 32-bit result."""

from __future__ import annotations

from dataclasses import dataclass

from tpuconvert.schema.integer_product import add_bias
from tpuconvert.schema.op import LOCAL, Operand, tpu_op
from tpuconvert.schema.ops.conv_v2 import EXACT_DTYPES
from tpuconvert.schema.types import I32, Array, DType, TensorType
from tpuconvert.schema.volume_convolution import integer_volume_convolution, integer_volume_transposed_convolution
from tpuconvert.schema.volume_params import (
    VolumeConvolution,
    VolumeGeometry,
    bias_of_planes,
    volume_convolution_inputs,
)
from tpuconvert.schema.zero_points import check_has_bias, check_zero_points, zero_point


@dataclass(frozen=True, eq=False, repr=False)
class ExactVolumeConvolution(VolumeConvolution):
    """Base of conv3d_v2 and deconv3d_v2: parameters, data types, and the type of the result.

    Shapes: ``izp_vec`` has one value per input channel, ``kzp_vec`` one per output channel.
    Units: t, h and w are the axes; pads with 0 are before an axis, with 1 after it.
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
    has_bias: bool = False
    is_izp_const: bool = True
    izp_val: int = 0
    izp_vec: tuple[int, ...] = ()
    is_kzp_const: bool = True
    kzp_val: int = 0
    kzp_vec: tuple[int, ...] = ()
    out_dtype: DType | None = None

    outputs = (Operand("tensor_o", (5,), "NCTHW"),)
    dtypes = EXACT_DTYPES
    locality = LOCAL

    def __post_init__(self) -> None:
        self.check_geometry()

    @property
    def geometry(self) -> VolumeGeometry:
        """The parameters by axis."""
        return VolumeGeometry(
            (self.dt, self.dh, self.dw),
            (self.stride_t, self.stride_h, self.stride_w),
            ((self.pad_t_0, self.pad_t_1), (self.pad_h_0, self.pad_h_1), (self.pad_w_0, self.pad_w_1)),
            self.groups,
        )

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType]:
        shape = self.result_shape(x, w, b)
        check_has_bias(self, b, x, w, b)
        check_zero_points(self, "izp", x.shape[1], "input channels", x, w)
        check_zero_points(self, "kzp", shape[1], "output channels", x, w)
        return (TensorType(self.out_dtype or I32, shape),)


@tpu_op("conv3d_v2")
class Conv3dV2(ExactVolumeConvolution):
    """Exact convolution: y = (x - izp) * (w - kzp) + b, saturated once. Padding contributes 0.

    Shapes: x [N, ic, T, H, W], w [oc, ic/groups, kt, kh, kw], b [oc] or [1, oc, 1, 1, 1], y [N, oc, ot, oh, ow] as
    conv3d.
    ``out_dtype`` None means INT32.
    """

    inputs = volume_convolution_inputs("NCTHW", "OITHW")

    def reference(self, x: Array, w: Array, b: Array | None = None) -> tuple[Array]:
        x_zero, w_zero = zero_point(self, "izp"), zero_point(self, "kzp")
        sums = integer_volume_convolution(x, w, self.window(w), x_zero=x_zero, w_zero=w_zero)
        return (add_bias(sums, bias_of_planes(b), self.out_dtype or I32),)


@tpu_op("deconv3d_v2")
class Deconv3dV2(ExactVolumeConvolution):
    """Exact transposed convolution of x - izp with w - kzp, plus b, saturated once.

    Shapes: x [N, ic, T, H, W], w [ic, oc/groups, kt, kh, kw], b [oc] or [1, oc, 1, 1, 1], y [N, oc, ot, oh, ow] with
    ot = (T-1)*stride + dilation*(kt-1) + 1 - pads, oh and ow alike. A negative last pad, down to 1 - stride, appends
    planes, rows or columns that hold only the bias.
    ``out_dtype`` None means INT32.
    """

    weight_layout = "IOTHW"
    inputs = volume_convolution_inputs("NCTHW", "IOTHW")

    def reference(self, x: Array, w: Array, b: Array | None = None) -> tuple[Array]:
        x_zero, w_zero = zero_point(self, "izp"), zero_point(self, "kzp")
        sums = integer_volume_transposed_convolution(x, w, self.window(w), x_zero=x_zero, w_zero=w_zero)
        return (add_bias(sums, bias_of_planes(b), self.out_dtype or I32),)
