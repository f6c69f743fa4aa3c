"""Tasks of the outputs of a quantized model: detections, strings, classes and masks, compared with its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tpuconvert.optimizer.quantize.search.output_branches import OutputBranches
from tpuconvert.optimizer.quantize.search.task_metrics.score import TARGET, TaskScore
from tpuconvert.outputs.drawing import dequantize_outputs
from tpuconvert.outputs.tasks import find_output_tasks
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.text.plain_values import Plain
from tpuconvert.schema.types import Array

_MEMORY = 1 << 26
"""Limit for the outputs of the source, in bytes. Further samples are left out, except the first."""


@dataclass(frozen=True)
class OutputTask(Plain):
    """Task that outputs serve.

    Args:
        outputs: names of the outputs.
        counts: the counts, such as ``detections above 0.4: 103 of 107 kept, 2 extra``.
        share: share of the decisions of both models that agree, from 0 to 1.
        warning: text if the share is too small; else empty.

    """

    outputs: tuple[str, ...]
    counts: str
    share: float
    warning: str

    @staticmethod
    def of(score: TaskScore) -> OutputTask:
        """Return the task of a score."""
        warning = ""
        if score.is_missed:
            warning = f"output '{score.outputs[0]}': {score.text}, expected at least {TARGET:.0%} of the {score.unit}"
        return OutputTask(score.outputs, score.text, score.share, warning)


@dataclass
class OutputRuns:
    """Outputs of the source and of the model on the same samples.

    Args:
        source: the source graph, in float.
        graph: the graph of the model.

    """

    source: Graph
    graph: Graph
    first: Mapping[str, Array] = field(default_factory=dict)
    expected: list[Mapping[str, Array]] = field(default_factory=list)
    results: list[Mapping[str, Array]] = field(default_factory=list)
    size: int = 0

    def add(self, feed: Mapping[str, Array], expected: Mapping[str, Array], results: Mapping[str, Array]) -> None:
        """Keep the outputs for one sample."""
        self.size += sum(array.nbytes for array in (*expected.values(), *results.values()))
        if self.expected and self.size > _MEMORY:
            return
        self.first = self.first or dict(feed)
        self.expected.append({port.name: expected[port.name].copy() for port in self.source.output_ports})
        real = dequantize_outputs(results, self.graph.output_ports)
        self.results.append({port.name: real[port.name].copy() for port in self.graph.output_ports})

    def compare(self) -> tuple[OutputTask, ...]:
        """Return the tasks of the outputs."""
        shapes = [[array.shape for array in run.values()] for runs in (self.expected, self.results) for run in runs]
        if not self.expected or any(item != shapes[0] for item in shapes):
            return ()
        tasks = find_output_tasks(self.source, OutputBranches(self.source), self.expected, self.first)
        return tuple(OutputTask.of(task.compare(self.results)) for task in tasks)


def task_lines(tasks: Sequence[Mapping[str, object]]) -> list[str]:
    """Return a line for each task, with a warning for those below the limit."""
    return [
        f"warning: {task['warning']}" if task["warning"] else f"task of output '{_first(task)}': {task['counts']}"
        for task in tasks
    ]


def _first(task: Mapping[str, object]) -> str:
    outputs = task["outputs"]
    assert isinstance(outputs, list | tuple)
    return str(outputs[0])
