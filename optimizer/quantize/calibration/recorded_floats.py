"""Float tensors that are recorded during a calibration, so that later steps do not run the float graph again.

Refinement compares integer operands with float ones at some positions of the first samples, and the error at the
outputs is measured on the last samples. A calibration runs all of them. What is missing in a record, because samples
were calibrated by another process or another conversion, is computed when it is needed, with the same result.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tpuconvert.optimizer.quantize.calibration.float_operands import affordable_samples
from tpuconvert.optimizer.quantize.traits import has_constant_weight
from tpuconvert.optimizer.quantize.weights.operand_windows import positions_per_image, windows_of
from tpuconvert.optimizer.quantize.weights.reconstruction import MOST_INPUTS
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv3d import Conv3d
from tpuconvert.schema.ops.convolution.convolution_params import ConvolutionGeometry, SpatialConvolution
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
        limit: maximum number of positions of each image.
    """

    geometry: ConvolutionGeometry
    kernel: tuple[int, ...]
    limit: int


class _Record(NamedTuple):
    """Windows of the operand of a node, with the shape of the operand, by the number of the feed."""

    node: Node
    windows: Windows
    recorded: dict[int, tuple[tuple[int, ...], Array]]


class RecordedFloats:
    """Float outputs of some feeds and windows of the operands of convolutions on the first ones.

    Windows are recorded if this saves a run of the graph: if the windows of all operators that are corrected fit
    the limit. Several threads may record different feeds, and take the windows of different feeds.

    Args:
        graph: float graph.
        refined: number of feeds of one sample that refinement uses.
        skipped: names of the results of operators that are not corrected.
        outputs: numbers of the feeds whose outputs are recorded.
    """

    def __init__(self, graph: Graph, refined: int, skipped: Collection[str], outputs: Collection[int]) -> None:
        self._lock = threading.Lock()
        self._outputs: dict[int, Mapping[str, Array]] = {}
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

    def is_recording(self, feed: int) -> bool:
        """Return True if ``observe`` records anything of a feed."""
        return feed < self._feeds and bool(self._users)

    def takes(self, name: str) -> bool:
        """Return True if ``observe`` records a tensor."""
        return name in self._users

    def observe(self, feed: int, name: str, array: Array) -> None:
        """Record the windows of a tensor, by the number of the feed."""
        if feed >= self._feeds:
            return
        for record in self._users.get(name, ()):
            op = record.node.op
            assert isinstance(op, SpatialConvolution)
            rows = windows_of(list(array), op, record.windows.kernel, record.windows.limit)
            with self._lock:
                record.recorded[feed] = array.shape, rows

    def add_outputs(self, feed: int, outputs: Mapping[str, Array]) -> None:
        """Record the outputs of a feed."""
        if feed not in self._wanted_outputs:
            return
        size = sum(array.nbytes for array in outputs.values())
        with self._lock:
            self._output_bytes += size
            if self._output_bytes <= _MOST_OUTPUT_BYTES:
                self._outputs[feed] = outputs

    def outputs_of(self, feeds: Iterable[int]) -> list[Mapping[str, Array]]:
        """Outputs of the first of these feeds, of all of them unless some are too large or not recorded."""
        return [self._outputs[feed] for feed in itertools.takewhile(self._outputs.__contains__, feeds)]

    def take(self, name: str, windows: Windows, shapes: Mapping[int, tuple[int, ...]]) -> list[Array] | None:
        """Return and forget the windows of the float operand of a node, [groups, positions, inputs] for each feed.

        Args:
            name: name of the node.
            windows: the windows of the integer operator.
            shapes: shape of its operand by the number of the feed.

        Returns:
            None if not all of them are recorded.
        """
        record = self._records.get(name)
        if record is None:
            return None
        with self._lock:
            taken = {feed: record.recorded.pop(feed, None) for feed in shapes}
        rows = [item[1] for feed, item in taken.items() if item is not None and item[0] == shapes[feed]]
        return rows if record.windows == windows and len(rows) == len(shapes) else None


def _records(graph: Graph, refined: int, feeds: int, skipped: Collection[str]) -> list[_Record]:
    """Return empty records of all operators that are corrected, or none if their windows exceed the limit."""
    records, size = [], 0
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
        positions = positions_per_image(inputs, refined * images)
        size += feeds * images * positions * inputs * node.op.geometry.groups * 4
        if size > _MOST_BYTES:
            return []
        windows = Windows(node.op.geometry, tuple(map(int, weight.shape[2:])), positions)
        records.append(_Record(node, windows, {}))
    return records
