"""Requantization: QUANTIZE of integers, operands of CONCATENATION."""

from __future__ import annotations

import numpy as np

from tpuconvert.optimizer.quantize.lower_shared import names_of, result_params, with_params
from tpuconvert.optimizer.quantize.lowering import Lowered, Lowering
from tpuconvert.optimizer.quantize.tflite import tables
from tpuconvert.optimizer.quantize.tflite.forms import form_of
from tpuconvert.optimizer.quantize.tflite.steps import one_scale_each, operands_of, plain_rescale, table
from tpuconvert.schema.fixed_point import multiplier_shift
from tpuconvert.schema.graph import Node
from tpuconvert.schema.types import U8


@form_of("QUANTIZE")
def quantize(node: Node, lowering: Lowering) -> Lowered | None:
    """Requantize integers with two roundings."""
    operands, params = operands_of(node), result_params(node)
    x = operands[0].quant
    if len(operands) != 1 or x is None or not one_scale_each(operands[0]) or params.axis is not None or x == params:
        return None
    name, integers = node.outputs[0].name, lowering.quantized_value(operands[0])
    if x.dtype.bits == 8 and params.dtype.bits == 8:
        return (table(lowering, integers, tables.requantize(x, params), params, name),)
    if x.zero_point[0]:
        integers = lowering.widen(integers, 0, f"{name}:centred")
    factor = float(np.float32(x.scale[0])) / float(np.float32(params.scale[0]))
    multiplier, exponent = multiplier_shift(factor)
    result = plain_rescale(lowering, integers, multiplier, exponent, name, params.dtype, offset=params.zero_point[0])
    result.quant = params
    return (result,)


@form_of("CONCATENATION")
def concatenation(node: Node, lowering: Lowering) -> Lowered | None:
    """Requantize UINT8 operands to the scale of the result in binary32."""
    params = result_params(node)
    operands = [value for value in node.inputs if value is not None]
    if node.op.name != "concat" or not one_scale_each(*operands) or params.dtype is not U8:
        return None
    parts = []
    for index, value in enumerate(operands):
        part = lowering.quantized_value(value)
        if value.quant is not None and value.quant != params:
            entries = tables.requantize_concat_operand(value.quant, params)
            part = table(lowering, part, entries, params, f"{node.outputs[0].name}:operand{index}")
        parts.append(part)
    return with_params(lowering.moves(node.op, *parts, names=names_of(node)), params)
