"""Convolution, pooling, resizing and sampling: corner cases of their attributes."""

import numpy as np

from tests.support.onnx.cases.case import Case, a, i64
from tests.support.onnx.models import ramp

X = ramp(2, 4, 7, 6, seed=5)
LINE = ramp(2, 4, 9, seed=6)
CUBE = ramp(1, 2, 5, 4, 6, seed=7)
AUTO = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
POOLS = ("MaxPool", "AveragePool", "LpPool")

CONVOLUTIONS = [
    *(Case("Conv", [X], [ramp(3, 4, 3, 2, seed=1)], a(auto_pad=pad, strides=strides, kernel_shape=[3, 2]), atol=1e-5)
      for pad in AUTO for strides in ([1, 1], [2, 3])),
    *(Case("Conv", [LINE], [ramp(3, 4, 3, seed=1), ramp(3)], a(auto_pad=pad, strides=[2]), atol=1e-5) for pad in AUTO),
    *(Case("Conv", [CUBE], [ramp(3, 2, 2, 3, 2, seed=1)], a(auto_pad=pad, strides=[1, 2, 2]),
          atol=1e-5) for pad in AUTO),
    Case("Conv", [X], [ramp(4, 1, 3, 3), ramp(4)], a(group=4, pads=[2, 2, 2, 2], dilations=[2, 2]), atol=1e-5),
    Case("Conv", [X, ramp(3, 4, 1, 1)], atol=1e-5),
    Case("Conv", [X, ramp(2, 2, 3, 3)], [ramp(2)], a(group=2), atol=1e-5),
    Case("Conv", [X], [ramp(3, 4, 7, 6)], atol=1e-5), Case("Conv", [LINE], [ramp(4, 1, 2)], a(group=4, dilations=[3])),
    *(Case("ConvTranspose", [X], [ramp(4, 3, 3, 2, seed=1), ramp(3)], attributes, atol=1e-5) for attributes in (
        a(output_shape=[14, 11], strides=[2, 2]), a(output_shape=[13, 12], strides=[2, 2], auto_pad="SAME_UPPER"),
        a(output_shape=[13, 12], strides=[2, 2], auto_pad="SAME_LOWER"), a(auto_pad="SAME_UPPER", strides=[2, 3]),
        a(auto_pad="SAME_LOWER", strides=[2, 3]), a(auto_pad="VALID", strides=[2, 2]),
        a(pads=[1, 0, 1, 1], output_padding=[1, 0], strides=[2, 1]), a(dilations=[1, 3], strides=[3, 1]),
        a(output_padding=[2, 1], strides=[3, 2]), a(pads=[2, 1, 2, 1]))),
    Case("ConvTranspose", [X], [ramp(4, 2, 2, 2)], a(group=2, strides=[2, 2]), atol=1e-5),
    Case("ConvTranspose", [X], [ramp(4, 1, 3, 3), ramp(4)], a(group=4, strides=[2, 2], pads=[1, 1, 1, 1]), atol=1e-5),
    Case("ConvTranspose", [LINE], [ramp(4, 3, 4)], a(output_shape=[20], strides=[2]), atol=1e-5),
    Case("ConvTranspose", [LINE], [ramp(4, 3, 4), ramp(3)], a(auto_pad="SAME_LOWER", strides=[3]), atol=1e-5),
    Case("ConvTranspose", [CUBE], [ramp(2, 2, 3, 2, 2)], a(strides=[2, 2, 1], pads=[1, 0, 0, 0, 1, 0]), atol=1e-5),
    Case("ConvTranspose", [CUBE], [ramp(2, 1, 2, 2, 2)], a(group=2, output_padding=[1, 0, 0], strides=[2, 1, 1]),
          atol=1e-5),
    Case("DeformConv", [ramp(1, 2, 5, 5), ramp(3, 2, 3, 3), ramp(1, 18, 3, 3, seed=3)], [ramp(3)], atol=1e-4),
    *(Case("Col2Im", [ramp(1, 8, 12)], [i64(4, 5), i64(2, 2)], b, atol=1e-5) for b in (a(), a(strides=[1, 1]))),
]  # fmt: skip

