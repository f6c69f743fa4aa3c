"""Conversion between uint8 RGB and YUV 4:2:0 (NV12, I420) with the results of OpenCV's ``cvtColor``.

The video range of ITU-R BT.601 in fixed point with 20 fractional bits. Source: ``color_yuv.simd.hpp`` in
``modules/imgproc/src`` of OpenCV 4 and 5 (``COLOR_YUV2RGB_NV12``, ``COLOR_YUV2RGB_I420``, ``COLOR_RGB2YUV_I420``). U
and V are computed from the upper left pixel of each block of 2 x 2 pixels, and apply to the whole block.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.types import Array

BITS = 20
"""Fractional bits of the factors."""

_HALF = 1 << (BITS - 1)

BLACK, GRAY = 16, 128
"""Y of black; U and V without color."""

Y_TO_RGB = 1220542
CHROMA_TO_RGB = ((0, 1673527), (-409993, -852492), (2116026, 0))
"""Factors of U and of V for R, for G and for B."""

_RGB_TO_Y = np.array([269484, 528482, 102760], np.int32)
_RGB_TO_U = np.array([-155188, -305135, 460324], np.int32)
_RGB_TO_V = np.array([460324, -385875, -74448], np.int32)


def yuv420_to_rgb(planes: Array, *, interleaved: bool) -> Array:
    """Convert camera planes to pixels.

    Args:
        planes: uint8 [N, H * 3/2, W]: H rows of Y, then U and V of half the height and width: interleaved as in NV12,
            or all of U and then all of V as in I420. H and W are even.
        interleaved: NV12.

    Returns:
        uint8 [N, H, W, 3] in the order R, G, B.

    """
    count, rows, width = planes.shape
    height = rows * 2 // 3
    luma = planes[:, :height].astype(np.int32)
    chroma = planes[:, height:].reshape(count, -1)
    shape = (count, height // 2, width // 2)
    if interleaved:
        u, v = chroma[:, 0::2], chroma[:, 1::2]
    else:
        u, v = np.split(chroma, 2, axis=1)
    u, v = (_repeat(part.reshape(shape).astype(np.int32) - GRAY) for part in (u, v))
    # 239 * 1220542 + 128 * 2116026 + 2^19 < 2^30: the sums fit into int32.
    y = np.maximum(luma - BLACK, 0) * Y_TO_RGB + _HALF
    parts = [y + from_u * u + from_v * v for from_u, from_v in CHROMA_TO_RGB]
    pixels: Array = np.stack([np.clip(part >> BITS, 0, 255).astype(np.uint8) for part in parts], axis=-1)
    return pixels


def rgb_to_yuv420(pixels: Array, *, interleaved: bool) -> Array:
    """Convert pixels to camera planes, uint8 [N, H, W, 3] to [N, H * 3/2, W]; see :func:`yuv420_to_rgb`."""
    count, height, width, _ = pixels.shape
    wide = pixels.astype(np.int32)
    y = (wide @ _RGB_TO_Y + _HALF + (BLACK << BITS)) >> BITS
    blocks = wide[:, ::2, ::2]
    u, v = ((blocks @ factors + _HALF + (GRAY << BITS)) >> BITS for factors in (_RGB_TO_U, _RGB_TO_V))
    chroma = np.stack([u, v], axis=-1 if interleaved else 1).reshape(count, height // 2, width)
    planes: Array = np.concatenate([y, chroma], axis=1).clip(0, 255).astype(np.uint8)
    return planes


def _repeat(x: Array) -> Array:
    return x.repeat(2, axis=1).repeat(2, axis=2)
