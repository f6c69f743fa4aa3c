"""Small TFLite models of one operator, with values worked out by hand (or by a NumPy formula, as noted)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.support.tflite.models import S, T, single


@dataclass(frozen=True)
class Case:
    """Inputs that are arrays are constants; ``x`` are the model's inputs, in order, in the positions of None."""

    op: str
    inputs: Sequence[Any]
    x: Sequence[Any]
    y: Any
    table: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    type: str = "FLOAT32"
    atol: float = 0.0
    note: str = ""

    def __str__(self) -> str:
        return f"{self.op} {self.note}".strip()


def f32(*numbers: Any) -> Any:
    return np.asarray(numbers[0] if len(numbers) == 1 else numbers, np.float32)


def i32(*numbers: Any) -> Any:
    return np.asarray(numbers[0] if len(numbers) == 1 else numbers, np.int32)


SQUARE = f32(range(1, 17)).reshape(1, 4, 4, 1)
MIXED = f32(-2.5, -1, -0.5, 0, 0.5, 1.5, 2.5, 7)

UNARY = [
    Case("RELU", [None], [MIXED], [0, 0, 0, 0, 0.5, 1.5, 2.5, 7]),
    Case("RELU6", [None], [MIXED], [0, 0, 0, 0, 0.5, 1.5, 2.5, 6]),
    Case("RELU_N1_TO_1", [None], [MIXED], [-1, -1, -0.5, 0, 0.5, 1, 1, 1]),
    Case("RELU_0_TO_1", [None], [MIXED], [0, 0, 0, 0, 0.5, 1, 1, 1]),
    Case("LEAKY_RELU", [None], [f32(-4, 4)], [-1, 4], "LeakyReluOptions", {"alpha": 0.25}),
    Case("LEAKY_RELU", [None], [f32(-4, 4)], [0, 4], "LeakyReluOptions", {"alpha": 0.0}, note="0 is a value"),
    Case("PRELU", [None, f32(0.5, 2)], [f32([[-4, -4], [3, 3]])], [[-2, -8], [3, 3]]),
    Case("ELU", [None], [f32(-1, 2)], [math.expm1(-1), 2], atol=1e-6),
    Case("LOGISTIC", [None], [f32(0, math.log(3))], [0.5, 0.75], atol=1e-6),
    Case("TANH", [None], [f32(0, math.log(2))], [0, 0.6], atol=1e-6),
    Case("HARD_SWISH", [None], [f32(-4, -1, 0, 3, 5)], [0, -1 / 3, 0, 3, 5], atol=1e-6),
    Case("GELU", [None], [f32(-1, 0, 2)], [-0.158655, 0, 1.954500], "GeluOptions", atol=2e-6, note="x Phi(x), tables"),
    Case("GELU", [None], [f32(1)[None]], [0.841192], "GeluOptions", {"approximate": True}, atol=2e-6, note="tanh form"),
    Case("ABS", [None], [f32(-2, 3)], [2, 3]),
    Case("ABS", [None], [i32(-2, 3)], [2, 3], type="INT32"),
    Case("NEG", [None], [f32(-2, 3)], [2, -3]),
    Case("EXP", [None], [f32(0, 1)], [1, math.e], atol=1e-6),
    Case("LOG", [None], [f32(1, math.e)], [0, 1], atol=1e-6),
    Case("SQRT", [None], [f32(4, 9)], [2, 3]),
    Case("RSQRT", [None], [f32(4, 0.25)], [0.5, 2]),
    Case("SQUARE", [None], [f32(-3, 4)], [9, 16]),
    Case("SIN", [None], [f32(0, math.pi / 2)], [0, 1], atol=1e-6),
    Case("COS", [None], [f32(0, math.pi)], [1, -1], atol=1e-6),
    Case("FLOOR", [None], [f32(-1.5, 1.5)], [-2, 1]),
    Case("CEIL", [None], [f32(-1.5, 1.5)], [-1, 2]),
    Case("ROUND", [None], [f32(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.6)], [-2, -2, 0, 0, 2, 2, 3], note="half to even"),
    Case("SIGN", [None], [f32(-7, 0, 0.5)], [-1, 0, 1]),
    Case("SOFTMAX", [None], [f32([[0, math.log(3)]])], [[0.25, 0.75]], "SoftmaxOptions", {"beta": 1.0}, atol=1e-6),
    Case("SOFTMAX", [None], [f32([[0, math.log(3)]])], [[0.1, 0.9]], "SoftmaxOptions", {"beta": 2.0}, atol=1e-6),
    Case("LOG_SOFTMAX", [None], [f32([[0, math.log(3)]])], [[math.log(0.25), math.log(0.75)]], atol=1e-6),
    Case("L2_NORMALIZATION", [None], [f32([[3, 4], [0, 0]])], [[0.6, 0.8], [0, 0]], atol=1e-6),
    Case(
        "LOCAL_RESPONSE_NORMALIZATION", [None], [f32(1, 2, 3).reshape(1, 1, 1, 3)],
        [[[[1 / 6, 2 / 15, 3 / 14]]]], "LocalResponseNormalizationOptions",
        {"radius": 1, "bias": 1.0, "alpha": 1.0, "beta": 1.0}, atol=1e-6, note="1 + 1+4, 1 + 1+4+9, 1 + 4+9",
    ),
    Case("CUMSUM", [None, i32(0)], [f32([[1, 2], [3, 4]])], [[1, 2], [4, 6]], "CumsumOptions"),
    Case("CUMSUM", [None, i32(-1)], [f32(1, 2, 4)], [6, 4, 0], "CumsumOptions", {"exclusive": True, "reverse": True}),
]  # fmt: skip

