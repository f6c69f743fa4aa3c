"""Feature maps of networks that predict at every position of an image: detection, segmentation, landmarks.

Few positions of such a network respond to an object, and its large values are rare. They are the result, whereas in a
classifier the errors of many positions average out. A threshold that minimizes the mean error clips these responses.
The search of methods therefore begins without clipping there (calibration method ``auto``), and measures the rest.
"""

from __future__ import annotations

import math

from tpuconvert.optimizer.engine.node_properties import dependent_nodes
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.convolution.convolution_params import SpatialConvolution
from tpuconvert.schema.types import Chip

LEAST_POSITIONS = 16
"""Smallest number of positions of an output that predicts at every position."""


def names_of_dense_feature_maps(graph: Graph) -> set[str]:
    """Names of the tensors between a convolution and an output that predicts at many positions.

    Args:
        graph: float graph, NCHW. Dynamic extents count as many positions.
    """
    needed = {value for value in graph.outputs if _is_dense(value)}
    for node in reversed(graph.sorted_nodes()):
        if not needed.isdisjoint(node.outputs):
            needed.update(value for value in node.inputs if value is not None and not value.is_constant)
    convolutions = [node for node in graph.nodes if isinstance(node.op, SpatialConvolution)]
    nodes = (*convolutions, *dependent_nodes(graph, convolutions))
    return {value.name for node in nodes for value in node.outputs if value in needed and value.dtype.is_float}


def uncorrected_results(graph: Graph, chip: Chip) -> set[str]:
    """Names of the results whose weights the reconstruction does not correct: feature maps on BM1686.

    The correction minimizes a mean error, and the few positions that respond to an object pay for it. BM1684 has one
    step for all weights of an operator, and the errors that the correction removes are larger there. Measured on half
    of the calibration images, detections kept with and without correction: FastestDet 77 and 82 % on BM1686, 73 and
    66 % on BM1684; YuNet 15 and 17 of 18 on BM1686, 16 and 13 on BM1684.
    """
    return names_of_dense_feature_maps(graph) if chip is Chip.BM1686 else set()


def _is_dense(value: Value) -> bool:
    """Return True for maps [N, C, H, W, ...] and lists [N, positions, values] of predictions."""
    extents = [extent if isinstance(extent, int) else LEAST_POSITIONS for extent in value.shape[1:]]
    if len(extents) < 2:
        return False
    if len(extents) == 2:
        return min(extents) > 1 and max(extents) >= LEAST_POSITIONS
    return math.prod(extents[1:]) >= LEAST_POSITIONS
