"""Convolutions that the fast kernels do not take: weights computed at run time, zero points per channel, calculation
mode 2, volumes, FLOAT16. The weights are packed in every run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from math import ldexp
from typing import Any

import numpy as np

from tpuconvert.runtime.native.builder import Builder, Group
from tpuconvert.runtime.native.groups import GENERAL, Site, ends_with, names_of, operators_of
from tpuconvert.runtime.native.plan_any_elements import ANY_TYPES, readable, steps
from tpuconvert.runtime.native.storage import Stored, row_major
from tpuconvert.schema.graph import Node
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.conv3d import Conv3d
from tpuconvert.schema.ops.conv3d_v2 import Conv3dV2, Deconv3dV2
from tpuconvert.schema.ops.conv_v2 import ConvV2
from tpuconvert.schema.ops.deconv import Deconv
from tpuconvert.schema.ops.deconv_v2 import DeconvV2
from tpuconvert.schema.quantized_modes import QCalMode
from tpuconvert.schema.quantized_sums import ceil_shift, floor_shift
from tpuconvert.schema.types import F32, I8, I32, U8, Chip
from tpuconvert.schema.zero_points import zero_point

BYTES = (I8, U8)


@dataclass(frozen=True)
class Arithmetic:
    """Zero points and rescaling of a convolution, named as in ``general/conv.h``."""

    rescale: dict[str, Any]
    x_zeros: Sequence[int] = (0,)
    w_zeros: Sequence[int] = (0,)
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
    x, w, bias = (*node.inputs, None)[:3]
    assert x is not None and w is not None
    if x.dtype.is_float:
        return Arithmetic({"mode": "float"})
    scale = np.float32(op.scale)
    common = {"scale": float(scale), "output_zero": op.output_zero_point}
    is_depthwise = isinstance(op, Conv) and x.shape[1] == w.shape[0] == op.groups
    if is_depthwise and chip is Chip.BM1684 and op.mode != QCalMode.LowPrecisionSymmetric:
        zeros = [op.left_zero_point], [op.right_zero_point]
        return Arithmetic({"mode": "depthwise_in_float", **common}, *zeros)
    if isinstance(op, Conv) and op.mode == QCalMode.HighPrecisionAsymmetric:
        rescale = {"mode": "asymmetric", "shift": floor_shift(scale), **common}
        zero = op.left_zero_point
        return Arithmetic(rescale, pad=zero, x_zero=zero, w_zero=op.right_zero_point)
    shift = ceil_shift(scale)
    if isinstance(op, Conv) and op.mode == QCalMode.HighPrecisionSymmetric:
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
    found = _arithmetic(node.op, node, Chip(site.chip))
    if found is None:
        return None
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    is_float = found.rescale["mode"] == "float"
    if not (x.dtype.is_float and w.dtype.is_float if is_float else x.dtype in BYTES and w.dtype in BYTES):
        return None
    return Group((node,), lambda builder: _emit(builder, node, node.op, found))


def _emit(builder: Builder, node: Node, op: Any, found: Arithmetic) -> None:
    x, w, bias = (*node.inputs, None)[:3]
    assert x is not None and w is not None
    y, native = node.output, builder.native
    is_transposed = op.weight_layout.startswith("I")
    geometry = op.geometry
    first, second, *kernel = builder.shape(w)
    groups = geometry.groups
    inputs, outputs = (first // groups, second) if is_transposed else (second, first // groups)
    source, weights, target = readable(builder, x), readable(builder, w), builder.write(y, row_major(y.rank))
    reads = [source, weights]
    fields: dict[str, Any] = {}
    if bias is not None:
        stored = builder.read(bias)
        reads.append(stored)
        fields["bias"] = _tensor(builder, stored, [outputs, 1])
    depth = inputs * int(np.prod(kernel))
    workspace = _workspace(groups, outputs, depth, is_float=found.rescale["mode"] == "float")
    packed = builder.temporary(I32, (workspace // 4,))
    low, high = (0, 0) if y.dtype.is_float else (y.dtype.min, y.dtype.max)
    spec = native.AnyConvSpec(
        source=_tensor(builder, source, _axes(steps(source), 0)),
        weights=_tensor(builder, weights, _weight_steps(steps(weights), inputs, outputs, is_transposed=is_transposed)),
        result=_tensor(builder, target, _axes(steps(target), 0)),
        batch=builder.shape(x)[0],
        groups=groups,
        inputs=inputs,
        outputs=outputs,
        extents=_spatial(builder.shape(x)[2:], 1),
        out_extents=_spatial(builder.shape(y)[2:], 1),
        kernel=_spatial(kernel, 1),
        strides=_spatial(geometry.strides, 1),
        dilations=_spatial(geometry.dilations, 1),
        pads=_spatial([before for before, _ in geometry.pads], 0),
        is_transposed=is_transposed,
        x_zeros=list(found.x_zeros),
        w_zeros=list(found.w_zeros),
        pad=found.pad,
        x_zero=found.x_zero,
        w_zero=found.w_zero,
        has_late_bias=found.has_late_bias,
        rescale=native.ConvRescale(low=low, high=high, **found.rescale),
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


def _spatial(numbers: Sequence[int], missing: int) -> list[int]:
    """Return one number per axis (depth, height, width)."""
    return [missing] * (3 - len(numbers)) + list(numbers)


def _axes(strides: Sequence[int], missing: int) -> list[int]:
    """Return strides with a depth axis."""
    return [*strides[:2], *_spatial(strides[2:], missing)]


def _weight_steps(strides: Sequence[int], inputs: int, outputs: int, *, is_transposed: bool) -> list[int]:
    """Return the strides of weights [groups, out per group, in per group, kd, kh, kw]."""
    first, second = strides[:2]
    leading = [inputs * first, second, first] if is_transposed else [outputs * first, first, second]
    return leading + _spatial(strides[2:], 0)