BINARY = [
    Case("ADD", [None, None], [f32([[1], [2]]), f32(10, 20)], [[11, 21], [12, 22]], "AddOptions"),
    Case("ADD", [None, f32(10, -20)], [f32(1, 2)], [11, 0], "AddOptions", {"fused_activation_function": 1}),
    Case("ADD", [None, i32(5)], [i32(1, -2)], [6, 3], "AddOptions", type="INT32"),
    Case("SUB", [f32(1, 2), None], [f32([[1, 1]])], [[0, 1]], "SubOptions", note="constant on the left"),
    Case("MUL", [None, f32(2)], [f32(3, -4)], [6, -8], "MulOptions", note="rank 0"),
    Case("DIV", [None, f32(4)[None]], [f32(3, -4)], [0.75, -1], "DivOptions"),
    Case("DIV", [None, i32(2, 2)], [i32(7, -7)], [3, -3], "DivOptions", type="INT32", note="toward zero"),
    Case("FLOOR_DIV", [None, i32(2, 2)], [i32(7, -7)], [3, -4], type="INT32"),
    Case("FLOOR_MOD", [None, f32(3, -3)], [f32(7, 7)], [1, -2]),
    Case("MAXIMUM", [None, f32(0, 5)], [f32(1, 2)], [1, 5]),
    Case("MINIMUM", [None, f32(0, 5)], [f32(1, 2)], [0, 2]),
    Case("SQUARED_DIFFERENCE", [None, f32(1)], [f32(3, -1)], [4, 4]),
    Case("ADD_N", [None, None, None], [f32(1, 2), f32(3, 4), f32(5, 6)], [9, 12]),
    Case("POW", [None, f32(2)], [f32(-3, 4)], [9, 16]),
    Case("POW", [None, f32(3)], [f32(-3, 4)], [-27, 64]),
    Case("POW", [None, f32(0)], [f32(0, 4)], [1, 1]),
    Case("POW", [None, f32(-2)], [f32(-2, 4)], [0.25, 0.0625], atol=1e-6),
    Case(
        "POW", [None, None], [f32(0, -2, -2, -2, 4, 0), f32(0, 3, 2, 0.5, 0.5, 2)], [1, -8, 4, math.nan, 2, 0],
        atol=1e-5
    ),
    Case("EQUAL", [None, f32(1, 2)], [f32(1, 3)], [True, False], type="BOOL"),
    Case("NOT_EQUAL", [None, i32(1, 2)], [i32(1, 3)], [False, True], type="BOOL"),
    Case("LESS", [None, f32(2)], [f32(1, 2, 3)], [True, False, False], type="BOOL"),
    Case("LESS_EQUAL", [None, f32(2)], [f32(1, 2, 3)], [True, True, False], type="BOOL"),
    Case("GREATER", [None, f32(2)], [f32(1, 2, 3)], [False, False, True], type="BOOL"),
    Case("GREATER_EQUAL", [None, f32(2)], [f32(1, 2, 3)], [False, True, True], type="BOOL"),
    Case("LOGICAL_AND", [None, None], [np.array([1, 1, 0], bool), np.array([1, 0, 0], bool)], [1, 0, 0], type="BOOL"),
    Case("LOGICAL_OR", [None, None], [np.array([1, 1, 0], bool), np.array([1, 0, 0], bool)], [1, 1, 0], type="BOOL"),
    Case("LOGICAL_NOT", [None], [np.array([1, 0], bool)], [0, 1], type="BOOL"),
    Case("SELECT", [None, f32(1, 2), None], [np.array([1, 0], bool), f32(8, 9)], [1, 9]),
    Case(
        "SELECT", [None, None, f32([[7, 7], [7, 7]])], [np.array([1, 0], bool), f32([[1, 2], [3, 4]])],
        [[1, 2], [7, 7]], note="one condition per row",
    ),
    Case("SELECT_V2", [None, None, f32(0)], [np.array([[1], [0]], bool), f32(1, 2)], [[1, 2], [0, 0]]),
]  # fmt: skip

