"""Metrics of a mixed-precision search. The larger, the better."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.evaluation.evaluation import evaluate
from tpuconvert.evaluation.model_runs import ModelFeeds, run_on
from tpuconvert.model.model import Model
from tpuconvert.precision.output_noise import NoiseSum
from tpuconvert.progress import Progress
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array
from tpuconvert.user_functions import is_function_name, load_function
from tpuconvert.workers.workers import ThisProcess, Workers

NAMES = ("top1", "agreement", "cosine", "sqnr")

MEMORY = 1 << 28
"""Limit for stored outputs of the float model, in bytes. Beyond it the float model runs in every trial."""


class Metric:
    """A metric on fixed samples.

    Args:
        name: ``top1`` for labeled samples; ``agreement``, the share of samples with the class of the float model;
            ``cosine``, the smallest cosine similarity of an output with the float model; ``sqnr`` in decibel;
            or ``module:function``, which is called with a model and the path of the samples and returns a number.
        data: samples, in the format of ``evaluate`` for ``top1``, otherwise of calibration samples.
        reference: the float model.
        progress: receives the stages.
        workers: run the models on the samples.

    Attributes:
        of_float: value for the float model; infinite for ``sqnr``.

    Raises:
        UsageError: there is no such metric, or the samples do not fit.

    """

    def __init__(self, name: str, data: str, reference: Model, progress: Progress, workers: Workers) -> None:
        self._data, self._reference, self._progress, self._workers = data, reference, progress, workers
        self._reference_outputs: list[dict[str, Array]] = []  # outputs of the float model; empty if they are not stored
        self._function: Callable[..., Any] | None = None
        if is_function_name(name):
            self._function = load_function(name)
        elif name not in NAMES:
            raise UsageError(f"unknown metric '{name}'", hint=f"{', '.join(NAMES)}, or module:function")
        self.name = name
        self.is_share = name != "sqnr"
        """True if a drop is counted in points of a hundredth, False if in decibels."""
        if name in ("agreement", "cosine", "sqnr"):
            self.of_float = math.inf if name == "sqnr" else 1.0
        else:
            self.of_float = self.measure(reference)

    def measure(self, model: Model) -> float:
        """Return the metric of a model with the inputs and outputs of the float model.

        Raises:
            UsageError: the function does not return a number, or there are no classes for ``agreement``.

        """
        if self._function is not None:
            value = self._function(model, self._data)
            if not isinstance(value, (int, float, np.integer, np.floating)) or math.isnan(value):
                raise UsageError(f"{self.name} returned {value!r}, expected a number")
            return float(value)
        if self.name == "top1":
            evaluation = evaluate(model, self._data, metrics="top1", progress=self._progress, workers=self._workers)
            return evaluation.values["top1"]
        noise = self._noise(model).result()
        if self.name == "agreement":
            if noise.flips is None:
                raise UsageError("no output has scores of classes", hint="use the metric cosine")
            return 1.0 - noise.flips
        return noise.cosine if self.name == "cosine" else noise.sqnr

    @np.errstate(all="ignore")
    def _noise(self, model: Model) -> NoiseSum:
        feeds = load_feeds(Path(self._data), model.graph.input_ports, self._reference.preprocess)
        if not isinstance(self._workers, ThisProcess):
            feeds = feeds.with_contents()
        stored, cached = self._reference_outputs, []
        models = [model] if stored else [model, self._reference]
        runs = [ModelFeeds(item, feeds, [port.name for port in item.graph.output_ports]) for item in models]
        total, size = NoiseSum(self._reference.graph), 0
        self._progress.stage("evaluate", len(feeds))
        for index, outputs in enumerate(run_on(self._workers, runs, progress=self._progress.advance)):
            expected = stored[index] if stored else outputs[1].arrays
            size += sum(array.nbytes for array in expected.values())
            if size <= MEMORY:
                cached.append(expected)
            total.add(list(expected.values()), list(outputs[0].arrays.values()))
        self._reference_outputs = cached if size <= MEMORY else []
        return total
