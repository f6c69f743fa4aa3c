"""Lowerings of unary operators: lookup tables with the results of the kernels, or 16-bit rescales for each sign."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tpuconvert.optimizer.quantize.lower_shared import clamp, result_params, with_params
from tpuconvert.optimizer.quantize.lowering import Lowered, Lowering
from tpuconvert.optimizer.quantize.tflite import tables
from tpuconvert.optimizer.quantize.tflite.forms import form_of
from tpuconvert.optimizer.quantize.tflite.steps import operands_of, plain_rescale, source_of, steps_of, table
from tpuconvert.schema.fixed_point import multiplier_shift
from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.ops.activation import ActiveParam
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs, Mins
from tpuconvert.schema.ops.smooth_activation import Gelu, GeluForm
from tpuconvert.schema.types import Array, QuantParams, Scalar

_LIMITS = {
    "RELU": (0.0, math.inf),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}


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


def _gelu(node: Node) -> tables.Function:
    form = next((step.op.form for step in steps_of(node) if isinstance(step.op, Gelu)), GeluForm.ERF)
    return tables.gelu_by_erf if form is GeluForm.ERF else tables.gelu_by_tanh


def _alpha(node: Node) -> float | None:
    return next((float(step.op.params[0]) for step in steps_of(node) if isinstance(step.op, ActiveParam)), None)


def _entries(node: Node, x: QuantParams, y: QuantParams) -> Array | None:
    """Return the results of the kernel for every integer; None if the general lowering computes the same."""
    name, wide = source_of(node), x.dtype.bits == 16
    real = tables.interpolate_table if wide else tables.evaluate_table
    if name in _LIMITS:
        return tables.relu(x, y, *_LIMITS[name])
    if name == "LEAKY_RELU":
        alpha = _alpha(node)
        return None if alpha is None else tables.leaky_relu(x, y, alpha)
    if name == "LOGISTIC":
        return tables.logistic_16(x, y) if wide else tables.evaluate_table(x, y, _logistic)
    if name == "TANH":
        return tables.tanh_16(x, y) if wide else tables.evaluate_table(x, y, np.tanh)
    if name == "NEG":
        return tables.negate(x)
    if name == "SQRT":
        return tables.square_root(x, y)
    if name == "RSQRT":
        return real(x, y, _reciprocal_root(y)) if wide else tables.reciprocal_root(x, y)
    functions: dict[str, Callable[[], Array]] = {
        "ABS": lambda: tables.absolute(x, y),
        "HARD_SWISH": lambda: tables.hard_swish(x, y),
        "GELU": lambda: real(x, y, _gelu(node)),
        "EXP": lambda: real(x, y, tables.near(np.exp)),
        "LOG": lambda: real(x, y, _logarithm(y)),
    }
    return functions[name]()


@form_of(*_LIMITS, "LEAKY_RELU", "LOGISTIC", "TANH", "NEG", "SQRT", "RSQRT", "ABS", "HARD_SWISH", "GELU", "EXP", "LOG")
def function_of_one_element(node: Node, lowering: Lowering) -> Lowered | None:
    """Lower a unary operator to a lookup table with the results of the kernel."""
    operands = operands_of(node)
    x, params = operands[0].quant, result_params(node)
    if len(operands) != 1 or x is None or x.dtype != params.dtype or x.axis is not None:
        return None
    name = source_of(node)
    if name in _LIMITS and x == params:
        return clamp(lowering, lowering.quantized_value(operands[0]), _LIMITS[name], node.outputs[0].name)
    if params.dtype.bits == 16 and name in ("LEAKY_RELU", *_LIMITS):
        return _piecewise_16(node, lowering, operands[0])
    entries = _entries(node, x, params)
    if entries is None:
        return None
    return (table(lowering, lowering.quantized_value(operands[0]), entries, params, node.outputs[0].name),)


def _piecewise_16(node: Node, lowering: Lowering, operand: Value) -> Lowered | None:
    """Rescale each sign of 16-bit integers without zero points, and add both parts: one part is always zero."""
    params, name = result_params(node), node.outputs[0].name
    x = operand.quant
    assert x is not None
    if any((*x.zero_point, *params.zero_point)):
        return None
    ratio = float(np.float32(x.scale[0]) / np.float32(params.scale[0]))
    source = source_of(node)
    integers = lowering.quantized_value(operand)
    rising = lowering.g.add(Maxs(Scalar(x.dtype, 0)), integers, name=f"{name}:rising")
    if source != "LEAKY_RELU":
        moved = plain_rescale(lowering, rising, *multiplier_shift(ratio), f"{name}:moved", params.dtype)
        moved.quant = params
        return clamp(lowering, moved, _LIMITS[source], name)
    alpha = _alpha(node)
    if alpha is None:
        return None
    slope = float(np.float32(x.scale[0]) * np.float32(alpha) / np.float32(params.scale[0]))
    multiplier, exponent = multiplier_shift(abs(slope))
    falling = lowering.g.add(Mins(Scalar(x.dtype, 0)), integers, name=f"{name}:falling")
    signed = multiplier if slope >= 0 else -multiplier
    parts = [
        plain_rescale(lowering, rising, *multiplier_shift(ratio), f"{name}:rising:scaled", params.dtype),
        plain_rescale(lowering, falling, signed, exponent, f"{name}:falling:scaled", params.dtype),
    ]
    return with_params((lowering.g.add(Add(), *parts, name=name),), params)
