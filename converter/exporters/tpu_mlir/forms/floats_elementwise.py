"""Lowerings of element-wise operators in floating point. The device may round their results differently."""

from __future__ import annotations

import math
from typing import Any

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import Tensor, in_range
from tpuconvert.exporters.tpu_mlir.lowering import Lowering, static_shape
from tpuconvert.exporters.tpu_mlir.registry import lowers_floats
from tpuconvert.schema.definition.op import UnaryOp
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.activation import ActivationFunction, Active, ActiveParam
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
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.quantization.round_to_integer import Ceil, Floor
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.smooth_activation import CompositeActivation, Gelu, GeluForm, HardSwish, Mish, Silu, Softplus
from tpuconvert.schema.ops.trigonometry import Cos, Sin

_MODES = {
    "ACTIVE_TANH": "TANH",
    "ACTIVE_SIGMOID": "SIGMOID",
    "ACTIVE_EXP": "EXP",
    "ACTIVE_SQRT": "SQRT",
    "ACTIVE_SQUARE": "SQUARE",
    "ACTIVE_RSQRT": "RSQRT",
    "ACTIVE_ABSVAL": "ABSVAL",
    "ACTIVE_LN": "LN",
    "ACTIVE_ROUND": "ROUND",
    "ACTIVE_CEIL": "CEIL",
    "ACTIVE_FLOOR": "FLOOR",
    "ACTIVE_SIN": "SIN",
    "ACTIVE_COS": "COS",
}
"""Activation function -> mode of ``tpu.Active`` without coefficients."""


def add_active(d: Lowering, node: Node, mode: str, **attributes: object) -> None:
    """Append an activation function, computed in FLOAT32: most chips have no other type of most functions."""
    x, y = d.floats(node.inputs[0], "f32"), node.output
    if d.has_operation("tpu.Active", mode) or mode not in _FROM_OTHERS:
        d.add_floats("tpu.Active", [x], y, "f32", mode=mode, **attributes)
    else:
        d.define(y, d.as_kind(_FROM_OTHERS[mode](d, x, y.name), d.kind))


def _step(d: Lowering, operation: str, operands: list[Tensor], name: str, **attributes: Any) -> Tensor:
    return d.module.add(operation, operands, operands[0].shape, "f32", name, **attributes)


def _ceil(d: Lowering, x: Tensor, name: str) -> Tensor:
    """Append the negative of the floor of the negative."""
    negative = _step(d, "tpu.MulConst", [x], f"{name}_negative", const_val=-1.0)
    return _step(
        d, "tpu.MulConst", [_step(d, "tpu.Active", [negative], f"{name}_floor", mode="FLOOR")], name, const_val=-1.0
    )


def _round(d: Lowering, x: Tensor, name: str) -> Tensor:
    """Append max(floor(x + 1/2), 0) - max(floor(1/2 - x), 0), which rounds ties away from zero."""
    above = _step(d, "tpu.AddConst", [x], f"{name}_above", const_val=0.5)
    below = _step(d, "tpu.SubConst", [x], f"{name}_below", const_val=0.5, is_reverse=True)
    parts = []
    for part in (above, below):
        floor = _step(d, "tpu.Active", [part], f"{part.location}_floor", mode="FLOOR")
        parts.append(_step(d, "tpu.MaxConst", [floor], f"{part.location}_part", const_val=0.0))
    return _step(d, "tpu.Sub", parts, name)


def _rsqrt(d: Lowering, x: Tensor, name: str) -> Tensor:
    """Append the reciprocal of the square root."""
    root = _step(d, "tpu.Active", [x], f"{name}_root", mode="SQRT")
    return _step(d, "tpu.Reciprocal", [root], name, const_val=1.0)


_FROM_OTHERS = {"CEIL": _ceil, "ROUND": _round, "RSQRT": _rsqrt}
"""Functions that some chips have no operation of -> function that appends them as other operations."""


@lowers_floats(Active, ActiveParam)
def active(op: ActivationFunction, node: Node, d: Lowering) -> None:
    """Lower an activation function."""
    name = op.active_type.name
    if name == "ACTIVE_RELU":
        d.add_floats("tpu.Relu", [d.floats(node.inputs[0])], node.output)
    elif name == "ACTIVE_LEAKY_RELU":
        slope = op.params[0] if isinstance(op, ActiveParam) and op.params else 0.0
        d.add_floats("tpu.LeakyRelu", [d.floats(node.inputs[0])], node.output, alpha=slope)
    elif name == "ACTIVE_ELU":
        add_active(d, node, "ELU", coeffs=[1.0])
    elif name in _MODES:
        add_active(d, node, _MODES[name])
    else:
        raise NoExactForm(f"the tpu dialect has no {name}")


@lowers_floats(Silu, Gelu, HardSwish, Mish, Softplus)
def smooth(op: CompositeActivation, node: Node, d: Lowering) -> None:
    """Lower a smooth activation function."""
    match op:
        case Silu() if op.alpha != 1.0:
            raise NoExactForm(f"its factor is {op.alpha}, expected 1")
        case Silu():
            mode = "SILU"
        case Gelu():
            mode = "GELU" if op.form is GeluForm.ERF else "TGELU"
        case HardSwish():
            mode = "HSWISH"
        case Mish():
            mode = "MISH"
        case Softplus():
            mode = "SOFT_PLUS"
    add_active(d, node, mode)


@lowers_floats(Sin, Cos, Floor, Ceil)
def function(op: UnaryOp, node: Node, d: Lowering) -> None:
    """Lower a function of one operand."""
    add_active(d, node, op.name.upper())


