"""host_fit_image: crop, resize and pad uint8 images, on the host."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.opencv_resizing import RESIZERS
from tpuconvert.schema.definition.op import Op, Operand, OpKind, on, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import U8, Array, TensorType, format_shape

METHODS = tuple(sorted(RESIZERS))
"""Methods by their number in ``method``: names of OpenCV's methods in alphabetical order."""


@tpu_op("host_fit_image", OpKind.HOST, kw_only=True)
class HostFitImage(Op):
    """Part of an image, resized and placed on a background, with the pixels of OpenCV's ``cv2.resize``.

    ``box`` is (top, left, height, width) of the part in pixels of x. It is resized to ``inner`` = (height, width), and
    its upper left pixel is placed at ``corner`` = (top, left) of y. Other pixels of y are ``pad``.

    ``method``: 0 INTER_AREA, 1 INTER_CUBIC, 2 INTER_LANCZOS4, 3 INTER_LINEAR, 4 INTER_NEAREST.

    Shapes: x [N, H, W, C], y [N, size[0], size[1], C].
    """

    size: tuple[int, int]
    inner: tuple[int, int]
    box: tuple[int, int, int, int]
    corner: tuple[int, int] = (0, 0)
    pad: int = 0
    method: int = METHODS.index("opencv-linear")

    inputs = (Operand("tensor_i", (4,)),)
    outputs = (Operand("tensor_o", (4,)),)
    dtypes = on(U8)

    def __post_init__(self) -> None:
        if not 0 <= self.method < len(METHODS) or not 0 <= self.pad <= 255:
            raise ValueError(f"{self.name}: method is {self.method} and pad is {self.pad}")
        if min(*self.inner, *self.box[2:]) < 1 or min(*self.box[:2], *self.corner) < 0:
            raise ValueError(f"{self.name}: box is {self.box}, inner is {self.inner} and corner is {self.corner}")
        for axis in range(2):
            if self.corner[axis] + self.inner[axis] > self.size[axis]:
                raise ValueError(f"{self.name}: inner {self.inner} at {self.corner} exceeds size {self.size}")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: the box is inside of x."""
        count, height, width, channels = x.shape
        extents = (height, width)
        if not all(isinstance(extent, int) for extent in extents):
            raise ShapeError(f"{self.name}: x has the shape {format_shape(x.shape)}, expected numbers")
        for axis, extent in enumerate(extents):
            if self.box[axis] + self.box[axis + 2] > int(extent):
                raise ShapeError(f"{self.name}: box {self.box} exceeds x {format_shape(x.shape)}")
        return (TensorType(x.dtype, (count, *self.size, channels)),)

    def reference(self, x: Array) -> tuple[Array]:
        """Images are resized one by one."""
        top, left, height, width = self.box
        y = np.full((len(x), *self.size, x.shape[3]), self.pad, np.uint8)
        resize = RESIZERS[METHODS[self.method]]
        rows = slice(self.corner[0], self.corner[0] + self.inner[0])
        columns = slice(self.corner[1], self.corner[1] + self.inner[1])
        for source, target in zip(x, y, strict=True):
            part = source[top : top + height, left : left + width]
            target[rows, columns] = part if part.shape[:2] == self.inner else resize(part, self.inner)
        return (y,)
