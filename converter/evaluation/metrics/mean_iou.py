"""Mean intersection over union of semantic segmentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.evaluation.classes import Labeled
from tpuconvert.evaluation.images import read_label_image
from tpuconvert.evaluation.label_images import load_label_images
from tpuconvert.evaluation.metric import Metric, Sample, Setup, evaluation_metric
from tpuconvert.outputs.class_maps import IGNORED, class_map
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array


@evaluation_metric("miou")
class MeanIou(Metric):
    """Mean over classes of the intersection over union, from one confusion matrix of all images."""

    agreement_names = ("changed_pixels",)

    def __init__(self, setup: Setup, name: str) -> None:
        super().__init__(setup, name)
        self.output: str = setup.output_port().name
        self.rule = setup.image_rule()
        self.confusion = np.zeros((0, 0), dtype=np.int64)
        self.changed = 0
        self.compared = 0

    @classmethod
    def value_names(cls, name: str) -> tuple[str, ...]:
        """Return the keys of ``values()``."""
        return name, "pixel_accuracy"

    def load(self, samples: Any, labels: Any) -> Labeled:
        """Load images with label images."""
        return load_label_images(samples, labels)

    def predict(self, sample: Sample) -> Array:
        """Return the class of every pixel of the image file, [height, width]; ``IGNORED`` outside the model's input."""
        return class_map(sample.outputs[self.output], self.output, self.rule, sample.size())

    def add(self, prediction: Array, label: Array | Path) -> None:
        """Add the pixels of one image to the confusion matrix."""
        name = f"{label}: " if isinstance(label, Path) else ""
        truth = read_label_image(label) if isinstance(label, Path) else label.astype(np.int64)
        if truth.shape != prediction.shape:
            label_size, image_size = ("x".join(map(str, array.shape)) for array in (truth, prediction))
            raise UsageError(
                f"{name}the label image has {label_size} pixels, the image {image_size}",
                hint="draw the labels in the size of the image",
            )
        counts = (truth != IGNORED) & (prediction != IGNORED)
        truth, prediction = truth[counts], prediction[counts]
        if truth.size == 0:
            return
        if truth.min() < 0 or truth.max() > IGNORED:
            raise UsageError(f"{name}a label is {truth.min()} or {truth.max()}, expected 0 to {IGNORED}")
        size = max(len(self.confusion), int(truth.max()) + 1, int(prediction.max()) + 1)
        pairs = np.bincount(truth * size + prediction, minlength=size * size).reshape(size, size)
        pairs[: len(self.confusion), : len(self.confusion)] += self.confusion
        self.confusion = pairs

    def values(self) -> dict[str, float]:
        """Return ``miou`` over the classes that occur in labels or predictions, and the share of right pixels."""
        if not self.confusion.any():
            raise UsageError("the label images have no labeled pixels", hint=f"{IGNORED} is ignored")
        shares = self.per_class().values()
        pixels = float(np.trace(self.confusion) / self.confusion.sum())
        return {self.name: float(np.mean(list(shares))), "pixel_accuracy": pixels}

    def per_class(self) -> dict[int, float]:
        """Return the intersection over union of each class that occurs in labels or predictions."""
        shared = np.diag(self.confusion)
        union = self.confusion.sum(0) + self.confusion.sum(1) - shared
        return {int(index): float(shared[index] / union[index]) for index in np.flatnonzero(union)}

    def compare(self, prediction: Array, reference: Array) -> None:
        """Count the pixels whose class differs."""
        self.changed += int((prediction != reference).sum())
        self.compared += prediction.size

    def agreement(self) -> dict[str, float]:
        """Return the share of pixels whose class differs."""
        return {"changed_pixels": self.changed / self.compared}
