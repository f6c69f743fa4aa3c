"""Base class of the three-dimensional convolutions."""

from __future__ import annotations

from tpuconvert.schema.arithmetic.volume_convolution import VolumeWindow, volume_window
from tpuconvert.schema.definition.op import Operand
from tpuconvert.schema.ops.convolution.convolution_params import SpatialConvolution
from tpuconvert.schema.types import Array


class VolumeConvolution(SpatialConvolution):
    """Base of convolutions with the spatial axes t, h and w."""

    def __post_init__(self) -> None:
        geometry = self.geometry
        if min((*geometry.dilations, *geometry.strides, geometry.groups)) < 1:
            raise ValueError(f"{self.name}: dilations, strides and groups must be at least 1, found {self}")
        for (before, after), stride in zip(geometry.pads, geometry.strides, strict=True):
            # In a transposed convolution a negative padding after the end appends planes, rows or columns.
            if before < 0 or after < (1 - stride if self._is_transposed else 0):
                raise ValueError(f"{self.name}: pads ({before}, {after}) are too low, found {self}")

    def window(self, w: Array) -> VolumeWindow:
        """Create the kernel window for weights of this shape."""
        geometry = self.geometry
        return volume_window(w.shape[2:], geometry.strides, geometry.dilations, geometry.pads, geometry.groups)


def volume_convolution_inputs(layout: str, weight_layout: str) -> tuple[Operand, Operand, Operand]:
    """Declare the operands: volume, weight, optional bias [oc] or [1, oc, 1, 1, 1]."""
    return (
        Operand("tensor_input", (5,), layout),
        Operand("tensor_weight", (5,), weight_layout, coeff=True),
        Operand("tensor_bias", (1, 5), coeff=True, optional=True),
    )
