"""Lowerings of element-wise operators: arithmetic, comparisons, clamp, activation functions of integers."""

from __future__ import annotations

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.onnx_model.integers import round_half_away, saturate, widen
from tpuconvert.exporters.onnx_model.lowering import Argument, Lowering, NoOperator, scalar
from tpuconvert.exporters.onnx_model.registry import lowers
from tpuconvert.schema.arithmetic.elementwise import Arithmetic
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.activation import ActivationFunction, Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, BinaryArithmetic, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import (
    Adds,
    Divs,
    Maxs,
    Mins,
    Muls,
    Rdivs,
    Rsubs,
    ScalarArithmetic,
    Subs,
)
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import (
    Comparison,
    Eq,
    Eqs,
    Ge,
    Ges,
    Gt,
    Gts,
    Le,
    Les,
    Lt,
    Lts,
    Ne,
    Nes,
    ScalarComparison,
    TensorComparison,
)
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import Chip, DType

_ZERO = np.zeros((), np.int64)


@lowers(Add, Sub, Mul, Div, Max, Min)
def arithmetic(op: BinaryArithmetic, node: Node, d: Lowering) -> None:
    """Lower arithmetic on two tensors."""
    x0, x1 = node.inputs
    assert x0 is not None and x1 is not None
    _combine(d, op.arithmetic, (x0, x1), node.output)


@lowers(Adds, Subs, Rsubs, Muls, Divs, Rdivs, Maxs, Mins)
def scalar_arithmetic(op: ScalarArithmetic, node: Node, d: Lowering) -> None:
    """Lower arithmetic on a tensor and a number."""
    x, y = node.inputs[0], node.output
    assert x is not None
    number = scalar(op.scalar.value, op.scalar.dtype)
    _combine(d, op.arithmetic, (number, x) if op.scalar_first else (x, number), y)


def _combine(d: Lowering, kind: Arithmetic, operands: tuple[Argument, Argument], y: Value) -> None:
    """Lower one operation: float32, or exact integers that are saturated once; INT32 as the chip computes it."""
    operator = kind.name.capitalize()
    is_float = y.dtype.is_float
    if y.dtype is DType.FLOAT16:
        raise NoExactForm(f"'{y.name}' has type FLOAT16, expected FLOAT32 or integers")
    if is_float or (y.dtype is DType.INT32 and d.chip is not Chip.BM1686):
        wide = operands if is_float else tuple(d.add("Cast", item, to=np.float32) for item in operands)
        result = d.add(operator, *wide)
        d.define(y, result if is_float else round_half_away(d, result, y.dtype, _ZERO, may_be_nan=True))
        return
    d.define(y, saturate(d, d.add(operator, *(widen(d, item) for item in operands)), y.dtype))


@lowers(Clamp)
def clamp(op: Clamp, node: Node, d: Lowering) -> None:
    """Lower a clamp; INT32 passes through float32, as on every chip."""
    x, y = node.inputs[0], node.output
    assert x is not None
    if y.dtype is DType.FLOAT32:
        d.define(y, d.add("Clip", x, scalar(op.min.value, np.float32), scalar(op.max.value, np.float32)))
    elif y.dtype is DType.INT32:
        real = d.add("Cast", x, to=np.float32)
        limited = d.add("Clip", real, scalar(op.min.value, np.float32), scalar(op.max.value, np.float32))
        d.define(y, round_half_away(d, limited, y.dtype, _ZERO, may_be_nan=False))
    else:
        limited = d.add("Clip", widen(d, x), scalar(op.min.value, np.int64), scalar(op.max.value, np.int64))
        d.define(y, d.add("Cast", limited, to=y.dtype.numpy))


_COMPARISONS = {
    Comparison.GT: "Greater",
    Comparison.GE: "GreaterOrEqual",
    Comparison.LT: "Less",
    Comparison.LE: "LessOrEqual",
    Comparison.EQ: "Equal",
    Comparison.NE: "Equal",
}


@lowers(Gt, Ge, Lt, Le, Eq, Ne)
def comparison(op: TensorComparison, node: Node, d: Lowering) -> None:
    """Lower a comparison of two tensors."""
    x0, x1 = node.inputs
    assert x0 is not None and x1 is not None
    _compare(d, op.comparison, x0, x1, node.output)


@lowers(Gts, Ges, Lts, Les, Eqs, Nes)
def scalar_comparison(op: ScalarComparison, node: Node, d: Lowering) -> None:
    """Lower a comparison with a number."""
    x = node.inputs[0]
    assert x is not None
    _compare(d, op.comparison, x, scalar(op.scalar_i1.value, op.scalar_i1.dtype), node.output)


