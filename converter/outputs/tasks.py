"""Tasks that the outputs of a network serve, for the comparison of two networks: what the optimizer finds, and heads.

The optimizer finds the task of an output from the operators before it (``task_metrics``). Heads find further detectors,
whose outputs have passed a selection, from names, shapes and values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpuconvert.optimizer.quantize.search.output_branches import Feed, OutputBranches
from tpuconvert.optimizer.quantize.search.task_metrics.detections import THRESHOLDS, Detections, DetectionTask
from tpuconvert.optimizer.quantize.search.task_metrics.recognition import find_tasks, input_size
from tpuconvert.optimizer.quantize.search.task_metrics.score import Run, Task
from tpuconvert.outputs.drawing import sample_outputs
from tpuconvert.outputs.head import DecodedImage, DetectorHead, recognize_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import NMS_IOU
from tpuconvert.schema.arithmetic.boxes import Detections as Found
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph


class HeadDetections(DetectionTask):
    """Detections that a head decodes.

    Args:
        head: the head.
        rule: preprocessing with the size of the input.
        batch: number of samples per run.
        floats: float outputs by feed.

    """

    def __init__(self, head: DetectorHead, rule: Preprocess, batch: int, floats: Sequence[Run]) -> None:
        self._head, self._rule, self._batch = head, rule, batch
        super().__init__(tuple(floats[0]), floats, THRESHOLDS)

    @property
    def has_probabilities(self) -> bool:
        """Return False if a score exceeds 1: logits, or outputs of something else with the same shapes."""
        return all(bool((found.scores <= 1.0).all()) for found in self._floats)

    def read(self, run: Run) -> Iterator[Found]:
        """Yield the detections of every sample of a run, in pixels of the input."""
        assert self._rule.size is not None
        image = DecodedImage(self._rule, self._rule.size, self.threshold, NMS_IOU)
        for outputs in sample_outputs(run, self._batch):
            yield self._head.decode(outputs, image)


def find_output_tasks(graph: Graph, branches: OutputBranches, floats: Sequence[Run], feed: Feed) -> list[Task]:
    """Return the tasks of the outputs of a float graph.

    Args:
        graph: the float graph.
        branches: branches of its outputs.
        floats: float outputs by feed.
        feed: the first sample.

    """
    tasks = find_tasks(graph, branches, floats, feed)
    if any(isinstance(task, Detections) for task in tasks):
        return tasks
    detections = _detections_of_head(graph, floats)
    return tasks if detections is None else [detections]


def _detections_of_head(graph: Graph, floats: Sequence[Run]) -> HeadDetections | None:
    """Return the detections of the head that recognizes all outputs; None if they are another layout."""
    size = input_size(graph)
    if size is None:
        return None
    batch = graph.inputs[0].shape[0]
    count = batch if isinstance(batch, int) else 1
    rule = Preprocess(size=(int(size[1]), int(size[0])))
    try:
        head = recognize_head(sample_outputs(floats[0], count)[0], rule)
        detections = HeadDetections(head, rule, count, floats) if isinstance(head, DetectorHead) else None
    except UsageError:  # no head, or several: the outputs are compared as numbers
        return None
    return detections if detections is not None and detections.has_probabilities else None