WINDOWS = [
    Case(
        "CONV_2D", [None, f32([1, 0, 0, 1]).reshape(1, 2, 2, 1), f32(100)[None]], [SQUARE],
        (100 + f32([7, 9, 11, 15, 17, 19, 23, 25, 27])).reshape(1, 3, 3, 1), "Conv2DOptions",
        {"padding": 1, "stride_h": 1, "stride_w": 1}, note="VALID",
    ),
    Case(
        "CONV_2D", [None, f32([1, 1, 1, 1]).reshape(1, 2, 2, 1)], [f32(range(1, 10)).reshape(1, 3, 3, 1)],
        f32([12, 16, 9, 24, 28, 15, 15, 17, 9]).reshape(1, 3, 3, 1), "Conv2DOptions",
        {"padding": 0, "stride_h": 1, "stride_w": 1}, note="SAME: the odd row and column of padding come last",
    ),
    Case(
        "CONV_2D", [None, f32([1, 1]).reshape(1, 2, 1, 1)], [SQUARE],
        f32([10, 12, 14, 16, 18, 20, 22, 24]).reshape(1, 2, 4, 1),
        "Conv2DOptions", {"padding": 1, "stride_h": 1, "stride_w": 1, "dilation_h_factor": 2}, note="dilated",
    ),
    Case(
        "CONV_2D", [None, f32([1, 10]).reshape(2, 1, 1, 1)], [f32(3, 4).reshape(1, 1, 1, 2)], [[[[3, 40]]]],
        "Conv2DOptions", {"padding": 1, "stride_h": 1, "stride_w": 1}, note="two groups",
    ),
    Case(
        "DEPTHWISE_CONV_2D", [None, f32([1, 2, 3, 4]).reshape(1, 1, 1, 4), f32(0, 0, 0, 1)],
        [f32(1, 10).reshape(1, 1, 1, 2)],
        [[[[1, 2, 30, 41]]]], "DepthwiseConv2DOptions",
        {"padding": 1, "stride_h": 1, "stride_w": 1, "depth_multiplier": 2}, note="two results per channel",
    ),
    Case(
        "TRANSPOSE_CONV", [i32(1, 2, 5, 1), f32([1, 2, 3]).reshape(1, 1, 3, 1), None],
        [f32(1, 10, 1, 1).reshape(1, 2, 2, 1)],
        f32([[1, 2, 13, 20, 30], [1, 2, 4, 2, 3]]).reshape(1, 2, 5, 1), "TransposeConvOptions",
        {"padding": 1, "stride_h": 1, "stride_w": 2}, note="VALID",
    ),
    Case(
        "TRANSPOSE_CONV", [i32(1, 1, 4, 1), f32([1, 2]).reshape(1, 1, 2, 1), None, f32(100)[None]],
        [f32(1, 10).reshape(1, 1, 2, 1)], f32([101, 102, 110, 120]).reshape(1, 1, 4, 1), "TransposeConvOptions",
        {"padding": 0, "stride_h": 1, "stride_w": 2}, note="SAME with a bias",
    ),
    Case(
        "TRANSPOSE_CONV", [i32(1, 1, 4, 1), f32([5]).reshape(1, 1, 1, 1), None],
        [f32(1, 10).reshape(1, 1, 2, 1)], f32([5, 0, 50, 0]).reshape(1, 1, 4, 1), "TransposeConvOptions",
        {"padding": 0, "stride_h": 1, "stride_w": 2}, note="a last column that no window reaches",
    ),
    Case(
        "MAX_POOL_2D", [None], [SQUARE], f32([6, 8, 14, 16]).reshape(1, 2, 2, 1), "Pool2DOptions",
        {"padding": 1, "stride_h": 2, "stride_w": 2, "filter_height": 2, "filter_width": 2},
    ),
    Case(
        "AVERAGE_POOL_2D", [None], [f32(range(1, 10)).reshape(1, 3, 3, 1)],
        f32([3, 4, 4.5, 6, 7, 7.5, 7.5, 8.5, 9]).reshape(1, 3, 3, 1), "Pool2DOptions",
        {"padding": 0, "stride_h": 1, "stride_w": 1, "filter_height": 2, "filter_width": 2},
        note="padding is not counted",
    ),
    Case(
        "L2_POOL_2D", [None], [f32(1, 7).reshape(1, 1, 2, 1)], [[[[5]]]], "Pool2DOptions",
        {"padding": 1, "stride_h": 1, "stride_w": 1, "filter_height": 1, "filter_width": 2},
    ),
    Case(
        "RESIZE_NEAREST_NEIGHBOR", [None, i32(2, 4)], [f32(1, 2).reshape(1, 1, 2, 1)],
        f32([1, 1, 2, 2, 1, 1, 2, 2]).reshape(1, 2, 4, 1), "ResizeNearestNeighborOptions",
    ),
    Case(
        "RESIZE_NEAREST_NEIGHBOR", [None, i32(1, 3)], [f32(1, 2).reshape(1, 1, 2, 1)],
        f32([1, 1, 2]).reshape(1, 1, 3, 1), "ResizeNearestNeighborOptions", note="floor(o * 2/3)",
    ),
    Case(
        "RESIZE_BILINEAR", [None, i32(1, 4)], [f32(1, 3).reshape(1, 1, 2, 1)],
        f32([1, 2, 3, 3]).reshape(1, 1, 4, 1), "ResizeBilinearOptions", note="asymmetric",
    ),
    Case(
        "RESIZE_BILINEAR", [None, i32(1, 4)], [f32(1, 3).reshape(1, 1, 2, 1)],
        f32([1, 1.5, 2.5, 3]).reshape(1, 1, 4, 1), "ResizeBilinearOptions", {"half_pixel_centers": True},
    ),
    Case(
        "RESIZE_BILINEAR", [None, i32(1, 3)], [f32(1, 3).reshape(1, 1, 2, 1)],
        f32([1, 2, 3]).reshape(1, 1, 3, 1), "ResizeBilinearOptions", {"align_corners": True},
    ),
]  # fmt: skip

