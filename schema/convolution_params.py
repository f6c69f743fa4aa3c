"""Base class of the two-dimensional convolutions: parameters of the geometry, and shapes.

``conv`` and ``conv_v2`` are convolutions, ``deconv`` and ``deconv_v2`` transposed ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tpuconvert.schema.convolution import Window
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.extents import plus, times
from tpuconvert.schema.op import Extents, Op, Operand
from tpuconvert.schema.shape_checks import check_bias, check_extent, check_ranks, listed, number, window_extent
from tpuconvert.schema.types import Array, Dim, Shape, TensorType


@dataclass(frozen=True, eq=False, repr=False)
class ConvolutionParams(Op):
    """Geometry of a two-dimensional convolution: the first parameters of every convolution operator.

    Dilations, strides and pads are in pixels; h is vertical; t, b, l, r are top, bottom, left, right.

    Raises:
        ValueError: a parameter is below its lowest legal value.
    """

    dh: int = 1
    dw: int = 1
    pad_h_t: int = 0
    pad_h_b: int = 0
    pad_w_l: int = 0
    pad_w_r: int = 0
    stride_h: int = 1
    stride_w: int = 1
    groups: int = 1

    weight_layout: ClassVar[str] = "OIHW"
    """OIHW for convolutions, IOHW for transposed ones."""

    def __post_init__(self) -> None:
        lowest = dict.fromkeys(("dh", "dw", "stride_h", "stride_w", "groups"), 1)
        lowest |= dict.fromkeys(("pad_h_t", "pad_h_b", "pad_w_l", "pad_w_r"), 0)
        if self._is_transposed:  # a negative trailing pad appends rows or columns
            lowest |= {"pad_h_b": 1 - self.stride_h, "pad_w_r": 1 - self.stride_w}
        for name, limit in lowest.items():
            if getattr(self, name) < limit:
                raise ValueError(f"{self.name}: {name} must be at least {limit}, found {getattr(self, name)}")

    @property
    def _is_transposed(self) -> bool:
        return self.weight_layout == "IOHW"

    def count_macs(self, operands: Sequence[Extents], results: Sequence[Extents]) -> int:
        """Each element of the result is a sum over the kernel; transposed, each element of x is spread over it."""
        x, w = operands[:2]
        return math.prod(x if self._is_transposed else results[0]) * math.prod(w[1:])

    def window(self, w: Array) -> Window:
        """Create the window for a weight array."""
        return Window(
            (w.shape[2], w.shape[3]),
            (self.stride_h, self.stride_w),
            (self.dh, self.dw),
            (self.pad_h_t, self.pad_w_l, self.pad_h_b, self.pad_w_r),
            self.groups,
        )

    def result_shape(self, x: TensorType, w: TensorType, b: TensorType | None) -> Shape:
        """Shape [N, oc, oh, ow] of the result.

        Raises:
            ShapeError: when ranks, channels, groups, bias or extents do not fit together.
        """
        types = (x, w, b)
        check_ranks(self, *types)
        first, second, kh, kw = (number(self, "every extent of the weight", extent, *types) for extent in w.shape)
        if first % self.groups:
            what = "input" if self._is_transposed else "output"
            raise ShapeError(f"{self.name}: {first} {what} channels in {self.groups} groups, got {listed(types)}")
        outputs, inputs = (second * self.groups, first) if self._is_transposed else (first, second * self.groups)
        check_extent(self, "the number of input channels", x.shape[1], inputs, *types)
        check_bias(self, b, (1, outputs, 1, 1), *types)
        height = self._extent(x, x.shape[2], kh, self.dh, self.stride_h, self.pad_h_t + self.pad_h_b)
        width = self._extent(x, x.shape[3], kw, self.dw, self.stride_w, self.pad_w_l + self.pad_w_r)
        return (x.shape[0], outputs, height, width)

    def _extent(self, x: TensorType, extent: Dim, kernel: int, dilation: int, stride: int, pads: int) -> Dim:
        reach = dilation * (kernel - 1) + 1
        if not self._is_transposed:
            return window_extent(self, extent, pads, reach, stride, x)
        result = plus(times(extent, stride), reach - stride - pads)
        if isinstance(result, int) and result < 1:
            raise ShapeError(f"{self}: the pads leave nothing of a result of {result + pads}, got {x}")
        return result


def convolution_inputs(layout: str) -> tuple[Operand, Operand, Operand]:
    """The operands of a convolution: image, weight of the given layout, optional bias [1, oc, 1, 1]."""
    return (
        Operand("tensor_input", (4,), "NCHW"),
        Operand("tensor_weight", (4,), layout, coeff=True),
        Operand("tensor_bias", (4,), coeff=True, optional=True),
    )


CONVOLUTION_OUTPUTS = (Operand("tensor_o", (4,), "NCHW"),)
