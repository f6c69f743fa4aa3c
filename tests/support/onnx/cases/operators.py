"""Operators of common networks, and the attributes that change their results."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.support.onnx.cases.case import Case, a, i64
from tests.support.onnx.models import ramp

X = ramp(2, 3, 4)
IMAGE = ramp(2, 4, 7, 6, seed=5)
POSITIVE = ramp(2, 3, 4, low=0.1, high=5.0)
SMALL = ramp(2, 3, 4, low=-0.9, high=0.9)
TRUTH = (X > 0, ramp(2, 3, 4, seed=9) > 0)
INTS = np.array([[7, -7, 5], [-3, 0, 9]], np.int64)
DIVISORS = np.array([[2, 2, -3], [-2, 5, 4]], np.int64)

UNARY = [
    *(Case(op, [X]) for op in ("Relu", "Sigmoid", "Tanh", "Exp", "Abs", "Neg", "Floor", "Ceil", "Sign", "Erf", "Round",
                               "Sin", "Cos", "Softplus", "Softsign", "HardSwish", "Sinh", "Cosh", "Identity")),
    *(Case(op, [POSITIVE]) for op in ("Log", "Sqrt", "Reciprocal")),
    *(Case(op, [SMALL]) for op in ("Tan", "Atanh", "Asinh")),
    Case("Acosh", [POSITIVE + 1]),
    Case("Round", [np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 3.0], np.float32)]),
    Case("LeakyRelu", [X]), Case("LeakyRelu", [X], attributes=a(alpha=0.0)),
    Case("Elu", [X]), Case("Elu", [X], attributes=a(alpha=0.5)), Case("Selu", [X]),
    Case("Celu", [X], attributes=a(alpha=2.0)),
    Case("HardSigmoid", [X]), Case("HardSigmoid", [X], attributes=a(alpha=0.0, beta=0.25)),
    Case("ThresholdedRelu", [X], attributes=a(alpha=0.7)), Case("Shrink", [X], attributes=a(bias=0.2, lambd=0.5)),
    Case("Mish", [X], opset=18), Case("Gelu", [X], opset=20),
    Case("Gelu", [X], attributes=a(approximate="tanh"), opset=20),
    Case("Swish", [X], attributes=a(alpha=1.5), opset=24),
    Case("PRelu", [X], [ramp(4, seed=2)]), Case("PRelu", [X], [np.array([0.25], np.float32)]),
    Case("Clip", [X], [np.float32(-1), np.float32(1)]), Case("Clip", [X], [None, np.float32(1)]), Case("Clip", [X]),
    Case("Clip", [X], attributes=a(min=-0.5, max=0.0), opset=6), Case("Clip", [INTS], [np.int64(-2), np.int64(6)]),
    Case("Clip", [X, np.float32(-1)], [np.float32(1)]),
    Case("Abs", [INTS]), Case("Sign", [INTS]), Case("Not", [TRUTH[0]]),
    Case("IsNaN", [np.array([1, np.nan, np.inf], np.float32)]),
    Case("IsInf", [np.array([1, -np.inf, np.inf, np.nan], np.float32)]),
    Case("IsInf", [np.array([1, -np.inf, np.inf, np.nan], np.float32)], attributes=a(detect_negative=0)),
    Case("Cast", [X * 3], attributes=a(to=TensorProto.INT32)), Case("Cast", [X], attributes=a(to=TensorProto.BOOL)),
    Case("Cast", [INTS], attributes=a(to=TensorProto.FLOAT)),
    Case("Cast", [TRUTH[0]], attributes=a(to=TensorProto.INT64)),
    Case("Dropout", [X], opset=13), Case("Dropout", [X], outputs=2, opset=13, since=12),
]  # fmt: skip

BINARY = [
    *(Case(op, [X, ramp(3, 1, seed=1)]) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")),
    *(Case(op, [X], [np.float32(2)]) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")),
    *(Case(op, [ramp(1, seed=3)], [X]) for op in ("Sub", "Div")),
    *(Case(op, [np.float32(1.5), np.float32(-2.5)]) for op in ("Add", "Sub")),
    *(Case(op, [INTS, DIVISORS]) for op in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")),
    Case("Mod", [INTS, DIVISORS], attributes=a(fmod=1)), Case("Mod", [X, POSITIVE], attributes=a(fmod=1)),
    *(Case(op, [X, ramp(3, 4, seed=1)]) for op in ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")),
    *(Case(op, [INTS], [np.int64(0)]) for op in ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")),
    *(Case(op, list(TRUTH)) for op in ("And", "Or", "Xor")),
    *(Case(op, [np.array([[5, -6], [7, 0]], np.int32)], [np.array([3, 12], np.int32)], {}, 18)
      for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    Case("BitwiseNot", [np.array([0, 5, 255], np.uint8)], [], {}, 18), Case("BitwiseNot", [INTS], [], {}, 18),
    *(Case(op, [X, ramp(4, seed=1), ramp(3, 1, seed=2)]) for op in ("Max", "Min", "Sum", "Mean")),
    Case("Where", [TRUTH[0], X, ramp(1, seed=1)]), Case("Where", [TRUTH[0]], [np.float32(1), X]),
    Case("Where", [INTS > 0, INTS, DIVISORS]), Case("Where", [TRUTH[0][0], X, X[0]]),
    *(Case("Pow", [X], [np.float32(power)]) for power in (0, 1, 2, 3, 7)),
    *(Case("Pow", [POSITIVE], [np.float32(power)], atol=1e-4) for power in (0.5, -0.5, -1, -2, 2.5)),
    Case("Pow", [POSITIVE, ramp(4, seed=1)], atol=2e-4), Case("Pow", [INTS], [np.int64(3)]),
]  # fmt: skip

WINDOWS = [
    Case("Conv", [IMAGE], [ramp(5, 4, 3, 3, seed=1), ramp(5, seed=2)], a(pads=[1, 0, 2, 1], strides=[2, 1])),
    Case("Conv", [IMAGE], [ramp(8, 1, 3, 3, seed=1)], a(group=4, dilations=[2, 1])),
    *(Case("Conv", [IMAGE], [ramp(5, 4, 2, 3, seed=1)], a(auto_pad=p, strides=[2, 2]))
      for p in ("SAME_UPPER", "SAME_LOWER", "VALID")),
    Case("Conv", [ramp(2, 4, 9)], [ramp(6, 2, 3, seed=1), ramp(6, seed=2)], a(group=2, pads=[2, 1], strides=[2])),
    Case("Conv", [ramp(1, 4, 5, 4, 6)], [ramp(6, 2, 2, 3, 1, seed=1), ramp(6, seed=2)],
         a(group=2, pads=[1, 0, 2, 0, 1, 1], strides=[2, 1, 3], dilations=[1, 2, 1])),
    Case("Conv", [ramp(1, 2, 5, 4, 6)], [ramp(3, 2, 2, 3, 3, seed=1)], a(auto_pad="SAME_LOWER", strides=[2, 1, 3])),
    Case("ConvTranspose", [ramp(1, 4, 3, 2, 3)], [ramp(4, 3, 2, 3, 2, seed=1), ramp(3, seed=2)],
         a(strides=[2, 1, 3], pads=[1, 0, 0, 0, 1, 1], output_padding=[1, 0, 2])),
    Case("ConvTranspose", [IMAGE], [ramp(4, 5, 3, 3, seed=1), ramp(5, seed=2)], a(strides=[2, 3], pads=[1, 0, 1, 2])),
    Case("ConvTranspose", [IMAGE], [ramp(4, 5, 3, 3, seed=1)], a(strides=[2, 2], output_padding=[1, 1])),
    Case("ConvTranspose", [IMAGE], [ramp(4, 2, 2, 2, seed=1)], a(dilations=[2, 2])),
    Case("ConvTranspose", [ramp(1, 4, 5)], [ramp(4, 2, 3, seed=1)], a(strides=[2], output_padding=[1])),
    *(Case(op, [IMAGE], [], a(kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]), opset=18)
      for op in ("MaxPool", "AveragePool")),
    *(Case(op, [IMAGE], [], a(kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), opset=18)
      for op in ("MaxPool", "AveragePool")),
    Case("AveragePool", [IMAGE], [], a(kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)),
    Case("MaxPool", [IMAGE], [], a(kernel_shape=[2, 2], dilations=[2, 3], strides=[2, 1])),
    Case("AveragePool", [IMAGE], [], a(kernel_shape=[2, 2], dilations=[2, 2], pads=[1, 1, 1, 1]), opset=19),
    Case("MaxPool", [ramp(1, 2, 9)], [], a(kernel_shape=[3], strides=[2], pads=[1, 1])),
    Case("MaxPool", [ramp(1, 2, 5, 6, 7)], [], a(kernel_shape=[2, 3, 2], strides=[1, 2, 2], pads=[1, 1, 0, 0, 1, 1])),
    Case("AveragePool", [ramp(1, 2, 5, 6, 7)], [], a(kernel_shape=[2, 3, 2], strides=[1, 2, 2], pads=[1, 1, 0] * 2)),
    *(Case("GlobalAveragePool", [x]) for x in (IMAGE, ramp(2, 3, 5), ramp(1, 2, 3, 4, 5))),
    Case("GlobalMaxPool", [IMAGE]),
    Case("LpPool", [IMAGE], [], a(kernel_shape=[2, 2], p=2), opset=18, atol=1e-5),
]  # fmt: skip

NORMALIZATION = [
    *(Case("Softmax", [X], [], a(axis=axis), opset) for axis in (0, 1, 2) for opset in (13, 17)),
    *(Case("LogSoftmax", [X], [], a(axis=axis)) for axis in (0, -1)),
    *(Case("BatchNormalization", [x], [ramp(c, seed=1), ramp(c, seed=2), ramp(c, seed=3), ramp(c, seed=4, low=0.5)],
           a(epsilon=0.01), 15) for x, c in ((IMAGE, 4), (X, 3), (ramp(5, 6), 6))),
    Case("InstanceNormalization", [IMAGE], [ramp(4, seed=1), ramp(4, seed=2)], atol=2e-5),
    Case("LayerNormalization", [X], [ramp(4, seed=1), ramp(4, seed=2)], atol=2e-5),
    Case("LayerNormalization", [X], [ramp(3, 4, seed=1)], a(axis=1, epsilon=0.1), atol=2e-5),
    Case("GroupNormalization", [IMAGE], [ramp(4, seed=1), ramp(4, seed=2)], a(num_groups=2), 21, atol=2e-5, since=21),
    Case("RMSNormalization", [X], [ramp(4, seed=1)], opset=23, atol=2e-5),
    Case("MeanVarianceNormalization", [IMAGE], atol=2e-5),
    Case("LpNormalization", [X], [], a(axis=1, p=2)),
    Case("LRN", [ramp(4, 4, 3, 3)], [], a(size=3, alpha=0.5, beta=0.6, bias=2.0), atol=1e-5),
]  # fmt: skip

PRODUCTS = [
    Case("Gemm", [ramp(3, 4)], [ramp(4, 5, seed=1), ramp(5, seed=2)]),
    Case("Gemm", [ramp(4, 3)], [ramp(5, 4, seed=1), ramp(3, 1, seed=2)], a(transA=1, transB=1, alpha=0.5, beta=2.0),
         atol=1e-5),
    Case("Gemm", [ramp(3, 4), ramp(4, 2)]),
    Case("MatMul", [ramp(3, 4)], [ramp(4, 5, seed=1)]), Case("MatMul", [ramp(2, 3, 4), ramp(4, 5)]),
    Case("MatMul", [ramp(2, 1, 3, 4), ramp(5, 4, 2)], atol=1e-5), Case("MatMul", [ramp(4), ramp(4)], atol=1e-5),
    Case("MatMul", [ramp(4), ramp(2, 4, 3)], atol=1e-5), Case("MatMul", [ramp(2, 3, 4), ramp(4)], atol=1e-5),
    *(Case("Einsum", list(x), [], a(equation=equation), atol=1e-5) for equation, x in (
        ("ij,jk->ik", (ramp(3, 4), ramp(4, 5))), ("bij,bjk->bik", (ramp(2, 3, 4), ramp(2, 4, 5))),
        ("ij,ij", (ramp(3, 4), ramp(3, 4))), ("...ij,...jk", (ramp(2, 3, 4), ramp(4, 5))), ("ij->ji", (ramp(3, 4),)),
        ("bhid,bhjd->bhij", (ramp(2, 2, 3, 4), ramp(2, 2, 5, 4))), ("i,j->ij", (ramp(3), ramp(4))),
        ("ij,jk,kl->il", (ramp(2, 3), ramp(3, 4), ramp(4, 2))), ("ijk->k", (ramp(2, 3, 4),)),
        ("ij,ij->ji", (ramp(3, 4), ramp(3, 4))), ("ij,i,kij->ijk", (ramp(3, 4), ramp(3), ramp(2, 3, 4))),
        (",i->i", (np.array(2, np.float32), ramp(3))), ("i,j,k->", (ramp(3), ramp(4), ramp(2))))),
]  # fmt: skip

MOVEMENT = [
    Case("Reshape", [X], [i64(0, -1)]), Case("Reshape", [X], [i64(4, 6)]),
    Case("Flatten", [X], [], a(axis=2)), Case("Flatten", [X], [], a(axis=0)), Case("Flatten", [X], [], a(axis=-1)),
    Case("Squeeze", [ramp(1, 3, 1)], [i64(-1)]), Case("Squeeze", [ramp(1, 3, 1)]), Case("Squeeze", [ramp(1, 1)]),
    Case("Unsqueeze", [X], [i64(0, -1)]), Case("Unsqueeze", [X], [], a(axes=[1, 3]), 11),
    Case("Transpose", [X]), Case("Transpose", [X], [], a(perm=[1, 0, 2])),
    Case("Concat", [X, ramp(2, 1, 4, seed=1)], [], a(axis=1)), Case("Concat", [INTS, INTS], [], a(axis=-1)),
    Case("Split", [X], [i64(1, 3)], a(axis=2), outputs=2), Case("Split", [X], [], a(axis=1, num_outputs=2), 18, 2),
    Case("Split", [X], [], a(axis=2, split=[1, 1, 2]), 11, 3),
    Case("Slice", [X], [i64(1, 0), i64(3, 1), i64(1, 0)]), Case("Slice", [X], [i64(-1), i64(-99), i64(2), i64(-2)]),
    Case("Slice", [X], [i64(0), i64(2**62), i64(2), i64(3)]),
    Case("Slice", [X], [], a(starts=[1], ends=[-1], axes=[2]), 9),
    Case("Slice", [INTS], [i64(2), i64(-4), i64(1), i64(-1)]),
    Case("DepthToSpace", [ramp(1, 8, 2, 3)], [], a(blocksize=2)),
    Case("SpaceToDepth", [ramp(1, 2, 4, 6)], [], a(blocksize=2)),
    Case("DepthToSpace", [ramp(1, 8, 2, 3)], [], a(blocksize=2, mode="CRD")),
    Case("Expand", [ramp(3, 1)], [i64(2, 1, 4)]), Case("Tile", [ramp(2, 3)], [i64(2, 1)]),
    *(Case("Pad", [X], [i64(0, 1, 2, 1, 0, 1)], a(mode=mode)) for mode in ("reflect", "edge")),
    Case("Pad", [X], [i64(0, 1, 2, 1, 0, 1), np.float32(7)]),
    Case("Pad", [X], [i64(0, 2, 1, 0, 0, 3)], a(mode="wrap"), 19, since=19),
    Case("Pad", [X], [i64(1, 2), None, i64(-1)], {}, 18),
    Case("Pad", [X], [], a(pads=[0, 0, 1, 0, 1, 0], value=2.0), 2),
    Case("Gather", [X], [i64(1, -1)], a(axis=1)), Case("Gather", [X], [np.int64(-2)], a(axis=2)),
    Case("Gather", [X], [np.array([[0, 2], [1, 1]])], a(axis=1)), Case("Gather", [ramp(5)], [np.int64(3)]),
    Case("Gather", [X, i64(1, -1, 0)], [], a(axis=1)), Case("Gather", [INTS], [i64(2, 0)], a(axis=1)),
    Case("GatherElements", [X], [np.array([[[1, 0, 2, -1]]] * 2)], a(axis=1)),
    Case("GatherElements", [X, np.array([[[1, 0, 2, -1]]] * 2)], [], a(axis=1)),
    Case("GatherND", [X], [np.array([[0, 1], [1, -1]])]),
    Case("GatherND", [X], [np.array([[1], [0]])], a(batch_dims=1)),
    Case("GatherND", [X, np.array([[0, 1, 3], [1, -1, 0]])]),
    Case("ScatterND", [ramp(5, 2)], [np.array([[1], [-1]]), ramp(2, 2, seed=1)]),
    Case("ScatterElements", [ramp(3, 3)], [np.array([[1, 0, 2]]), ramp(1, 3, seed=1)], opset=16),
    Case("OneHot", [np.array([[1, -1], [9, 0]])], [np.int64(3), np.array([2, 5], np.float32)]),
    Case("Trilu", [ramp(2, 3, 4)]), Case("Trilu", [ramp(3, 4)], [np.int64(-1)], a(upper=0)),
    Case("CumSum", [X], [np.int64(1)]), Case("CumSum", [X], [np.int64(2)], a(exclusive=1, reverse=1)),
    Case("TopK", [X], [i64(2)], a(axis=1), outputs=2), Case("TopK", [X], [i64(3)], a(largest=0), outputs=2),
    Case("CenterCropPad", [X], [i64(5, 2)], a(axes=[1, 2]), 18),
    Case("Hardmax", [X], [], a(axis=1)),
]  # fmt: skip

REDUCTION = [
    *(Case(op, [POSITIVE], [], attributes, 13, atol=1e-5)
      for op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
                 "ReduceLogSum", "ReduceLogSumExp")
      for attributes in (a(axes=[1], keepdims=0), a(axes=[0, -1]), a(keepdims=0))),
    Case("ReduceSum", [X], [i64(1)]), Case("ReduceSum", [X], [i64()], a(noop_with_empty_axes=1)),
    Case("ReduceSum", [INTS]),
    Case("ReduceMean", [X], [i64(-1)], a(keepdims=0), 18),
    *(Case(op, [np.round(X)], [], attributes) for op in ("ArgMax", "ArgMin")
      for attributes in (a(axis=1), a(axis=-1, keepdims=0), a(axis=2, select_last_index=1))),
]  # fmt: skip


def resize(mode: str, coordinates: str, sizes: Sequence[int] = (), scales: Sequence[float] = (), **more: Any) -> Case:
    constants = [None, np.array(scales, np.float32) if len(scales) else None, i64(*sizes) if len(sizes) else None]
    attributes = a(mode=mode, coordinate_transformation_mode=coordinates, **more)
    return Case("Resize", [ramp(1, 2, 4, 6)], constants[: 3 if len(sizes) else 2], attributes, 19, atol=1e-5)


RESIZE = [
    *(resize(mode, coordinates, sizes=sizes)
      for mode in ("nearest", "linear", "cubic")
      for coordinates in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
      for sizes in ((1, 2, 8, 12), (1, 2, 7, 5), (1, 2, 2, 3))),
    *(resize("nearest", "half_pixel", scales=(1, 1, 1.7, 0.65), nearest_mode=mode)
      for mode in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")),
    resize("linear", "half_pixel", scales=(1, 1, 1.7, 0.6)),
    resize("linear", "asymmetric", sizes=(1, 5, 4, 6)),
    resize("cubic", "half_pixel", sizes=(1, 2, 3, 9), exclude_outside=1, cubic_coeff_a=-0.5),
    resize("nearest", "asymmetric", scales=(1, 1, 3, 3), nearest_mode="floor"),
]  # fmt: skip

CASES = UNARY + BINARY + WINDOWS + NORMALIZATION + PRODUCTS + MOVEMENT + REDUCTION + RESIZE
