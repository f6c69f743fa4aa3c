"""Comparisons of integers: the kernels rescale both operands to a common unit of 2^-8, so that near values are equal.

The result is Boolean and has no scale; the node itself compares FLOAT32, which holds the rescaled operands exactly.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.optimizer.quantize.lowering.lowering import Lowering, params_of
from tpuconvert.optimizer.quantize.lowering.tflite.steps import TFLITE, TFLITE_ONCE, one_scale_each, plain_rescale
from tpuconvert.schema.arithmetic.fixed_point import multiplier_shift
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.compare import Eq, Ne
from tpuconvert.schema.types import F32, I16, I32, Chip

_LEFT_SHIFT = 8


def compared_operands(node: Node, lowering: Lowering) -> list[Value] | None:
    """FLOAT32 operands of a comparison of two quantized values, as the kernel compares them; None to dequantize.

    INT16 is rescaled for equality only; the other comparisons of INT16 compare the integers.
    """
    operands = [value for value in node.inputs if value is not None]
    if lowering.rescale not in (TFLITE, TFLITE_ONCE) or lowering.chip is not Chip.BM1686:
        return None
    if Trait.COMPARISON not in node.op.traits or len(operands) != 2 or not one_scale_each(*operands):
        return None
    values = [lowering.quantized_value(value) for value in operands]
    if all(value.dtype is I16 for value in values) and not isinstance(node.op, (Eq, Ne)):
        return [_as_float(lowering, value, f"{node.name}:operand{i}") for i, value in enumerate(values)]
    scales = [float(np.float32(params_of(value).scale[0])) for value in values]
    assert max(scales) < 1, "the importer refuses other scales; FLOAT32 holds 24 bits exactly"
    results = []
    for index, (value, scale) in enumerate(zip(values, scales, strict=True)):
        name = f"{node.name}:operand{index}"
        wide = lowering.widen(value, _LEFT_SHIFT, name)
        scaled = plain_rescale(lowering, wide, *multiplier_shift(scale), f"{name}:scaled", I32)
        results.append(_as_float(lowering, scaled, name))
    return results


def _as_float(lowering: Lowering, x: Value, name: str) -> Value:
    return lowering.g.add(Cast(out_dtype=F32), x, name=f"{name}:float32")
