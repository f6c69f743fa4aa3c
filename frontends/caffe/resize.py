"""Layers that enlarge or shrink planes."""

from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op
from tpuconvert.frontends.caffe.parameters import Parameters
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.upsample import Upsample


@caffe_op("Upsample")
def upsample(node: CaffeNode, g: Graph) -> Value:
    """Every pixel repeated ``scale`` times in both directions (YOLO)."""
    p = node.params("upsample_param")
    if node.input_count > 1:
        raise node.fail(
            "a second bottom, with the positions of maxima", "no operator scatters: use Deconvolution or Interp"
        )
    factors = (
        (p.whole("scale_h"), p.whole("scale_w")) if p.has("scale_h") or p.has("scale_w") else (p.whole("scale"),) * 2
    )
    if factors[0] != factors[1] or factors[0] < 1:
        raise node.fail(f"scale_h {factors[0]}, scale_w {factors[1]}", "supported: one factor for both", INVALID_NODE)
    return g.add(Upsample(factors[0]), node.input(0))


@caffe_op("Interp")
def interp(node: CaffeNode, g: Graph) -> Value:
    """Bilinear, corners on corners. The size comes from factors, extents or a second bottom; pads only cut."""
    p = node.params("interp_param")
    shape = node.shape(0)
    if len(shape) != 4:
        raise node.fail(f"an input of shape {list(shape)}", "supported: four axes, NCHW", INVALID_NODE)
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
        p.ignore("height", "width")  # Caffe looks at them only without a factor
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
    """To the size of the second bottom or to a given one; the nearest pixel, whole factors only."""
    p = node.params("resample_param")
    shape = node.shape(0)
    if p.choice("type") != "NEAREST":
        raise node.fail(f"type: {p.choice('type')}", "supported: NEAREST with a whole factor; Interp for bilinear")
    if len(shape) != 4:
        raise node.fail(f"an input of shape {list(shape)}", "supported: four axes, NCHW", INVALID_NODE)
    p.ignore("antialias", "factor")  # antialias matters where an image shrinks, factor to nothing in the layer's code
    size = _plane_of_second_bottom(node) if node.input_count > 1 else (p.whole("height"), p.whole("width"))
    factors = {out // extent if out % extent == 0 else 0 for out, extent in zip(size, shape[2:], strict=True)}
    if len(factors) != 1 or 0 in factors:
        raise node.fail(f"{list(shape[2:])} to {list(size)}", "supported: one whole factor for both axes")
    return g.add(Upsample(factors.pop()), node.input(0))
