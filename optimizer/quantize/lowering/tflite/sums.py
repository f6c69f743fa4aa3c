"""MEAN and SUM along axes, and 16-bit average pooling: exact sums, then one rescale or division."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.quantize.lowering.lower_shared import pool_int_of, result_params, with_params
from tpuconvert.optimizer.quantize.lowering.lowering import Lowered, Lowering
from tpuconvert.optimizer.quantize.lowering.tflite.forms import form_of
from tpuconvert.optimizer.quantize.lowering.tflite.steps import (
    TFLITE_ONCE,
    join_bytes,
    one_scale_each,
    plain_rescale,
    split_bytes,
)
from tpuconvert.schema.arithmetic.fixed_point import multiplier_shift
from tpuconvert.schema.graph.graph import Node, Value, static
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.shape_change import Reshape


@form_of(Reduce)
def sums(node: Node, lowering: Lowering) -> Lowered | None:
    """MEAN and SUM: sum the integers exactly by a matmul with ones, then rescale once."""
    operand, params, name = node.inputs[0], result_params(node), node.outputs[0].name
    assert isinstance(node.op, Reduce) and operand is not None
    x = operand.quant
    if x is None or not one_scale_each(operand) or params.axis is not None or not operand.type.is_static:
        return None
    shape = static(operand.shape)
    axes = sorted({axis % len(shape) for axis in node.op.axis_list[: node.op.axis_num]})
    count = math.prod(shape[axis] for axis in axes)
    is_mean = node.op.method is ReduceMethodType.REDUCE_MEAN
    once = lowering.rescale == TFLITE_ONCE
    multiplier, exponent = multiplier_shift(x.scale[0] / params.scale[0] / (count if is_mean and once else 1))
    if is_mean and not once:
        shift = min(count.bit_length() - 1, 32, 31 + exponent)
        multiplier, exponent = (multiplier << shift) // count, exponent - shift
    elif not is_mean and node.op.method is not ReduceMethodType.REDUCE_SUM:
        return None
    if count * 2 ** (x.dtype.bits + 1) > 2**31:
        return None  # The sum may overflow 32 bits.
    total = sum_of_integers(lowering, lowering.quantized_value(operand), axes, f"{name}:sum")
    rescaled = plain_rescale(
        lowering, total, multiplier, exponent, f"{name}:rescaled", params.dtype, offset=params.zero_point[0]
    )
    result = lowering.g.add(Reshape(reshape_param=static(node.outputs[0].shape)), rescaled, name=name)
    return with_params((result,), params)


def sum_of_integers(lowering: Lowering, x: Value, axes: list[int], name: str) -> Value:
    """Exact sums along axes of the integers minus their zero point, as INT32 [rows, 1]."""
    assert x.quant is not None
    shape = static(x.shape)
    order = (*(axis for axis in range(len(shape)) if axis not in axes), *axes)
    zero = x.quant.zero_point[0]
    if order != tuple(range(len(shape))):
        x = lowering.g.add(Permute(order=order), x, name=f"{name}:ordered")
    count = math.prod(shape[axis] for axis in axes)
    rows = lowering.g.add(Reshape(reshape_param=(-1, count)), x, name=f"{name}:rows")
    ones = lowering.g.constant(np.ones((count, 1), dtype=np.int8), f"{name}:ones")
    if x.dtype.bits == 8:
        return lowering.g.add(MatrixMulV2(lzp_val=zero), rows, ones, name=name)
    high, low = (
        lowering.g.add(MatrixMulV2(), part, ones, name=f"{name}:{end}")
        for part, end in zip(split_bytes(lowering, rows, name), ("high:sum", "low:sum"), strict=True)
    )
    return join_bytes(lowering, high, low, name)


@form_of(Pool)
def average_pool(node: Node, lowering: Lowering) -> Lowered | None:
    """AVERAGE_POOL_2D of 16 bits, rounded ``half_away`` without padding. The general lowering handles 8 bits."""
    (x,) = node.inputs
    params, op = result_params(node), node.op
    assert isinstance(op, Pool)
    if op.pooling_type is not PoolType.AVE or x is None or x.quant != params:
        return None
    if params.dtype.bits != 16 or op.is_global_pooling:
        return None
    result = lowering.g.add(pool_int_of(op), lowering.quantized_value(x), name=node.outputs[0].name)
    return with_params((result,), params)
