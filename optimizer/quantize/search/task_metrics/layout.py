"""Layout of an output: the axis of its channels, the meaning of each channel, and the places of its positions."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from tpuconvert.optimizer.engine.node_properties import computed_operands
from tpuconvert.optimizer.quantize.ranges.ranges import samples_in
from tpuconvert.optimizer.quantize.search.output_branches import Branch, ErrorScale, Feed, OutputBranches
from tpuconvert.optimizer.quantize.search.task_metrics.detections import Positions
from tpuconvert.optimizer.quantize.search.task_metrics.rows import Columns
from tpuconvert.optimizer.quantize.traits import is_product
from tpuconvert.schema.definition.extents import normalize_axis
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import Array

_MOST_ELEMENTS = 1 << 23
"""Outputs with more elements have no layout: the places of their elements are numbered in binary32."""


class Kind(enum.Enum):
    """Meaning of a channel."""

    PROBABILITY = "probability"
    """Result of a sigmoid, or a product of such results."""
    SOFTMAX = "softmax"
    """One of the probabilities of a softmax along the channels."""
    COMPUTED = "computed"
    """Result of another element-wise function, or of an operator that is not linear."""
    RAW = "raw"
    """Result of a linear operator."""

    @property
    def is_score(self) -> bool:
        """Return True for probabilities."""
        return self in (Kind.PROBABILITY, Kind.SOFTMAX)


@dataclass(frozen=True)
class Layout:
    """Layout of an output.

    Args:
        output: its name.
        axis: axis of the channels; None if there is one channel without axis.
        samples: axis of the samples; None if every run has one sample.
        kinds: meanings of the channels.
        origins: names of the last linear operators before each channel.
        count: number of positions.
        coordinates: coordinates of the positions; None if they do not belong to feature maps.
        rows: extents of the feature map that determines the channels; None if there are several.
    """

    output: str
    axis: int | None
    samples: int | None
    kinds: tuple[Kind, ...]
    origins: tuple[frozenset[str], ...]
    count: int
    coordinates: Positions | None
    rows: tuple[int, int] | None

    @property
    def channels(self) -> int:
        """Number of channels."""
        return len(self.kinds)

    @property
    def kind(self) -> Kind | None:
        """Meaning of all channels; None if they have several."""
        return self.kinds[0] if len(set(self.kinds)) == 1 else None

    @property
    def positions(self) -> Positions:
        """Places of the positions. Without feature maps no position is a neighbor of another one."""
        if self.coordinates is not None:
            return self.coordinates
        centers = np.stack([np.arange(self.count), np.zeros(self.count)], axis=1).astype(np.float64)
        return Positions(centers, np.full((self.count, 2), 0.1), 1)

    def columns(self, first: int = 0, last: int | None = None) -> Columns:
        """Return consecutive channels."""
        return Columns(self.output, self.axis, first, self.channels if last is None else last, self.samples)


def find_layout(output: str, array: Array, feed: Feed, branches: OutputBranches) -> Layout | None:
    """Return the layout of a float output, or None if it has none.

    Args:
        output: name of the output.
        array: its float value on the feed.
        feed: the feed.
        branches: branches of the outputs.
    """
    if not branches.is_apart(output) or array.ndim < 2 or not 0 < array.size < _MOST_ELEMENTS:
        return None
    output_branches = branches.of(output, feed)
    labels = (
        np.zeros(array.shape, np.int64) if output_branches.labels is None else output_branches.labels.astype(np.int64)
    )
    places = branches.places(output, feed, class_axis)
    if labels.shape != array.shape or places.numbers.shape != array.shape:
        return None
    count = samples_in(feed)
    samples = 0 if array.shape[0] == count else 1 if array.shape[1] == count > 1 else None if count == 1 else -1
    if samples == -1:
        return None
    kinds = [_kind(branch, branches) for branch in output_branches.branches]
    is_score = np.array([kind.is_score for kind in kinds])[labels]
    axis = _channel_axis(labels, places.numbers, is_score if is_score.any() else ~is_score, samples)
    columns = Columns(output, axis, 0, 1 if axis is None else array.shape[axis], samples)
    label, number, computed = (
        columns.read({output: item.astype(np.float64)})[0].astype(np.int64)
        for item in (labels, places.numbers, places.is_computed)
    )
    of_channels = []
    for channel in range(columns.last):
        present = {kinds[index] for index in np.unique(label[:, channel])}
        if len(present) > 1:
            return None
        (kind,) = present
        of_channels.append(Kind.COMPUTED if kind is Kind.RAW and computed[:, channel].any() else kind)
    sources = [branches.source(branch) for branch in output_branches.branches]
    origins = [_linear_operators(source) for source in sources]
    of_channel = [
        frozenset(name for index in np.unique(label[:, channel]) for name in origins[index])
        for channel in range(columns.last)
    ]
    channel = next((index for index, kind in enumerate(of_channels) if kind.is_score), 0)
    extents = [places.extents[source.name] for source in sources]
    positions = _positions(label[:, channel], number[:, channel], extents)
    maps = {extents[index][2:] for index in np.unique(label) if len(extents[index]) == 4}
    rows = maps.pop() if len(maps) == 1 and positions is not None else None
    return Layout(output, axis, samples, tuple(of_channels), tuple(of_channel), len(label), positions, rows)


def class_axis(value: Value, shape: tuple[int, ...]) -> int:
    """Axis of the channels of a tensor that determines elements of an output."""
    op = None if value.producer is None else value.producer.op
    if isinstance(op, Softmax):
        return normalize_axis(op.name, op.axis, value.type)
    if isinstance(op, MatrixMul) or len(shape) < 3:
        return len(shape) - 1
    return 1 if len(shape) > 3 or shape[1] < shape[2] else 2


def _kind(branch: Branch, branches: OutputBranches) -> Kind:
    producer = branches.source(branch).producer
    if branch.scale is ErrorScale.LOGIT or (producer is not None and _is_probability(branches.source(branch))):
        return Kind.PROBABILITY
    if producer is None:
        return Kind.COMPUTED
    if branch.scale is ErrorScale.LOGARITHM and isinstance(producer.op, Softmax):
        return Kind.SOFTMAX
    return Kind.RAW if branch.scale is ErrorScale.LINEAR and is_product(producer.op) else Kind.COMPUTED


def _is_probability(value: Value) -> bool:
    """Return True for a sigmoid, a clamp to 0 and 1, their data movement, and products of such values."""
    node = value.producer
    if node is None:
        return False
    if isinstance(node.op, Active) and node.op.active_type is ActiveType.ACTIVE_SIGMOID:
        return True
    if node.op.clamp_range() == (0.0, 1.0):
        return True
    operands = computed_operands(node)
    if node.op.name == "mul":
        return len(operands) == 2 and all(map(_is_probability, operands))
    return Trait.MOVES_DATA in node.op.traits and len(operands) == 1 and _is_probability(operands[0])


def _linear_operators(value: Value) -> frozenset[str]:
    """Names of the last linear operators that a value depends on."""
    names: set[str] = set()
    seen: set[Value] = set()
    stack = [value]
    while stack:
        node = stack.pop().producer
        if node is None:
            continue
        if is_product(node.op):
            names.add(node.name)
            continue
        for operand in computed_operands(node):
            if operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return frozenset(names)


def _channel_axis(labels: Array, numbers: Array, counts: Array, samples: int | None) -> int | None:
    """Axis along which the elements of one tensor have the same position; None if there is none.

    Args:
        labels: numbers of the branches.
        numbers: numbers of the positions.
        counts: whether an element counts.
        samples: axis of the samples.
    """
    axes = [axis for axis in range(labels.ndim) if axis != samples]
    channel_axes = []
    for axis in reversed(axes):
        near, far = (
            tuple(part if index == axis else slice(None) for index in range(labels.ndim))
            for part in (slice(1, None), slice(None, -1))
        )
        is_pair = counts[near] & counts[far] & (labels[near] == labels[far])
        if not (is_pair & (numbers[near] != numbers[far])).any():
            channel_axes.append(axis)
    several = [axis for axis in channel_axes if labels.shape[axis] > 1]
    return next(iter(several or channel_axes), None)


def _positions(labels: Array, numbers: Array, extents: Sequence[tuple[int, ...]]) -> Positions | None:
    """Coordinates of positions in the image, or None if the positions do not belong to feature maps."""
    centers, cells = np.empty((len(labels), 2)), np.empty((len(labels), 2))
    anchors = 1
    present: Collection[int] = np.unique(labels).tolist()
    for index in present:
        if len(extents[index]) != 4:
            return None
        height, width = extents[index][2:]
        chosen = labels == index
        y, x = np.divmod(numbers[chosen] % (height * width), width)
        centers[chosen] = np.stack([(x + 0.5) / width, (y + 0.5) / height], axis=1)
        cells[chosen] = 1.0 / width, 1.0 / height
        anchors = max(anchors, int(np.bincount(numbers[chosen]).max()))
    return Positions(centers, cells, anchors)
