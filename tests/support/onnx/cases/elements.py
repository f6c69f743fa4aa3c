"""Element-wise operators, broadcasting, non-finite values, integer types, comparisons, logic."""

from typing import Any

import numpy as np

from tests.support.onnx.cases.case import Case, a, i64
from tests.support.onnx.models import ramp

X = ramp(2, 3, 4)
ROW, COLUMN, POINT = ramp(4, seed=1), ramp(3, 1, seed=2), np.float32(1.5)
ODD = np.array([-np.inf, -1.5, -0.0, 0.0, 0.5, 2.5, np.inf, np.nan], np.float32)
RNG = np.random.default_rng(4)
TRUTH, OTHER = RNG.random((2, 3, 4)) > 0.5, RNG.random((3, 1)) > 0.5
KINDS = ("int8", "uint8", "int16", "uint16", "int32", "int64", "uint32", "uint64")


def ints(kind: str, *shape: int, seed: int = 0, low: int = -9, high: int = 9) -> Any:
    found = np.random.default_rng(seed).integers(max(low, 0 if kind.startswith("u") else low), high, shape)
    return found.astype(kind)


PLAIN = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Floor", "Ceil", "Sign", "Exp", "Softsign", "Softplus", "HardSigmoid",
         "Elu", "LeakyRelu", "Selu", "ThresholdedRelu", "HardSwish", "Round", "IsNaN", "IsInf", "Identity",
         "Celu")  # fmt: skip
NAN_DIFFERS = ("ThresholdedRelu", "Relu", "Elu", "LeakyRelu", "Selu", "HardSigmoid", "Sign", "Celu", "HardSwish",
"Softsign",
               "Softplus")  # fmt: skip
"""Engines disagree about NaN, and about infinities inside a formula."""

UNARY = [
    *(Case(op, [ODD[1:6] if op in NAN_DIFFERS else ODD], atol=1e-6) for op in PLAIN),
    *(Case(op, [np.float32(-0.5)]) for op in PLAIN), *(Case(op, [ramp(1, 2, 1, 3, 2, 2)], atol=1e-5) for op in PLAIN),
    *(Case(op, [ints(kind, 2, 3)]) for op in ("Abs", "Neg", "Sign") for kind in ("int8", "int32", "int64")),
    *(Case(op, [ints(kind, 2, 3)]) for op in ("Abs", "Sign") for kind in ("uint8", "uint32")),
    *(Case("Relu", [ints(kind, 2, 3)]) for kind in ("int8", "int32", "int64")),
    *(Case(op, [np.abs(ODD[1:6]) + 0.25], atol=1e-5) for op in ("Log", "Sqrt", "Reciprocal", "Asinh")),
    *(Case(op, [np.float32(0.5)]) for op in ("Log", "Sqrt", "Reciprocal", "Sin", "Cos", "Tan", "Erf", "Asin", "Acos",
          "Atan",
                                             "Sinh", "Cosh", "Asinh", "Atanh", "Mish", "Gelu")),
    *(Case(op, [ramp(3, 4, low=-8, high=8)], atol=2e-5) for op in ("Sin", "Cos", "Erf", "Atan", "Asinh", "Mish",
          "Gelu", "Tanh",
                                                                   "Sigmoid", "Softplus")),
    *(Case("Elu", [X], [], a(alpha=alpha)) for alpha in (0.0, 1.0, 2.5)),
    *(Case("Celu", [X], [], a(alpha=alpha), atol=1e-5) for alpha in (1.0, 0.3)),
    Case("Selu", [X], [], a(alpha=2.0, gamma=3.0), atol=1e-5), Case("LeakyRelu", [X], [], a(alpha=-0.5)),
    Case("ThresholdedRelu", [X], [], a(alpha=0.0)), Case("ThresholdedRelu", [X], [], a(alpha=-1.0)),
    Case("Shrink", [X]), Case("Shrink", [X], [], a(lambd=1.5, bias=1.5)),
    *(Case("PRelu", [X], [slope]) for slope in (ROW, COLUMN, ramp(1, 1, 1), ramp(2, 1, 4))), Case("PRelu", [X, ROW]),
    *(Case("IsInf", [ODD], [], b) for b in (a(detect_negative=0), a(detect_positive=0),
          a(detect_negative=0, detect_positive=0))),
    *(Case("Gelu", [X], [], a(approximate=kind), 20, atol=1e-5) for kind in ("none", "tanh")),
    *(Case("Swish", [X], [], b, 24, atol=1e-5) for b in (a(), a(alpha=0.5))),
]  # fmt: skip

