"""Accuracy of the outputs of a finished quantized model on samples of its calibration.

The float graph is changed by the quantization, so its outputs are recorded first. The model is measured as it is
written, with the engine. The ranges of the tensors come from all samples; nothing else was chosen on *held-out*
samples: the refinement takes the first samples, and the algorithms that measure candidates the last ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Annotated, TypedDict

import numpy as np

from tpuconvert.conversion.quantization.sample_split import SampleSplit
from tpuconvert.model.accuracy_notes import KEY
from tpuconvert.model.model import Model
from tpuconvert.optimizer.quantize.calibration.recorded_floats import RecordedFloats
from tpuconvert.optimizer.quantize.search.output_accuracy import (
    LEAST_COSINE,
    LEAST_EQUAL,
    LEAST_SQNR,
    OutputAccuracy,
    OutputAccuracyValues,
    measure_outputs,
)
from tpuconvert.optimizer.quantize.search.output_branches import OutputBranches
from tpuconvert.optimizer.quantize.search.task_metrics.recognition import describe_silent_outputs
from tpuconvert.optimizer.quantize.search.task_metrics.score import TARGET, Task
from tpuconvert.outputs.tasks import find_output_tasks
from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.calibration_data import FeedSource
from tpuconvert.schema.errors import ThresholdError
from tpuconvert.schema.file.file_model import Note
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.system.gc_control import collect_dropped_graphs
from tpuconvert.schema.types import Array, Chip
from tpuconvert.text.text_format import several

TASK = "task"
"""Kind of the notes about the tasks of outputs."""

_MEMORY = 1 << 26
"""Limit for the float outputs, in bytes. Further runs are left out, except the first."""


class ModelAccuracyValues(TypedDict):
    """Accuracy of the outputs of a quantized model as plain values."""

    samples: int
    held_out: Annotated[bool, "whether nothing but the ranges was chosen on these samples"]
    limits: dict[str, float]
    outputs: list[OutputAccuracyValues]


@dataclass(frozen=True)
class ModelAccuracy:
    """Accuracy of the outputs of a model.

    Args:
        outputs: the outputs, in the model's order.
        samples: number of samples.
        are_held_out: see ``SampleSplit``.
        calibrated: number of all calibration samples.
    """

    outputs: Sequence[OutputAccuracy]
    samples: int
    are_held_out: bool
    calibrated: int

    @property
    def inaccurate(self) -> list[OutputAccuracy]:
        """The outputs below a limit, the worst first."""
        return sorted((output for output in self.outputs if not output.is_accurate), key=lambda output: output.cosine)

    @property
    def origin(self) -> str:
        """Text that states the samples."""
        if self.are_held_out:
            return f"{self.samples} held-out samples"
        return f"{self.samples} of {several(self.calibrated, 'calibration sample')}, none of them held out"

    def notes(self) -> list[Note]:
        """Return a note for each output below a limit."""
        return [
            Note(KEY, "", f"output '{output.name}': {output.describe()} on {self.origin}, {output.expected()}")
            for output in self.inaccurate
        ]

    def task_notes(self) -> list[Note]:
        """Return a note for each task of the outputs."""
        return [
            Note(TASK, "", f"output '{output.name}': {output.task.text}, on {self.origin}")
            for output in self.outputs
            if output.task is not None
        ]

    def to_dict(self) -> ModelAccuracyValues:
        """Return plain values."""
        return {
            "samples": self.samples,
            "held_out": self.are_held_out,
            "limits": {"cosine": LEAST_COSINE, "sqnr_db": LEAST_SQNR, "equal_share": LEAST_EQUAL, "task": TARGET},
            "outputs": [output.to_dict() for output in self.outputs],
        }


class AccuracyCheck:
    """Comparison of a finished model with its float graph: ``choose``, then ``record``, then ``measure``."""

    def __init__(self) -> None:
        self._split: SampleSplit | None = None
        self._samples: FeedSource | None = None
        self._calibrated = 0
        self._floats: list[Mapping[str, Array]] = []
        self._tasks: list[Task] = []
        self._silent: list[str] = []

    def choose(self, feeds: FeedSource, split: SampleSplit) -> None:
        """Choose the samples to measure among the calibration samples."""
        self._split = split
        self._samples = feeds.part(split.measured.start, split.measured.stop)
        self._calibrated = feeds.samples

    def record(self, graph: Graph, recorded: RecordedFloats | None = None) -> None:
        """Record the outputs of the float graph, before the quantization changes it.

        Args:
            graph: the float graph.
            recorded: outputs that the calibration has recorded; others are computed.
        """
        assert self._split is not None and self._samples is not None, "the feeds are chosen"
        recorded_runs = [] if recorded is None else recorded.outputs_of(self._split.measured)
        size, first = 0, None
        with ExitStack() as stack, np.errstate(all="ignore"):
            session: Session | None = None
            for number, feed in enumerate(self._samples):
                if number >= len(recorded_runs) and session is None:
                    session = stack.enter_context(Session(graph))
                run = recorded_runs[number] if session is None else session.run(feed)
                size += sum(array.nbytes for array in run.values())
                if self._floats and size > _MEMORY:
                    break
                self._floats.append(run)
                first = first or feed
            if first is not None:
                branches = OutputBranches(graph)
                self._tasks = find_output_tasks(graph, branches, self._floats, first)
                self._silent = describe_silent_outputs(graph, branches, self._floats, first)

    def measure(self, graph: Graph, chip: Chip) -> ModelAccuracy | None:
        """Run the graph of the finished model. Return None if the float outputs were not recorded."""
        if self._split is None or self._samples is None or not self._floats:
            return None
        feeds = list(itertools.islice(self._samples, len(self._floats)))
        collect_dropped_graphs(graph.constant_bytes)
        with Session(_Program(graph, chip)) as session, np.errstate(all="ignore"):
            outputs = measure_outputs(graph, feeds, self._floats, map(session.run, feeds), self._tasks)
        samples = self._samples.samples * len(feeds) // len(self._samples)
        return ModelAccuracy(outputs, samples, self._split.are_held_out, self._calibrated)

    def checked(self, model: Model, *, is_strict: bool) -> Model:
        """Return a model with the accuracy of its outputs as metadata, and notes about inaccurate ones.

        A warning of the search for wider nodes about a task that the finished model meets is dropped.

        Args:
            model: the finished model.
            is_strict: whether an inaccurate output is an error.

        Raises:
            ThresholdError: an output is inaccurate; the message names it.

        """
        accuracy = self.measure(model.graph, model.chip)
        if accuracy is None:
            return model
        notes = accuracy.notes()
        if is_strict and notes:
            raise ThresholdError(
                f"accuracy: {'; '.join(note.message for note in notes)}",
                file=model.graph.file,
                hint="without strict accuracy the model is written, and the warning names the command that finds the "
                "nodes that cause it",
            )
        metadata = {**model.metadata, KEY: accuracy.to_dict()}
        met = {output.name for output in accuracy.outputs if output.task is not None and not output.task.is_missed}
        earlier = [note for note in model.notes if note.kind != KEY or note.node not in met]
        question = "are they preprocessed as the model expects?"
        silent = [Note("preprocessing", "", f"{text}: {question}") for text in self._silent]
        all_notes = (*earlier, *silent, *accuracy.task_notes(), *notes)
        return Model(replace(model.content, notes=all_notes, metadata=metadata))


@dataclass(frozen=True)
class _Program:
    """A graph for a session, without states that outlive a run."""

    graph: Graph
    chip: Chip
