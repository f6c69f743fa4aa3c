"""CONV_3D, CONV_3D_TRANSPOSE and DILATE."""

from __future__ import annotations

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.gather import insert_between, pad_or_crop
from tpuconvert.frontends.tflite.layout import NCDHW, Permuted
from tpuconvert.frontends.tflite.lowering import bias
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.conv3d import Conv3d

_AXES = ("d", "h", "w")
Three = tuple[int, int, int]


def _three(node: TfliteNode, pattern: str, default: int = 0) -> Three:
    depth, height, width = (int(node.option(pattern.format(axis), default)) for axis in _AXES)
    if min(depth, height, width) < 1:
        raise node.fail(INVALID_NODE, f"{pattern.format('*')} {(depth, height, width)} must be at least 1")
    return depth, height, width


def _pads(
    node: TfliteNode, extents: tuple[int, ...], kernel: tuple[int, ...], strides: Three, dilations: Three
) -> list[tuple[int, int]]:
    padding = node.option("padding")
    if padding not in (0, 1):
        raise node.fail(INVALID_NODE, f"padding is {padding}, neither SAME (0) nor VALID (1)")
    if padding == 1:
        return [(0, 0)] * 3
    return [functions.same_padding(*numbers) for numbers in zip(extents, kernel, strides, dilations, strict=True)]


def _check(node: TfliteNode, data: int) -> None:
    for index in (data, 1):
        if node.rank(index) != 5:
            raise node.fail(INVALID_NODE, f"input {index} {list(node.shape(index))} must have rank 5")


@tflite_op("CONV_3D", kind=Kind.DIRECT)
def conv_3d(node: TfliteNode, g: Graph) -> Permuted:
    """Convolution of a volume; fewer weight channels than data channels mean groups."""
    _check(node, 0)
    *kernel, ic, oc = node.shape(1)
    channels = node.shape(0)[4]
    if not ic or not channels or channels % ic or oc % (channels // ic):
        raise node.fail(INVALID_NODE, f"weights {list(node.shape(1))} do not fit {channels} channels")
    strides, dilations = _three(node, "stride_{}"), _three(node, "dilation_{}_factor", 1)
    (front, back), (top, bottom), (left, right) = _pads(node, node.shape(0)[1:4], tuple(kernel), strides, dilations)
    op = Conv3d(channels // ic, dilations, (front, back, top, bottom, left, right), strides)
    weights = node.permute(1, (4, 3, 0, 1, 2))
    y = g.add(op, node.permute(0, NCDHW), weights, bias(node, 2, 0, 1, (1, oc, 1, 1, 1)))
    return Permuted(node.activate(y), NCDHW)


@tflite_op("CONV_3D_TRANSPOSE", limits="a constant output shape and weights")
def conv_3d_transpose(node: TfliteNode, g: Graph) -> Permuted:
    """Transposed convolution of a volume: zeros between the elements, then a convolution with mirrored weights."""
    _check(node, 2)
    target, (*kernel, oc, ic), shape = node.ints(0), node.shape(1), node.shape(2)
    if len(target) != 5 or target[4] != oc or ic != shape[4] or target[0] != shape[0]:
        raise node.fail(INVALID_NODE, f"weights {list(node.shape(1))}, input {list(shape)}, output {list(target)}")
    strides, dilations = _three(node, "stride_{}"), _three(node, "dilation_{}_factor", 1)
    cuts = _pads(node, target[1:4], tuple(kernel), strides, dilations)
    low, high = [0, 0], [0, 0]
    for axis in range(3):
        reach = dilations[axis] * (kernel[axis] - 1)
        grown = (shape[1 + axis] - 1) * strides[axis] + 1
        low.append(reach - cuts[axis][0])
        high.append(target[1 + axis] - grown + cuts[axis][0])
    x = pad_or_crop(g, insert_between(g, node.permute(2, NCDHW), (1, 1, *strides)), low, high, 0.0)
    mirrored = node.real(1)[::-1, ::-1, ::-1].transpose(3, 4, 0, 1, 2)
    weights = emit.float_constant(g, np.ascontiguousarray(mirrored), "mirrored")
    y = g.add(Conv3d(1, dilations), x, weights, bias(node, 3, 2, 1, (1, oc, 1, 1, 1)))
    return Permuted(node.activate(y), NCDHW)


@tflite_op("DILATE")
def dilate(node: TfliteNode, g: Graph) -> Value:
    """A number between neighbours along every axis."""
    factors = node.ints(1)
    if len(factors) != node.rank(0) or min(factors, default=1) < 1:
        raise node.fail(INVALID_NODE, f"factors {list(factors)} for {list(node.shape(0))}")
    return insert_between(g, node.input(0), factors, node.scalar(2))
