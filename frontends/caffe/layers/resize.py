"""Layers that resize images: upsampling, unpooling, bilinear and nearest-neighbor interpolation."""

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op
from tpuconvert.frontends.caffe.parameters import Parameters
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.compare import Eq
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import Scalar


@caffe_op("Upsample", "Unpooling")
def upsample(node: CaffeNode, g: Graph) -> Value:
    """Nearest upsampling (YOLO), or max unpooling to the positions in a second bottom (SegNet)."""
    p = node.params("upsample_param")
    shape = node.image_shape()
    factors = p.pair("scale")
    if min(factors) < 1:
        raise node.fail(f"scale_h {factors[0]}, scale_w {factors[1]}", "give 1 or more", INVALID_NODE)
    size = (
        p.whole("upsample_h") if p.has("upsample_h") else shape[2] * factors[0] - p.flag("pad_out_h"),
        p.whole("upsample_w") if p.has("upsample_w") else shape[3] * factors[1] - p.flag("pad_out_w"),
    )
    if node.input_count > 1:
        return _unpool(node, g, size)
    if size != (shape[2] * factors[0], shape[3] * factors[1]):
        raise node.fail(f"{list(shape[2:])} to {list(size)}", "supported: one whole factor per axis")
    return repeat(g, node.input(0), factors)


def repeat(g: Graph, x: Value, factors: tuple[int, int]) -> Value:
    """Repeat every pixel as a block: nearest upsampling by integer factors."""
    if factors[0] == factors[1]:
        return g.add(Upsample(factors[0]), x)
    batch, channels, height, width = x.type.static_shape
    copies = g.add(
        Tile((1, 1, 1, factors[0], 1, factors[1])), emit.reshape(g, x, (batch, channels, height, 1, width, 1))
    )
    return emit.reshape(g, copies, (batch, channels, height * factors[0], width * factors[1]))


def _unpool(node: CaffeNode, g: Graph, size: tuple[int, int]) -> Value:
    """Max unpooling: each value at the position of its window's maximum, 0 elsewhere.

    Windows do not overlap, so values and positions are repeated over their windows, and a pixel is set if its position
    is the one of its window.
    """
    tiling, shape = node.findings.tilings.get(node.input(1)), node.shape(0)
    if tiling is None or node.shape(1) != shape:
        hint = "supported: the second top of a Pooling layer with windows that touch"
        raise node.fail("a second bottom with positions that are computed otherwise", hint)
    if tiling.plane != size:
        raise node.fail(f"an output of {list(size)}", f"the pooled plane was {list(tiling.plane)}", INVALID_NODE)
    node.budget(size, "positions")
    here = np.arange(size[0] * size[1], dtype=np.float32).reshape(1, 1, *size)
    values, positions = (_crop_or_pad(g, repeat(g, node.input(k), tiling.window), size) for k in (0, 1))
    hit = g.add(Eq(), positions, node.constant(here, "positions"))
    return g.add(ConditionSelect(), hit, values, g.constant(np.zeros(1, np.float32), "none"))


def _crop_or_pad(g: Graph, x: Value, size: tuple[int, int]) -> Value:
    """Crop to a plane, or pad with -1 the rows and columns that belong to no window."""
    batch, channels, height, width = x.type.static_shape
    missing = max(size[0] - height, 0), max(size[1] - width, 0)
    if any(missing):
        x = g.add(Pad(Scalar.f32(-1), (0, 0, 0, 0, 0, missing[0], 0, missing[1])), x)
    return x if x.shape[2:] == size else g.add(Extract((0,) * 4, (batch, channels, *size), (1,) * 4), x)


@caffe_op("Interp", "ResizeBilinear", "BilinearInterpolation", kind=Kind.DIRECT)
def interp(node: CaffeNode, g: Graph) -> Value:
    """Bilinear resizing with aligned corners, to a size from factors, extents or a second bottom; pads only crop."""
    p = node.params("interp_param")
    shape = node.image_shape()
    before, after = p.whole("pad_beg"), p.whole("pad_end")
    if before > 0 or after > 0:
        raise node.fail(f"pad_beg {before}, pad_end {after}", "only cutting (0 or less) is defined", INVALID_NODE)
    x, height, width = node.input(0), shape[2] + before + after, shape[3] + before + after
    if min(height, width) < 1:
        raise node.fail(f"pads {before} and {after} leave nothing of {list(shape)}", kind=INVALID_NODE)
    size = _interp_size(node, p, height, width)
    if before or after:
        ends = (*shape[:2], shape[2] + after, shape[3] + after)
        x = g.add(Extract((0, 0, -before, -before), ends, (1, 1, 1, 1)), x)
    if size == (height, width):
        return x
    op = Interpolate(size=size, platform=PlatForm.TENSORFLOW, method=InterpolateMode.BILINEAR, align_corners=True)
    return g.add(op, x)


def _interp_size(node: CaffeNode, p: Parameters, height: int, width: int) -> tuple[int, int]:
    zoom = p.whole("zoom_factor") if p.has("zoom_factor") else 1
    shrink = p.whole("shrink_factor") if p.has("shrink_factor") else 1
    if node.input_count > 1:
        return _plane_of_second_bottom(node)
    if zoom < 1 or shrink < 1:
        raise node.fail(f"zoom_factor {zoom}, shrink_factor {shrink}", "give 1 or more", INVALID_NODE)
    if p.has("zoom_factor") or p.has("shrink_factor"):
        p.ignore("height", "width")  # Caffe reads them only if no factor is given
        small = ((height - 1) // shrink + 1, (width - 1) // shrink + 1)
        return small[0] + (small[0] - 1) * (zoom - 1), small[1] + (small[1] - 1) * (zoom - 1)
    if p.whole("height") < 1 or p.whole("width") < 1:
        raise node.fail("no size", "give height and width, zoom_factor or shrink_factor", INVALID_NODE)
    return p.whole("height"), p.whole("width")


def _plane_of_second_bottom(node: CaffeNode) -> tuple[int, int]:
    shape = node.shape(1)
    if len(shape) != 4:
        raise node.fail(f"a second bottom of shape {list(shape)}", "supported: four axes, NCHW", INVALID_NODE)
    return shape[2], shape[3]


@caffe_op("Resample")
def resample(node: CaffeNode, g: Graph) -> Value:
    """Nearest-neighbor resizing to the size of the second bottom or to a given size, by integer factors."""
    p = node.params("resample_param")
    shape = node.image_shape()
    if p.choice("type") != "NEAREST":
        raise node.fail(f"type: {p.choice('type')}", "supported: NEAREST with a whole factor; Interp for bilinear")
    p.ignore("antialias", "factor")  # antialias only affects shrinking; the layer's code does not use factor
    size = _plane_of_second_bottom(node) if node.input_count > 1 else (p.whole("height"), p.whole("width"))
    factors = (size[0] // shape[2], size[1] // shape[3])
    if min(factors) < 1 or size != (shape[2] * factors[0], shape[3] * factors[1]):
        raise node.fail(f"{list(shape[2:])} to {list(size)}", "supported: a whole factor per axis")
    return repeat(g, node.input(0), factors)
