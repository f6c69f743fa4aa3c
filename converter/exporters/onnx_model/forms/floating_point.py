"""Lowerings of floating-point operators, and of the integer softmax, which computes in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.onnx_model.forms.data_movement import take
from tpuconvert.exporters.onnx_model.integers import round_half_away
from tpuconvert.exporters.onnx_model.lowering import Argument, Lowering, extents, scalar
from tpuconvert.exporters.onnx_model.registry import lowers
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.normalization import LayerNorm
from tpuconvert.schema.ops.smooth_activation import Gelu, GeluForm, HardSwish
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.softmax_int import SoftmaxInt
from tpuconvert.schema.types import Array, DType


def _check_float(value: Value) -> None:
    if value.dtype is not DType.FLOAT32:
        raise NoExactForm(f"'{value.name}' has type {value.dtype.name}, expected FLOAT32")


@lowers(Softmax)
def softmax(op: Softmax, node: Node, d: Lowering) -> None:
    """Lower a float softmax."""
    d.define(node.output, d.narrow_floats(d.add("Softmax", d.wide_floats(node.inputs[0]), axis=op.axis)))


@lowers(SoftmaxInt)
def integer_softmax(op: SoftmaxInt, node: Node, d: Lowering) -> None:
    """Lower an 8-bit softmax. ``CumSum`` adds one channel after the other in float32, as the reference does."""
    x, y = node.inputs[0], node.output
    assert x is not None
    wide = d.add("Cast", x, to=np.int32)
    index = d.add("Sub", d.add("ReduceMax", wide, np.array([1], np.int64), keepdims=1), wide)
    powers = d.add("Gather", np.array(op.table, np.float32), index, axis=0)
    (channels,) = extents(x, 1)
    total = take(d, d.add("CumSum", powers, scalar(1, np.int64)), [channels - 1], [channels], [1])
    scaled = d.add("Mul", d.add("Div", powers, total), scalar(op.scale, np.float32))
    d.define(y, round_half_away(d, scaled, y.dtype, np.asarray(op.zero_point, np.int64), may_be_nan=True))


@lowers(Conv)
def conv(op: Conv, node: Node, d: Lowering) -> None:
    """Lower a float convolution."""
    _convolution("Conv", op, node, d, pads=(op.pad_h_t, op.pad_w_l, op.pad_h_b, op.pad_w_r))


def _convolution(name: str, op: Conv | Deconv, node: Node, d: Lowering, **attributes: Any) -> None:
    x, w, y = node.inputs[0], node.inputs[1], node.output
    assert x is not None and w is not None
    _check_float(y)
    window = {"kernel_shape": extents(w, 2, 3), "strides": (op.stride_h, op.stride_w), "dilations": (op.dh, op.dw)}
    attributes |= {"group": op.groups, **window}
    d.define(y, d.mark_rounded(d.add(name, x, w, *_flat_bias(node), **attributes)))


def _flat_bias(node: Node) -> tuple[Argument, ...]:
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        return ()
    if not bias.is_constant:
        raise NoExactForm(f"its bias '{bias.name}' is computed, expected a constant")
    return (bias.array.reshape(-1),)


@lowers(Deconv)
def deconv(op: Deconv, node: Node, d: Lowering) -> None:
    """Lower a float transposed convolution. A negative trailing pad becomes output padding."""
    pads = (op.pad_h_t, op.pad_w_l, max(op.pad_h_b, 0), max(op.pad_w_r, 0))
    _convolution("ConvTranspose", op, node, d, pads=pads, output_padding=(max(-op.pad_h_b, 0), max(-op.pad_w_r, 0)))


@lowers(MatrixMul)
def matmul(op: MatrixMul, node: Node, d: Lowering) -> None:
    """Lower a float matmul with bias."""
    _check_float(node.output)
    result = d.add("MatMul", *(d.wide_floats(value) for value in node.inputs[:2]))
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        result = d.add("Add", result, d.wide_floats(node.inputs[2]))
    d.define(node.output, d.narrow_floats(result))


@lowers(BatchMatmul)
def batch_matmul(op: BatchMatmul, node: Node, d: Lowering) -> None:
    """Lower a batched float matmul."""
    operands = []
    for value, is_transposed in zip(node.inputs, (op.left_transpose, op.right_transpose), strict=True):
        assert value is not None
        rank = value.rank
        order = (*range(rank - 2), rank - 1, rank - 2)
        operands.append(d.wide_floats(d.add("Transpose", value, perm=order) if is_transposed else value))
    d.define(node.output, d.narrow_floats(d.add("MatMul", *operands)))


@lowers(BatchNorm)
def batch_norm(op: BatchNorm, node: Node, d: Lowering) -> None:
    """Lower a batch normalization with constant statistics."""
    x, mean, variance, *factors = node.inputs
    assert x is not None and mean is not None and variance is not None
    if any(value.uses or d.graph.is_output(value) for value in node.outputs[1:]):
        raise NoExactForm("its statistics are used")
    if not (op.use_global_stats and mean.is_constant and variance.is_constant):
        raise NoExactForm("its statistics are computed, expected constants")
    factor = np.float64(0 if op.scale == 0 else 1 / op.scale)
    statistics = [(value.array.astype(np.float64) * factor).astype(np.float32) for value in (mean, variance)]
    ones: Array = np.ones(mean.array.shape, np.float32)
    scale_and_bias: list[Argument] = list(factors) if any(factors) else [ones, np.zeros_like(ones)]
    result = d.add("BatchNormalization", x, *scale_and_bias, *statistics, epsilon=op.epsilon)
    d.define(node.outputs[0], d.mark_rounded(result))


@lowers(LayerNorm)
def layer_norm(op: LayerNorm, node: Node, d: Lowering) -> None:
    """Lower a layer normalization."""
    x, *factors = node.inputs
    assert x is not None
    scale, bias = (*factors, None, None)[:2]
    axis = op.axis % x.rank
    if not d.is_quantized:
        weight = scale or np.ones(extents(x, *range(axis, x.rank)), np.float32)
        arguments = (x, weight) if bias is None else (x, weight, bias)
        d.define(node.output, d.add("LayerNormalization", *arguments, axis=axis, epsilon=op.epsilon))
        return
    # In float64, because the epsilon of LayerNormalization is a float32 number
    axes = np.arange(axis, x.rank)
    wide = d.wide_floats(x)
    centered = d.add("Sub", wide, d.add("ReduceMean", wide, axes, keepdims=1))
    variance = d.add("ReduceMean", d.add("Mul", centered, centered), axes, keepdims=1)
    result = d.add("Div", centered, d.add("Sqrt", d.add("Add", variance, scalar(op.epsilon, np.float64))))
    result = result if scale is None else d.add("Mul", result, d.wide_floats(scale))
    result = result if bias is None else d.add("Add", result, d.wide_floats(bias))
    d.define(node.output, d.narrow_floats(result))


@lowers(Gelu)
def gelu(op: Gelu, node: Node, d: Lowering) -> None:
    """Lower GELU."""
    form = "none" if op.form is GeluForm.ERF else "tanh"
    d.define(node.output, d.mark_rounded(d.add("Gelu", node.inputs[0], approximate=form)))


@lowers(HardSwish)
def hard_swish(op: HardSwish, node: Node, d: Lowering) -> None:
    """Lower hard swish."""
    d.define(node.output, d.mark_rounded(d.add("HardSwish", node.inputs[0])))


@lowers(Interpolate)
def interpolate(op: Interpolate, node: Node, d: Lowering) -> None:
    """Lower a resize to gathers of rows and columns, and to float32 interpolation between them."""
    x, y = node.inputs[0], node.output
    assert x is not None
    _check_float(x)
    (h, w), (height, width) = extents(x, 2, 3), extents(y, 2, 3)
    if op.method is InterpolateMode.NEAREST:
        rows, columns = op.nearest(h, height), op.nearest(w, width)
        d.define(y, d.add("Gather", d.add("Gather", x, rows, axis=2), columns, axis=3))
        return
    lines = _between(d, x, 3, op.neighbours(w, width))
    d.define(y, _between(d, lines, 2, op.neighbours(h, height)))


def _between(d: Lowering, x: Argument, axis: int, neighbours: tuple[Array, Array, Array]) -> str:
    low, high, weight = neighbours
    first = d.add("Gather", x, low, axis=axis)
    difference = d.add("Sub", d.add("Gather", x, high, axis=axis), first)
    share = weight.astype(np.float32)
    return d.add("Add", first, d.add("Mul", difference, share[:, None] if axis == 2 else share))
