"""host_yuv420_to_rgb: camera planes to pixels, on the host."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.yuv420 import yuv420_to_rgb
from tpuconvert.schema.definition.op import Op, Operand, OpKind, on, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import U8, Array, TensorType, format_shape


@tpu_op("host_yuv420_to_rgb", OpKind.HOST)
class HostYuv420ToRgb(Op):
    """Pixels of camera planes in the video range of BT.601, with the integers of OpenCV's ``cvtColor``.

    With ``c = max(y - 16, 0) * 1220542 + 2^19``, ``d = u - 128`` and ``e = v - 128``:
    ``r = sat((c + 1673527 * e) >> 20)``, ``g = sat((c - 852492 * e - 409993 * d) >> 20)``,
    ``b = sat((c + 2116026 * d) >> 20)``. U and V of a block of 2 x 2
    pixels are the same. They are interleaved (NV12), or in two planes (I420).

    Shapes: x [N, H * 3/2, W], y [N, H, W, 3] in the order R, G, B, or B, G, R with ``blue_first``.
    """

    interleaved: bool = True
    blue_first: bool = False

    inputs = (Operand("tensor_i", (3,)),)
    outputs = (Operand("tensor_o", (4,)),)
    dtypes = on(U8)

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: the height of the image and the width are even."""
        shape_text = format_shape(x.shape)
        if len(x.shape) != 3 or not all(isinstance(extent, int) for extent in x.shape[1:]):
            raise ShapeError(f"{self.name}: x has the shape {shape_text}, expected [N, H * 3/2, W] with numbers")
        rows, width = int(x.shape[1]), int(x.shape[2])
        if rows % 3 or width % 2:
            raise ShapeError(
                f"{self.name}: x has the shape {shape_text}, expected 3/2 of an even height, and an even width"
            )
        return (TensorType(x.dtype, (x.shape[0], rows * 2 // 3, width, 3)),)

    def reference(self, x: Array) -> tuple[Array]:
        """Integers of 32 bits; right shifts round down."""
        pixels = yuv420_to_rgb(x, interleaved=self.interleaved)
        return (np.ascontiguousarray(pixels[..., ::-1]) if self.blue_first else pixels,)
