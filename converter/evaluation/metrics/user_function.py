"""A metric of the user: a function of all outputs and labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tpuconvert.evaluation.classes import Labeled, load_any
from tpuconvert.evaluation.metric import Metric, Sample, Setup, evaluation_metric
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array
from tpuconvert.schema.user_code import with_place
from tpuconvert.user_functions import load_function


@evaluation_metric(r".+:[^\W\d]\w*")
class UserFunction(Metric):
    """Result of a function of the outputs by name, each with all samples along axis 0, and the list of labels."""

    has_own_labels = False

    def __init__(self, setup: Setup, name: str, function: Callable[..., Any] | None = None) -> None:
        super().__init__(setup, name)
        self.function = load_function(name) if function is None else function
        self.outputs: dict[str, list[Array]] = {}
        self.labels: list[Any] = []

    def load(self, samples: Any, labels: Any) -> Labeled:
        """Load samples with any labels, or without."""
        return load_any(samples, labels)

    def predict(self, sample: Sample) -> Sample:
        """Return the sample with its outputs."""
        return sample

    def add(self, prediction: Sample, label: Any) -> None:
        """Keep the outputs and the label of one sample."""
        for name, array in prediction.outputs.items():
            self.outputs.setdefault(name, []).append(array)
        self.labels.append(label)

    def values(self) -> dict[str, float]:
        """Call the function.

        Raises:
            UsageError: the function fails, or its result is not a number.

        """
        stacked = {name: np.concatenate(arrays) for name, arrays in self.outputs.items()}
        try:
            result = self.function(stacked, self.labels)
            return {self.name: float(result)}
        except Exception as error:
            reason = f"{type(error).__name__}: {with_place(error)}"
            hint = "it takes the outputs by name and the list of labels, and returns a number"
            raise UsageError(f"metric {self.name} failed: {reason}", hint=hint) from error
