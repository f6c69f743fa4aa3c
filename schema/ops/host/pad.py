"""host_pad: padding with computed sizes, on the host."""

from __future__ import annotations

import enum
from typing import Literal

import numpy as np

from tpuconvert.schema.definition.extents import unknown
from tpuconvert.schema.definition.op import Op, Operand, OpKind, case, on, tpu_op
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.types import I32, NUMBERS_F16, Array, Scalar, TensorType, format_shape


class HostPadMode(enum.IntEnum):
    """Content of the padding, with the names of NumPy."""

    constant = 0
    reflect = 1
    edge = 2
    wrap = 3


@tpu_op("host_pad", OpKind.HOST, kw_only=True)
class HostPad(Op):
    """Pad the listed axes of x with ``pads``: the sizes before all of them, then those after them; negative ones crop.

    Shapes: pads [2 * number of axes]; the extents of y on the axes depend on data.
    Errors: UsageError if cropping leaves less than no elements, or a mode needs more elements than x has.
    """

    axes: tuple[int, ...]
    value: Scalar
    mode: HostPadMode = HostPadMode.constant

    inputs = (Operand("tensor_i", coeff=True), Operand("pads", ranks=(1,)))
    dtypes = on(case({"tensor_i": NUMBERS_F16, "pads": (I32,), "tensor_o": NUMBERS_F16, "value": NUMBERS_F16}))
    decides_by = ("pads",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", HostPadMode(self.mode))

    def infer(self, x: TensorType, pads: TensorType) -> tuple[TensorType]:
        """Shapes: two sizes per axis, each axis once."""
        if len(set(self.axes)) != len(self.axes) or not all(0 <= axis < x.rank for axis in self.axes):
            raise ShapeError(f"{self.name}: axes {list(self.axes)} of {x}")
        if pads.shape != (2 * len(self.axes),):
            raise ShapeError(f"{self.name}: pads have the shape {format_shape(pads.shape)} for {len(self.axes)} axes")
        shape = [unknown(self.name, axis) if axis in self.axes else extent for axis, extent in enumerate(x.shape)]
        return (TensorType(x.dtype, tuple(shape)),)

    def reference(self, x: Array, pads: Array) -> tuple[Array]:
        """Crop, then pad."""
        sizes = [(0, 0)] * x.ndim
        for index, axis in enumerate(self.axes):
            sizes[axis] = (int(pads[index]), int(pads[index + len(self.axes)]))
        slices = []
        for axis, ((before, after), extent) in enumerate(zip(sizes, x.shape, strict=True)):
            start, end = max(-before, 0), extent - max(-after, 0)
            if start > end:
                raise UsageError(f"{self.name}: pads {before} and {after} of axis {axis} with {extent} elements")
            slices.append(slice(start, end))
        cropped = x[tuple(slices)]
        grown = [(max(before, 0), max(after, 0)) for before, after in sizes]
        if self.mode is HostPadMode.constant:
            return (np.pad(cropped, grown, constant_values=np.asarray(self.value.value, x.dtype)),)
        if 0 in cropped.shape:
            raise UsageError(f"{self.name}: mode {self.mode.name} pads a tensor without elements")
        modes: dict[HostPadMode, Literal["reflect", "edge", "wrap"]] = {
            HostPadMode.reflect: "reflect",
            HostPadMode.edge: "edge",
            HostPadMode.wrap: "wrap",
        }
        return (np.pad(cropped, grown, mode=modes[self.mode]),)