MOVES = [
    Case(
        "RESHAPE", [None, i32(3, -1)], [f32(range(6))], f32(range(6)).reshape(3, 2), "ReshapeOptions",
        {"new_shape": (3, -1)},
    ),
    Case("RESHAPE", [None], [f32(range(6))], f32(range(6)).reshape(2, 3), "ReshapeOptions", {"new_shape": (2, 3)}),
    Case("SQUEEZE", [None], [f32([[[1], [2]]])], [[1], [2]], "SqueezeOptions", {"squeeze_dims": (0,)}),
    Case("SQUEEZE", [None], [f32([[[1], [2]]])], [1, 2], "SqueezeOptions", note="all unit axes"),
    Case("EXPAND_DIMS", [None, i32(-1)], [f32(1, 2)], [[1], [2]]),
    Case("TRANSPOSE", [None, i32(1, 0)], [f32([[1, 2, 3]])], [[1], [2], [3]]),
    Case("CONCATENATION", [None, f32([[9]])], [f32([[1, 2]])], [[1, 2, 9]], "ConcatenationOptions", {"axis": -1}),
    Case("PACK", [None, None], [f32(1, 2), f32(3, 4)], [[1, 3], [2, 4]], "PackOptions", {"axis": 1, "values_count": 2}),
    Case("TILE", [None, i32(2, 1)], [f32([[1, 2]])], [[1, 2], [1, 2]]),
    Case("BROADCAST_TO", [None, i32(2, 2)], [f32(1, 2)], [[1, 2], [1, 2]]),
    Case("PAD", [None, i32([[1, 0], [0, 1]])], [f32([[1, 2]])], [[0, 0, 0], [1, 2, 0]]),
    Case("PADV2", [None, i32([[1, 1]]), f32(-5)], [f32(1, 2)], [-5, 1, 2, -5]),
    Case("MIRROR_PAD", [None, i32([[2, 1]])], [f32(1, 2, 3)], [3, 2, 1, 2, 3, 2], "MirrorPadOptions", {"mode": 0}),
    Case("MIRROR_PAD", [None, i32([[2, 1]])], [f32(1, 2, 3)], [2, 1, 1, 2, 3, 3], "MirrorPadOptions", {"mode": 1}),
    Case(
        "SPACE_TO_DEPTH", [None], [f32([[1, 2], [3, 4]]).reshape(1, 2, 2, 1)], [[[[1, 2, 3, 4]]]],
        "SpaceToDepthOptions", {"block_size": 2},
    ),
    Case(
        "DEPTH_TO_SPACE", [None], [f32([1, 2, 3, 4]).reshape(1, 1, 1, 4)], f32([[1, 2], [3, 4]]).reshape(1, 2, 2, 1),
        "DepthToSpaceOptions", {"block_size": 2},
    ),
    Case(
        "SPACE_TO_BATCH_ND", [None, i32(1, 2), i32([[0, 0], [0, 1]])], [f32(1, 2, 3).reshape(1, 1, 3, 1)],
        f32([[1, 3], [2, 0]]).reshape(2, 1, 2, 1),
    ),
    Case(
        "SPACE_TO_BATCH_ND", [None, i32(2)[None], i32([[0, 1]])], [f32(1, 2, 3).reshape(1, 3, 1)],
        f32([[1, 3], [2, 0]]).reshape(2, 2, 1), note="rank 3",
    ),
    Case(
        "BATCH_TO_SPACE_ND", [None, i32(1, 2), i32([[0, 0], [0, 1]])], [f32([[1, 3], [2, 0]]).reshape(2, 1, 2, 1)],
        f32(1, 2, 3).reshape(1, 1, 3, 1),
    ),
    Case(
        "BATCH_TO_SPACE_ND", [None, i32(2)[None], i32([[0, 1]])], [f32([[1, 3], [2, 0]]).reshape(2, 2, 1)],
        f32(1, 2, 3).reshape(1, 3, 1), note="rank 3",
    ),
    Case(
        "STRIDED_SLICE", [None, i32(0, 3), i32(2, 0), i32(1, -2)], [f32([[1, 2, 3, 4], [5, 6, 7, 8]])],
        [[4, 2], [8, 6]], "StridedSliceOptions", note="falling",
    ),
    Case(
        "STRIDED_SLICE", [None, i32(1, 1), i32(0, 0), i32(1, 1)], [f32([[1, 2, 3], [4, 5, 6]])], [5, 6],
        "StridedSliceOptions", {"shrink_axis_mask": 1, "end_mask": 2},
    ),
    Case(
        "STRIDED_SLICE", [None, i32(0, 0, -1), i32(0, 0, 9), i32(1, 1, 1)], [f32([[1, 2, 3], [4, 5, 6]])],
        [[[3], [6]]], "StridedSliceOptions", {"new_axis_mask": 1, "ellipsis_mask": 2},
    ),
    Case(
        "STRIDED_SLICE", [None, i32(1)[None], i32(2)[None], i32(1)[None]], [f32(1, 2, 3, 4)], [2, 3],
        "StridedSliceOptions", {"offset": True}, note="the end counts from the beginning of the slice",
    ),
    Case("SLICE", [None, i32(0, 1), i32(1, -1)], [f32([[1, 2, 3], [4, 5, 6]])], [[2, 3]]),
    Case("GATHER", [None, i32(2, 0)], [f32([[1, 2, 3]])], [[3, 1]], "GatherOptions", {"axis": 1}),
    Case(
        "GATHER", [None, i32(1)], [f32([[1, 2], [3, 4]])], [3, 4], "GatherOptions",
        note="a rank 0 index drops the axis",
    ),
    Case(
        "GATHER", [None, None], [f32(10, 20, 30), i32([[2], [1]])], [[30], [20]], "GatherOptions",
        note="run-time index",
    ),
    Case("GATHER_ND", [None, i32([[1, 0], [0, 1]])], [f32([[1, 2], [3, 4]])], [3, 2]),
    Case("GATHER_ND", [None, None], [f32([[1, 2], [3, 4]]), i32([[1], [0]])], [[3, 4], [1, 2]], note="run-time rows"),
    Case("EMBEDDING_LOOKUP", [None, f32([[1, 2], [3, 4]])], [i32(1, 1, 0)], [[3, 4], [3, 4], [1, 2]]),
    Case("REVERSE_V2", [None, i32(1)[None]], [f32([[1, 2, 3]])], [[3, 2, 1]]),
    Case(
        "ONE_HOT", [None, i32(3), f32(5), f32(-1)], [i32(2, 0)], [[-1, -1, 5], [5, -1, -1]], "OneHotOptions",
        {"axis": -1},
    ),
    Case("ONE_HOT", [None, i32(2), f32(1), f32(0)], [i32(1, 0)], [[0, 1], [1, 0]], "OneHotOptions", {"axis": 0}),
    Case("CAST", [None], [f32(-1.7, 1.7)], [-1, 1], "CastOptions", type="INT32", note="toward zero"),
    Case("CAST", [None], [i32(-3, 4)], [-3, 4], "CastOptions"),
    Case("CAST", [None], [f32(-0.5, 0)], [True, False], "CastOptions", type="BOOL"),
    Case("CAST", [None], [np.array([1, 0], bool)], [1, 0], "CastOptions", type="INT32"),
    Case("ZEROS_LIKE", [None], [f32(3, 4)], [0, 0]),
    Case("FILL", [i32(2, 2), None], [f32(7)], [[7, 7], [7, 7]]),
]  # fmt: skip

