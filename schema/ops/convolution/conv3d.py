"""conv3d: three-dimensional convolution of floating-point numbers."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.volume_convolution import convolve_volume
from tpuconvert.schema.definition.op import LOCAL, Operand, Support, Trait, on, same, tpu_op
from tpuconvert.schema.ops.convolution.convolution_params import ConvolutionGeometry
from tpuconvert.schema.ops.convolution.volume_params import VolumeConvolution, volume_convolution_inputs
from tpuconvert.schema.types import F16, F32, Array, TensorType


@tpu_op("conv3d")
class Conv3d(VolumeConvolution):
    """Convolution: y = x * w + b, accumulated in binary64 and rounded once.

    Shapes: x [N, ic, D, H, W], w [oc, ic/groups, kd, kh, kw], b [oc] or [1, oc, 1, 1, 1], y [N, oc, od, oh, ow] with
    od = floor((D + pads - dilation*(kd-1) - 1) / stride) + 1, oh and ow alike.
    Units: ``dilation`` and ``stride`` are for d, h, w; ``pad`` is (before, after) of d, then h, then w.
    """

    groups: int = 1
    dilation: tuple[int, int, int] = (1, 1, 1)
    pad: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0)
    stride: tuple[int, int, int] = (1, 1, 1)

    inputs = volume_convolution_inputs("NCDHW", "OIDHW")
    outputs = (Operand("tensor_o", (5,), "NCDHW"),)
    dtypes = on(F32, bm1686=Support((same(F32), same(F16)), todo_dtypes=(F16,)))
    locality = LOCAL
    traits = Trait.LINEAR

    def __post_init__(self) -> None:
        if (len(self.dilation), len(self.pad), len(self.stride)) != (3, 6, 3):
            raise ValueError(f"conv3d: three dilations, six pads and three strides are needed, found {self}")
        super().__post_init__()

    @property
    def geometry(self) -> ConvolutionGeometry:
        """Strides, dilations and pads per spatial axis, and the number of groups."""
        front, back, top, bottom, left, right = self.pad
        return ConvolutionGeometry(
            self.dilation, self.stride, ((front, back), (top, bottom), (left, right)), self.groups
        )

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType]:
        return (TensorType(x.dtype, self.result_shape(x, w, b)),)

    def reference(self, x: Array, w: Array, b: Array | None = None) -> tuple[Array]:
        bias = None if b is None else b.reshape(-1).astype(np.float64)
        with np.errstate(all="ignore"):
            return (convolve_volume(x, w.astype(np.float64), self.window(w), x.dtype, bias=bias),)
