"""Base classes of the convolution operators: geometry parameters and shape inference.

``conv`` and ``conv_v2`` are convolutions, ``deconv`` and ``deconv_v2`` transposed ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from tpuconvert.schema.arithmetic.convolution import Window
from tpuconvert.schema.definition.extents import plus, times
from tpuconvert.schema.definition.op import Extents, Op, Operand, op_base
from tpuconvert.schema.definition.shape_checks import (
    check_bias,
    check_extent,
    check_ranks,
    format_types,
    number,
    window_extent,
)
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import Array, Dim, Shape, TensorType


class ConvolutionGeometry(NamedTuple):
    """Geometry per spatial axis; pads are (before, after)."""

    dilations: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    groups: int


class SpatialConvolution(Op):
    """Base of convolutions with any number of spatial axes."""

    weight_layout: ClassVar[str] = "OIHW"
    """Axes of the weights: begins with O for a convolution, with I for a transposed convolution."""

    @property
    def geometry(self) -> ConvolutionGeometry:
        """Strides, dilations and pads per spatial axis, and the number of groups."""
        raise NotImplementedError

    def window(self, w: Array) -> Any:
        """Create the kernel window for weights of this shape."""
        raise NotImplementedError

    @property
    def _is_transposed(self) -> bool:
        return self.weight_layout.startswith("I")

    def count_macs(self, operands: Sequence[Extents], results: Sequence[Extents]) -> int:
        """One MAC per kernel element for each result element, or for each operand element if transposed."""
        x, w = operands[:2]
        return math.prod(x if self._is_transposed else results[0]) * math.prod(w[1:])

    def result_shape(self, x: TensorType, w: TensorType, b: TensorType | None) -> Shape:
        """Shape [N, oc, ...] of the result.

        Raises:
            ShapeError: ranks, channels, groups, bias or extents do not match.
        """
        types, geometry = (x, w, b), self.geometry
        check_ranks(self, *types)
        first, second, *kernel = (number(self, "every extent of the weight", extent, *types) for extent in w.shape)
        if first % geometry.groups:
            what = "input" if self._is_transposed else "output"
            raise ShapeError(
                f"{self.name}: {first} {what} channels in {geometry.groups} groups, got {format_types(types)}"
            )
        outputs, inputs = second * geometry.groups, first
        if not self._is_transposed:
            outputs, inputs = inputs, outputs
        check_extent(self, "the number of input channels", x.shape[1], inputs, *types)
        check_bias(self, b, (outputs,) if b and b.rank == 1 else (1, outputs, *(1 for _ in kernel)), *types)
        return (x.shape[0], outputs, *(self._extent(x, axis, geometry, size) for axis, size in enumerate(kernel)))

    def _extent(self, x: TensorType, axis: int, geometry: ConvolutionGeometry, kernel: int) -> Dim:
        stride, pads = geometry.strides[axis], sum(geometry.pads[axis])
        reach, extent = geometry.dilations[axis] * (kernel - 1) + 1, x.shape[2 + axis]
        if not self._is_transposed:
            return window_extent(self, extent, pads, reach, stride, x)
        result = plus(times(extent, stride), reach - stride - pads)
        if isinstance(result, int) and result < 1:
            raise ShapeError(f"{self}: the pads leave nothing of a result of {result + pads}, got {x}")
        return result


@op_base
class ConvolutionParams(SpatialConvolution):
    """Geometry of a two-dimensional convolution: the first parameters of every such operator.

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

    outputs = (Operand("tensor_o", (4,), "NCHW"),)

    def __post_init__(self) -> None:
        lowest = dict.fromkeys(("dh", "dw", "stride_h", "stride_w", "groups"), 1)
        lowest |= dict.fromkeys(("pad_h_t", "pad_h_b", "pad_w_l", "pad_w_r"), 0)
        if self._is_transposed:  # a negative trailing pad appends rows or columns
            lowest |= {"pad_h_b": 1 - self.stride_h, "pad_w_r": 1 - self.stride_w}
        for name, limit in lowest.items():
            if getattr(self, name) < limit:
                raise ValueError(f"{self.name}: {name} must be at least {limit}, found {getattr(self, name)}")

    @property
    def geometry(self) -> ConvolutionGeometry:
        """Strides, dilations and pads per spatial axis, and the number of groups."""
        pads = (self.pad_h_t, self.pad_h_b), (self.pad_w_l, self.pad_w_r)
        return ConvolutionGeometry((self.dh, self.dw), (self.stride_h, self.stride_w), pads, self.groups)

    def window(self, w: Array) -> Window:
        """Create the kernel window for weights of this shape."""
        return Window(
            (w.shape[2], w.shape[3]),
            (self.stride_h, self.stride_w),
            (self.dh, self.dw),
            (self.pad_h_t, self.pad_w_l, self.pad_h_b, self.pad_w_r),
            self.groups,
        )


def convolution_inputs(layout: str) -> tuple[Operand, Operand, Operand]:
    """The operands of a convolution: image, weight of the given layout, optional bias [1, oc, 1, 1]."""
    return (
        Operand("tensor_input", (4,), "NCHW"),
        Operand("tensor_weight", (4,), layout, coeff=True),
        Operand("tensor_bias", (4,), coeff=True, optional=True),
    )
