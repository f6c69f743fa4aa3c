"""Lowerings of convs and matmuls with constant weights, with their requantization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import Tensor, zero_point_of
from tpuconvert.exporters.tpu_mlir.forms.requantization import Rescale, binary, rescale_of
from tpuconvert.exporters.tpu_mlir.forms.wide_strides import without_wide_strides
from tpuconvert.exporters.tpu_mlir.forms.window import Window
from tpuconvert.exporters.tpu_mlir.lowering import Lowering, static_shape
from tpuconvert.exporters.tpu_mlir.registry import lowers
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.types import Array, DType

ZERO_POINTS = "one zero point per tensor"

DENSE_WEIGHTS = 1 << 22
"""Limit of the weights of a product that replaces a convolution with groups."""


def fold_zero_point(bias: Array, weights: Array, zero_point: int) -> Array:
    """Return the bias minus the zero point of the operand times the sum of the weights, INT64 [output channels]."""
    sums = weights.reshape(weights.shape[0], -1).astype(np.int64).sum(axis=1)
    folded: Array = bias.reshape(-1).astype(np.int64) - zero_point * sums
    return folded


def convolve(
    d: Lowering,
    operation: str,
    x: Tensor,
    weights: Array,
    bias: Array,
    window: Window,
    result: tuple[Sequence[int], str, str],
    rescale: Rescale | None = None,
) -> Tensor:
    """Append a convolution.

    Args:
        d: the lowering.
        operation: ``tpu.Conv2D`` or ``tpu.Deconv``.
        x: operand. Padded elements have the zero point of its element type.
        weights: INT8 [output channels, input channels / groups, kernel]
        bias: INT64 [output channels].
        window: geometry.
        result: shape, element type and name of the result.
        rescale: requantization of the accumulator to 8 bits to fuse, in mode MultiplierShift without zero point.
    """
    shape, element, name = result
    operands = [
        x,
        d.module.weight(weights, "si8", f"{name}_filter_i8"),
        _bias_weight(d, bias, (1, weights.shape[0], 1, 1), f"{name}_bias_int32"),
    ]
    fused: dict[str, Any] = {}
    if rescale is not None:
        fused = {"multiplier": rescale.multipliers, "rshift": [-shift for shift in rescale.shifts]}
    return d.module.add(
        operation,
        operands,
        shape,
        element,
        name,
        kernel_shape=window.kernel,
        strides=window.strides,
        dilations=window.dilations,
        pads=window.pads,
        group=window.groups,
        **fused,
    )


def _bias_weight(d: Lowering, bias: Array, shape: Sequence[int], location: str) -> Tensor:
    if np.abs(bias).max(initial=0) >= 2**31:
        raise NoExactForm("bias and zero point together exceed 32 bits")
    return d.module.weight(bias, "i32", location, shape)


def accumulate(
    d: Lowering,
    operation: str,
    x: Tensor,
    weights: Array,
    bias: Array,
    window: Window,
    result: tuple[Sequence[int], str],
) -> Tensor:
    """Append a convolution with 32-bit sums. Arguments as for ``convolve``; a result has shape and name.

    One element for each channel is wrong in a layer group of BM1688, in the simulator. It is written as a product.
    """
    shape, name = result
    covers = tuple(window.kernel) == tuple(x.shape[2:]) and not any(window.pads)
    is_small = len(weights) * math.prod(x.shape[1:]) <= DENSE_WEIGHTS or window.groups == 1
    is_one = operation == "tpu.Conv2D" and math.prod(shape[2:]) == 1 and covers and is_small
    if d.target.has_small_sums or not is_one:
        return convolve(d, operation, x, weights, bias, window, (shape, "si32", name))
    columns = np.zeros((x.shape[1], *window.kernel, len(weights)), weights.dtype)
    inputs, outputs = weights.shape[1], weights.shape[0] // window.groups
    for group in range(window.groups):
        part = slice(group * outputs, (group + 1) * outputs)
        columns[group * inputs : (group + 1) * inputs, :, :, part] = weights[part].transpose(1, 2, 3, 0)
    operands = [
        d.reshape(x, (x.shape[0], math.prod(x.shape[1:])), f"{name}_flat"),
        d.module.weight(columns.reshape(-1, len(weights)), "si8", f"{name}_columns"),
        _bias_weight(d, bias, (1, len(bias)), f"{name}_biases"),
    ]
    sums = d.module.add("tpu.MatMul", operands, shape[:2], "si32", f"{name}_sums")
    return d.reshape(sums, shape, name)


def pad_with(d: Lowering, operand: Tensor, window: Window, number: int, name: str) -> tuple[Tensor, Window]:
    """Return the operand and the window of a convolution whose padding has a given integer.

    The compiler pads with the zero point of the operand's type. Another integer needs a separate operation.

    Args:
        d: the lowering.
        operand: the operand [N, C, H, W].
        window: geometry with the padding.
        number: integer of the padding.
        name: name of the result, from which the name of the padded operand is derived.
    """
    if not any(window.pads) or number == zero_point_of(operand.element):
        return operand, window
    top, left, bottom, right = window.pads
    batch, channels, height, width = operand.shape
    padded = d.module.add(
        "tpu.Pad",
        [operand],
        (batch, channels, height + top + bottom, width + left + right),
        operand.element,
        f"{name}_padded",
        paddings=(0, 0, top, left, 0, 0, bottom, right),
        val=float(number),
        mode="constant",
    )
    return padded, window._replace(pads=(0, 0, 0, 0))


def can_fuse(rescale: Rescale, value: Value) -> bool:
    """Return True if the requantization can be fused: a single rounding to 8 bits without zero point.

    The compiler uses a separate requantization for 16-bit results and for zero points.
    """
    return (
        rescale.mode == "MultiplierShift"
        and rescale.round_mode == "HalfUp"
        and value.dtype in (DType.INT8, DType.UINT8)
        and not any(rescale.zero_points)
        and all(shift <= 0 for shift in rescale.shifts)
        and all(multiplier >= 0 for multiplier in rescale.multipliers)
    )


def split_weights(weights: Array) -> list[Array]:
    """Return the weights, or two arrays with this sum if they exceed the INT8 range."""
    first = np.clip(weights, -128, 127)
    return [first] if (first == weights).all() else [first, weights - first]


def linear(
    d: Lowering,
    node: Node,
    operation: str,
    x: Tensor,
    weights: list[Array],
    bias: Array,
    window: Window,
    shape: Sequence[int],
) -> None:
    """Append a convolution for a node, fused with the requantization that uses its result if possible.

    Args:
        d: the lowering.
        node: conv, deconv or matmul.
        operation: ``tpu.Conv2D`` or ``tpu.Deconv``.
        x: operand of rank 4.
        weights: one filter, or two filters whose sum is the filter of the node.
        bias: bias with the zero points folded in.
        window: geometry.
        shape: shape of the result, of rank 4.
    """
    y = node.output
    is_one = operation == "tpu.Conv2D" and window.groups == 1 and tuple(shape[2:]) == (1, 1)
    if len(weights) > 1 and is_one and d.target.has_small_sums:
        # TPULang has no product of integers, and its sum of two convolutions to one element is wrong on BM1688.
        shape_twice = (x.shape[0], 2 * x.shape[1], *x.shape[2:])
        x = d.module.add("tpu.Concat", [x, x], shape_twice, x.element, f"{y.name}_twice", axis=1)
        weights = [np.concatenate(weights, axis=1)]
    user = d.sole_user(y, "requant_int32")
    if user is not None and len(weights) == 1 and operation == "tpu.Conv2D":
        z = user.output
        rescale = rescale_of(user.op, shape[1])  # type: ignore[arg-type]
        if can_fuse(rescale, z):
            d.mark_fused(user)
            name = z.name if tuple(shape) == z.shape else f"{z.name}_4d"
            result = convolve(d, operation, x, weights[0], bias, window, (shape, d.element(z), name), rescale)
            d.define(z, d.reshape(result, static_shape(z), z.name))
            return
    # The sum has a flat shape, so that it is in no group with the convolutions: groups with both take the compiler
    # a hundred times as long.
    flat = (shape[0], math.prod(shape[1:]))
    is_split = len(weights) > 1
    name = y.name if tuple(shape) == y.shape and not is_split else f"{y.name}_4d"
    total = accumulate(d, operation, x, weights[0], bias, window, (shape, name))
    if is_split:
        total = d.reshape(total, flat, f"{y.name}_row")
    for part in weights[1:]:
        zero = np.zeros(part.shape[0], np.int64)
        more = accumulate(d, operation, x, part, zero, window, (shape, f"{y.name}_part"))
        row = d.reshape(more, flat, f"{y.name}_part_row")
        total = binary(d, "Add", total, row, flat, "si32", y.name if flat == y.shape else f"{y.name}_sum")
    d.define(y, d.reshape(total, static_shape(y), y.name))


@lowers(ConvV2)
def conv(op: ConvV2, node: Node, d: Lowering) -> None:
    """Lower a convolution with constant weights."""
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None and w is not None
    if not w.is_constant:
        raise NoExactForm("its weights are computed, expected constants")
    if op.izp_vec or op.kzp_vec or not (op.is_izp_const and op.is_kzp_const):
        raise NoExactForm(f"zero points per channel or computed, expected {ZERO_POINTS}")
    window = Window(
        kernel=(w.array.shape[2], w.array.shape[3]),
        strides=(op.stride_h, op.stride_w),
        dilations=(op.dh, op.dw),
        pads=(op.pad_h_t, op.pad_w_l, op.pad_h_b, op.pad_w_r),
        groups=op.groups,
    )
    shape, name = static_shape(node.output), node.output.name
    centered = w.array.astype(np.int64) - op.kzp_val
    bias = node.inputs[2].array if op.has_bias else np.zeros(w.array.shape[0])  # type: ignore[union-attr]
    folded = fold_zero_point(bias, centered, op.izp_val)
    operand, centered, window = without_wide_strides(
        d, d.tensor(x), centered, window, (shape[2], shape[3]), op.izp_val, name
    )
    operand, window = pad_with(d, operand, window, op.izp_val, name)
    linear(d, node, "tpu.Conv2D", operand, split_weights(centered), folded, window, shape)


@lowers(DeconvV2)
def deconv(op: DeconvV2, node: Node, d: Lowering) -> None:
    """Lower a transposed convolution with constant weights."""
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None and w is not None
    if not w.is_constant:
        raise NoExactForm("its weights are computed, expected constants")
    if op.kzp_val or op.kzp_vec or op.izp_vec or op.izp_val:
        raise NoExactForm("zero points, expected none")
    window = Window(
        kernel=(w.array.shape[2], w.array.shape[3]),
        strides=(op.stride_h, op.stride_w),
        dilations=(op.dh, op.dw),
        pads=(op.pad_h_t, op.pad_w_l, op.pad_h_b, op.pad_w_r),
    )
    weights = dense_deconv_weights(w.array, op.groups).transpose(1, 0, 2, 3)  # from IOHW to OIHW
    bias = node.inputs[2].array if op.has_bias else np.zeros(weights.shape[0])  # type: ignore[union-attr]
    folded = fold_zero_point(bias, weights, 0)
    linear(d, node, "tpu.Deconv", d.tensor(x), [weights], folded, window, static_shape(node.output))


def dense_deconv_weights(weights: Array, groups: int) -> Array:
    """Return the weights of an equal transposed convolution with one group: zeros between groups.

    Args:
        weights: [ic, oc / groups, kh, kw].
        groups: number of groups.
    """
    inputs, outputs = weights.shape[:2]
    dense = np.zeros((inputs, outputs * groups, *weights.shape[2:]), weights.dtype)
    size = inputs // groups
    for group in range(groups):
        rows = slice(group * size, (group + 1) * size)
        dense[rows, group * outputs : (group + 1) * outputs] = weights[rows]
    return dense


@lowers(MatrixMulV2)
def matmul(op: MatrixMulV2, node: Node, d: Lowering) -> None:
    """Lower a fully connected layer to a 1x1 convolution, because ``tpu.MatMul`` has one multiplier for all columns."""
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None and w is not None
    if not w.is_constant:
        _computed_product(op, node, d)
        return
    if x.rank != 2 or w.rank != 2:
        raise NoExactForm("its operands have more than two axes, expected constant weights of rank 2")
    if op.is_left_trans or op.lzp_vec or op.rzp_vec:
        raise NoExactForm("a transposed left operand or zero points per channel, expected none")
    matrix = w.array if op.is_right_trans else w.array.T
    rows, columns = static_shape(x)[0], matrix.shape[0]
    weights = matrix.reshape(columns, -1, 1, 1)
    bias = node.inputs[2].array if op.has_bias else np.zeros(columns)  # type: ignore[union-attr]
    weights = weights.astype(np.int64) - op.rzp_val
    folded = fold_zero_point(bias, weights, op.lzp_val)
    x4 = d.reshape(d.tensor(x), (rows, weights.shape[1], 1, 1), f"{node.name}_in")
    linear(d, node, "tpu.Conv2D", x4, split_weights(weights), folded, Window((1, 1)), (rows, columns, 1, 1))


def _computed_product(op: MatrixMulV2, node: Node, d: Lowering) -> None:
    """Lower a product of two computed tensors, as in attention: exact with a 32-bit result."""
    x, w = node.inputs[:2]
    if op.lzp_val or op.rzp_val or op.lzp_vec or op.rzp_vec or op.has_bias:
        raise NoExactForm("a product of computed tensors with zero points or a bias, expected neither")
    d.add(
        "tpu.MatMul",
        [d.tensor(x), d.tensor(w)],
        node.output,
        left_transpose=op.is_left_trans,
        right_transpose=op.is_right_trans,
    )