@lowers_floats(Add, Sub, Mul, Max, Min, Div)
def binary(op: BinaryArithmetic, node: Node, d: Lowering) -> None:
    """Lower arithmetic on two operands. Quotients are computed in FLOAT32: BM1684X has no other type."""
    kind, first = "f32" if isinstance(op, Div) else "", node.inputs[0]
    if isinstance(op, Div) and first is not None and first.is_constant and first.array.size == 1:
        # BM1684 divides a number by a tensor wrong.
        number = float(first.array.item())
        d.add_floats("tpu.Reciprocal", [d.floats(node.inputs[1], "f32")], node.output, "f32", const_val=number)
        return
    d.add_floats(f"tpu.{op.name.capitalize()}", [d.floats(value, kind) for value in node.inputs], node.output, kind)


@lowers_floats(Adds, Subs, Rsubs, Muls, Divs, Rdivs, Maxs, Mins)
def scalar(op: ScalarArithmetic, node: Node, d: Lowering) -> None:
    """Lower arithmetic with a number."""
    number = float(op.scalar.value)
    match op:
        case Adds():
            d.add_floats("tpu.AddConst", [d.floats(node.inputs[0])], node.output, const_val=number)
        case Subs():
            d.add_floats("tpu.AddConst", [d.floats(node.inputs[0])], node.output, const_val=-number)
        case Rsubs():
            x = d.floats(node.inputs[0])
            d.add_floats("tpu.SubConst", [x], node.output, const_val=number, is_reverse=True)
        case Muls():
            d.add_floats("tpu.MulConst", [d.floats(node.inputs[0])], node.output, const_val=number)
        case Divs():
            factor = 1 / number if number else math.copysign(math.inf, number)
            d.add_floats("tpu.MulConst", [d.floats(node.inputs[0], "f32")], node.output, "f32", const_val=factor)
        case Rdivs():
            d.add_floats("tpu.Reciprocal", [d.floats(node.inputs[0], "f32")], node.output, "f32", const_val=number)
        case Maxs():
            d.add_floats("tpu.MaxConst", [d.floats(node.inputs[0])], node.output, const_val=number)
        case Mins():
            d.add_floats("tpu.MinConst", [d.floats(node.inputs[0])], node.output, const_val=number)


@lowers_floats(Clamp)
def clamp(op: Clamp, node: Node, d: Lowering) -> None:
    """Lower a limit to a range."""
    low, high = map(float, op.clamp_range())
    x, y = d.floats(node.inputs[0]), node.output
    if d.has_operation("tpu.Clip") and math.isfinite(low) and math.isfinite(high):
        d.add_floats("tpu.Clip", [x], y, min=low, max=high)
        return
    if not math.isinf(low):
        name = y.name if math.isinf(high) else f"{y.name}_raised"
        x = d.module.add("tpu.MaxConst", [x], x.shape, d.kind, name, const_val=low)
    if not math.isinf(high):
        x = d.module.add("tpu.MinConst", [x], x.shape, d.kind, y.name, const_val=high)
    d.define(y, x)


_COMPARISONS = {
    Comparison.EQ: "Equal",
    Comparison.NE: "NotEqual",
    Comparison.GT: "Greater",
    Comparison.GE: "GreaterOrEqual",
    Comparison.LT: "Less",
    Comparison.LE: "LessOrEqual",
}


@lowers_floats(Eq, Ne, Gt, Ge, Lt, Le)
def comparison(op: TensorComparison, node: Node, d: Lowering) -> None:
    """Lower a comparison of two operands."""
    operands = [d.floats(value) for value in node.inputs]
    d.add_floats("tpu.Compare", operands, node.output, mode=_COMPARISONS[op.comparison])


@lowers_floats(Eqs, Nes, Gts, Ges, Lts, Les)
def comparison_with_number(op: ScalarComparison, node: Node, d: Lowering) -> None:
    """Lower a comparison with a number."""
    number, mode = float(op.scalar_i1.value), _COMPARISONS[op.comparison]
    d.add_floats("tpu.CompareConst", [d.floats(node.inputs[0])], node.output, mode=mode, const_val=number)


@lowers_floats(ConditionSelect)
def condition_select(op: ConditionSelect, node: Node, d: Lowering) -> None:
    """Lower a selection between two operands. The compiler does not repeat operands: numbers are attributes.

    The operator selects by ``condition > 0``, and the operation of the dialect, in 16 bits, by ``condition != 0``.
    """
    condition, *choices = node.inputs
    shape = static_shape(node.output)
    tensor = d.repeated(condition, shape)
    producer = None if condition is None else condition.producer
    if producer is None or not isinstance(producer.op, (TensorComparison, ScalarComparison)):
        name = f"{node.output.name}_condition"
        tensor = d.module.add("tpu.CompareConst", [tensor], shape, d.kind, name, mode="Greater", const_val=0.0)
    operands: list[Tensor | None] = [tensor]
    attributes: dict[str, Any] = {}
    for name, value in zip("xy", choices, strict=True):
        assert value is not None
        is_number = value.is_constant and value.array.size == 1
        operands.append(None if is_number else d.repeated(value, shape))
        if is_number:
            attributes |= {f"{name}_is_const": True, f"{name}_const_val": in_range(float(value.array.item()), d.kind)}
    d.add_floats("tpu.Where", operands, node.output, **attributes)


@lowers_floats(Copy)
def copy(op: Copy, node: Node, d: Lowering) -> None:
    """The result is the operand."""
    d.define(node.output, d.reshape(d.floats(node.inputs[0]), static_shape(node.output), node.output.name))
