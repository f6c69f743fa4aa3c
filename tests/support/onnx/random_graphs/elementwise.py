"""Steps of element-wise operators, comparisons and casts."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.support.onnx.random_graphs.drawing import (
    ANY,
    BOOL,
    F32,
    FLOATS,
    I32,
    I64,
    INTEGERS,
    NUMBERS,
    Declined,
    Drawing,
    Value,
)
from tests.support.onnx.random_graphs.registry import step

UNARY = {
    "Abs": 9, "Neg": 9, "Relu": 9, "Sigmoid": 9, "Tanh": 9, "Exp": 9, "Log": 9, "Sqrt": 9, "Reciprocal": 9, "Floor": 9,
    "Ceil": 9, "Erf": 9, "Sin": 9, "Cos": 9, "Tan": 9, "Asin": 9, "Acos": 9, "Atan": 9, "Sinh": 9, "Cosh": 9,
    "Asinh": 9, "Acosh": 9, "Atanh": 9, "Softplus": 9, "Softsign": 9, "Sign": 9, "Identity": 9, "Round": 11,
    "HardSwish": 14, "Mish": 18, "Gelu": 20,
}  # fmt: skip
COMMON = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Exp", "HardSwish", "Identity", "Sqrt")


@step(5)
def unary(d: Drawing) -> object:
    x = d.value()
    op = d.choose(COMMON) if d.chance(0.4) else d.choose(UNARY)
    if UNARY[op] > d.opset:
        raise Declined
    if op in ("Log", "Sqrt", "Reciprocal", "Acosh") and not d.is_hostile and d.chance(0.8):
        (x,) = d.emit("Abs", [x])
        (x,) = d.emit("Add", [x, d.constant(np.asarray(1.5 if op == "Acosh" else 0.5, x.dtype))])
    if op in ("Asin", "Acos", "Atanh"):
        (x,) = d.emit("Sin", [x])
        (x,) = d.emit("Mul", [x, d.constant(np.asarray(0.9, x.dtype))])
    return d.emit(op, [x])


@step(2)
def parametrized(d: Drawing) -> object:
    x = d.value()
    a = round(float(d.rng.uniform(-1, 2)), 3) if d.chance(0.7) else d.choose([0.0, 1.0])
    op = d.choose(["Elu", "Selu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Celu", "Shrink", "Gelu"])
    since = {"ThresholdedRelu": 10, "Celu": 12, "Gelu": 20}
    if since.get(op, 9) > d.opset:
        raise Declined
    attributes = {
        "Elu": {"alpha": a}, "Selu": {"alpha": 1 + abs(a), "gamma": 1.1}, "LeakyRelu": {"alpha": a},
        "ThresholdedRelu": {"alpha": a}, "HardSigmoid": {"alpha": abs(a), "beta": 0.4}, "Celu": {"alpha": abs(a) + 0.1},
        "Shrink": {"lambd": abs(a), "bias": a / 2}, "Gelu": {"approximate": "tanh"},
    }[op]  # fmt: skip
    return d.emit(op, [x], **(attributes if d.chance(0.8) else {}))


@step(1)
def whole_number_unary(d: Drawing) -> object:
    return d.emit(d.choose(["Abs", "Sign", "Identity", "Relu"]), [d.value(INTEGERS)])


@step(1)
def clip(d: Drawing) -> object:
    x = d.value(FLOATS if d.opset < 12 else NUMBERS)
    low, high = sorted(d.rng.uniform(0 if x.dtype.kind == "u" else -3, 4, 2).round(1).tolist())
    if d.opset < 11:
        return d.emit("Clip", [x], **d.choose([{"min": low, "max": high}, {"min": low}, {"max": high}, {}]))
    limits: list[Value | None] = [d.constant(np.asarray(limit).astype(x.dtype)) for limit in (low, high)]
    if d.chance(0.15) and x.dtype == F32:
        limits[0] = d.input(x.dtype, [(), ()])
    return d.emit("Clip", [x, *d.choose([limits, [None, limits[1]], limits[:1], []])])


@step(1)
def prelu(d: Drawing) -> object:
    x = d.of_rank(1, 2, 3, 4)
    shape = d.choose([(1,), (x.shape[1] if x.rank > 1 else 1, *[1] * (x.rank - 2)), x.shape])
    if len({s[1:2] for s in x.shapes}) > 1 or (shape == x.shape and not x.is_static):
        shape = (1,)
    return d.emit("PRelu", [x, d.fresh(x.dtype, [shape] * 2)])


@step(6)
def arithmetic(d: Drawing) -> object:
    x = d.value()
    y = d.partner(x)
    op = d.choose(["Add"] * 3 + ["Mul"] * 3 + ["Sub"] * 2 + ["Div"])
    if op == "Div" and not d.is_hostile and (y.dtype.kind == "f") and d.chance(0.7):
        (y,) = d.emit("Abs", [y])
        (y,) = d.emit("Add", [y, d.constant(np.asarray(0.5, y.dtype))])
    return d.emit(op, [x, y] if d.chance(0.6) else [y, x])


@step(2)
def integer_arithmetic(d: Drawing) -> object:
    x = d.value(INTEGERS)
    y = d.partner(x)
    op = d.choose(["Add", "Sub", "Mul", "Div", "Max", "Min"])
    if op == "Div":
        y = d.constant(d.rng.integers(1, 7, d.choose([(), y.shape if y.is_static else ()])).astype(x.dtype))
    operands = [x, y] if op == "Div" or d.chance(0.6) else [y, x]
    return d.emit(op, operands)


@step(1)
def power(d: Drawing) -> object:
    x = d.value()
    kind = d.integer(0, 3)
    if kind == 0:
        return d.emit("Pow", [x, d.constant(np.asarray(d.choose([2, 3, 1, 0, 2, -1]), x.dtype))])
    if kind == 1:
        (x,) = d.emit("Abs", [x])
        return d.emit("Pow", [x, d.constant(np.asarray(d.choose([0.5, 1.5, -0.5, 2.5]), x.dtype))])
    if kind == 2 and d.opset >= 12:
        return d.emit("Pow", [x, d.constant(np.asarray(d.choose([2, 3]), d.choose([I32, I64])))])
    (y,) = d.emit("Round" if d.opset >= 11 else "Floor", [d.partner(x)])
    return d.emit("Pow", [x, y])


@step(2)
def variadic(d: Drawing) -> object:
    x = d.value()
    others = [d.partner(x) for _ in range(d.integer(0, 3))]
    return d.emit(d.choose(["Max", "Min", "Sum", "Mean"]), [x, *others])


@step(1)
def modulo(d: Drawing) -> object:
    if d.opset < 10:
        raise Declined
    x = d.value(NUMBERS)
    y = d.constant((d.rng.integers(1, 5, ()) * (d.choose([1, -1]) if x.dtype.kind != "u" else 1)).astype(x.dtype))
    return d.emit("Mod", [x, y], fmod=1 if x.dtype.kind == "f" else d.integer(0, 1))


@step(2)
def compare(d: Drawing) -> object:
    op = d.choose(["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
    if op.endswith("OrEqual") and d.opset < 12:
        raise Declined
    x = d.value(NUMBERS if op != "Equal" else ANY)
    return d.emit(op, [x, d.partner(x)])


@step(1)
def logic(d: Drawing) -> object:
    x = d.value([BOOL])
    if d.chance(0.3):
        return d.emit("Not", [x])
    return d.emit(d.choose(["And", "Or", "Xor"]), [x, d.partner(x)])


@step(2)
def where(d: Drawing) -> object:
    x = d.value(ANY if d.chance(0.3) else FLOATS)
    return d.emit("Where", [d.partner(x, BOOL), *d.choose([[x, d.partner(x)], [d.partner(x), x]])])


@step(1, calm=False)
def tests_of_floats(d: Drawing) -> object:
    if d.opset < 10:
        raise Declined
    x = d.value()
    if d.chance(0.5):
        return d.emit("IsNaN", [x])
    return d.emit("IsInf", [x], detect_negative=d.integer(0, 1), detect_positive=d.integer(0, 1))


@step(1, calm=False)
def bits(d: Drawing) -> object:
    kind = d.integer(0, 2)
    x = d.value(INTEGERS)
    if kind == 0 and d.opset >= 11 and x.dtype.kind == "u":
        y = d.constant(np.asarray(d.integer(0, 3), x.dtype))
        return d.emit("BitShift", [x, y], direction="RIGHT")
    if d.opset < 18:
        raise Declined
    if kind == 1:
        return d.emit("BitwiseNot", [x])
    return d.emit(d.choose(["BitwiseAnd", "BitwiseOr", "BitwiseXor"]), [x, d.partner(x)])


@step(2)
def cast(d: Drawing) -> object:
    x = d.value(ANY)
    target = d.choose([F32, F32, d.main, I64, I32, *ANY])
    if x.dtype.kind == "f" and target.kind in "iu":
        limits = np.iinfo(target)
        for array in x.arrays:
            values = np.trunc(array.astype(float))
            inside = np.isfinite(array) & (values >= limits.min) & (values <= limits.max)
            if not inside.all():
                raise Declined  # undefined in the standard
    if d.opset >= 15 and d.chance(0.2):
        return d.emit("CastLike", [x, d.fresh(target, [(1,)] * 2, constant=True)])
    return d.emit("Cast", [x], to=helper.np_dtype_to_tensor_dtype(target))


@step(0.5)
def dropout(d: Drawing) -> object:
    x = d.value()
    if d.opset < 12:
        return d.emit("Dropout", [x], ratio=0.3)
    return d.emit("Dropout", [x, d.constant(np.float32(0.5))], d.integer(1, 2))
