"""Operators of integer LSTM cells, each with the rounding of the reference kernel."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.quantize.lowering.lower_shared import result_params, with_params
from tpuconvert.optimizer.quantize.lowering.lowering import Lowered, Lowering
from tpuconvert.optimizer.quantize.lowering.tflite.forms import form_of
from tpuconvert.optimizer.quantize.lowering.tflite.steps import (
    divided_by_power,
    narrow,
    one_scale_each,
    plain_rescale,
    table,
)
from tpuconvert.optimizer.quantize.lowering.tflite.tables import every_integer
from tpuconvert.optimizer.quantize.traits import keeps_scale
from tpuconvert.optimizer.quantize.weights.weights import integer_weights
from tpuconvert.schema.arithmetic import short_functions
from tpuconvert.schema.arithmetic.fixed_point import multiplier_shift, power_of_two
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Rsubs
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.types import I8, I16, I32, Arithmetic, Scalar

_SUM_BITS = 12


@form_of(MatrixMul, Active, Add, Mul, Rsubs, arithmetic=Arithmetic.RECURRENT_CELL)
def step_of_a_cell(node: Node, lowering: Lowering) -> Lowered | None:
    """Lower one operator of an LSTM cell to the arithmetic of the reference kernel."""
    if isinstance(node.op, MatrixMul):
        return _product(node, lowering)
    if isinstance(node.op, Active):
        return _function(node, lowering, node.op.active_type)
    if isinstance(node.op, Add):
        return _sum(node, lowering)
    if isinstance(node.op, Mul):
        return _gate(node, lowering)
    if isinstance(node.op, Rsubs):
        (x,) = node.inputs
        assert x is not None
        rest = lowering.g.add(Rsubs(Scalar(I16, 2**15 - 1)), lowering.quantized_value(x), name=node.outputs[0].name)
        return with_params((rest,), result_params(node))
    return None


def _product(node: Node, lowering: Lowering) -> Lowered | None:
    """Lower the matmul of all gates. Columns are rescaled to 12 fraction bits; scales are multiplied in binary32."""
    x, w = node.inputs[:2]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    weights = integer_weights(node, per_channel=True)
    params, name = result_params(node), node.outputs[0].name
    if x is None or w is None or x.quant is None or weights is None or (bias is not None and bias.stored is None):
        return None
    operands = [lowering.quantized_value(x), lowering.g.constant(weights.stored, w.name, weights.params)]
    if bias is not None and bias.stored is not None:
        operands.append(lowering.g.constant(bias.stored.reshape(-1), bias.name))
    op = MatrixMulV2(has_bias=bias is not None, lzp_val=x.quant.zero_point[0])
    total = lowering.g.add(op, *operands, name=f"{name}:int32")
    unit = np.float32(2.0**-_SUM_BITS)
    scales = np.asarray(weights.params.scale, dtype=np.float32) * np.float32(x.quant.scale[0]) / unit
    factors = [float(scale) for scale in scales]
    if params.dtype is I32:
        return with_params((lowering.scale_int32(total, factors, name),), params)
    return (lowering.requantize(total, factors, params, name, twice=True),)


def _function(node: Node, lowering: Lowering, kind: ActiveType) -> Lowered | None:
    """Lower the logistic function or tanh of 16-bit fixed point."""
    (x,) = node.inputs
    if x is None or x.quant is None or x.quant.dtype is not I16:
        return None
    bits = 15 + round(math.log2(x.quant.scale[0]))
    if kind is ActiveType.ACTIVE_SIGMOID and bits == 15 - _SUM_BITS:
        entries = short_functions.logistic(every_integer(I16))
    elif kind is ActiveType.ACTIVE_TANH and 0 <= bits <= 6:
        entries = short_functions.tanh(every_integer(I16), bits)
    else:
        return None
    return (table(lowering, lowering.quantized_value(x), entries, result_params(node), node.outputs[0].name),)


def _sum(node: Node, lowering: Lowering) -> Lowered | None:
    """Lower an add of operands with equal scales; saturate to 16 bits."""
    operands = [lowering.quantized_value(value) for value in node.inputs if value is not None]
    params, name = result_params(node), node.outputs[0].name
    if all(value.dtype is I16 for value in operands):
        return with_params((lowering.g.add(Add(out_dtype=I16), *operands, name=name),), params)
    wide = [
        value if value.dtype is I32 else plain_rescale(lowering, value, *power_of_two(), f"{name}:operand{index}", I32)
        for index, value in enumerate(operands)
    ]
    return (narrow(lowering, lowering.g.add(Add(), *wide, name=f"{name}:int32"), params, name),)


def _gate(node: Node, lowering: Lowering) -> Lowered | None:
    """Lower a multiply with a gate: shift to the scale of the cell, or rescale to the scale of the output."""
    operands = [value for value in node.inputs if value is not None]
    params, name = result_params(node), node.outputs[0].name
    if not one_scale_each(*operands):
        return None
    wide = [
        plain_rescale(lowering, lowering.quantized_value(value), *power_of_two(), f"{name}:operand{index}", I32)
        for index, value in enumerate(operands)
    ]
    product = lowering.g.add(Mul(), *wide, name=f"{name}:int32")
    unit = math.prod(value.quant.scale[0] for value in operands if value.quant is not None)
    if params.dtype is I16:
        shift = round(math.log2(params.scale[0] / unit))
        return with_params((divided_by_power(lowering, product, shift, name, I16),), params)
    if params.dtype is not I8:
        return None
    factor = float(np.float32(unit / float(np.float32(params.scale[0]))))
    multiplier, exponent = multiplier_shift(factor)
    result = plain_rescale(lowering, product, multiplier, exponent, name, I8, offset=params.zero_point[0])
    return with_params((result,), params)


def forget_inner_scales(graph: Graph) -> None:
    """Remove the annotations inside recurrent cells, for chips that do not support these lowerings."""
    cells = [node for node in graph.nodes if any(_is_in_cell(value) for value in node.outputs)]
    results = [value for node in cells for value in node.outputs]
    inside = [value for value in results if not graph.is_output(value) and all(map(_stays_in_cell, value.users))]
    for node in cells:
        for constant in node.inputs[1:] if isinstance(node.op, MatrixMul) else ():
            if constant is not None and all(_is_in_cell(user.outputs[0]) for user in constant.users):
                constant.quant = constant.stored = None
    for value in inside:
        value.quant = None


def _stays_in_cell(user: Node) -> bool:
    """Return True for a node of a cell, or data movement, whose result has the same annotation."""
    return _is_in_cell(user.outputs[0]) or keeps_scale(user.op)


def _is_in_cell(value: Value) -> bool:
    return value.quant is not None and value.quant.arithmetic is Arithmetic.RECURRENT_CELL
