"""CONV_3D, CONV_3D_TRANSPOSE and DILATE."""

from __future__ import annotations

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.layout import NCDHW, Permuted
from tpuconvert.frontends.tflite.lowering import bias, same_or_valid_padding
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.frontends.tflite.operators.gather import insert_between, pad_or_crop
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.convolution.conv3d import Conv3d

_AXES = ("d", "h", "w")
Three = tuple[int, int, int]


def _three(node: TfliteNode, pattern: str, default: int = 0) -> Three:
    depth, height, width = (int(node.option(pattern.format(axis), default)) for axis in _AXES)
    if min(depth, height, width) < 1:
        raise node.fail(INVALID_NODE, f"{pattern.format('*')} {(depth, height, width)} must be at least 1")
    return depth, height, width


@tflite_op("CONV_3D", kind=Kind.DIRECT)
def conv_3d(node: TfliteNode, g: Graph) -> Permuted:
    """3-D convolution; the number of groups is the ratio of data channels to weight channels."""
    *extents, channels = node.shape_of_rank(0, 5)[1:]
    *kernel, ic, oc = node.shape_of_rank(1, 5)
    if not ic or not channels or channels % ic or oc % (channels // ic):
        raise node.fail(INVALID_NODE, f"weights {list(node.shape(1))} do not fit {channels} channels")
    strides, dilations = _three(node, "stride_{}"), _three(node, "dilation_{}_factor", 1)
    pads = same_or_valid_padding(node, tuple(extents), tuple(kernel), strides, dilations)
    front, back, top, bottom, left, right = pads
    op = Conv3d(channels // ic, dilations, (front, back, top, bottom, left, right), strides)
    weights = node.permute(1, (4, 3, 0, 1, 2))
    y = g.add(op, node.permute(0, NCDHW), weights, bias(node, 2, 0, 1, (1, oc, 1, 1, 1)))
    return Permuted(node.activate(y), NCDHW)


@tflite_op("CONV_3D_TRANSPOSE", limits="a constant output shape and weights")
def conv_3d_transpose(node: TfliteNode, g: Graph) -> Permuted:
    """3-D deconv: insert zeros between the elements, then convolve with mirrored weights."""
    shape, (*kernel, oc, ic), target = node.shape_of_rank(2, 5), node.shape_of_rank(1, 5), node.ints(0)
    if len(target) != 5 or target[4] != oc or ic != shape[4] or target[0] != shape[0]:
        raise node.fail(INVALID_NODE, f"weights {list(node.shape(1))}, input {list(shape)}, output {list(target)}")
    strides, dilations = _three(node, "stride_{}"), _three(node, "dilation_{}_factor", 1)
    cuts = same_or_valid_padding(node, target[1:4], tuple(kernel), strides, dilations)[::2]
    low, high = [0, 0], [0, 0]
    for axis in range(3):
        reach = dilations[axis] * (kernel[axis] - 1)
        grown = (shape[1 + axis] - 1) * strides[axis] + 1
        low.append(reach - cuts[axis])
        high.append(target[1 + axis] - grown + cuts[axis])
    x = pad_or_crop(g, insert_between(g, node.permute(2, NCDHW), (1, 1, *strides)), low, high, 0.0)
    mirrored = node.real(1)[::-1, ::-1, ::-1].transpose(3, 4, 0, 1, 2)
    weights = emit.float_constant(g, np.ascontiguousarray(mirrored), "mirrored")
    y = g.add(Conv3d(1, dilations), x, weights, bias(node, 3, 2, 1, (1, oc, 1, 1, 1)))
    return Permuted(node.activate(y), NCDHW)


@tflite_op("DILATE")
def dilate(node: TfliteNode, g: Graph) -> Value:
    """Insert copies of a constant between neighboring elements along every axis."""
    factors = node.ints(1)
    if len(factors) != node.rank(0) or min(factors, default=1) < 1:
        raise node.fail(INVALID_NODE, f"factors {list(factors)} for {list(node.shape(0))}")
    return insert_between(g, node.input(0), factors, node.scalar(2))
