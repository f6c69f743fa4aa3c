"""Convolutions that the fast kernels do not take, whose weights are packed in every run.

These have weights computed at run time, zero points per channel, calculation mode 2, volumes or FLOAT16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from math import ldexp
from typing import Any

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder, Group
from tpuconvert.runtime.native.builder.storage import Stored, row_major
from tpuconvert.runtime.native.matchers.any_elements import ANY_TYPES, readable, steps
from tpuconvert.runtime.native.matchers.matcher import GENERAL, Site, ends_with, names_of, operators_of
from tpuconvert.schema.arithmetic.quantized_sums import ceil_shift, floor_shift
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv3d import Conv3d
from tpuconvert.schema.ops.convolution.conv3d_v2 import Conv3dV2, Deconv3dV2
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul.quantized_modes import QCalMode
from tpuconvert.schema.ops.matmul.zero_points import zero_point
from tpuconvert.schema.types import F32, I8, I32, U8, Chip

BYTES = (I8, U8)


@dataclass(frozen=True)
class Arithmetic:
    """Zero points and rescaling of a convolution, named as in ``general/conv.h``."""

    rescale: dict[str, Any]
    x_zeros: Sequence[int] = (0,)
    w_zeros: Sequence[int] = (0,)
    column_zeros: Sequence[int] = ()
    pad: int = 0
    x_zero: int = 0
    w_zero: int = 0
    has_late_bias: bool = False


@singledispatch
def _arithmetic(op: Op, node: Node, chip: Chip) -> Arithmetic | None:
    return None


@_arithmetic.register
def _exact(op: ConvV2 | DeconvV2 | Conv3dV2 | Deconv3dV2, node: Node, chip: Chip) -> Arithmetic:
    x_zeros, w_zeros = (np.atleast_1d(zero_point(op, prefix)).tolist() for prefix in ("izp", "kzp"))
    return Arithmetic({"mode": "exact"}, x_zeros, w_zeros)


@_arithmetic.register
def _float(op: Conv3d, node: Node, chip: Chip) -> Arithmetic:
    return Arithmetic({"mode": "float"})


@_arithmetic.register
def _by_mode(op: Conv | Deconv, node: Node, chip: Chip) -> Arithmetic:
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    is_depthwise = isinstance(op, Conv) and x.shape[1] == w.shape[0] == op.groups
    has_modes = isinstance(op, Conv) and not x.dtype.is_float
    if has_modes and is_depthwise and chip is Chip.BM1684 and op.mode != QCalMode.LowPrecisionSymmetric:
        rescale = {"mode": "depthwise_in_float", "scale": float(np.float32(op.scale))}
        rescale["output_zero"] = op.output_zero_point
        return Arithmetic(rescale, [op.left_zero_point], [op.right_zero_point])
    return arithmetic_of_mode(op, node, floor_shift, mode=op.mode if has_modes else QCalMode.LowPrecisionSymmetric)


def arithmetic_of_mode(
    op: Conv | Deconv | MatrixMul, node: Node, shift_of_mode_2: Callable[[np.float32], int], *, mode: QCalMode
) -> Arithmetic:
    """Return the arithmetic of floats or of a calculation mode; see ``schema/arithmetic/quantized_sums.py``."""
    x, _, bias = (*node.inputs, None)[:3]
    if x is not None and x.dtype.is_float:
        return Arithmetic({"mode": "float"})
    scale = np.float32(op.scale)
    shift = ceil_shift(scale)
    common = {"scale": float(scale), "output_zero": op.output_zero_point}
    if mode == QCalMode.HighPrecisionAsymmetric:
        zero = op.left_zero_point
        rescale = {"mode": "asymmetric", "shift": shift_of_mode_2(scale), **common}
        return Arithmetic(rescale, pad=zero, x_zero=zero, w_zero=op.right_zero_point)
    if mode == QCalMode.HighPrecisionSymmetric:
        is_late = bias is not None and bias.dtype in (I32, F32)
        return Arithmetic({"mode": "symmetric", "shift": shift, **common}, has_late_bias=is_late)
    remainder = np.float32(ldexp(float(scale), shift))
    multiplier = 0 if remainder == 1 else min(int(float(remainder) * 128), 1 << 40)
    return Arithmetic({"mode": "low_precision", "shift": shift, "multiplier": multiplier})


@ends_with(
    *names_of(*operators_of(_arithmetic)),
    kernels=("any_conv",),
    dtypes="INT8, UINT8, FLOAT32, FLOAT16",
    conditions="what the other matchers and kernels of the operator decline",
    priority=GENERAL,
)
def any_conv(node: Node, site: Site) -> Group | None:
    """Match a convolution by itself."""
    arithmetic = _arithmetic(node.op, node, Chip(site.chip))
    if arithmetic is None:
        return None
    return (
        Group((node,), lambda builder: _emit(builder, node, node.op, arithmetic))
        if has_types(arithmetic, node)
        else None
    )


def has_types(arithmetic: Arithmetic, node: Node) -> bool:
    """Return True if the kernel supports the types of the operand and of the weights."""
    x, w, bias = (*node.inputs, None)[:3]
    assert x is not None and w is not None
    if arithmetic.rescale["mode"] == "float":
        return x.dtype.is_float and w.dtype.is_float
    if arithmetic.rescale["mode"] == "low_precision" and bias is not None and bias.dtype.is_float:
        return False
    return x.dtype in BYTES and w.dtype in BYTES


@dataclass(frozen=True)
class Layout:
    """Extents and strides of a convolution as ``general/conv.h`` has them, or of a matrix product.

    Args:
        groups: number of groups, or of matrices.
        inputs: channels of the operand per group.
        outputs: channels of the result per group.
        x_shape: extents (depth, height, width) of the operand.
        y_shape: the channels of the result.
        x_steps: strides of the operand along (batch, group, channel, depth, height, width), in elements.
        w_steps: strides of the weights along (group, out channel, in channel, depth, height, width).
        y_steps: strides of the result, as for the operand.
        batch: number of images.
        kernel: extents of the kernel.
        strides: its strides.
        dilations: its dilations.
        pads: padding before the first element.
        is_transposed: True for a transposed convolution.
    """

    groups: int
    inputs: int
    outputs: int
    x_shape: Sequence[int]
    y_shape: Sequence[int]
    x_steps: Sequence[int]
    w_steps: Sequence[int]
    y_steps: Sequence[int]
    batch: int = 1
    kernel: Sequence[int] = (1, 1, 1)
    strides: Sequence[int] = (1, 1, 1)
    dilations: Sequence[int] = (1, 1, 1)
    pads: Sequence[int] = (0, 0, 0)
    is_transposed: bool = False


def _emit(builder: Builder, node: Node, op: Any, arithmetic: Arithmetic) -> None:
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    y, geometry = node.output, op.geometry
    is_transposed, groups = op.weight_layout.startswith("I"), geometry.groups
    first, second, *kernel = builder.shape(w)
    inputs, outputs = (first // groups, second) if is_transposed else (second, first // groups)
    source, weights, target = readable(builder, x), readable(builder, w), builder.write(y, row_major(y.rank))
    layout = Layout(
        groups,
        inputs,
        outputs,
        spatial(builder.shape(x)[2:], 1),
        spatial(builder.shape(y)[2:], 1),
        _channel_steps(steps(source), inputs),
        _weight_steps(steps(weights), inputs, outputs, is_transposed=is_transposed),
        _channel_steps(steps(target), outputs),
        batch=builder.shape(x)[0],
        kernel=spatial(kernel, 1),
        strides=spatial(geometry.strides, 1),
        dilations=spatial(geometry.dilations, 1),
        pads=spatial([before for before, _ in geometry.pads], 0),
        is_transposed=is_transposed,
    )
    add_products(builder, node, arithmetic, layout, (source, weights, target))


def add_products(
    builder: Builder, node: Node, arithmetic: Arithmetic, layout: Layout, tensors: tuple[Stored, Stored, Stored]
) -> None:
    """Add the step of a convolution or matrix product; ``tensors`` are the operand, the weights and the result."""
    source, weights, target = tensors
    y, native = node.outputs[0], builder.native
    reads = [source, weights]
    fields: dict[str, Any] = {}
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        bias = builder.read(node.inputs[2])
        reads.append(bias)
        is_shared = bias.size == layout.outputs  # all matrices of a batch have the same bias
        fields["bias"] = _tensor(builder, bias, [0 if is_shared else layout.outputs, 1])
    depth = layout.inputs * int(np.prod(layout.kernel))
    workspace = _workspace(layout.groups, layout.outputs, depth, is_float=arithmetic.rescale["mode"] == "float")
    packed = builder.temporary(I32, (workspace // 4,))
    low, high = (0, 0) if y.dtype.is_float else (y.dtype.min, y.dtype.max)
    spec = native.AnyConvSpec(
        source=_tensor(builder, source, layout.x_steps),
        weights=_tensor(builder, weights, layout.w_steps),
        result=_tensor(builder, target, layout.y_steps),
        batch=layout.batch,
        groups=layout.groups,
        inputs=layout.inputs,
        outputs=layout.outputs,
        extents=list(layout.x_shape),
        out_extents=list(layout.y_shape),
        kernel=list(layout.kernel),
        strides=list(layout.strides),
        dilations=list(layout.dilations),
        pads=list(layout.pads),
        is_transposed=layout.is_transposed,
        x_zeros=list(arithmetic.x_zeros),
        w_zeros=list(arithmetic.w_zeros),
        column_zeros=list(arithmetic.column_zeros),
        pad=arithmetic.pad,
        x_zero=arithmetic.x_zero,
        w_zero=arithmetic.w_zero,
        has_late_bias=arithmetic.has_late_bias,
        rescale=native.ConvRescale(low=low, high=high, **arithmetic.rescale),
        packed=builder.place(packed),
        workspace=workspace,
        **fields,
    )
    builder.step("any_conv", spec, reads, (target, packed))


def _workspace(groups: int, outputs: int, depth: int, *, is_float: bool) -> int:
    """Bytes of the packed weights and their sums, as ``packed_conv_bytes`` computes them."""
    row = depth * 8 if is_float else (depth + 1) // 2 * 4
    return sum(-(-size // 64) * 64 for size in (groups * (outputs + 1) * row, groups * outputs * 8))


def _tensor(builder: Builder, stored: Stored, strides: Sequence[int]) -> Any:
    return builder.native.AnyTensor(place=builder.place(stored), type=ANY_TYPES[stored.dtype], strides=list(strides))


def spatial(numbers: Sequence[int], missing: int) -> list[int]:
    """Return one number per axis (depth, height, width)."""
    return [missing] * (3 - len(numbers)) + list(numbers)


def _channel_steps(strides: Sequence[int], channels: int) -> list[int]:
    """Return the strides of [N, C, ...] with the channels in groups."""
    return [strides[0], channels * strides[1], strides[1], *spatial(strides[2:], 0)]


def _weight_steps(strides: Sequence[int], inputs: int, outputs: int, *, is_transposed: bool) -> list[int]:
    """Return the strides of weights [groups, out per group, in per group, kd, kh, kw]."""
    first, second = strides[:2]
    leading = [inputs * first, second, first] if is_transposed else [outputs * first, first, second]
    return leading + spatial(strides[2:], 0)