RARE = [
    Case(
        "GATHER", [None, None], [f32([[10, 20], [30, 40]]), i32([[1, 1, 0], [0, 1, 1]])],
        [[20, 20, 10], [30, 40, 40]], "GatherOptions", {"axis": 1, "batch_dims": 1}, note="indices per batch",
    ),
    Case("BITWISE_XOR", [None, i32(6, 1)], [i32(3, 1)], [5, 0], type="INT32"),
    Case("BITWISE_XOR", [None, np.array([1, 0], bool)], [np.array([1, 1], bool)], [0, 1], type="BOOL"),
    Case("RIGHT_SHIFT", [None, i32(1, 2)], [i32(-3, 9)], [-2, 2], type="INT32"),
    Case(
        "BUCKETIZE", [None], [f32(-1, 0, 5, 99)], [0, 1, 1, 3], "BucketizeOptions", {"boundaries": f32(0, 10, 50)},
        "INT32",
    ),
    Case("MATRIX_DIAG", [None], [f32([[1, 2]])], [[[1, 0], [0, 2]]]),
    Case("SCATTER_ND", [i32([[2], [0], [2]]), None, i32(4)[None]], [f32(1, 2, 3)], [2, 0, 4, 0], note="places twice"),
    Case("SCATTER_ND", [i32([[1, 0]]), None, i32(2, 2)], [f32(7)[None]], [[0, 0], [7, 0]]),
    Case("SEGMENT_SUM", [None, i32(0, 0, 2)], [f32([[1, 2], [3, 4], [5, 6]])], [[4, 6], [0, 0], [5, 6]]),
    Case("UNSORTED_SEGMENT_SUM", [None, i32(1, 0, 1), i32(2)], [i32(1, 2, 4)], [2, 5], type="INT32"),
    Case(
        "FAKE_QUANT", [None], [f32(-1, 0.004, 1.006, 9)], [0, 0, 1.01, 2.55], "FakeQuantOptions",
        {"min": 0.0, "max": 2.55, "num_bits": 8}, atol=1e-6, note="256 steps of 0.01",
    ),
    Case(
        "FAKE_QUANT", [None], [f32(-9, -0.6, 0.4, 9)], [-2, -1, 0, 1], "FakeQuantOptions",
        {"min": -1.9, "max": 1.1, "num_bits": 2}, note="four steps of 1, moved so that 0 is one of them",
    ),
]  # fmt: skip

