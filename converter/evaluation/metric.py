"""Interface and registry of the metrics of ``tpuconvert evaluate``."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tpuconvert.evaluation.classes import Labeled
from tpuconvert.evaluation.images import image_size
from tpuconvert.model.model import Model
from tpuconvert.outputs.labels import Labels
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.discovery import import_modules
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.types import Array


@dataclass(frozen=True)
class Setup:
    """A model and the options that metrics read.

    Args:
        model: the model.
        output: name of the output with the scores; None for the first one.
        preprocess: preprocessing of images in use, or None.
        decode: name of a built-in decoder, ``module:function``, or a function.
        min_score: smallest score of a detection of a built-in decoder.
        nms_iou: overlap above which built-in decoders suppress the box with the lower score.
        characters: characters of a text recognizer, or a file of them; None uses those in the model.

    """

    model: Model
    output: str | None = None
    preprocess: Preprocess | None = None
    decode: str | Callable[..., Any] | None = None
    min_score: float = 0.001
    nms_iou: float = 0.65
    characters: Labels | None = None

    def output_port(self) -> Port:
        """Return the output with the scores.

        Raises:
            UsageError: there is no output of this name.

        """
        ports = {port.name: port for port in self.model.graph.output_ports}
        name = next(iter(ports)) if self.output is None else self.output
        if name not in ports:
            raise UsageError(f"there is no output '{name}'", hint=f"the model has {', '.join(ports)}")
        return ports[name]

    def image_rule(self) -> Preprocess:
        """Return the preprocessing with the size of the model's input.

        Raises:
            UsageError: there is no preprocessing, or the model has several inputs.

        """
        ports = self.model.graph.input_ports
        if self.preprocess is None or len(ports) != 1:
            actual = "no preprocessing" if len(ports) == 1 else f"{len(ports)} inputs"
            raise UsageError(f"the model has {actual}", hint="--preprocess states how an image becomes its only input")
        return self.preprocess.with_size_of(ports[0].shape)


@dataclass(frozen=True)
class Sample:
    """One sample: its outputs, and the file if it is an image.

    Args:
        outputs: real values by output name, with a batch axis of extent 1 if the output has one.
        image: image file, or None for arrays.

    """

    outputs: Mapping[str, Array]
    image: Path | None = None

    def size(self) -> tuple[int, int]:
        """Return (height, width) of the image file, in pixels."""
        assert self.image is not None, "metrics that need sizes load image files"
        return image_size(self.image)


class Metric(ABC):
    """A measure of one model, accumulated sample by sample.

    Args:
        setup: the model and its options.
        name: the name under which the metric was requested.

    """

    has_own_labels: ClassVar[bool] = True
    """False for a metric that takes the labels of any other."""

    agreement_names: ClassVar[tuple[str, ...]] = ()
    """Keys of ``agreement()``."""

    def __init__(self, setup: Setup, name: str) -> None:
        self.setup = setup
        self.name = name
        self.output: str | None = None
        """Name of the output that ``predict`` reads; None if it reads all."""

    @classmethod
    def value_names(cls, name: str) -> tuple[str, ...]:
        """Return the keys of ``values()`` of a metric requested as ``name``."""
        return (name,)

    @abstractmethod
    def load(self, samples: Any, labels: Any) -> Labeled:
        """Load the samples with the labels that this metric needs. Metrics of one class load the same samples."""

    @abstractmethod
    def predict(self, sample: Sample) -> Any:
        """Return the prediction for one sample, such as detections."""

    @abstractmethod
    def add(self, prediction: Any, label: Any) -> None:
        """Count the prediction for one sample."""

    @abstractmethod
    def values(self) -> dict[str, float]:
        """Return the measures by name; the first is named as the metric."""

    def right_samples(self) -> dict[str, int]:
        """Return the number of right samples by name of the measure; empty if samples are not right or wrong."""
        return {}

    def per_class(self) -> dict[int, float]:
        """Return the first measure by class index; empty if it is not measured per class."""
        return {}

    def compare(self, prediction: Any, reference: Any) -> None:  # noqa: B027  a metric may have nothing to compare
        """Compare the predictions of this model and of another model for the same sample."""

    def agreement(self) -> dict[str, float]:
        """Return what ``compare`` found, by name; shares are from 0 to 1."""
        return {}


M = TypeVar("M", bound=type[Metric])

_METRICS: dict[str, type[Metric]] = {}

METRIC_NAMES = "top1, top5 or another k, map, miou, text, nme, or module:function"


def evaluation_metric(pattern: str) -> Callable[[M], M]:
    """Register a metric for the names that a regular expression matches as a whole."""

    def register(metric: M) -> M:
        assert pattern not in _METRICS, pattern
        _METRICS[pattern] = metric
        return metric

    return register


def find_metric(name: str) -> type[Metric]:
    """Return the class of a built-in metric.

    Raises:
        UsageError: there is none of this name.

    """
    import_modules("tpuconvert.evaluation.metrics")
    for pattern, metric in _METRICS.items():
        if re.fullmatch(pattern, name):
            return metric
    raise UsageError(f"there is no metric '{name}'", hint=METRIC_NAMES)
