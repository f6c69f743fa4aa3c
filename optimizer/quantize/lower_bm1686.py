"""Integer forms for BM1686: products with a 32-bit result and zero points, then a rescale per channel."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.quantize.lower_shared import (
    average_then_rescale,
    geometry,
    names_of,
    result_params,
    with_params,
)
from tpuconvert.optimizer.quantize.lowering import ACCUMULATOR, Declined, Lowered, Lowering, lowers
from tpuconvert.optimizer.quantize.traits import is_average_pool
from tpuconvert.optimizer.quantize.weights import quantize_bias
from tpuconvert.schema.fixed_point import multiplier_shift
from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.arithmetic import Mul
from tpuconvert.schema.ops.conv_v2 import ConvV2
from tpuconvert.schema.ops.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.pool_int import PoolInt, PoolQuantMode
from tpuconvert.schema.ops.softmax_int import SoftmaxInt
from tpuconvert.schema.types import I16, I32, U16, Chip, QuantParams

CHIP = (Chip.BM1686,)
_SUM_SHIFT = 20  # fraction bits of a sum of two 8-bit operands: 2^20 * 2 * 255 < 2^31


@lowers("conv", "deconv", chips=CHIP)
def convolution(node: Node, lowering: Lowering) -> Lowered:
    """conv_v2 or deconv_v2, then requant_int32 with one factor per output channel."""
    x, w, bias = operands(node)
    if not isinstance(weights := integer_weights(w), tuple):
        return weights
    if x.quant is None or x.quant.dtype.bits != 8:
        return Declined("its operand is not quantized to 8 bits")
    _, params = weights
    zero = {"is_kzp_const": len(set(params.zero_point)) == 1, "kzp_val": params.zero_point[0], "kzp_vec": ()}
    if not zero["is_kzp_const"]:
        zero = {"is_kzp_const": False, "kzp_val": 0, "kzp_vec": params.zero_point}
    kind = ConvV2 if node.op.name == "conv" else DeconvV2
    op: Op = kind(**geometry(node.op), has_bias=bias is not None, izp_val=x.quant.zero_point[0], **zero)  # type: ignore[arg-type]  # one dict for int, bool and tuple fields
    return _product(node, lowering, op, x, w, bias)


@lowers("matrix_mul", chips=CHIP)
def matrix_product(node: Node, lowering: Lowering) -> Lowered:
    """matrix_mul_v2, then requant_int32 with one factor per column."""
    x, w, bias = operands(node)
    if not isinstance(weights := integer_weights(w), tuple):
        return weights
    if x.quant is None or x.quant.dtype.bits != 8:
        return Declined("its operand is not quantized to 8 bits")
    _, params = weights
    per_column = len(set(params.zero_point)) > 1
    op = MatrixMulV2(
        has_bias=bias is not None,
        lzp_val=x.quant.zero_point[0],
        is_rzp_const=not per_column,
        rzp_val=0 if per_column else params.zero_point[0],
        rzp_vec=params.zero_point if per_column else (),
    )
    return _product(node, lowering, op, x, w, bias)


def _product(node: Node, lowering: Lowering, op: Op, x: Value, w: Value, bias: Value | None) -> Lowered:
    assert x.quant is not None and w.quant is not None and w.stored is not None
    name, params = node.outputs[0].name, result_params(node)
    inputs = [lowering.quantized(x), lowering.quantized(w)]
    if bias is not None:
        integers = (
            bias.stored if bias.stored is not None else quantize_bias(bias.array, x.quant.scale[0], w.quant.scale)
        )
        flat = isinstance(op, MatrixMulV2)
        inputs.append(lowering.g.constant(integers.reshape(-1) if flat else integers.reshape(1, -1, 1, 1), bias.name))
    accumulator = lowering.g.add(op, *inputs, name=f"{name}{ACCUMULATOR}")
    factors = [x.quant.scale[0] * scale / params.scale[0] for scale in w.quant.scale]
    return (lowering.requantize(accumulator, factors, params, name),)


@lowers("pool", chips=CHIP)
def pool(node: Node, lowering: Lowering) -> Lowered:
    """Maxima keep the scale. Averages of whole windows take the change of scale into the divisor."""
    (x,) = node.inputs
    assert x is not None and x.quant is not None and isinstance(node.op, Pool)
    params = result_params(node)
    if not is_average_pool(node.op):
        return with_params(lowering.moves(node.op, lowering.quantized(x, params), names=names_of(node)), params)
    window = whole_window(node)
    symmetric = x.quant.zero_point == params.zero_point == (0,)
    same = params == x.quant
    if window is None or (not same and not (symmetric and params.dtype == x.quant.dtype)):
        return average_then_rescale(node, lowering)
    kernel_h, kernel_w = window
    scale, shift = 1, 0
    if not same:
        scale, exponent = multiplier_shift(x.quant.scale[0] / (params.scale[0] * kernel_h * kernel_w))
        shift = 31 - exponent
        if not 0 <= shift <= 63:
            return Declined("the scales of operand and result are too far apart")
    op = PoolInt(
        stride_h=node.op.stride_h,
        stride_w=node.op.stride_w,
        kernel_h=kernel_h,
        kernel_w=kernel_w,
        is_avg_pooling=True,
        quant_mode=PoolQuantMode.DIVIDE if same else PoolQuantMode.MULTIPLIER_SHIFT,
        scale=scale,
        rshift=shift,
    )
    return with_params((lowering.g.add(op, lowering.quantized(x), name=node.outputs[0].name),), params)


def whole_window(node: Node) -> tuple[int, int] | None:
    """Kernel height and width when every window lies inside the image, else None."""
    op, x, y = node.op, node.inputs[0], node.outputs[0]
    assert isinstance(op, Pool) and x is not None
    height, width, rows, columns = (*x.shape[2:], *y.shape[2:])
    if not all(isinstance(extent, int) for extent in (height, width, rows, columns)):
        return None
    if op.is_global_pooling:
        return int(height), int(width)
    if op.pad_h or op.pad_w or op.pad_h_offset or op.pad_w_offset:
        return None
    last_row = (int(rows) - 1) * op.stride_h + op.kernel_h
    last_column = (int(columns) - 1) * op.stride_w + op.kernel_w
    return (op.kernel_h, op.kernel_w) if last_row <= int(height) and last_column <= int(width) else None


@lowers("add", "sub", chips=CHIP)
def add(node: Node, lowering: Lowering) -> Lowered:
    """Both operands as INT32 in one fine unit, their sum, and one rescale to the result.

    The unit is that of TFLite's reference: 2 * max(s1, s2) / 2^20.
    """
    name, params = node.outputs[0].name, result_params(node)
    operands_ = [lowering.quantized(value) for value in node.inputs if value is not None]
    scales = [value.quant.scale[0] for value in operands_ if value.quant is not None]
    twice = 2 * max(scales)
    terms = []
    for index, (value, scale) in enumerate(zip(operands_, scales, strict=True)):
        wide = lowering.widen(value, _SUM_SHIFT, f"{name}:operand{index}")
        terms.append(lowering.scale_int32(wide, scale / twice, f"{name}:scaled{index}"))
    total = lowering.g.add(node.op, *terms, name=f"{name}{ACCUMULATOR}")
    return (lowering.requantize(total, [twice / (2**_SUM_SHIFT * params.scale[0])], params, name),)


@lowers("mul", chips=CHIP)
def mul(node: Node, lowering: Lowering) -> Lowered:
    """The product of the integers, exact in 16 bits without zero points and in 32 bits with them, then a rescale."""
    name, params = node.outputs[0].name, result_params(node)
    a, b = (lowering.quantized(value) for value in node.inputs if value is not None)
    assert a.quant is not None and b.quant is not None
    factor = a.quant.scale[0] * b.quant.scale[0] / params.scale[0]
    if a.quant.zero_point == b.quant.zero_point == (0,) and not lowering.rescale:
        unsigned = not a.dtype.is_signed and not b.dtype.is_signed
        product = lowering.g.add(Mul(out_dtype=U16 if unsigned else I16), a, b, name=f"{name}:int16")
    else:
        wide = [lowering.widen(value, 0, f"{name}:operand{index}") for index, value in enumerate((a, b))]
        product = lowering.g.add(Mul(out_dtype=I32), *wide, name=f"{name}{ACCUMULATOR}")
    return (lowering.requantize(product, [factor], params, name),)


@lowers("softmax", chips=CHIP)
def softmax(node: Node, lowering: Lowering) -> Lowered:
    """softmax_int over axis 1, as a quantized source states it."""
    (x,) = node.inputs
    params = result_params(node)
    assert x is not None and x.quant is not None
    if x.rank not in (2, 4) or node.op.attributes()["axis"] % x.rank != 1:
        return Declined("softmax_int works on axis 1 of two or four axes")
    if params.dtype != x.quant.dtype:
        return Declined("softmax_int needs one integer type")
    steps = np.arange(256, dtype=np.float64)
    table = tuple(float(np.float32(math.exp(-step * x.quant.scale[0]))) for step in steps)
    op = SoftmaxInt(table=table, scale=float(np.float32(1.0 / params.scale[0])), zero_point=params.zero_point[0])
    return (lowering.g.add(op, lowering.quantized(x), name=node.outputs[0].name),)


def operands(node: Node) -> tuple[Value, Value, Value | None]:
    """Activation, weight and bias of a product."""
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    return x, w, node.inputs[2] if len(node.inputs) > 2 else None


def integer_weights(w: Value) -> tuple[Value, QuantParams] | Declined:
    """A weight constant that has integers, and their parameters."""
    if not w.is_constant or w.quant is None or w.stored is None:
        return Declined("its weights are not quantized constants")
    return w, w.quant
