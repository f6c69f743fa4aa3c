"""Lowerings of unary operators: lookup tables with the results of the kernels, or 16-bit rescales for each sign."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tpuconvert.optimizer.quantize.lowering.lower_shared import clamp, result_params, with_params
from tpuconvert.optimizer.quantize.lowering.lowering import Lowered, Lowering
from tpuconvert.optimizer.quantize.lowering.tflite import tables
from tpuconvert.optimizer.quantize.lowering.tflite.arithmetic import squared_difference
from tpuconvert.optimizer.quantize.lowering.tflite.forms import form_of
from tpuconvert.optimizer.quantize.lowering.tflite.steps import plain_rescale, table
from tpuconvert.schema.arithmetic.fixed_point import multiplier_shift
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs, Mins, Muls
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.smooth_activation import Gelu, GeluForm, HardSwish
from tpuconvert.schema.types import Array, QuantParams, Scalar


def _logistic(x: Array) -> Array:
    one = x.dtype.type(1)
    result: Array = one / (one + tables.near(np.exp)(-x))
    return result


def _logarithm(params: QuantParams) -> tables.Function:
    lowest = np.float32(params.dtype.min - params.zero_point[0]) * np.float32(params.scale[0])
    return lambda x: np.where(x > 0, tables.near(np.log)(np.maximum(x, np.float32(1e-45))), lowest)


def _reciprocal_root(params: QuantParams) -> tables.Function:
    highest = np.float32(params.dtype.max) * np.float32(params.scale[0])
    return lambda x: np.where(x > 0, np.float32(1) / np.sqrt(np.maximum(x, np.float32(1e-45))), highest)


def _gelu(op: Gelu) -> tables.Function:
    return tables.gelu_by_erf if op.form is GeluForm.ERF else tables.gelu_by_tanh


def _slope(op: Op) -> float | None:
    """Slope of a leaky ReLU for negative operands; None for other operators."""
    is_leaky = isinstance(op, ActiveParam) and op.active_type is ActiveType.ACTIVE_LEAKY_RELU
    return float(op.params[0]) if isinstance(op, ActiveParam) and is_leaky else None


def _entries(op: Op, x: QuantParams, y: QuantParams) -> Array | None:
    """Return the results of the kernel for every integer; None if there is no kernel."""
    wide, bounds, slope = x.dtype.bits == 16, op.clamp_range(), _slope(op)
    real = tables.interpolate_table if wide else tables.evaluate_table
    if bounds is not None:
        return tables.relu(x, y, *bounds)
    if slope is not None:
        return tables.leaky_relu(x, y, slope)
    if isinstance(op, HardSwish):
        return tables.hard_swish(x, y)
    if isinstance(op, Gelu):
        return real(x, y, _gelu(op))
    if isinstance(op, Muls):
        return tables.negate(x) if op.scalar.value == -1 else None
    functions: dict[ActiveType, Callable[[], Array]] = {
        ActiveType.ACTIVE_SIGMOID: lambda: tables.logistic_16(x, y) if wide else real(x, y, _logistic),
        ActiveType.ACTIVE_TANH: lambda: tables.tanh_16(x, y) if wide else real(x, y, np.tanh),
        ActiveType.ACTIVE_SQRT: lambda: tables.square_root(x, y),
        ActiveType.ACTIVE_RSQRT: lambda: real(x, y, _reciprocal_root(y)) if wide else tables.reciprocal_root(x, y),
        ActiveType.ACTIVE_ABSVAL: lambda: tables.absolute(x, y),
        ActiveType.ACTIVE_EXP: lambda: real(x, y, tables.near(np.exp)),
        ActiveType.ACTIVE_LN: lambda: real(x, y, _logarithm(y)),
    }
    entries = functions.get(op.active_type) if isinstance(op, Active) else None
    return None if entries is None else entries()


@form_of(Active, ActiveParam, Clamp, Maxs, Mins, HardSwish, Gelu, Muls)
def function_of_one_element(node: Node, lowering: Lowering) -> Lowered | None:
    """RELU and its variants, LEAKY_RELU, LOGISTIC, TANH, RSQRT, ABS, HARD_SWISH, GELU, EXP, LOG: a lookup table."""
    operand, params = node.inputs[0], result_params(node)
    if isinstance(node.op, Active) and node.op.active_type is ActiveType.ACTIVE_SQUARE:
        return squared_difference(node, lowering)
    assert operand is not None
    x, bounds, name = operand.quant, node.op.clamp_range(), node.outputs[0].name
    if x is None or x.dtype != params.dtype or x.axis is not None or params.axis is not None:
        return None
    if bounds is not None and x == params:
        return clamp(lowering, lowering.quantized_value(operand), bounds, name)
    if params.dtype.bits == 16 and (bounds is not None or _slope(node.op) is not None):
        return _piecewise_16(node, lowering, operand)
    entries = _entries(node.op, x, params)
    if entries is None:
        return None
    return (table(lowering, lowering.quantized_value(operand), entries, params, name),)


def _piecewise_16(node: Node, lowering: Lowering, operand: Value) -> Lowered | None:
    """Rescale each sign of 16-bit integers without zero points, and add both parts: one part is always zero."""
    params, name = result_params(node), node.outputs[0].name
    x = operand.quant
    assert x is not None
    if any((*x.zero_point, *params.zero_point)):
        return None
    ratio = float(np.float32(x.scale[0]) / np.float32(params.scale[0]))
    bounds, alpha = node.op.clamp_range(), _slope(node.op)
    integers = lowering.quantized_value(operand)
    rising = lowering.g.add(Maxs(Scalar(x.dtype, 0)), integers, name=f"{name}:rising")
    if alpha is None:
        assert bounds is not None
        moved = plain_rescale(lowering, rising, *multiplier_shift(ratio), f"{name}:moved", params.dtype)
        moved.quant = params
        return clamp(lowering, moved, bounds, name)
    slope = float(np.float32(x.scale[0]) * np.float32(alpha) / np.float32(params.scale[0]))
    multiplier, exponent = multiplier_shift(abs(slope))
    falling = lowering.g.add(Mins(Scalar(x.dtype, 0)), integers, name=f"{name}:falling")
    signed = multiplier if slope >= 0 else -multiplier
    parts = [
        plain_rescale(lowering, rising, *multiplier_shift(ratio), f"{name}:rising:scaled", params.dtype),
        plain_rescale(lowering, falling, signed, exponent, f"{name}:falling:scaled", params.dtype),
    ]
    return with_params((lowering.g.add(Add(), *parts, name=name),), params)
