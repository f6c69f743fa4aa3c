"""Layers of region-based detectors (R-CNN) and of grid-based detectors (YOLO)."""

import math

from tpuconvert.frontends import emit
from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.host.position_pool import RoiPositionPool
from tpuconvert.schema.ops.host.proposals import Proposals
from tpuconvert.schema.ops.host.regions import RoiMaxPool
from tpuconvert.schema.ops.softmax import Softmax


@caffe_op("ROIPooling", kind=Kind.HOST)
def roi_pooling(node: CaffeNode, g: Graph) -> Value:
    """RoI max pooling: maximum of each cell of each region, by a host operator."""
    p = node.params("roi_pooling_param")
    op = RoiMaxPool(
        output_height=p.whole("pooled_h"), output_width=p.whole("pooled_w"), spatial_scale=p.number("spatial_scale")
    )
    return g.add(op, node.input(0), _rois(node, g))


@caffe_op("PSROIPooling", kind=Kind.HOST)
def psroi_pooling(node: CaffeNode, g: Graph) -> Value:
    """Position-sensitive RoI pooling: mean of each cell of each region from the cell's channel, by a host operator."""
    p = node.params("psroi_pooling_param")
    p.require("spatial_scale", "output_dim", "group_size")
    op = RoiPositionPool(
        output_dim=p.whole("output_dim"), group_size=p.whole("group_size"), spatial_scale=p.number("spatial_scale")
    )
    return g.add(op, node.input(0), _rois(node, g))


def _rois(node: CaffeNode, g: Graph) -> Value:
    """Regions as [R, 5]; older layers have two further unit axes."""
    shape = node.shape(1)
    if math.prod(shape[1:]) != 5:
        raise node.fail(f"regions of shape {list(shape)} instead of [R, 5]", kind=INVALID_NODE)
    return emit.reshape(g, node.input(1), (shape[0], 5))


@caffe_op("Proposal", kind=Kind.HOST)
def proposal(node: CaffeNode, g: Graph) -> list[Value]:
    """Region proposals from scores and box deltas, by a host operator. Its row count is fixed; unused rows are 0."""
    p = node.params("proposal_param")
    op = Proposals(
        feat_stride=p.number("feat_stride"),
        base_size=p.number("base_size"),
        min_size=p.number("min_size"),
        ratios=p.floats("ratio") or (0.5, 1.0, 2.0),
        scales=p.floats("scale") or (8.0, 16.0, 32.0),
        pre_nms_topn=p.whole("pre_nms_topn"),
        post_nms_topn=p.whole("post_nms_topn"),
        nms_threshold=p.number("iou_threshold" if p.has("iou_threshold") else "nms_thresh"),
    )
    info = node.shape(2)
    if math.prod(info) < 3 or math.prod(info) != info[-1]:
        raise node.fail(f"image information of shape {list(info)} instead of [1, 3]", kind=INVALID_NODE)
    regions, scores = g.add_all(op, node.input(0), node.input(1), emit.reshape(g, node.input(2), (1, info[-1])))
    return [regions, emit.reshape(g, scores, (op.post_nms_topn, 1))][: len(node.output_names)]


@caffe_op("Region", "RegionYolo")
def region(node: CaffeNode, g: Graph) -> Value:
    """Darknet's region activations: sigmoid of box centers and objectness, softmax or sigmoid of classes.

    Box sizes are unchanged. RegionYolo with softmax flattens its result to [batch, elements].
    """
    p = node.params("region_yolo_param" if node.type == "RegionYolo" else "region_param")
    coords, classes, boxes, soft = p.whole("coords"), p.whole("classes"), p.whole("num"), p.flag("do_softmax")
    p.ignore("anchors", "axis", "end_axis", "side", "bias_match", "jitter")
    masks = len(p.ints("mask"))
    boxes = boxes if soft or not masks else masks
    shape = node.shape(0)
    per_box = coords + 1 + classes
    if len(shape) != 4 or coords < 2 or shape[1] != boxes * per_box:
        text = f"{boxes} boxes of {coords} + 1 + {classes} numbers do not fit {list(shape)}"
        raise node.fail(text, kind=INVALID_NODE)
    grid = emit.reshape(g, node.input(0), (shape[0], boxes, per_box, shape[2] * shape[3]))
    centers, size, score, kinds = g.add_all(Split(2, 4, (2, coords - 2, 1, classes)), grid)
    parts = [formulas.sigmoid(g, centers), size, formulas.sigmoid(g, score)]
    parts.append(g.add(Softmax(2), kinds) if soft else formulas.sigmoid(g, kinds))
    y = g.add(Concat(2), *parts)
    return emit.reshape(g, y, (shape[0], math.prod(shape[1:])) if soft and node.type == "RegionYolo" else shape)
