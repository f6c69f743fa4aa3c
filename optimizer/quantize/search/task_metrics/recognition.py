"""Recognition of the tasks that outputs serve, from the operators and extents that determine them.

Names have no meaning. The float values on samples decide what the network alone does not: a detector responds at few
positions, a text network gives its blank class most often, boxes are corners or centers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tpuconvert.optimizer.quantize.search.output_branches import Feed, OutputBranches
from tpuconvert.optimizer.quantize.search.task_metrics.decisions import Classes, Mask, Text
from tpuconvert.optimizer.quantize.search.task_metrics.detections import (
    LOW_THRESHOLD,
    BoxKind,
    Detections,
    Level,
    ScoreKind,
    is_sparse,
    with_score_kind,
)
from tpuconvert.optimizer.quantize.search.task_metrics.layout import Kind, Layout, find_layout
from tpuconvert.optimizer.quantize.search.task_metrics.rows import Columns
from tpuconvert.optimizer.quantize.search.task_metrics.score import FEWEST_DECISIONS, Run, Task
from tpuconvert.schema.graph.graph import Graph

FEWEST_POSITIONS = 16
"""Smallest number of positions of a detector."""

FEWEST_STEPS = 8
"""Smallest number of steps of a text."""

FEWEST_CHARACTERS = 30
"""Smallest number of classes of a text."""

_BLANK = 0.25
"""Smallest share of the steps with the blank class."""

_FEWEST_FEEDS = 4
"""Smallest number of feeds that show that an output decides nothing."""

FEWEST_BINS = 8
"""Smallest number of integers of the distribution of a distance."""

FEWEST_CLASSES_OF_MAP = 5
"""Smallest number of classes of a map without softmax: pictures, normals and flows have fewer channels."""

SMALLEST_MAP = 16
"""Smallest extents of a mask."""

MASK_THRESHOLDS = (0.5, 0.3)
"""Thresholds of a mask: the first one that is exceeded at ``_LEAST_MASK`` of the positions."""

_LEAST_MASK = 0.001
"""Smallest share of the positions of a mask, and of those outside."""


def find_tasks(
    graph: Graph, branches: OutputBranches, floats: Sequence[Run], feed: Feed, *, for_choice: bool = False
) -> list[Task]:
    """Return the tasks that outputs of a float graph serve.

    Args:
        graph: the float graph.
        branches: branches of its outputs.
        floats: float outputs by feed.
        feed: the first sample.
        for_choice: whether graphs are compared with each other. If there are few detections, smaller responses are
            compared too.
    """
    size = input_size(graph)
    layouts = []
    for value, port in zip(graph.outputs, graph.output_ports, strict=True):
        arrays = [run[port.name] for run in floats]
        if value.dtype.is_float and len({array.shape[1:] for array in arrays}) == 1:
            layout = find_layout(port.name, arrays[0], feed, branches)
            layouts += [] if layout is None else [layout]
    tasks: list[Task] = []
    levels = [with_score_kind(level, floats) for level in _levels(layouts)]
    if levels and is_sparse(levels, floats):
        detections = Detections(levels, floats, size or (1.0, 1.0))
        tasks.append(detections)
        if for_choice and detections.count < FEWEST_DECISIONS:
            tasks.append(Detections(levels, floats, size or (1.0, 1.0), (LOW_THRESHOLD,)))
    used = {output for task in tasks for output in task.outputs}
    for layout in layouts:
        if layout.output not in used:
            task = _task_of_one(layout, floats, size)
            tasks += [] if task is None else [task]
    return tasks


def input_size(graph: Graph) -> tuple[float, float] | None:
    """Return width and height of the only input that is a picture, else None."""
    sizes = []
    for port in graph.inputs:
        shape = port.shape
        if len(shape) == 4 and all(isinstance(extent, int) for extent in shape[1:]):
            rows = shape[1:3] if shape[3] in (1, 3, 4) and shape[1] not in (1, 3, 4) else shape[2:]
            sizes.append((float(rows[1]), float(rows[0])))
    return sizes[0] if len(sizes) == 1 else None


def _levels(layouts: Sequence[Layout]) -> Iterator[Level]:
    """Yield the levels of a detector."""
    groups: dict[int, list[Layout]] = {}
    for layout in layouts:
        if layout.count >= FEWEST_POSITIONS:
            level = _level_of_one(layout)
            if level is not None:
                yield level
            elif layout.kind is not None:
                groups.setdefault(layout.count, []).append(layout)
    for group in groups.values():
        level = _level_of_several(group)
        if level is not None:
            yield level


def _level_of_one(layout: Layout) -> Level | None:
    """Boxes and scores in one output."""
    kinds, origins = layout.kinds, layout.origins
    is_score = [kind.is_score for kind in kinds]
    if layout.channels < 5 or all(is_score) or not any(is_score):
        return None
    first = is_score.index(True)
    last = next((index for index in range(first, len(kinds)) if kinds[index] is not kinds[first]), len(kinds))
    columns = layout.columns
    if first == 4 and kinds[first] is Kind.PROBABILITY:
        box = BoxKind.RAW if set(kinds[:4]) == {Kind.RAW} else BoxKind.COMPUTED
        # Objectness has a convolution of its own (YOLOX), or all channels have the same (YOLOv5).
        has_objectness = last - first > 1 and (
            origins[first] != origins[first + 1] or origins[first] == origins[first + 1] == origins[0]
        )
        objectness = columns(4, 5) if has_objectness else None
        scores = columns(5 if has_objectness else 4, last)
        return Level(scores, ScoreKind.PROBABILITIES, layout.positions, columns(0, 4), box, objectness)
    rest = len(kinds) - last
    if first == 0 and last == 1 and rest > 5 and not any(is_score[1:5]) and is_score[5]:
        end = next((index for index in range(5, len(kinds)) if kinds[index] is not kinds[5]), len(kinds))
        # Objectness, box, classes (FastestDet).
        return Level(
            columns(5, end), ScoreKind.PROBABILITIES, layout.positions, objectness=columns(0, 1), is_product=False
        )
    if first == 0 and not any(is_score[last:]) and rest >= 4:
        box = _box_kind(rest, kinds[last])
        boxes = columns(last, len(kinds) if box is BoxKind.DISTANCES else last + 4)
        return Level(columns(0, last), ScoreKind.PROBABILITIES, layout.positions, boxes, box)
    return None


def _box_kind(channels: int, kind: Kind) -> BoxKind:
    """Kind of boxes with a number of channels."""
    if channels % 4 == 0 and channels // 4 >= FEWEST_BINS:
        return BoxKind.DISTANCES
    return BoxKind.RAW if kind is Kind.RAW else BoxKind.COMPUTED


def _level_of_several(group: Sequence[Layout]) -> Level | None:
    """Scores and boxes in several outputs with the same positions."""
    boxes = [layout for layout in group if layout.channels == 4]
    boxes = [layout for layout in boxes if not layout.kind or not layout.kind.is_score] or boxes[-1:]
    others = [layout for layout in group if layout not in boxes]
    scores = [layout for layout in others if layout.kind and layout.kind.is_score]
    rest = [layout for layout in others if layout not in scores]
    if not scores:
        # Logits of one class, or of several beside boxes.
        scores = [layout for layout in rest if layout.channels == 1]
        if not scores and len(boxes) == 1 and len(rest) == 1:
            scores = rest
        rest = [layout for layout in rest if layout not in scores]
    if not boxes:
        wide = [layout for layout in rest if layout.channels > 4]
        boxes = wide[:1]
    if not scores or len(scores) > 2 or sum(layout.channels for layout in (*rest, *boxes)) < 4:
        return None
    objectness = None
    if len(scores) == 2:
        single = [layout for layout in scores if layout.channels == 1 and layout.kind is Kind.PROBABILITY]
        if not single:
            return None
        objectness = single[-1]
        scores = [layout for layout in scores if layout is not objectness]
    score, box = scores[0], boxes[0] if boxes else None
    positions = score.positions if score.coordinates is not None or box is None else box.positions
    return Level(
        score.columns(),
        _score_kind(score),
        positions,
        None if box is None else _box_columns(box),
        BoxKind.AROUND if box is None else _box_kind(box.channels, box.kind or Kind.COMPUTED),
        None if objectness is None else objectness.columns(),
        is_product=False,
    )


def _box_columns(layout: Layout) -> Columns:
    is_distribution = _box_kind(layout.channels, Kind.RAW) is BoxKind.DISTANCES
    return layout.columns(0, layout.channels if is_distribution else 4)


def _score_kind(layout: Layout) -> ScoreKind:
    if layout.kind is Kind.PROBABILITY:
        return ScoreKind.PROBABILITIES
    return ScoreKind.BACKGROUND_FIRST if layout.kind is Kind.SOFTMAX else ScoreKind.LOGITS


def _task_of_one(layout: Layout, floats: Sequence[Run], size: tuple[float, float] | None) -> Task | None:
    """Return the task of an output that does not detect."""
    text = _text(layout, floats)
    if text is not None:
        return text
    is_map = layout.rows is not None and min(layout.rows) >= SMALLEST_MAP
    if layout.kind is Kind.PROBABILITY and layout.channels == 1 and is_map:
        return _mask(layout, floats, 0)
    if layout.kind is Kind.SOFTMAX and layout.channels == 2 and is_map:
        return _mask(layout, floats, 1)
    is_classes = layout.kind is Kind.SOFTMAX and layout.channels > 1
    is_full = is_map and size is not None and layout.rows == (size[1], size[0])
    is_segmentation = layout.kind in (Kind.RAW, Kind.COMPUTED) and layout.channels >= FEWEST_CLASSES_OF_MAP and is_full
    if is_classes or is_segmentation:
        return Classes(layout.columns(), floats, is_probability=is_classes)
    return None


def _mask(layout: Layout, floats: Sequence[Run], channel: int) -> Task | None:
    columns = layout.columns(channel, channel + 1)
    values = [columns.read(run) for run in floats]
    for threshold in MASK_THRESHOLDS:
        share = float(np.mean([np.mean(value > threshold) for value in values]))
        if _LEAST_MASK <= share <= 1.0 - _LEAST_MASK:
            return Mask(columns, floats, threshold)
    return None


def describe_silent_outputs(graph: Graph, branches: OutputBranches, floats: Sequence[Run], feed: Feed) -> list[str]:
    """Describe float outputs that decide nothing on the samples, which may have a wrong scale.

    Args:
        graph: the float graph.
        branches: branches of its outputs.
        floats: float outputs by feed.
        feed: the first sample.
    """
    texts = []
    for value, port in zip(graph.outputs, graph.output_ports, strict=True):
        arrays = [run[port.name] for run in floats]
        if not value.dtype.is_float or len(arrays) < _FEWEST_FEEDS or len({array.shape[1:] for array in arrays}) > 1:
            continue
        if all(np.array_equal(array, arrays[0], equal_nan=True) for array in arrays):
            texts.append(f"output '{port.name}' of the float model is the same for {len(arrays)} samples")
            continue
        layout = find_layout(port.name, arrays[0], feed, branches)
        if layout is not None and _can_be_text(layout) and _blank_of_text(layout, floats)[1] == 1.0:
            texts.append(f"output '{port.name}' of the float model has no character for {len(arrays)} samples")
    return texts


def _text(layout: Layout, floats: Sequence[Run]) -> Task | None:
    """Return the task of a text network, whose first or last class is the most frequent one."""
    if not _can_be_text(layout):
        return None
    blank, share = _blank_of_text(layout, floats)
    return Text(layout.columns(), blank, floats) if _BLANK <= share < 1.0 else None


def _can_be_text(layout: Layout) -> bool:
    is_sequence = layout.rows is None or min(layout.rows) <= 1
    is_scores = layout.kind in (Kind.SOFTMAX, Kind.RAW, Kind.COMPUTED)
    return is_sequence and is_scores and layout.channels >= FEWEST_CHARACTERS and layout.count >= FEWEST_STEPS


def _blank_of_text(layout: Layout, floats: Sequence[Run]) -> tuple[int, float]:
    """Return the first or last class, whichever is more frequent, and its share of the steps: 0 if another is."""
    columns = layout.columns()
    labels = np.concatenate([columns.read(run).argmax(axis=2) for run in floats])
    counts = np.bincount(labels.ravel(), minlength=layout.channels)
    blank = max((0, layout.channels - 1), key=lambda number: counts[number])
    return blank, float(counts[blank] / labels.size) if counts.argmax() == blank else 0.0
