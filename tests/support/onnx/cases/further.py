"""Operators that ordinary networks do not have."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.support.onnx.cases.case import Case, i64
from tests.support.onnx.models import ramp
from tpuconvert.schema.types import Array

Given = tuple[str, Sequence[Array | None], Sequence[Array | None], dict[str, Any], int]
"""Operator, inputs, constants after them (None omits an input), attributes, opset."""

IMAGE = ramp(2, 4, 5, 6, seed=5)
GRID = ramp(2, 3, 4, 2, seed=6, low=-1.4, high=1.4)
TOKENS = ramp(2, 3, 8)
CACHE = (ramp(5, 2, seed=1), ramp(5, 2, seed=2))
POSITIONS = np.array([[0, 2, 4], [1, 3, 4]])
SMALL_INTS = {kind: np.random.default_rng(2).integers(np.iinfo(kind).min, np.iinfo(kind).max, (2, 9)).astype(kind)
              for kind in ("int8", "uint8", "int16", "uint16")}  # fmt: skip


def scatter(reduction: str) -> list[Given]:
    places = np.array([[0, 1, 2], [2, 0, 2]])
    return [
        ("ScatterElements", [ramp(3, 3)], [places, ramp(2, 3, seed=1)], {"reduction": reduction, "axis": 0}, 18),
        ("ScatterND", [ramp(4, 3)], [i64(1, 3, 1).reshape(3, 1), ramp(3, 3, seed=1)], {"reduction": reduction}, 18),
    ]


GIVEN: list[Given] = [
    *((op, [x], [np.roll(x, 1)], {}, 14) for op in ("Add", "Sub", "Mul") for x in SMALL_INTS.values()),
    *((op, [x, x[:, ::-1].copy()], [], {}, 14) for op in ("Mul", "Max", "Min") for x in SMALL_INTS.values()),
    *(("BitShift", [x, np.abs(x % 12).astype(x.dtype)], [], {"direction": d}, 11)
      for d in ("LEFT", "RIGHT") for x in (SMALL_INTS["uint8"], SMALL_INTS["uint16"])),
    ("Pow", [np.array([1, -2, 3], np.int32)], [np.array([0, 3, 4], np.int32)], {}, 15),
    ("Pow", [ramp(2, 3)], [np.array([2, 3, 0], np.float32)], {}, 15),
    *(("GridSample", [IMAGE, GRID], [], {"mode": mode, "padding_mode": padding, "align_corners": align}, 20)
      for mode in ("nearest", "linear", "cubic") for padding in ("zeros", "border", "reflection") for align in (0, 1)
      if (mode, padding) != ("cubic", "border")),  # the evaluator clamps the place, not the taps
    ("GridSample", [ramp(1, 2, 3, 4, 5), ramp(1, 2, 2, 2, 3, seed=7)], [], {"mode": "linear"}, 20),
    ("GridSample", [IMAGE], [GRID], {}, 20),
    ("DFT", [ramp(1, 7, 3, 1)], [], {}, 17), ("DFT", [ramp(1, 7, 3, 2)], [], {"axis": 2, "inverse": 1}, 17),
    ("DFT", [ramp(1, 7, 3, 1)], [], {"onesided": 1}, 17), ("DFT", [ramp(1, 7, 1)], [np.array(9)], {}, 20),
    ("DFT", [ramp(2, 8, 2)], [None, np.array(1)], {}, 20),
    ("STFT", [ramp(2, 40, 1)], [np.array(8), None, np.array(16)], {}, 17),
    ("STFT", [ramp(2, 40, 1)], [np.array(8), np.hanning(16).astype(np.float32), np.array(16)], {"onesided": 0}, 17),
    *(("RotaryEmbedding", [TOKENS, *CACHE], [POSITIONS], {"num_heads": 2, "interleaved": n}, 23) for n in (0, 1)),
    ("RotaryEmbedding", [TOKENS, *CACHE, POSITIONS], [], {"num_heads": 2}, 23),
    ("RotaryEmbedding", [ramp(1, 2, 3, 6), ramp(1, 3, 2), ramp(1, 3, 2, seed=1)], [], {"rotary_embedding_dim": 4}, 23),
    ("CumProd", [ramp(3, 5)], [np.array(1)], {}, 26), ("CumProd", [ramp(3, 5)], [np.array(0)], {"reverse": 1}, 26),
    ("CumProd", [ramp(3, 5)], [np.array(1)], {"exclusive": 1, "reverse": 1}, 26),
    *(("Det", [ramp(2, size, size)], [], {}, 11) for size in (1, 2, 3)),
    ("Col2Im", [ramp(1, 12, 6)], [i64(5, 4), i64(2, 3)], {"pads": [0, 0, 0, 1], "strides": [2, 1]}, 18),
    ("Col2Im", [ramp(2, 8, 12)], [i64(5, 5), i64(2, 2)], {"dilations": [2, 1], "pads": [0, 0, 0, 0]}, 18),
    ("Einsum", [ramp(2, 3, 3)], [], {"equation": "bii->bi"}, 12), ("Einsum", [ramp(3, 3)], [], {"equation": "ii"}, 12),
    *(case for reduction in ("add", "mul", "max", "min") for case in scatter(reduction)),
    ("TensorScatter", [ramp(2, 3, 6, 2), ramp(2, 3, 2, 2, seed=1)], [i64(1, 4)], {}, 24),
    ("TensorScatter", [ramp(2, 6, 2), ramp(2, 3, 2, seed=1)], [i64(4, 1)], {"mode": "circular", "axis": 1}, 24),
    ("ReverseSequence", [ramp(4, 3, 2)], [i64(1, 4, 0)], {}, 10),
    ("ReverseSequence", [ramp(3, 4)], [i64(1, 4, 2)], {"batch_axis": 0, "time_axis": 1}, 10),
    *((op, [ramp(2, 3, low=-1, high=1)], [], {}, 7) for op in ("Acos", "Asin", "Atan")),
    ("DeformConv", [ramp(1, 4, 5, 5), ramp(2, 4, 2, 2), ramp(1, 16, 4, 4, seed=3)], [ramp(2)], {"offset_group": 2}, 19),
    ("DeformConv", [ramp(2, 2, 5, 5), ramp(2, 1, 2, 2), ramp(2, 8, 3, 3, seed=3)], [None, ramp(2, 4, 3, 3, seed=4)],
     {"group": 2, "pads": [1, 1, 0, 0], "strides": [2, 2]}, 19),
    ("RoiAlign", [ramp(2, 3, 8, 8)], [np.array([[0, 0, 4, 5], [1.5, 2, 7, 6]], np.float32), i64(0, 1)],
     {"output_height": 2, "output_width": 3, "sampling_ratio": 2}, 16),
    ("RoiAlign", [ramp(1, 3, 8, 8), np.array([[0, 0, 4, 5]], np.float32)], [i64(0)],
     {"output_height": 2, "output_width": 2, "mode": "max", "spatial_scale": 0.5}, 16),
    ("MaxUnpool", [ramp(1, 1, 2, 2)], [i64(5, 7, 13, 15).reshape(1, 1, 2, 2)],
     {"kernel_shape": [2, 2], "strides": [2, 2]}, 11),
    ("AveragePool", [IMAGE], [], {"kernel_shape": [2, 3], "dilations": [2, 1], "strides": [2, 2], "ceil_mode": 1}, 19),
    ("LpPool", [IMAGE], [], {"kernel_shape": [2, 2], "dilations": [2, 2]}, 18),
    ("MaxPool", [SMALL_INTS["uint8"].reshape(1, 1, 3, 6)], [], {"kernel_shape": [2, 2]}, 12),
    ("SpaceToDepth", [IMAGE[:, :, :4]], [], {"blocksize": 2}, 13),
    *(("Resize", [IMAGE], [None, np.array([1, 1, 0.6, 0.5], np.float32)], {"mode": mode, "antialias": 1}, 18)
      for mode in ("linear", "cubic")),
    ("Resize", [IMAGE], [np.array([0, 0, -0.2, 0.2, 1, 1, 0.9, 1.3], np.float32), None, i64(2, 4, 4, 7)],
     {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}, 18),
    ("QuantizeLinear", [ramp(2, 3, 4)], [ramp(3, low=0.05, high=0.2), np.array([3, 128, 9], np.uint8)], {}, 13),
    ("QuantizeLinear", [ramp(2, 4)], [ramp(2, 2, low=0.1, high=0.2)], {"block_size": 2, "output_dtype": 3}, 21),
    ("DequantizeLinear", [SMALL_INTS["int8"]], [ramp(2, low=0.1), np.array([1, -2], np.int8)], {"axis": 0}, 19),
    ("DequantizeLinear", [SMALL_INTS["uint8"][:, :8]], [ramp(2, 2, low=0.1)], {"block_size": 4}, 21),
    ("ConvInteger", [SMALL_INTS["uint8"].reshape(1, 1, 3, 6), SMALL_INTS["uint8"][:1, :8].reshape(2, 1, 2, 2)],
     [np.uint8(3), np.array([5, 9], np.uint8)], {}, 10),
    ("LinearAttention", [TOKENS, ramp(2, 3, 4, seed=1), ramp(2, 3, 6, seed=2)], [],
     {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "linear"}, 27),
    ("NonZero", [np.array([[1, 0], [0, 2]], np.float32)], [], {}, 13),
    ("Compress", [ramp(3, 4)], [np.array([True, False, True])], {"axis": 0}, 11),
    ("Compress", [ramp(3, 4), np.array([False, True, True])], [], {}, 11),
    ("HannWindow", [], [np.array(10)], {}, 17), ("HammingWindow", [], [np.array(9)], {"periodic": 0}, 17),
    ("BlackmanWindow", [], [np.array(9)], {}, 17),
    ("AffineGrid", [ramp(2, 2, 3)], [i64(2, 3, 4, 5)], {"align_corners": 1}, 20),
]  # fmt: skip


CASES = [
    Case(
        op,
        inputs,
        constants,
        attributes,
        opset,
        outputs=2 if op == "LinearAttention" else 1,
        atol=2e-5,
        since=opset if "reduction" in attributes else 1,
    )
    for op, inputs, constants, attributes, opset in GIVEN
]
