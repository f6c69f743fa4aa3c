"""Lowerings for BM1686 that are bit-exact with quantized ONNX operators where the general lowerings round differently.

A lowering that does not apply to a node returns None, and the general lowering is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tpuconvert.optimizer.engine.node_properties import operands
from tpuconvert.optimizer.quantize.lowering.binary32_sum import LARGEST, find_sum
from tpuconvert.optimizer.quantize.lowering.lower_shared import result_params, sum_windows
from tpuconvert.optimizer.quantize.lowering.lowering import (
    ONNX,
    Declined,
    Lowered,
    Lowering,
    int32_params,
    params_of,
    requant_int32,
)
from tpuconvert.optimizer.quantize.traits import is_average_pool, is_product, whole_window
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.quantization.requant_int32 import RequantMode
from tpuconvert.schema.types import I32, Chip, QuantParams

_PART_BITS = LARGEST.bit_length()


SourceForm = Callable[[Node, Lowering], Lowered | None]

_FORMS: dict[type[Op], SourceForm] = {}


def _form_of(op: type[Op]) -> Callable[[SourceForm], SourceForm]:
    def register(function: SourceForm) -> SourceForm:
        _FORMS[op] = function
        return function

    return register


def exact_form(node: Node, lowering: Lowering) -> Lowered | None:
    """Lower a node whose operands and results are quantized. None selects the general lowering."""
    if lowering.rescale != ONNX:
        return None
    # The bias is not checked: it is rounded to the unit of the accumulator, far below a step of the result.
    for operand in node.inputs[:2] if is_product(node.op) or type(node.op) in _FORMS else ():
        if operand is not None and operand.is_constant and operand.stored is None:
            return Declined(f"its operand '{operand.name}' is float in the source")
    form = _FORMS.get(type(node.op)) if lowering.chip is Chip.BM1686 else None
    if form is None:
        return None
    lowering.form = form.__name__
    return form(node, lowering)


def _are_plain_bytes(*quants: QuantParams) -> bool:
    return all(params.dtype.bits == 8 and params.axis is None for params in quants)


@_form_of(Add)
def _sum(node: Node, lowering: Lowering) -> Lowered | None:
    """Multiply operands by 22-bit integers with the ratio of their scales, add them, and rescale once."""
    name, params = node.outputs[0].name, result_params(node)
    left, right = (params_of(value) for value in node.inputs)
    if not _are_plain_bytes(left, right, params):
        return _difference(node, lowering)
    fixed_sum = find_sum(left, right, params)
    if fixed_sum is None:
        return None
    values = [lowering.quantized_value(value) for value in operands(node)]
    addends = (fixed_sum.addend, 0)
    terms = [
        _whole_multiple(lowering, value, part, addend, f"{name}:operand{index}")
        for index, (value, part, addend) in enumerate(zip(values, fixed_sum.parts, addends, strict=True))
    ]
    total = lowering.g.add(node.op, *terms, name=f"{name}:int32")
    total.quant = int32_params([left.scale[0] / fixed_sum.parts[0]])
    pairs, offsets = [(fixed_sum.multiplier, fixed_sum.shift)], params.zero_point[:1]
    op = requant_int32(pairs, RequantMode.MULTIPLIER_SHIFT, params.dtype, offsets, fixed_sum.rounding)
    return (lowering.g.add(op, total, name=name),)


@_form_of(Sub)
def _difference(node: Node, _: Lowering) -> Lowered | None:
    """Use the general lowering for 8 bits. For 16 bits it is coarser than the binary32 arithmetic of the source."""
    if any(params_of(value).dtype.bits > 8 for value in (*node.inputs, *node.outputs)):
        return Declined("sums of 16-bit integers are rounded in binary32 by the source")
    return None


def _whole_multiple(lowering: Lowering, x: Value, part: int, addend: int, name: str) -> Value:
    """Add ``(x - zero_point) * part + addend`` as INT32, exactly."""
    pair, offset = (part << (31 - _PART_BITS), _PART_BITS), addend - params_of(x).zero_point[0] * part
    op = requant_int32([pair], RequantMode.TFLITE_LSHIFT, I32, [offset])
    return lowering.g.add(op, x, name=name)


@_form_of(Mul)
def _product(node: Node, lowering: Lowering) -> Lowered | None:
    """Multiply the integers minus their zero points exactly, then rescale."""
    name, params = node.outputs[0].name, result_params(node)
    left, right = (params_of(value) for value in node.inputs)
    if not _are_plain_bytes(left, right, params):
        return None
    values = [lowering.quantized_value(value) for value in operands(node)]
    wide = [lowering.widen(value, 0, f"{name}:operand{index}") for index, value in enumerate(values)]
    product = lowering.g.add(Mul(out_dtype=I32), *wide, name=f"{name}:int32")
    factor = np.float32(left.scale[0]) * np.float32(right.scale[0]) / np.float32(params.scale[0])
    return (lowering.requantize_as_binary32(product, [float(factor)], params, name),)


@_form_of(Pool)
def _average(node: Node, lowering: Lowering) -> Lowered | None:
    """Sum whole windows by a conv with ones, then rescale by binary32(s_x / (s_y * elements)).

    At one scale an average of an odd number of elements is never a tie: pool_int gives the same.
    """
    name, params = node.outputs[0].name, result_params(node)
    own = params_of(node.inputs[0])
    if not is_average_pool(node.op) or not _are_plain_bytes(own, params):
        return None
    window = whole_window(node)
    if window is None:
        return Declined("its windows reach beyond the image, where pool_int would round twice")
    count = math.prod(window)
    if own == params and count % 2:
        return None
    total = sum_windows(node, lowering, ConvV2(izp_val=own.zero_point[0]), window, f"{name}:int32")
    factor = np.float32(own.scale[0]) / (np.float32(params.scale[0]) * np.float32(count))
    return (lowering.requantize_as_binary32(total, [float(factor)], params, name),)