def _compare(d: Lowering, kind: Comparison, x0: Value, x1: Argument, y: Value) -> None:
    if x0.dtype.is_float:
        d.check_exact(x0)
    operands = (x0, x1) if x0.dtype.is_float else (widen(d, x0), widen(d, x1))
    truth = d.add(_COMPARISONS[kind], *operands)
    truth = d.add("Not", truth) if kind is Comparison.NE else truth
    d.define(y, d.add("Cast", truth, to=y.dtype.numpy))


_FLOAT_FUNCTIONS = {
    ActiveType.ACTIVE_TANH: "Tanh",
    ActiveType.ACTIVE_SIGMOID: "Sigmoid",
    ActiveType.ACTIVE_EXP: "Exp",
    ActiveType.ACTIVE_SQRT: "Sqrt",
    ActiveType.ACTIVE_LN: "Log",
    ActiveType.ACTIVE_SIN: "Sin",
    ActiveType.ACTIVE_COS: "Cos",
}
"""Functions that the reference computes in float64."""

_EXACT_FUNCTIONS = {
    ActiveType.ACTIVE_RELU: "Relu",
    ActiveType.ACTIVE_ABSVAL: "Abs",
    ActiveType.ACTIVE_CEIL: "Ceil",
    ActiveType.ACTIVE_FLOOR: "Floor",
}
"""Functions with an exact float32 result."""


@lowers(Active, ActiveParam)
def activation(op: ActivationFunction, node: Node, d: Lowering) -> None:
    """Lower an activation function."""
    x, y = node.inputs[0], node.output
    assert x is not None
    kind = op.active_type
    if x.dtype.is_integer:
        _integer_activation(op, x, y, d)
    elif x.dtype is not DType.FLOAT32 or y.dtype is not DType.FLOAT32:
        raise NoExactForm(f"'{x.name}' has type {x.dtype.name}, expected FLOAT32")
    elif kind in _EXACT_FUNCTIONS:
        d.define(y, d.add(_EXACT_FUNCTIONS[kind], x))
    elif kind in _FLOAT_FUNCTIONS:
        d.define(y, d.narrow_floats(d.add(_FLOAT_FUNCTIONS[kind], d.wide_floats(x))))
    elif kind is ActiveType.ACTIVE_SQUARE:
        d.define(y, d.add("Mul", x, x))
    elif kind is ActiveType.ACTIVE_RSQRT:
        d.define(y, d.narrow_floats(d.add("Reciprocal", d.add("Sqrt", d.wide_floats(x)))))
    elif kind is ActiveType.ACTIVE_ELU:
        d.define(y, d.mark_rounded(d.add("Elu", x)))
    elif kind is ActiveType.ACTIVE_LEAKY_RELU:
        d.define(y, d.add("LeakyRelu", x, alpha=_slope(op)) if _slope(op) else d.add("Relu", x))
    else:
        magnitude = d.add("Floor", d.add("Add", d.add("Abs", d.add("Cast", x, to=np.float64)), scalar(0.5, np.float64)))
        signed = d.add("Mul", magnitude, d.add("Sign", d.add("Cast", x, to=np.float64)))
        d.define(y, d.add("Cast", signed, to=np.float32))


def _slope(op: ActivationFunction) -> float:
    return op.params[0] if isinstance(op, ActiveParam) and op.params else 0.0


def _integer_activation(op: ActivationFunction, x: Value, y: Value, d: Lowering) -> None:
    if op.active_type is ActiveType.ACTIVE_RELU:
        d.define(y, saturate(d, widen(d, x), y.dtype, low=0))
        return
    wide = widen(d, x)
    if op.active_type is ActiveType.ACTIVE_ABSVAL:
        result = d.add("Abs", wide)
    else:
        scaled = d.add("Mul", d.add("Cast", x, to=np.float32), scalar(_slope(op), np.float32))
        negative = round_half_away(d, scaled, DType.INT32, _ZERO, may_be_nan=False)
        is_negative = d.add("Less", wide, scalar(0, np.int64))
        result = d.add("Where", is_negative, widen(d, negative), wide)
    d.define(y, saturate(d, result, y.dtype))


@lowers(ConditionSelect)
def condition_select(op: ConditionSelect, node: Node, d: Lowering) -> None:
    """Lower a selection, whose condition is true above 0."""
    condition, *branches = node.inputs
    assert condition is not None
    if node.output.dtype not in (DType.FLOAT32, DType.INT32, DType.UINT8):
        raise NoOperator
    d.check_exact(condition)
    number = condition if condition.dtype is DType.FLOAT32 else d.add("Cast", condition, to=np.float32)
    is_true = d.add("Greater", number, np.zeros(1, np.float32))
    d.define(node.output, d.add("Where", is_true, *branches))
