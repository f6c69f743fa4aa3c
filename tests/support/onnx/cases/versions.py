"""Attributes that became inputs or inputs that became attributes, and semantics that changed with an opset."""

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.support.onnx.cases.case import Case, a, i64
from tests.support.onnx.models import ramp

X = ramp(2, 3, 4)
LONG = np.array([[7, -7, 5], [-3, 0, 9]], np.int64)
IMAGE = ramp(1, 2, 4, 6)
SCALES = np.array([1, 1, 2, 3], np.float32)


def f32(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
    "ReduceLogSumExp",
)  # fmt: skip

CASES = [
    Case("Clip", [X], [], a(min=-0.5, max=0.5)), Case("Clip", [X], [], a(min=0.0)), Case("Clip", [X], [], a(max=0.0)),
    Case("Clip", [X], [np.float32(-0.5), np.float32(0.5)]), Case("Clip", [X], [np.float32(0)]),
    Case("Clip", [X], [np.float32(1), np.float32(-1)]),
    *(Case("Clip", [LONG.astype(kind)], [kind(-2), kind(5)]) for kind in (np.int32, np.int64, np.int8)),
    Case("Pad", [X], [], a(pads=[0, 1, 2, 1, 0, 1], value=1.5)), Case("Pad", [X], [i64(0, 1, 2, 1, 0, 1)]),
    *(Case("Pad", [X], [], a(pads=[0, 1, 2, 1, 0, 1], mode=mode)) for mode in ("reflect", "edge")),
    *(Case("Pad", [X], [i64(1, 2, 3, 0, 1, 2)], a(mode=mode)) for mode in ("constant", "edge")),
    Case("Pad", [X], [i64(0, -1, 1, 1, 0, -2)]), Case("Pad", [X], [], a(pads=[0, -1, 1, 1, 0, -2])),
    Case("Pad", [X], [i64(1, 2, 0, 1), np.float32(3), i64(-1, 0)]),
    Case("Pad", [LONG], [i64(0, 1, 1, 0), np.int64(7)]),
    Case("Slice", [X], [], a(starts=[0, 1], ends=[1, 2**31 - 1], axes=[0, 2])),
    Case("Slice", [X], [], a(starts=[-2, 0, -99], ends=[-1, 99, 2])),
    Case("Slice", [X], [i64(0, 1), i64(1, 2**63 - 1), i64(0, -1)]),
    Case("Slice", [X], [i64(-1), i64(-99), i64(1), i64(-1)]),
    Case("Slice", [X], [np.array([1, 3], np.int32), np.array([3, 0], np.int32), np.array([1, 2], np.int32),
                        np.array([1, -2], np.int32)]),
    Case("Squeeze", [ramp(1, 3, 1, 2)], [], a(axes=[0])), Case("Squeeze", [ramp(1, 3, 1, 2)], [], a(axes=[0, 2])),
    Case("Squeeze", [ramp(1, 3, 1, 2)], [], a(axes=[-2]), since=11), Case("Squeeze", [ramp(1, 3, 1, 2)], [i64(0, -2)]),
    Case("Unsqueeze", [X], [], a(axes=[0, 2])), Case("Unsqueeze", [X], [], a(axes=[-1, 0]), since=11),
    Case("Unsqueeze", [X], [i64(4, 0)]), Case("Unsqueeze", [np.float32(3)], [i64(0)]),
    *(Case(op, [np.abs(X) + 0.1], [], a(axes=axes, keepdims=keep), atol=1e-5)
      for op in REDUCTIONS for axes, keep in (([1], 1), ([0, 2], 0))),
    *(Case(op, [np.abs(X) + 0.1], [i64(*axes)], a(keepdims=keep), atol=1e-5)
      for op in REDUCTIONS for axes, keep in (([-1], 1), ([0, 2], 0))),
    *(Case(op, [np.abs(X) + 0.1], [i64()], a(noop_with_empty_axes=1), atol=1e-5) for op in ("ReduceMax", "ReduceMean")),
    *(Case(op, [LONG.astype(np.int32)], [], a(axes=[1])) for op in ("ReduceSum", "ReduceMax", "ReduceMin",
          "ReduceProd")),
    *(Case(op, [LONG.astype(kind)], [i64(0)]) for op in ("ReduceMax", "ReduceMin") for kind in (np.int8, np.uint8)),
    *(Case(op, [LONG > 0], [i64(0)]) for op in ("ReduceMax", "ReduceMin")),
    *(Case(op, [X], [], a(axis=axis)) for op in ("Softmax", "LogSoftmax", "Hardmax") for axis in (0, 1, 2)),
    *(Case(op, [X], [], a(axis=-1), since=11) for op in ("Softmax", "LogSoftmax", "Hardmax")),
    *(Case(op, [X]) for op in ("Softmax", "LogSoftmax", "Hardmax")),
    Case("Dropout", [X]), Case("Dropout", [X], [], a(ratio=0.3)), Case("Dropout", [X], [np.float32(0.4)]),
    Case("Dropout", [X], [np.float32(0.4), np.bool_(False)], outputs=2), Case("Dropout", [X], [], a(seed=3)),
    Case("Upsample", [IMAGE], [], a(scales=SCALES.tolist())), Case("Upsample", [IMAGE], [SCALES]),
    Case("Upsample", [IMAGE], [SCALES], a(mode="linear")),
    *(Case("Resize", [IMAGE], [scales], b, until=10) for scales in (SCALES, f32(1, 1, 0.5, 1.5)) for b in (a(),
          a(mode="linear"))),
    Case("Resize", [IMAGE], [f32(), SCALES], since=11),
    Case("Resize", [IMAGE], [None, None, i64(8, 12)], a(axes=[2, 3])),
    *(Case("Resize", [IMAGE], [None, None, i64(7, 9)], a(axes=[2, 3], keep_aspect_ratio_policy=f"not_{bound}"))
      for bound in ("larger", "smaller")),
    Case("Resize", [IMAGE], [None, f32(2, 1.5)], a(axes=[3, 2], mode="linear")),
    Case("TopK", [X], [], a(k=2), outputs=2), Case("TopK", [X], [], a(k=2, axis=1), outputs=2),
    Case("TopK", [X], [i64(2)], a(axis=0), outputs=2), Case("TopK", [X], [i64(3)], a(axis=-1, largest=0), outputs=2),
    Case("TopK", [LONG], [i64(2)], outputs=2),
    Case("Split", [X], [], a(axis=2, split=[1, 3]), outputs=2), Case("Split", [X], [], a(axis=1), outputs=3),
    Case("Split", [X], [i64(3, 1)], a(axis=-1), outputs=2), Case("Split", [X], [], a(axis=2, num_outputs=3), outputs=3),
    Case("Split", [LONG], [i64(1, 1)], outputs=2),
    *(Case("Cast", [x], [], a(to=to)) for x in (X * 50, LONG, LONG.astype(np.uint8), LONG > 0)
      for to in (TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL, TensorProto.DOUBLE)),
    *(Case("Cast", [X], [], a(to=to), atol=1e-3) for to in (TensorProto.FLOAT16, TensorProto.DOUBLE)),
    *(Case("Cast", [np.abs(X) * 40], [], a(to=to)) for to in (TensorProto.UINT8, TensorProto.INT8, TensorProto.INT16)),
    Case("CastLike", [X], [i64(1)]), Case("CastLike", [LONG], [f32(1)]), Case("CastLike", [X, LONG[:1]]),
    *(Case("BatchNormalization", [x], [ramp(3, seed=1), ramp(3, seed=2), ramp(3, seed=3), ramp(3, seed=4, low=0.5)],
           a(epsilon=0.02, momentum=0.5)) for x in (ramp(2, 3, 5, 4), X)),
    *(Case("BatchNormalization", [x], [ramp(3, seed=1), ramp(3, seed=2), ramp(3, seed=3), ramp(3, seed=4, low=0.5)],
           a(epsilon=0.02, momentum=0.7) | training, outputs=outputs, atol=5e-6, since=since, until=until)
      for x in (ramp(2, 3, 5, 4), X, ramp(5, 3), ramp(2, 3, 2, 2, 2))
      for training, outputs, since, until in (({}, 5, 7, 13), (a(training_mode=1), 3, 14, 99))),
    Case("Scatter", [ramp(3, 3)], [np.array([[1, 0, 2]]), ramp(1, 3, seed=1)]),
    Case("Scatter", [ramp(3, 3)], [np.array([[1], [2], [0]]), ramp(3, 1, seed=1)], a(axis=1)),
    Case("Gemm", [ramp(3, 4)], [ramp(4, 5), ramp(1, 5)]), Case("Gemm", [ramp(3, 4)], [ramp(4, 5), ramp(3, 5)]),
    Case("Gemm", [ramp(3, 4)], [ramp(4, 5), ramp(1)]), Case("Gemm", [ramp(3, 4)], [ramp(4, 5), np.float32(2)]),
    Case("Gemm", [ramp(3, 4)], [ramp(4, 5), ramp(3, 1), ], a(beta=0.5)), Case("Gemm", [ramp(3, 4)], [ramp(4, 5)]),
    Case("Gemm", [ramp(4, 3), ramp(5, 4), ramp(5)], [], a(transA=1, transB=1)),
    Case("Gemm", [ramp(3, 4)], [ramp(4, 5), ramp(5)], a(alpha=0.0)),
    Case("Gemm", [ramp(3, 4)], [ramp(4, 5), ramp(5)], a(beta=0.0)),
    Case("Reshape", [X], [i64(0, -1, 2)]), Case("Reshape", [X], [i64(-1)]), Case("Reshape", [X], [i64(1, 24, 1)]),
    Case("Reshape", [X], [i64(2, 12)], a(allowzero=1)), Case("Reshape", [ramp(1)], [i64()]),
    Case("Shape", [X]), Case("Shape", [X], [], a(start=1)), Case("Shape", [X], [], a(start=-2, end=-1)),
    Case("Size", [X]), Case("EyeLike", [ramp(3, 4)]),
    Case("EyeLike", [ramp(3, 4)], [], a(k=1, dtype=TensorProto.INT64)),
    Case("Constant", [], [], a(value=helper.make_tensor("v", TensorProto.FLOAT, [2], [1, 2]))),
    Case("Constant", [], [], a(value_float=1.5)), Case("Constant", [], [], a(value_ints=[3, 4])),
    Case("Constant", [], [], a(value_int=7)), Case("Constant", [], [], a(value_floats=[0.5, 2.0])),
    Case("ConstantOfShape", [], [i64(2, 3)]),
    Case("ConstantOfShape", [], [i64(2)], a(value=helper.make_tensor("v", TensorProto.INT64, [1], [9]))),
    Case("ConstantOfShape", [i64(2, 3)]),
    Case("Range", [], [np.int64(2), np.int64(9), np.int64(3)]),
    Case("Range", [], [np.float32(1), np.float32(-1), np.float32(-0.4)]),
    Case("MelWeightMatrix", [], [np.int64(8), np.int64(16), np.int64(8192), np.float32(0), np.float32(4096)],
          atol=1e-5),
    Case("BitCast", [], [f32(1, -2)], a(to=TensorProto.INT32), opset=26),
]  # fmt: skip
