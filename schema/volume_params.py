"""Base class of the three-dimensional convolutions: checks of the geometry, and shapes."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.extents import may_equal, plus, times
from tpuconvert.schema.op import Extents, Op, Operand
from tpuconvert.schema.shape_checks import check_extent, check_ranks, listed, number, window_extent
from tpuconvert.schema.types import Array, Dim, Shape, TensorType
from tpuconvert.schema.volume_convolution import VolumeWindow, volume_window

Triple = tuple[int, int, int]
Pads = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]


class VolumeGeometry(NamedTuple):
    """Geometry per axis (t, h, w); pads are (before, after)."""

    dilations: Triple
    strides: Triple
    pads: Pads
    groups: int


class VolumeConvolution(Op, abc.ABC):
    """An operator whose parameters define a :class:`VolumeGeometry`."""

    weight_layout: ClassVar[str] = "OITHW"
    """OITHW for convolutions, IOTHW for transposed ones."""

    @property
    @abc.abstractmethod
    def geometry(self) -> VolumeGeometry:
        """The geometry by axis."""

    @property
    def _is_transposed(self) -> bool:
        return self.weight_layout == "IOTHW"

    def check_geometry(self) -> None:
        """Check the parameters.

        Raises:
            ValueError: a parameter is below its lowest legal value.
        """
        found = self.geometry
        if min((*found.dilations, *found.strides, found.groups)) < 1:
            raise ValueError(f"{self.name}: dilations, strides and groups must be at least 1, found {self}")
        for (before, after), stride in zip(found.pads, found.strides, strict=True):
            # In a transposed convolution a negative padding after the end appends planes, rows or columns.
            if before < 0 or after < (1 - stride if self._is_transposed else 0):
                raise ValueError(f"{self.name}: pads ({before}, {after}) are too low, found {self}")

    def count_macs(self, operands: Sequence[Extents], results: Sequence[Extents]) -> int:
        """Each element of the result is a sum over the kernel; transposed, each element of x is spread over it."""
        x, w = operands[:2]
        return math.prod(x if self._is_transposed else results[0]) * math.prod(w[1:])

    def window(self, w: Array) -> VolumeWindow:
        """Create the window for a weight array."""
        found = self.geometry
        return volume_window(w.shape[2:], found.strides, found.dilations, found.pads, found.groups)

    def result_shape(self, x: TensorType, w: TensorType, b: TensorType | None) -> Shape:
        """Shape [N, oc, ot, oh, ow] of the result.

        Raises:
            ShapeError: ranks, channels, groups, bias or extents do not fit together.
        """
        types, geometry = (x, w, b), self.geometry
        check_ranks(self, *types)
        first, second, *kernel = (number(self, "every extent of the weight", extent, *types) for extent in w.shape)
        if first % geometry.groups:
            what = "input" if self._is_transposed else "output"
            raise ShapeError(f"{self.name}: {first} {what} channels in {geometry.groups} groups, got {listed(types)}")
        outputs, inputs = second * geometry.groups, first
        if not self._is_transposed:
            outputs, inputs = inputs, outputs
        check_extent(self, "the number of input channels", x.shape[1], inputs, *types)
        if b is not None:
            wanted = (outputs,) if b.rank == 1 else (1, outputs, 1, 1, 1)
            if not all(map(may_equal, b.shape, wanted)):
                raise ShapeError(f"{self.name}: the bias must be {list(wanted)}, got {listed(types)}")
        extents = (self._extent(x, axis, size) for axis, size in enumerate(kernel))
        return (x.shape[0], outputs, *extents)

    def _extent(self, x: TensorType, axis: int, kernel: int) -> Dim:
        geometry = self.geometry
        stride, pads = geometry.strides[axis], sum(geometry.pads[axis])
        reach, extent = geometry.dilations[axis] * (kernel - 1) + 1, x.shape[2 + axis]
        if not self._is_transposed:
            return window_extent(self, extent, pads, reach, stride, x)
        result = plus(times(extent, stride), reach - stride - pads)
        if isinstance(result, int) and result < 1:
            raise ShapeError(f"{self}: the pads leave nothing of a result of {result + pads}, got {x}")
        return result


def volume_convolution_inputs(layout: str, weight_layout: str) -> tuple[Operand, Operand, Operand]:
    """The operands: volume, weight, optional bias [oc] or [1, oc, 1, 1, 1]."""
    return (
        Operand("tensor_input", (5,), layout),
        Operand("tensor_weight", (5,), weight_layout, coeff=True),
        Operand("tensor_bias", (1, 5), coeff=True, optional=True),
    )


def bias_of_planes(b: Array | None) -> Array | None:
    """Reshape a bias of either rank so that it broadcasts with [N, oc, ot, oh, ow]."""
    return None if b is None else b.reshape(1, -1, 1, 1, 1)