STABLEHLO = [
    Case("STABLEHLO_CLAMP", [f32(0), None, f32(1, 5)], [f32(-1, 9)], [0, 5]),
    Case("STABLEHLO_REMAINDER", [None, f32(3, 3)], [f32(7, -7)], [1, -1]),
    Case("STABLEHLO_CBRT", [None], [f32(8, -27, 0)], [2, -3, 0], atol=1e-5),
    Case("STABLEHLO_AND", [None, np.array([1, 0], bool)], [np.array([1, 1], bool)], [1, 0], type="BOOL"),
    Case("STABLEHLO_OR", [None, np.array([1, 0], bool)], [np.array([0, 0], bool)], [1, 0], type="BOOL"),
    Case(
        "STABLEHLO_PAD", [None, f32(9)], [f32(1, 2)], [9, 1, 2, 9, 9], "StablehloPadOptions",
        {"edge_padding_low": [1], "edge_padding_high": [2], "interior_padding": [0]},
    ),
    Case("STABLEHLO_SHIFT_LEFT", [None, i32(1, 3)], [i32(-3, 5)], [-6, 40], type="INT32"),
    Case("STABLEHLO_IOTA", [], [], [[0, 1, 2], [0, 1, 2]], "StablehloIotaOptions", {"iota_dimension": 1}),
    Case(
        "STABLEHLO_DOT_GENERAL", [None, f32([[1, 10], [2, 20]])], [f32([[1, 2], [3, 4]])], [[21, 42], [43, 86]],
        "StablehloDotGeneralOptions", {"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": [1]},
        note="both by their last axis",
    ),
    Case(
        "STABLEHLO_DOT_GENERAL", [None, None], [f32([[1, 2], [3, 4]]), f32([[5, 6], [7, 8]])], [26, 44],
        "StablehloDotGeneralOptions",
        {"lhs_batching_dimensions": [1], "rhs_batching_dimensions": [1],
         "lhs_contracting_dimensions": [0], "rhs_contracting_dimensions": [0]},
        note="columns times columns",
    ),
    Case(
        "STABLEHLO_CONVOLUTION", [None, f32([1, 10]).reshape(1, 2, 1, 1)], [SQUARE],
        f32([21, 43, 65, 87, 109, 131, 153, 175]).reshape(1, 4, 2, 1), "StablehloConvolutionOptions",
        {"window_strides": [1, 2], "padding": [0, 0, 0, 0], "input_batch_dimension": 0, "input_feature_dimension": 3,
         "input_spatial_dimensions": [1, 2], "kernel_input_feature_dimension": 3, "kernel_output_feature_dimension": 2,
         "kernel_spatial_dimensions": [0, 1], "output_batch_dimension": 0, "output_feature_dimension": 3,
         "output_spatial_dimensions": [1, 2], "feature_group_count": 1, "batch_group_count": 1},
        note="channels last, stride 2 across",
    ),
    Case(
        "STABLEHLO_CONVOLUTION", [None, f32([1, 10, 100]).reshape(1, 1, 3)], [f32([[[1, 2, 3]]])],
        [[[10, 102, 20, 203, 30]]], "StablehloConvolutionOptions",
        {"padding": [1, 1], "lhs_dilation": [2], "window_reversal": np.array([True]), "input_batch_dimension": 0,
         "input_feature_dimension": 1, "input_spatial_dimensions": [2], "kernel_input_feature_dimension": 1,
         "kernel_output_feature_dimension": 0, "kernel_spatial_dimensions": [2], "output_batch_dimension": 0,
         "output_feature_dimension": 1, "output_spatial_dimensions": [2], "feature_group_count": 1,
         "batch_group_count": 1},
        note="0 1 0 2 0 3 0 under 100 10 1",
    ),
    Case(
        "STABLEHLO_DYNAMIC_SLICE", [None, i32(1), i32(9)], [f32([[1, 2, 3], [4, 5, 6]])], [[5, 6]],
        "StablehloDynamicSliceOptions", {"slice_sizes": [1, 2]}, note="the second corner moves back",
    ),
    Case(
        "STABLEHLO_DYNAMIC_SLICE", [None, None], [f32(1, 2, 3, 4), i32(3)], [3, 4],
        "StablehloDynamicSliceOptions", {"slice_sizes": [2]}, note="a run-time corner moves back too",
    ),
    Case(
        "STABLEHLO_DYNAMIC_UPDATE_SLICE", [None, None, i32(0), i32(1)], [f32([[1, 2, 3], [4, 5, 6]]), f32([[7, 8]])],
        [[1, 7, 8], [4, 5, 6]],
    ),
    Case("STABLEHLO_LOGISTIC", [None], [f32(0)[None]], [0.5]),
    Case("STABLEHLO_TANH", [None], [f32(0)[None]], [0]),
    Case("STABLEHLO_ADD", [None, f32(1, 2)], [f32(3, 4)], [4, 6]),
    Case("STABLEHLO_SUBTRACT", [None, f32(1, 2)], [f32(3, 4)], [2, 2]),
    Case("STABLEHLO_MULTIPLY", [None, f32(1, 2)], [f32(3, 4)], [3, 8]),
    Case("STABLEHLO_DIVIDE", [None, f32(2, 2)], [f32(3, 4)], [1.5, 2]),
    Case("STABLEHLO_MAXIMUM", [None, f32(1, 9)], [f32(3, 4)], [3, 9]),
    Case("STABLEHLO_MINIMUM", [None, f32(1, 9)], [f32(3, 4)], [1, 4]),
    Case("STABLEHLO_POWER", [None, f32(2)], [f32(3, -4)], [9, 16]),
    Case("STABLEHLO_ABS", [None], [f32(-3, 4)], [3, 4]),
    Case("STABLEHLO_EXPONENTIAL", [None], [f32(0)[None]], [1]),
    Case("STABLEHLO_LOG", [None], [f32(1)[None]], [0]),
    Case("STABLEHLO_RSQRT", [None], [f32(4)[None]], [0.5]),
    Case("STABLEHLO_COSINE", [None], [f32(0)[None]], [1]),
    Case("STABLEHLO_FLOOR", [None], [f32(-0.5)[None]], [-1]),
    Case("STABLEHLO_NEGATE", [None], [f32(3, -4)], [-3, 4]),
    Case("STABLEHLO_SELECT", [None, f32(1, 2), f32(3, 4)], [np.array([0, 1], bool)], [3, 2]),
    Case(
        "STABLEHLO_COMPARE", [None, f32(2, 2)], [f32(1, 2)], [False, True],
        "StablehloCompareOptions", {"comparison_direction": 2}, "BOOL", note="GE",
    ),
    Case("STABLEHLO_RESHAPE", [None], [f32(1, 2)], [[1], [2]]),
    Case("STABLEHLO_CONVERT", [None], [f32(-1.5, 2.5)], [-1, 2], type="INT32"),
    Case(
        "STABLEHLO_CONCATENATE", [None, f32([[9]])], [f32([[1, 2]])], [[1, 2, 9]],
        "StablehloConcatenateOptions", {"dimension": 1},
    ),
    Case(
        "STABLEHLO_SLICE", [None], [f32(0, 1, 2, 3, 4)], [1, 3], "StablehloSliceOptions",
        {"start_indices": [1], "limit_indices": [5], "strides": [2]},
    ),
    Case(
        "STABLEHLO_TRANSPOSE", [None], [f32([[1, 2]])], [[1], [2]], "StablehloTransposeOptions",
        {"permutation": [1, 0]},
    ),
    Case(
        "STABLEHLO_BROADCAST_IN_DIM", [None, i32(2, 2)], [f32(1, 2)], [[1, 1], [2, 2]],
        "StablehloBroadcastInDimOptions", {"broadcast_dimensions": [0]},
    ),
]  # fmt: skip

