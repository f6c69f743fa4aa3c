"""Custom operators that many published models use: SSD detection post-processing and transposed convolution."""

from __future__ import annotations

import math
import struct

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.file.flexbuffer import read_numbers
from tpuconvert.frontends.tflite.layout import Permuted
from tpuconvert.frontends.tflite.lowering import bias, reshape
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.frontends.tflite.operators.data_dependent import count_items, pad_items
from tpuconvert.frontends.tflite.operators.gather import gather, slice_box
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph.graph import Graph, Value, static
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.nms import NmsV2
from tpuconvert.schema.ops.ordering import Topk
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import I32, Scalar


@tflite_op("TFLite_Detection_PostProcess", domain="custom", limits="use_regular_nms=0")
def detection_post_process(node: TfliteNode, g: Graph) -> tuple[Value, ...]:
    """Detections of one image by class-agnostic non-maximum suppression; unused rows are 0.

    Results: boxes [1, M, 4], classes [1, M], scores [1, M] and the number of selected boxes;
    M is the largest number of boxes times the number of classes per box.
    """
    settings = _settings(node)
    boxes, scores, anchors = node.shape(0), node.shape(1), node.shape(2)
    count, classes = anchors[0] if anchors else 0, int(settings["num_classes"])
    background = scores[-1] - classes if scores else -1
    if boxes[:2] != (1, count) or boxes[2:] != (4,) or scores[:2] != (1, count) or background not in (0, 1):
        raise node.fail(INVALID_NODE, f"boxes {list(boxes)}, scores {list(scores)}, anchors {list(anchors)}")
    limit, each = int(settings["max_detections"]), int(settings["max_classes_per_detection"])
    each = min(each, classes)
    if limit < 1 or each < 1:
        raise node.fail(INVALID_NODE, f"max_detections {limit}, max_classes_per_detection {each}")
    corners = _decode_boxes(node, g, settings, count)
    plain = reshape(g, emit.as_float(g, node.input(1)), (count, scores[-1]))
    plain = slice_box(g, plain, [range(count), range(background, scores[-1])])
    best = Topk(k=each, axis=1, descending=True, index_dtype=I32)
    values, labels = g.add_all(best, plain, names=("class_scores", "classes"))
    first = reshape(g, slice_box(g, values, [range(count), range(1)]), (count,))
    # The TFLite kernel keeps scores that are equal to the threshold, the TPU operator does not.
    score = np.nextafter(np.float32(settings["nms_score_threshold"]), np.float32(-np.inf))
    op = NmsV2(Scalar.f32(settings["nms_iou_threshold"]), Scalar.f32(float(score)), min(limit, count))
    taken = g.add(op, corners, first)
    rows = pad_items(node, taken, limit, count, "no_box")  # index of the zeros that _gather_rows appends
    tables = [_gather_rows(g, table, rows) for table in (corners, emit.as_float(g, labels), values)]
    spread = g.add(Tile(reps=(1, each)), tables[0]) if each > 1 else tables[0]
    return (
        reshape(g, spread, (1, limit * each, 4)),
        reshape(g, tables[1], (1, limit * each)),
        reshape(g, tables[2], (1, limit * each)),
        emit.as_float(g, count_items(g, taken)),
    )


_NEEDED = ("max_detections", "max_classes_per_detection", "nms_score_threshold", "nms_iou_threshold", "num_classes")
_SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")


def _settings(node: TfliteNode) -> dict[str, int | float]:
    try:
        settings = read_numbers(node.operator.options.custom)
    except ValueError as error:
        raise node.fail(INVALID_NODE, f"its options cannot be read: {error}") from error
    missing = [name for name in (*_NEEDED, *_SCALES) if name not in settings]
    if missing:
        raise node.fail(INVALID_NODE, f"its options lack {', '.join(missing)}")
    if any(not math.isfinite(settings[name]) for name in settings) or any(settings[name] == 0 for name in _SCALES):
        raise node.fail(INVALID_NODE, f"its options are {settings}")
    if settings.get("use_regular_nms"):
        raise node.fail(
            UNSUPPORTED_ATTRIBUTE, "use_regular_nms=1", "supported: 0, suppression over all classes at once"
        )
    return settings


def _decode_boxes(node: TfliteNode, g: Graph, settings: dict[str, int | float], count: int) -> Value:
    """Decode boxes relative to anchors (center y, x, height, width) to corners (y1, x1, y2, x2)."""
    anchors = node.real(2)
    if anchors.shape != (count, 4):
        raise node.fail(INVALID_NODE, f"anchors {list(anchors.shape)}")
    code = reshape(g, emit.as_float(g, node.input(0)), (count, 4))
    offset = slice_box(g, code, [range(count), range(2)])
    size = slice_box(g, code, [range(count), range(2, 4)])
    steps = np.asarray([settings[name] for name in _SCALES], np.float32)
    near = g.add(Mul(), offset, emit.float_constant(g, anchors[:, 2:] / steps[:2], "anchor_sizes"))
    center = g.add(Add(), near, emit.float_constant(g, anchors[:, :2], "anchor_centres"))
    grown = g.add(Mul(), size, emit.float_constant(g, 1 / steps[None, 2:], "size_scales"))
    grown = formulas.exp(g, grown)
    half = g.add(Mul(), grown, emit.float_constant(g, anchors[:, 2:] * np.float32(0.5), "half_anchors"))
    return g.add(Concat(axis=1), g.add(Sub(), center, half), g.add(Add(), center, half))


def _gather_rows(g: Graph, table: Value, rows: Value) -> Value:
    zeros = g.constant(np.zeros((1, static(table.shape)[1]), np.float32), "nothing")
    return gather(g, g.add(Concat(axis=0), table, zeros), rows, 0)


@tflite_op("Convolution2DTransposeBias", domain="custom", kind=Kind.DIRECT)
def transposed_convolution_with_bias(node: TfliteNode, g: Graph) -> Permuted:
    """TRANSPOSE_CONV with a bias; padding and strides determine the output shape."""
    options = node.operator.options.custom
    if len(options) < 12:
        raise node.fail(INVALID_NODE, f"options of {len(options)} bytes, expected padding and two strides")
    padding, stride_w, stride_h = struct.unpack_from("<3i", options)
    if node.rank(0) != 4 or node.rank(1) != 4 or min(stride_w, stride_h) < 1 or padding not in (1, 2):
        message = f"input {list(node.shape(0))}, weights {list(node.shape(1))}, padding {padding}"
        raise node.fail(INVALID_NODE, f"{message}, strides {[stride_h, stride_w]}")
    (_, height, width, channels), (oc, kh, kw, ic) = node.shape(0), node.shape(1)
    if ic != channels:
        raise node.fail(INVALID_NODE, f"weights {list(node.shape(1))} for {channels} channels")
    cuts = []
    for extent, kernel, stride in ((height, kh, stride_h), (width, kw, stride_w)):
        full = (extent - 1) * stride + kernel
        out = extent * stride if padding == 1 else full
        before = functions.same_padding(out, kernel, stride)[0] if padding == 1 else 0
        cuts += [before, full - out - before]
    op = functions.plane_convolution(Deconv, (stride_h, stride_w), (1, 1), cuts)
    y = g.add(op, node.nchw(0), node.permute(1, (3, 0, 1, 2)), bias(node, 2, 0, 1, (1, oc, 1, 1)))
    return node.nhwc(y)
