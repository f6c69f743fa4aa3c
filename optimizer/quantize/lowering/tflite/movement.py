"""Requantization: QUANTIZE of integers, operands of CONCATENATION."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.quantize.lowering.lower_shared import names_of, result_params, with_params
from tpuconvert.optimizer.quantize.lowering.lowering import Lowered, Lowering
from tpuconvert.optimizer.quantize.lowering.tflite import tables
from tpuconvert.optimizer.quantize.lowering.tflite.forms import form_of
from tpuconvert.optimizer.quantize.lowering.tflite.steps import divided_by_power, one_scale_each, plain_rescale, table
from tpuconvert.schema.arithmetic.fixed_point import multiplier_shift
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.types import U8, Arithmetic


@form_of(Copy)
def quantize(node: Node, lowering: Lowering) -> Lowered | None:
    """QUANTIZE: requantize integers with two roundings."""
    operand, params = node.inputs[0], result_params(node)
    assert operand is not None
    x = operand.quant
    if x is None or not one_scale_each(operand) or params.axis is not None or x == params:
        return None
    name, integers = node.outputs[0].name, lowering.quantized_value(operand)
    if x.dtype.bits == 8 and params.dtype.bits == 8:
        return (table(lowering, integers, tables.requantize(x, params), params, name),)
    if x.zero_point[0]:
        integers = lowering.widen(integers, 0, f"{name}:centred")
    factor = float(np.float32(x.scale[0])) / float(np.float32(params.scale[0]))
    multiplier, exponent = multiplier_shift(factor)
    result = plain_rescale(lowering, integers, multiplier, exponent, name, params.dtype, offset=params.zero_point[0])
    result.quant = params
    return (result,)


@form_of(Copy, arithmetic=Arithmetic.SHIFT)
def shift(node: Node, lowering: Lowering) -> Lowered | None:
    """Shift an operand of a 16-bit ADD with power-of-two scales to the scale of the result; ties round away from 0."""
    (x,) = node.inputs
    params = result_params(node)
    if x is None or x.quant is None:
        return None
    places = round(math.log2(params.scale[0] / x.quant.scale[0]))
    result = divided_by_power(lowering, lowering.quantized_value(x), places, node.outputs[0].name, params.dtype)
    return with_params((result,), params)


@form_of(Concat)
def concatenation(node: Node, lowering: Lowering) -> Lowered | None:
    """CONCATENATION: requantize UINT8 operands to the scale of the result in binary32."""
    params = result_params(node)
    operands = [value for value in node.inputs if value is not None]
    if not one_scale_each(*operands) or params.dtype is not U8:
        return None
    parts = []
    for index, value in enumerate(operands):
        part = lowering.quantized_value(value)
        if value.quant is not None and value.quant != params:
            entries = tables.requantize_concat_operand(value.quant, params)
            part = table(lowering, part, entries, params, f"{node.outputs[0].name}:operand{index}")
        parts.append(part)
    return with_params(lowering.moves(node.op, *parts, names=names_of(node)), params)
