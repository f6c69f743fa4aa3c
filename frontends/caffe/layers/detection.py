"""Layers of SSD detectors: PriorBox and DetectionOutput."""

import math

import numpy as np

from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op
from tpuconvert.frontends.caffe.parameters import Parameters
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.host.detection import BoxCode, DetectionOutput
from tpuconvert.schema.types import Array


@caffe_op("PriorBox", kind=Kind.FOLDED)
def prior_box(node: CaffeNode, g: Graph) -> Value:
    """Constant [1, 2, boxes * 4] with the corners of the prior boxes, then their variances.

    The boxes depend only on the shapes of the bottoms.
    """
    p = node.params("prior_box_param")
    plane, image = node.shape(0), node.shape(1)
    if len(plane) != 4 or len(image) != 4:
        raise node.fail(f"bottoms of shape {list(plane)} and {list(image)}", "both need four axes", INVALID_NODE)
    y, x, extents = _grid(node, p, plane[2:], image[2:])
    sizes = _box_sizes(node, p)
    node.budget((2, y.size * x.size * len(sizes) * 4), "prior boxes")
    boxes = _place(y, x, extents, sizes)
    if p.flag("clip"):
        boxes = np.clip(boxes, 0, 1)
    variances = p.floats("variance") or (0.1,)
    if len(variances) not in (1, 4) or min(variances) <= 0:
        raise node.fail(f"variance {list(variances)}", "give one or four, above 0", INVALID_NODE)
    spread = np.broadcast_to(np.asarray(variances, np.float32), boxes.shape)
    return node.constant(np.stack([boxes, spread]).reshape(1, 2, -1), "priors")


def _grid(
    node: CaffeNode, p: Parameters, plane: tuple[int, ...], image: tuple[int, ...]
) -> tuple[Array, Array, tuple[int, ...]]:
    """Box centers along height, box centers along width, and the image size (height, width), in image pixels."""
    if p.has("img_size"):
        image = (p.whole("img_size"),) * 2
    elif p.has("img_h") or p.has("img_w"):
        image = (p.whole("img_h"), p.whole("img_w"))
    steps = (image[0] / plane[0], image[1] / plane[1])
    if p.has("step"):
        steps = (p.number("step"),) * 2
    elif p.has("step_h") or p.has("step_w"):
        steps = (p.number("step_h"), p.number("step_w"))
    if min(image) < 1 or min(steps) <= 0:
        raise node.fail("image extents and steps must be positive", kind=INVALID_NODE)
    node.budget((math.prod(plane),), "box centers")
    y, x = ((np.arange(extent) + p.number("offset")) * step for extent, step in zip(plane, steps, strict=True))
    return y, x, image


def _box_sizes(node: CaffeNode, p: Parameters) -> list[tuple[float, float]]:
    """List (width, height) of the boxes at one position in SSD's order: per size, square boxes, then other ratios."""
    smallest, largest = p.floats("min_size"), p.floats("max_size")
    if not smallest or min(smallest) <= 0:
        raise node.fail("min_size is missing or not positive", "give it in the prototxt", INVALID_NODE)
    if largest and (len(largest) != len(smallest) or any(a <= b for a, b in zip(largest, smallest, strict=True))):
        raise node.fail("each max_size must be above its min_size", kind=INVALID_NODE)
    ratios = [1.0]
    for ratio in p.floats("aspect_ratio"):
        if ratio <= 0:
            raise node.fail(f"aspect_ratio {ratio:g}", "ratios are positive", INVALID_NODE)
        if all(abs(ratio - other) >= 1e-6 for other in ratios):
            ratios.extend((ratio, 1 / ratio) if p.flag("flip") else (ratio,))
    p.ignore("flip")
    sizes = []
    for index, size in enumerate(smallest):
        sizes.append((size, size))
        if largest:
            sizes.append((math.sqrt(size * largest[index]),) * 2)
        sizes.extend((size * math.sqrt(ratio), size / math.sqrt(ratio)) for ratio in ratios[1:])
    return sizes


def _place(y: Array, x: Array, image: tuple[int, ...], sizes: list[tuple[float, float]]) -> Array:
    """Corners [boxes, 4] as fractions of the image; boxes are ordered by row, column, then size."""
    center_x, center_y, _ = np.broadcast_arrays(x[None, :, None], y[:, None, None], np.zeros(len(sizes)))
    half, (height, width) = np.asarray(sizes) / 2, image
    corners = np.stack(
        [
            (center_x - half[:, 0]) / width,
            (center_y - half[:, 1]) / height,
            (center_x + half[:, 0]) / width,
            (center_y + half[:, 1]) / height,
        ],
        axis=-1,
    )
    boxes: Array = corners.reshape(-1, 4).astype(np.float32)
    return boxes


@caffe_op("DetectionOutput", kind=Kind.HOST)
def detection_output(node: CaffeNode, g: Graph) -> Value:
    """Decode and select SSD boxes with a host operator; its number of rows is fixed, and unused rows are 0."""
    p = node.params("detection_output_param")
    p.require("num_classes")
    p.ignore("save_output_param", "visualize", "visualize_threshold", "save_file")  # no effect on the tops
    nms = p.group("nms_param")
    op = DetectionOutput(
        num_classes=p.whole("num_classes"),
        share_location=p.flag("share_location"),
        background_label_id=p.whole("background_label_id"),
        nms_threshold=nms.number("nms_threshold"),
        nms_top_k=nms.whole("top_k") if nms.has("top_k") else -1,
        nms_eta=nms.number("eta"),
        code_type=BoxCode[p.choice("code_type")],
        keep_top_k=p.whole("keep_top_k"),
        variance_encoded_in_target=p.flag("variance_encoded_in_target"),
        confidence_threshold=p.number("confidence_threshold") if p.has("confidence_threshold") else -math.inf,
    )
    return g.add(op, *(node.input(index) for index in range(3)))