REDUCTIONS = [
    Case("MEAN", [None, i32(1)[None]], [f32([[1, 3], [5, 9]])], [2, 7], "ReducerOptions"),
    Case("MEAN", [None, i32(-1)[None]], [f32([[1, 3], [5, 9]])], [[2], [7]], "ReducerOptions", {"keep_dims": True}),
    Case("SUM", [None, i32(0, 1)], [f32([[1, 3], [5, 9]])], 18, "ReducerOptions", note="rank 0"),
    Case("SUM", [None, i32(0)[None]], [i32([[1, 3], [5, 9]])], [6, 12], "ReducerOptions", type="INT32"),
    Case("REDUCE_MAX", [None, i32(0)[None]], [f32([[1, 9], [5, 3]])], [5, 9], "ReducerOptions"),
    Case("REDUCE_MIN", [None, i32(0)[None]], [f32([[1, 9], [5, 3]])], [1, 3], "ReducerOptions"),
    Case("REDUCE_PROD", [None, i32(1)[None]], [f32([[2, 3], [4, 5]])], [6, 20], "ReducerOptions"),
    Case("REDUCE_ANY", [None, i32(0)[None]], [np.array([[1, 0], [0, 0]], bool)], [1, 0], "ReducerOptions", type="BOOL"),
    Case("REDUCE_ALL", [None, i32(0)[None]], [np.array([[1, 1], [0, 1]], bool)], [0, 1], "ReducerOptions", type="BOOL"),
    Case(
        "ARG_MAX", [None, i32(1)], [f32([[1, 7, 7], [9, 2, 3]])], [1, 0], "ArgMaxOptions", {"output_type": 4},
        "INT64",
    ),
    Case(
        "ARG_MIN", [None, i32(-1)], [f32([[1, 7, 7], [9, 2, 3]])], [0, 1], "ArgMinOptions", {"output_type": 2},
        "INT32",
    ),
]  # fmt: skip

