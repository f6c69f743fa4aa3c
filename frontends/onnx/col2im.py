"""Col2Im: sum the columns of overlapping blocks into an image."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.matmul import matrix_product
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.ops.deconv import Deconv


@onnx_op("Col2Im", since=18, kind=Kind.DIRECT)
def col2im(node: OnnxNode, g: Graph) -> Result:
    """Two axes use a transposed convolution with one-hot kernels; other ranks use a matmul by a 0/1 matrix."""
    x = emit.floats(node.input(0))
    image, block = node.ints(1), node.ints(2)
    axes = len(image)
    strides, dilations = (node.ints_attr(name) or (1,) * axes for name in ("strides", "dilations"))
    pads = node.ints_attr("pads") or (0,) * (2 * axes)
    if not len(block) == len(strides) == len(dilations) == axes or len(pads) != 2 * axes or node.rank(0) != 3:
        raise node.fail(INVALID_NODE, f"block {list(block)}, strides, dilations or pads for the image {list(image)}")
    batch, rows, columns = node.shape(0)
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, block, strict=True)]
    steps = [(image[k] + pads[k] + pads[k + axes] - reach[k]) // strides[k] + 1 for k in range(axes)]
    size = math.prod(block)
    if min(block) < 1 or min(strides) < 1 or rows % size or min(steps) < 1 or math.prod(steps) != columns:
        raise node.fail(
            INVALID_NODE, f"columns {list(node.shape(0))} for blocks {list(block)} of the image {list(image)}"
        )
    channels = rows // size
    after = [(steps[k] - 1) * strides[k] + reach[k] - pads[k] - image[k] for k in range(axes)]
    if axes == 2:
        kernels = np.tile(np.eye(size, dtype=np.float32).reshape(size, 1, *block), (channels, 1, 1, 1))
        op = Deconv(
            dh=dilations[0],
            dw=dilations[1],
            stride_h=strides[0],
            stride_w=strides[1],
            pad_h_t=pads[0],
            pad_h_b=after[0],
            pad_w_l=pads[1],
            pad_w_r=after[1],
            groups=channels,
        )
        plane = emit.reshape(g, x, (batch, rows, *steps))
        return node.result(g.add(op, plane, emit.float_constant(g, kernels, "kernels")))
    node.budget((size * columns, math.prod(image)), 4, "matrix of places")
    flat = emit.reshape(g, x, (batch * channels, size * columns))
    matrix = _places(image, block, steps, strides, dilations, pads)
    y = matrix_product(g, flat, emit.float_constant(g, matrix, "places"))
    return node.result(emit.reshape(g, y, (batch, channels, *image)))


def _places(
    image: tuple[int, ...],
    block: tuple[int, ...],
    steps: list[int],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
) -> np.ndarray:
    """Matrix [elements of a block * blocks, elements of the image] with 1 at the image index of each element."""
    axes = len(image)
    grids = np.indices((*block, *steps)).reshape(2 * axes, -1)
    place = [grids[axes + k] * strides[k] + grids[k] * dilations[k] - pads[k] for k in range(axes)]
    is_inside = np.all([(place[k] >= 0) & (place[k] < image[k]) for k in range(axes)], axis=0)
    index = np.ravel_multi_index(tuple(place), image, mode="clip")
    matrix = np.zeros((grids.shape[1], math.prod(image)), np.float32)
    matrix[np.flatnonzero(is_inside), index[is_inside]] = 1
    return matrix
