"""Lowerings of convolutions and products in floating point. The device may round their results differently."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import Tensor
from tpuconvert.exporters.tpu_mlir.forms.wide_strides import without_wide_strides
from tpuconvert.exporters.tpu_mlir.forms.window import Window
from tpuconvert.exporters.tpu_mlir.lowering import Lowering, static_shape
from tpuconvert.exporters.tpu_mlir.registry import lowers_floats
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.convolution.conv import Conv, QuantizedConvolution
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import Array


@lowers_floats(Conv, Deconv)
def convolution(op: QuantizedConvolution, node: Node, d: Lowering) -> None:
    """Lower a convolution with constant weights. The bias is FLOAT32 also if the weights are not."""
    x, weight, bias = (*node.inputs, None)[:3]
    assert weight is not None
    if not weight.is_constant or (bias is not None and not bias.is_constant):
        raise NoExactForm("its weights are computed, expected constants")
    y, filters = node.output, weight.array
    pads = [op.pad_h_t, op.pad_w_l, op.pad_h_b, op.pad_w_r]
    kernel, strides, dilations = filters.shape[2:], (op.stride_h, op.stride_w), (op.dh, op.dw)
    operand, attributes = d.floats(x), dict[str, Any]()
    if isinstance(op, Deconv):
        filters = _output_first(filters, op.groups)
        # A negative padding at the end appends rows or columns.
        attributes["output_padding"] = [max(0, -pads[2]), max(0, -pads[3])]
        pads = [max(0, pad) for pad in pads]
    elif min(pads) < 0:
        raise NoExactForm(f"its padding is {pads}, expected no negative ones")
    else:
        window = Window((kernel[0], kernel[1]), strides, dilations, (pads[0], pads[1], pads[2], pads[3]), op.groups)
        shape = static_shape(y)
        operand, filters, window = without_wide_strides(d, operand, filters, window, (shape[2], shape[3]), 0.0, y.name)
        kernel, strides, pads = window.kernel, window.strides, list(window.pads)
    channels = static_shape(y)[1]
    biases = np.zeros(channels, np.float32) if bias is None else bias.array
    operands = [
        operand,
        d.float_weight(filters, f"{y.name}_filter"),
        d.module.weight(biases.astype(np.float32).reshape(1, channels, 1, 1), "f32", f"{y.name}_bias"),
    ]
    operation = "tpu.Deconv" if isinstance(op, Deconv) else "tpu.Conv2D"
    attributes.update(kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads, group=op.groups)
    d.add_floats(operation, operands, y, **attributes)


def _output_first(filters: Array, groups: int) -> Array:
    """Return filters [in, out / groups, h, w] of a transposed convolution as [out, in / groups, h, w]."""
    inputs, outputs, *kernel = filters.shape
    parts = filters.reshape(groups, inputs // groups, outputs, *kernel).swapaxes(1, 2)
    return parts.reshape(groups * outputs, inputs // groups, *kernel)


@lowers_floats(MatrixMul)
def matrix_mul(op: MatrixMul, node: Node, d: Lowering) -> None:
    """Lower a product of matrices. The type of the bias depends on the chip: the other one gives wrong results."""
    left, right, bias = (*node.inputs, None)[:3]
    biases = None if bias is None else d.floats(bias, "f32" if d.target.has_float32_biases else "")
    d.add_floats("tpu.MatMul", [d.floats(left), d.floats(right), biases], node.output, round_mode="HalfAwayFromZero")


@lowers_floats(BatchMatmul)
def batch_matmul(op: BatchMatmul, node: Node, d: Lowering) -> None:
    """Lower products of the matrices of a batch."""
    batch = static_shape(node.output)[:-2]
    left, right = (_with_batch(d, value, batch) for value in node.inputs[:2])
    is_transposed = op.right_transpose and d.target.has_transposed_operands
    d.add_floats(
        "tpu.MatMul",
        [left, right if is_transposed or not op.right_transpose else _transposed(d, right, node.output.name)],
        node.output,
        left_transpose=op.left_transpose,
        right_transpose=is_transposed,
        round_mode="HalfAwayFromZero",
    )


def _with_batch(d: Lowering, value: Value | None, batch: tuple[int, ...]) -> Tensor:
    """Return an operand with the extents of the batch: the compiler does not repeat matrices."""
    assert value is not None
    shape = static_shape(value)
    if shape[:-2] == batch or not any(extent > 1 for extent in batch):
        return d.floats(value)
    return d.repeated(value, (*batch, *shape[-2:]))


def _transposed(d: Lowering, x: Tensor, name: str) -> Tensor:
    """Append an exchange of the last two axes."""
    *rest, rows, columns = x.shape
    order = (*range(len(rest)), len(rest) + 1, len(rest))
    return d.module.add("tpu.Permute", [x], (*rest, columns, rows), x.element, f"{name}_right", order=order)


@lowers_floats(Attention)
def attention(op: Attention, node: Node, d: Lowering) -> None:
    """Lower attention to products and a softmax, which is FLOAT32 with every type of the products.

    The vendor's own operation compiles a kernel on the user's machine for each shape, with errors as large.
    """
    query, key, value, mask = (*node.inputs, None)[:4]
    assert query is not None and key is not None
    y, (*_, rows, depth), columns = node.output, static_shape(query), static_shape(key)[-2]
    shape = (*static_shape(y)[:-1], columns)

    def step(operation: str, operands: list[Tensor | None], name: str, **attributes: Any) -> Tensor:
        return d.module.add(operation, operands, shape, "f32", f"{y.name}_{name}", **attributes)

    is_transposed = d.target.has_transposed_operands
    scores = d.module.add(
        "tpu.MatMul",
        [d.floats(query), d.floats(key) if is_transposed else _transposed(d, d.floats(key), y.name)],
        shape,
        d.kind,
        f"{y.name}_scores",
        right_transpose=is_transposed,
        round_mode="HalfAwayFromZero",
    )
    factor = depth**-0.5 if op.scale is None else op.scale
    scores = step("tpu.MulConst", [d.as_kind(scores, "f32")], "scaled", const_val=factor)
    if mask is not None:
        scores = step("tpu.Add", [scores, d.floats(mask, "f32")], "masked")
    if op.is_causal:
        later = np.arange(columns) > np.arange(rows)[:, None] + columns - rows
        hidden = np.where(later, np.float32(-np.inf), np.float32(0)).reshape((1,) * (len(shape) - 2) + later.shape)
        scores = step("tpu.Add", [scores, d.module.weight(hidden, "f32", f"{y.name}_causal")], "causal_scores")
    weights = step("tpu.Softmax", [scores], "weights", axis=len(shape) - 1)
    operands = [d.as_kind(weights, d.kind), d.floats(value)]
    d.add_floats("tpu.MatMul", operands, y, round_mode="HalfAwayFromZero")