PRODUCTS = [
    Case(
        "FULLY_CONNECTED", [None, f32([[1, 2], [3, 4], [0, 1]]), f32(0, 10, -9)], [f32([[1, 1], [2, 0]])],
        [[3, 17, 0], [2, 16, 0]], "FullyConnectedOptions", {"fused_activation_function": 1},
    ),
    Case(
        "FULLY_CONNECTED", [None, f32([[1, 2]])], [f32([[[1, 1], [2, 0]]])], [[3], [2]], "FullyConnectedOptions",
        note="rank 3 becomes rows",
    ),
    Case(
        "FULLY_CONNECTED", [None, f32([[1, 2]])], [f32([[[1, 1], [2, 0]]])], [[[3], [2]]], "FullyConnectedOptions",
        {"keep_num_dims": True},
    ),
    Case(
        "FULLY_CONNECTED", [None, None], [f32([[1, 2]]), f32([[3, 4]])], [[11]], "FullyConnectedOptions",
        note="run-time weights",
    ),
    Case("BATCH_MATMUL", [None, f32([[1], [10]])], [f32([[[1, 2]], [[3, 4]]])], [[[21]], [[43]]], "BatchMatMulOptions"),
    Case(
        "BATCH_MATMUL", [None, None], [f32([[[1, 2]], [[3, 4]]]), f32([[[1], [1]], [[2], [2]]])], [[[3]], [[14]]],
        "BatchMatMulOptions",
    ),
    Case(
        "BATCH_MATMUL", [None, None], [f32([[[1], [2]]]), f32([[[1, 1]], [[2, 2]]])], [[[3]], [[6]]],
        "BatchMatMulOptions", {"adj_x": True, "adj_y": True}, note="transposed, one left side for both",
    ),
]  # fmt: skip

CASES = [*UNARY, *BINARY, *WINDOWS, *MOVES, *RARE, *STABLEHLO, *REDUCTIONS, *PRODUCTS]


def subgraph_of(case: Case) -> S:
    """The case as a subgraph with one operator."""
    given = iter(case.x)
    tensors = []
    for constant in case.inputs:
        if constant is None:
            array = np.asarray(next(given))
            tensors.append(T(shape=array.shape, type=array.dtype.name.upper()))
        else:
            tensors.append(T(data=constant))
    return single(case.op, tensors, [T(shape=np.asarray(case.y).shape, type=case.type)], case.table, **case.options)
