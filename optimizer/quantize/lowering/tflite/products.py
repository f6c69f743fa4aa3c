"""Linear operators: convolutions and fully connected layers of 16-bit activations, matmuls of two computed operands.

The two bytes of a 16-bit activation, x = 256 * high + low, are multiplied separately, and the sums are added. The
result equals the kernel's 64-bit sum if that fits in 32 bits, which depends on the weights. The kernel rescales with
the upper 15 bits of the multiplier and rounds once. If the bias has 32 bits, the kernel's sum has 32 bits too, and is
rescaled with the whole multiplier.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tpuconvert.optimizer.quantize.lowering.lower_shared import geometry, result_params, with_params
from tpuconvert.optimizer.quantize.lowering.lowering import (
    Declined,
    Lowered,
    Lowering,
    params_of,
    requant_int32,
    with_quant,
)
from tpuconvert.optimizer.quantize.lowering.tflite.forms import form_of
from tpuconvert.optimizer.quantize.lowering.tflite.steps import TFLITE, join_bytes, split_bytes
from tpuconvert.optimizer.quantize.weights.weights import IntegerWeights, integer_weights
from tpuconvert.schema.arithmetic.fixed_point import multiplier_shift
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node, Value, static
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import I16, I32, U8, QuantParams


@form_of(Conv, Deconv, MatrixMul)
def product_with_weights(node: Node, lowering: Lowering) -> Lowered | None:
    """CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV and FULLY_CONNECTED of 16-bit activations, and UINT8 convolutions."""
    x = node.inputs[0]
    if x is None or x.quant is None:
        return None
    if x.quant.dtype is U8 and not isinstance(node.op, MatrixMul) and lowering.rescale == TFLITE:
        return _convolution_of_unsigned_bytes(node, lowering, x)
    return _product_of_16_bits(node, lowering, x)


def _convolution_of_unsigned_bytes(node: Node, lowering: Lowering, x: Value) -> Lowered | None:
    """Lower a UINT8 convolution with per-tensor weights: the kernel multiplies both scales in binary32."""
    weights, params, name = integer_weights(node, per_channel=True), result_params(node), node.outputs[0].name
    bias, w = node.inputs[2] if len(node.inputs) > 2 else None, node.inputs[1]
    if weights is None or w is None or x.quant is None or len(weights.params.scale) != 1 or params.axis is not None:
        return None
    if bias is not None and bias.stored is None:
        return None
    operands = [lowering.quantized_value(x), lowering.g.constant(weights.stored, w.name, weights.params)]
    if bias is not None and bias.stored is not None:
        operands.append(lowering.g.constant(bias.stored.reshape(1, -1, 1, 1), bias.name))
    op = (ConvV2 if isinstance(node.op, Conv) else DeconvV2)(
        **geometry(node.op),
        has_bias=bias is not None,
        izp_val=x.quant.zero_point[0],
        kzp_val=weights.params.zero_point[0],
    )
    total = lowering.g.add(op, *operands, name=f"{name}:int32")
    unit = float(np.float32(x.quant.scale[0]) * np.float32(weights.params.scale[0]))
    total.quant = QuantParams.per_tensor(unit, 0, I32)
    return (lowering.requantize(total, [unit / params.scale[0]], params, name),)


def _product_of_16_bits(node: Node, lowering: Lowering, x: Value) -> Lowered | None:
    """Lower a linear operator with 16-bit activations and 8-bit weights."""
    params = result_params(node)
    assert x.quant is not None
    if x.quant.dtype is not I16 or params.dtype is not I16 or any((*x.quant.zero_point, *params.zero_point)):
        return None
    weights = integer_weights(node, per_channel=True)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if weights is None or any(weights.params.zero_point) or (bias is not None and bias.stored is None):
        return None
    if not _fits(node, weights, bias):
        return Declined("the sum of its products may leave 32 bits")
    return _product(node, lowering, x, weights, bias)


def _fits(node: Node, weights: IntegerWeights, bias: Value | None) -> bool:
    """Return True if the exact sum, and 256 times the sum of the upper bytes, fits in 32 bits."""
    axis = {Conv: 0, Deconv: 1, MatrixMul: 1}[type(node.op)]
    magnitudes = np.abs(weights.stored.astype(np.int64))
    others = tuple(i for i in range(magnitudes.ndim) if i != axis)
    largest = int(magnitudes.sum(axis=others).max(initial=0)) * 2**15
    if bias is not None and bias.stored is not None:
        largest += int(np.abs(bias.stored.astype(np.int64)).max(initial=0))
    return largest < 2**31


def _product(node: Node, lowering: Lowering, x: Value, weights: IntegerWeights, bias: Value | None) -> Lowered:
    name, params = node.outputs[0].name, result_params(node)
    w = node.inputs[1]
    assert w is not None
    matrix = lowering.g.constant(weights.stored, w.name, weights.params)
    high, low = split_bytes(lowering, lowering.quantized_value(x), name)
    upper = lowering.g.add(_exact_op(node, False), high, matrix, name=f"{name}:high:sum")
    operands = [low, matrix]
    if bias is not None and bias.stored is not None:
        shape = (-1,) if isinstance(node.op, MatrixMul) else (1, -1, 1, 1)
        operands.append(lowering.g.constant(bias.stored.reshape(shape).astype(np.int32), bias.name))
    lower = lowering.g.add(_exact_op(node, bias is not None), *operands, name=f"{name}:low:sum")
    total = join_bytes(lowering, upper, lower, f"{name}:int32")
    factors = [unit / params.scale[0] for unit in weights.units]
    # The kernel's sum has 32 bits too.
    is_narrow = bias is not None and bias.stored is not None and bias.stored.dtype == np.int32
    is_fully_connected = isinstance(node.op, MatrixMul)
    if is_fully_connected or is_narrow:  # These kernels use all bits of the multiplier.
        twice = None if is_narrow and not is_fully_connected else False
        return (lowering.requantize(total, factors, params, name, twice=twice),)
    return with_params((lowering.g.add(short_rescale(factors, params), total, name=name),), params)


def _exact_op(node: Node, has_bias: bool) -> Op:
    if isinstance(node.op, MatrixMul):
        return MatrixMulV2(has_bias=has_bias)
    return (ConvV2 if isinstance(node.op, Conv) else DeconvV2)(**geometry(node.op), has_bias=has_bias)


def short_rescale(factors: list[float], params: QuantParams) -> RequantInt32:
    """Rescale a 64-bit sum as the kernel does: multipliers of 15 bits, one rounding (``half_up``)."""
    pairs = [
        ((multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF, exponent - 15)
        for multiplier, exponent in map(multiplier_shift, factors)
    ]
    return requant_int32(pairs, RequantMode.MULTIPLIER_SHIFT, params.dtype, params.zero_point[:1])


@form_of(BatchMatmul)
def runtime_product(node: Node, lowering: Lowering) -> Lowered | None:
    """BATCH_MATMUL: lower a matmul of two 8-bit operands with equal leading axes, which are batches."""
    params = result_params(node)
    operands = [value for value in node.inputs if value is not None]
    left, right = operands
    if any(v.quant is None or v.quant.axis is not None or v.quant.dtype.bits != 8 for v in operands):
        return None
    if left.rank != right.rank or not 2 <= left.rank <= 5 or not (left.type.is_static and right.type.is_static):
        return None
    assert isinstance(node.op, BatchMatmul)
    batch = np.broadcast_shapes(static(left.shape)[:-2], static(right.shape)[:-2])
    integers = [_repeat_batches(lowering, lowering.quantized_value(value), batch) for value in operands]
    zeros: list[int] = [value.quant.zero_point[0] for value in integers if value.quant is not None]
    op = MatrixMulV2(
        is_left_trans=node.op.left_transpose,
        is_right_trans=node.op.right_transpose,
        lzp_val=zeros[0],
        rzp_val=zeros[1],
    )
    name = node.outputs[0].name
    total = lowering.g.add(op, *integers, name=f"{name}:int32")
    units: npt.NDArray[np.float32] = np.asarray([v.quant.scale[0] for v in operands if v.quant], dtype=np.float32)
    unit = float(units[0]) * float(units[1])
    total.quant = QuantParams.per_tensor(unit, 0, I32)
    return (lowering.requantize(total, [unit / params.scale[0]], params, name),)


def _repeat_batches(lowering: Lowering, x: Value, batch: tuple[int, ...]) -> Value:
    """Repeat the leading axes of integers, because matrix_mul_v2 does not broadcast."""
    own = static(x.shape)[:-2]
    if own == batch:
        return x
    reps = (*(target // extent for target, extent in zip(batch, own, strict=True)), 1, 1)
    return with_quant(lowering.g.add(Tile(reps=reps), x, name=f"{x.name}:batches"), params_of(x))
