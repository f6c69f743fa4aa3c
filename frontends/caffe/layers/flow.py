"""Layers of networks for optical flow (FlowNet2).

Source: the forward code of these layers in FlowNet2's Caffe fork.
"""

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.caffe.arithmetic import scale_by, shift_by
from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op
from tpuconvert.schema.errors import INVALID_NODE, TOO_LARGE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Rsubs
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.compare import Ges, Lts
from tpuconvert.schema.ops.concat import Split
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.quantization.round_to_integer import Floor
from tpuconvert.schema.types import EXACT_FLOAT32, I32, Scalar


@caffe_op("Accum")
def accum(node: CaffeNode, g: Graph) -> Value:
    """Resize all bottoms to one size and concatenate them along the channels.

    With ``have_reference`` the last bottom only gives the size, and is not part of the result.
    """
    p = node.params("accum_param")
    has_reference = p.has("have_reference") and p.flag("have_reference")
    size = _planes(node)[-1] if has_reference else (_extent(node, "top_height"), _extent(node, "top_width"))
    p.ignore("top_height", "top_width")
    op = Interpolate(size=size, platform=PlatForm.TENSORFLOW, method=InterpolateMode.BILINEAR, align_corners=True)
    count = node.input_count - has_reference
    if count < 1:
        raise node.fail("no tensor besides the one that says the size", kind=INVALID_NODE)
    parts = [x if x.type.static_shape[2:] == size else g.add(op, x) for x in node.inputs[:count]]
    return emit.concat(g, parts, 1)


def _planes(node: CaffeNode) -> list[tuple[int, int]]:
    shapes = [node.shape(index) for index in range(node.input_count)]
    if any(len(shape) != 4 for shape in shapes):
        raise node.fail(f"bottoms of shape {', '.join(map(str, map(list, shapes)))}", "supported: NCHW", INVALID_NODE)
    return [(shape[2], shape[3]) for shape in shapes]


def _extent(node: CaffeNode, name: str) -> int:
    p = node.params("accum_param")
    if not p.has(name) or p.whole(name) < 1:
        raise node.fail(f"no {name}", "give top_height and top_width, or have_reference", INVALID_NODE)
    return p.whole(name)


@caffe_op("FlowWarp")
def flow_warp(node: CaffeNode, g: Graph) -> Value:
    """Sample the image at each pixel's position plus its flow (x, y), with bilinear interpolation; 0 outside."""
    shape, flow = node.shape(0), node.shape(1)
    if len(shape) != 4 or flow != (shape[0], 2, *shape[2:]):
        raise node.fail(f"a flow of shape {list(flow)} does not fit {list(shape)}", kind=INVALID_NODE)
    batch, channels, height, width = shape
    if batch * height * width > EXACT_FLOAT32:
        raise node.fail(f"{batch * height * width} pixels", kind=TOO_LARGE)
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    pixels = g.add(Add(), node.input(1), node.constant(np.stack([columns, rows])[None], "pixels"))
    x, y = g.add_all(Split(1, 2, (1, 1)), pixels)
    picked = emit.reshape(g, g.add(Permute((0, 2, 3, 1)), node.input(0)), (batch * height * width, channels))
    offset = node.constant(np.arange(batch).reshape(batch, 1, 1, 1) * height * width, "images")
    total: Value | None = None
    for row, row_weight in _corners(g, y, height):
        for column, column_weight in _corners(g, x, width):
            index = g.add(Add(), g.add(Add(), scale_by(g, row, width), column), offset)
            flat = emit.reshape(g, g.add(Cast(out_dtype=I32), index), (batch * height * width,))
            pixel = emit.reshape(g, g.add(IndexSelect(0), picked, flat), (batch, height, width, channels))
            weight = emit.reshape(g, g.add(Mul(), row_weight, column_weight), (batch, height, width, 1))
            part = g.add(Mul(), pixel, weight)
            total = part if total is None else g.add(Add(), total, part)
    assert total is not None
    return g.add(Permute((0, 3, 1, 2)), total)


def _corners(g: Graph, coordinate: Value, extent: int) -> list[tuple[Value, Value]]:
    """Indices and weights of the two neighboring pixels along one axis, with indices clamped to the edge.

    Both weights are 0 for a coordinate outside the image.
    """
    first = g.add(Floor(), coordinate)
    part = g.add(Sub(), coordinate, first)
    inside = g.add(Mul(), g.add(Ges(Scalar.f32(0)), coordinate), g.add(Lts(Scalar.f32(extent)), coordinate))
    weights = (g.add(Rsubs(Scalar.f32(1)), part), part)
    return [
        (emit.mins(g, emit.maxs(g, shift_by(g, first, k), 0), extent - 1), g.add(Mul(), weight, inside))
        for k, weight in enumerate(weights)
    ]