POOLINGS = [
    *(Case(op, [X], [], a(kernel_shape=[3, 2], auto_pad=pad, strides=[2, 2])) for op in POOLS[:2] for pad in AUTO),
    *(Case(op, [X], [], a(kernel_shape=[3, 3], strides=[2, 3], pads=[1, 1, 0, 1], **more)) for op in POOLS[:2]
      for more in ({}, a(ceil_mode=1))),
    *(Case("AveragePool", [X], [], a(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=include,
                                     ceil_mode=ceil)) for include in (0, 1) for ceil in (0, 1)),
    *(Case("AveragePool", [X], [], a(kernel_shape=[2, 3], dilations=[3, 2], pads=[1, 2, 1, 2],
          count_include_pad=include))
      for include in (0, 1)),
    *(Case("MaxPool", [X], [], a(kernel_shape=[2, 3], dilations=[3, 2], pads=[1, 2, 1, 2], ceil_mode=ceil,
          strides=[2, 2]))
      for ceil in (0, 1)),
    Case("MaxPool", [X], [], a(kernel_shape=[2, 2], storage_order=1)),
    *(Case(op, [LINE], [], a(kernel_shape=[4], strides=[3], pads=[1, 2])) for op in POOLS),
    *(Case(op, [CUBE], [], a(kernel_shape=[2, 2, 3], strides=[2, 1, 2], ceil_mode=1)) for op in POOLS[:2]),
    *(Case("LpPool", [X], [], a(kernel_shape=[2, 3], strides=[2, 2], p=p, pads=[1, 0, 0, 1]), atol=1e-4) for p in (1,
          2, 3)),
    Case("LpPool", [X], [], a(kernel_shape=[2, 3], auto_pad="SAME_UPPER"), atol=1e-5),
    *(Case(op, [x]) for op in ("GlobalAveragePool", "GlobalMaxPool") for x in (X, LINE, CUBE)),
    *(Case("GlobalLpPool", [x], [], b, atol=1e-4, until=21) for x in (X, LINE) for b in (a(), a(p=1), a(p=3))),
    Case("MaxUnpool", [ramp(1, 1, 2, 2)], [i64(0, 3, 10, 15).reshape(1, 1, 2, 2), i64(1, 1, 5, 4)],
         a(kernel_shape=[2, 2], strides=[2, 2])),
    Case("MaxRoiPool", [ramp(1, 2, 6, 6)], [np.array([[0, 0, 0, 3, 3], [0, 1, 2, 5, 5]], np.float32)],
         a(pooled_shape=[2, 2]), until=21),
    Case("MaxRoiPool", [ramp(1, 2, 6, 6), np.array([[0, 0, 0, 8, 6]], np.float32)], [],
         a(pooled_shape=[3, 2], spatial_scale=0.5), until=21),
    *(Case("RoiAlign", [ramp(2, 3, 8, 8)], [np.array([[0, 0, 4, 5], [1.5, 2, 7, 6]], np.float32), i64(0, 1)],
           a(output_height=3, output_width=2, **more), atol=1e-5) for more in (
        a(coordinate_transformation_mode="output_half_pixel"), a(coordinate_transformation_mode="half_pixel"),
        a(spatial_scale=0.5, sampling_ratio=1), a(spatial_scale=0.25, sampling_ratio=3))),
]  # fmt: skip


def resize_case(mode: str, coordinates: str, target: tuple[int, ...], nearest: str = "", x: np.ndarray = X) -> Case:
    more = a(nearest_mode=nearest) if nearest else {}
    attributes = a(mode=mode, coordinate_transformation_mode=coordinates, **more)
    return Case("Resize", [x], [None, None, i64(*x.shape[:2], *target)], attributes, 13, atol=1e-5)


COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
BOX = np.array([0, 0, 0.1, 0.3, 1, 1, 0.8, 1.2], np.float32)
RESIZES = [
    *(resize_case("nearest", coordinates, target, nearest) for coordinates in COORDINATES for nearest in NEAREST
      for target in ((14, 12), (5, 9), (3, 1))),
    *(resize_case("linear", coordinates, target) for coordinates in COORDINATES
      for target in ((14, 12), (5, 9), (1, 3))),
    *(resize_case("cubic", coordinates, target) for coordinates in COORDINATES for target in ((14, 12), (5, 9))),
    *(resize_case(mode, "half_pixel_symmetric", (5, 9)) for mode in ("nearest", "linear", "cubic")),
    *(Case("Resize", [X], [None, np.array([1, 1, s, t], np.float32)], a(mode=mode, coordinate_transformation_mode=c),
          19,
           atol=1e-5) for mode in ("nearest", "linear") for c in ("half_pixel", "half_pixel_symmetric", "align_corners")
      for s, t in ((1.3, 0.7), (0.5, 2.5))),
    Case("Resize", [X], [None, None, i64(2, 4, 14, 9)], a(mode="nearest", nearest_mode="floor",
         coordinate_transformation_mode="tf_half_pixel_for_nn"), 11),
    *(Case("Resize", [X], [BOX, None, i64(2, 4, 5, 8)], a(mode=mode, extrapolation_value=9.0,
           coordinate_transformation_mode="tf_crop_and_resize"), 13, atol=1e-5) for mode in ("nearest", "linear")),
    *(resize_case("linear", "half_pixel", (9,), x=LINE) for _ in (0,)),
    *(resize_case("linear", "align_corners", (3, 8, 4), x=CUBE) for _ in (0,)),
    *(Case("Resize", [X], [None, None, i64(2, 4, 3, 4)], a(mode=mode, antialias=1, exclude_outside=e), 18, atol=1e-5)
      for mode, e in (("linear", 0), ("cubic", 0), ("cubic", 1))),
]  # fmt: skip

GRID = ramp(2, 3, 5, 2, seed=6, low=-1.3, high=1.3)
SAMPLINGS = [
    *(Case("GridSample", [X, GRID], [], a(mode=mode, padding_mode=padding, align_corners=align), 16, atol=1e-4,
          until=19)
      for mode in ("nearest", "bilinear") for padding in ("zeros", "border", "reflection") for align in (0, 1)),
    *(Case("GridSample", [X], [GRID], a(mode=mode, padding_mode="zeros"), 16, atol=1e-4,
          until=19) for mode in ("bilinear", "bicubic")),
    *(Case("AffineGrid", [ramp(2, 2, 3)], [i64(2, 3, 4, 5)], a(align_corners=align), 20) for align in (0, 1)),
    Case("AffineGrid", [ramp(1, 3, 4)], [i64(1, 2, 3, 4, 5)], {}, 20),
    *(Case("DepthToSpace", [ramp(2, 8, 2, 3)], [], b) for b in (a(blocksize=2), a(blocksize=2, mode="CRD"))),
    Case("SpaceToDepth", [ramp(2, 2, 4, 6)], [], a(blocksize=2)),
]  # fmt: skip

CASES = CONVOLUTIONS + POOLINGS + RESIZES + SAMPLINGS
