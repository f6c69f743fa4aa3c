"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

from tpuconvert.frontends import emit
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.layout import Permuted
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.upsample import Upsample


@tflite_op("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", kind=Kind.DIRECT)
def resize(node: TfliteNode, g: Graph) -> Permuted:
    """Resize height and width; nearest-neighbor resizing by a common integer factor becomes ``upsample``."""
    size = node.ints(1)
    align_corners = bool(node.option("align_corners", False))
    half_pixel_centers = bool(node.option("half_pixel_centers", False))
    if len(size) != 2 or min(size) < 1 or (align_corners and half_pixel_centers):
        raise node.fail(
            INVALID_NODE,
            f"size {list(size)}, align_corners={align_corners}, half_pixel_centers={half_pixel_centers}",
            "a size has two extents, and one of the two flags may be set",
        )
    x = node.nchw(0)
    _, height, width, _ = node.shape(0)
    if not height or not width:
        raise node.fail(INVALID_NODE, f"input {list(node.shape(0))} has no elements")
    is_nearest = node.op_type == "RESIZE_NEAREST_NEIGHBOR"
    factor = size[0] // height
    is_whole = size == (height * factor, width * factor)
    if is_nearest and is_whole and factor > 1 and not align_corners and x.dtype.is_float:
        # half_pixel_centers does not change the result for an integer factor.
        return node.nhwc(g.add(Upsample(scale=factor), x))
    op = Interpolate(
        size=size,
        platform=PlatForm.TENSORFLOW,
        method=InterpolateMode.NEAREST if is_nearest else InterpolateMode.BILINEAR,
        align_corners=align_corners,
        half_pixel_centers=half_pixel_centers,
    )
    return node.nhwc(emit.cast(g, g.add(op, emit.as_float(g, x)), x.dtype))
