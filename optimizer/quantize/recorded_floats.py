"""Float tensors that are recorded during a calibration, so that later steps do not run the float graph again.

Refinement compares integer operands with float ones at some positions of the first samples, and the error at the
outputs is measured on the last samples. A calibration runs all of them. What is missing in a record, because samples
were calibrated by workers or by another conversion, is computed when it is needed, with the same result.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tpuconvert.optimizer.quantize.float_operands import affordable_samples
from tpuconvert.optimizer.quantize.operand_windows import positions_per_image, windows_of
from tpuconvert.optimizer.quantize.reconstruction import MOST_INPUTS
from tpuconvert.optimizer.quantize.traits import has_constant_weight
from tpuconvert.schema.convolution_params import ConvolutionGeometry, SpatialConvolution
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.conv3d import Conv3d
from tpuconvert.schema.types import Array

_MOST_BYTES = 80 << 20
"""Limit for the recorded windows, less than the tensors of a run of the float graph on these samples."""

_MOST_OUTPUT_BYTES = 1 << 26
"""Limit for the recorded outputs."""


class Windows(NamedTuple):
    """Place and size of the windows of a convolution.

    Args:
        geometry: strides, dilations, pads and groups.
        kernel: extents of the kernel.
        most: maximum number of positions of each image.
    """

    geometry: ConvolutionGeometry
    kernel: tuple[int, ...]
    most: int


class _Record(NamedTuple):
    node: Node
    windows: Windows
    shapes: list[tuple[int, ...]]
    rows: list[Array]


class RecordedFloats:
    """Float outputs of the last feeds and windows of the operands of convolutions on the first ones.

    Windows are recorded if this saves a run of the graph: if those of all operators that are corrected fit the limit.

    Args:
        graph: float graph.
        refined: number of feeds of one sample that refinement uses.
        skipped: names of the results of operators that are not corrected.
        outputs: range of the feeds whose outputs are recorded.

    Attributes:
        outputs: outputs of the feeds of the range, the first ones if all of them are too large.
    """

    def __init__(self, graph: Graph, refined: int, skipped: Collection[str], outputs: range) -> None:
        self.outputs: list[Mapping[str, Array]] = []
        self._wanted_outputs = outputs
        self._output_bytes = 0
        self._feeds = min(affordable_samples(graph), refined)
        records = _records(graph, refined, self._feeds, skipped)
        self._records = {record.node.name: record for record in records}
        self._users: dict[str, list[_Record]] = defaultdict(list)
        for record in records:
            operand = record.node.inputs[0]
            if operand is not None:
                self._users[operand.name].append(record)

    def observe(self, feed: int, name: str, array: Array) -> None:
        """Record the windows of a tensor, by the number of the feed."""
        if feed >= self._feeds:
            return
        for record in self._users.get(name, ()):
            op = record.node.op
            assert isinstance(op, SpatialConvolution)
            record.shapes.append(array.shape)
            record.rows.append(windows_of(list(array), op, record.windows.kernel, record.windows.most))

    def add_outputs(self, feed: int, outputs: Mapping[str, Array]) -> None:
        """Record the outputs of a feed."""
        self._output_bytes += sum(array.nbytes for array in outputs.values()) if feed in self._wanted_outputs else 0
        if feed in self._wanted_outputs and self._output_bytes <= _MOST_OUTPUT_BYTES:
            self.outputs.append(outputs)

    def take(self, name: str, windows: Windows, shapes: Sequence[tuple[int, ...]]) -> list[Array] | None:
        """Return and forget the windows of the float operand of a node, [groups, positions, inputs] for each feed.

        Args:
            name: name of the node.
            windows: the windows of the integer operator.
            shapes: shapes of its operand, one per feed.

        Returns:
            None if they are not recorded.
        """
        record = self._records.pop(name, None)
        if record is None or record.windows != windows or record.shapes != list(shapes):
            return None
        rows = record.rows.copy()
        record.rows.clear()
        return rows


def _records(graph: Graph, refined: int, feeds: int, skipped: Collection[str]) -> list[_Record]:
    """Return empty records of all operators that are corrected, or none if their windows exceed the limit."""
    found, size = [], 0
    for node in graph.sorted_nodes():
        if not has_constant_weight(node) or node.name in skipped:
            continue
        x, weight = node.inputs[:2]
        assert x is not None and weight is not None
        if not isinstance(node.op, (Conv, Conv3d)):
            if int(weight.shape[0]) <= MOST_INPUTS:
                return []
            continue
        inputs, images = math.prod(map(int, weight.shape[1:])), x.shape[0]
        if inputs > MOST_INPUTS:
            continue
        if not isinstance(images, int) or refined == 0:
            return []
        most = positions_per_image(inputs, refined * images)
        size += feeds * images * most * inputs * node.op.geometry.groups * 4
        if size > _MOST_BYTES:
            return []
        windows = Windows(node.op.geometry, tuple(map(int, weight.shape[2:])), most)
        found.append(_Record(node, windows, [], []))
    return found