SHAPES = ((X, ROW), (ROW, X), (X, COLUMN), (COLUMN, ROW), (X, POINT), (POINT, X), (X, ramp(1, 1, 1, 1)), (POINT, POINT))
ARITHMETIC = ("Add", "Sub", "Mul", "Div")
COMPARISONS = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
BINARY = [
    *(Case(op, [p, q]) for op in (*ARITHMETIC, *COMPARISONS) for p, q in SHAPES),
    *(Case(op, [p], [q]) for op in ARITHMETIC for p, q in SHAPES[:6]),
    *(Case(op, [ints(kind, 2, 3), ints(kind, 3, seed=1, low=1)]) for op in ARITHMETIC
      for kind in ("int8", "uint8", "int32", "int64")),
    *(Case(op, [ints(kind, 2, 3), ints(kind, 3, seed=1)]) for op in COMPARISONS for kind in ("int32", "int64")),
    Case("Equal", [TRUTH, OTHER]), *(Case("Equal", [X], [np.round(x)]) for x in (X, ROW)),
    *(Case(op, [np.round(X)], [np.float32(1)]) for op in COMPARISONS),
    *(Case(op, [POINT], [np.round(X)]) for op in COMPARISONS),
    *(Case(op, [TRUTH, OTHER]) for op in ("And", "Or", "Xor")),
    *(Case(op, [TRUTH], [np.bool_(True)]) for op in ("And", "Or", "Xor")),
    Case("Not", [TRUTH]), Case("Not", [np.bool_(True)]),
    *(Case(op, [X, ROW, COLUMN], atol=1e-5) for op in ("Max", "Min", "Sum", "Mean")),
    *(Case(op, [X]) for op in ("Max", "Min", "Sum", "Mean")),
    *(Case(op, [ints(kind, 2, 3), ints(kind, 3, seed=1)]) for op in ("Max", "Min") for kind in ("int32", "int64",
          "int8", "uint8")),
    *(Case("Where", [TRUTH, p, q]) for p, q in ((X, ROW), (POINT, X), (COLUMN, ROW), (POINT, POINT))),
    *(Case("Where", [TRUTH], [ints(kind, 2, 3, 4), ints(kind, 4, seed=1)]) for kind in ("int64", "int32")),
    Case("Where", [OTHER, X], [ramp(2, 1, 4)]), Case("Where", [], [TRUTH, X, ROW]),
    Case("Where", [TRUTH], [np.float32(2), np.float32(3)]),
    *(Case("Pow", [np.abs(X) + 0.2], [np.array(p, np.float32)], atol=1e-4) for p in (0, 1, 2, 3, 0.5, -0.5, -1, 1.7)),
    *(Case("Pow", [np.abs(X) + 0.2, p], atol=1e-4) for p in (ROW, POINT)),
    Case("Pow", [X], [np.array(2, np.int64)], since=12, atol=1e-5),
    Case("Pow", [ints("int32", 2, 3)], [np.array([0, 1, 2], np.int32)]),
    *(Case("Mod", [ints(kind, 2, 3), ints(kind, 3, seed=1, low=1)], [], a(fmod=f)) for kind in ("int32", "int64",
          "int8", "uint8")
      for f in (0, 1)),
    Case("Mod", [ints("int64", 2, 3)], [i64(-4)]), Case("Mod", [X, ROW], [], a(fmod=1)),
    Case("Mod", [X], [np.float32(-0.7)], a(fmod=1)),
    *(Case(op, [ints(kind, 2, 3), ints(kind, 3, seed=1)], opset=18) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
      for kind in ("int8", "uint8", "int32", "uint16")),
    *(Case("BitwiseNot", [ints(kind, 2, 3)], opset=18) for kind in ("int8", "uint8", "int32", "int64")),
    *(Case("BitShift", [ints(kind, 2, 3, low=0), ints(kind, 3, low=0, high=3)], [], a(direction=d), 11) for kind, d in
      (("uint8", "LEFT"), ("uint8", "RIGHT"), ("uint32", "RIGHT"))),
]  # fmt: skip

CASES = UNARY + BINARY
