"""Mean intersection over union of semantic segmentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.evaluation.classes import Labelled
from tpuconvert.evaluation.images import read_label_image
from tpuconvert.evaluation.label_images import load_label_images
from tpuconvert.evaluation.metric import Metric, Sample, Setup, evaluation_metric
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array

IGNORED = 255
"""Label of pixels that do not count."""


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

    def load(self, samples: Any, labels: Any) -> Labelled:
        """Load images with label images."""
        return load_label_images(samples, labels)

    def predict(self, sample: Sample) -> Array:
        """Return the class of every pixel of the image file, [height, width]; ``IGNORED`` outside the model's input.

        A pixel takes the class of the output cell in which its center lies.
        """
        classes = self._classes(sample.outputs[self.output])
        height, width = sample.size()
        left, top, right, bottom = self.rule.region(width, height)
        result = np.full((height, width), IGNORED, dtype=np.int64)
        rows = _cells(bottom - top, classes.shape[0])
        columns = _cells(right - left, classes.shape[1])
        result[top:bottom, left:right] = classes[rows[:, None], columns[None, :]]
        return result

    def _classes(self, scores: Array) -> Array:
        """Return the class per cell, [rows, columns], from scores per class or from class indices."""
        if scores.ndim == 4:
            axis = 1 if self.rule.layout == "NCHW" else 3
            classes = scores.take(0, axis) if scores.shape[axis] == 1 else scores.argmax(axis)
        else:
            classes = scores
        if classes.ndim == 3 and len(classes) == 1:
            classes = classes[0]
        if classes.ndim != 2 or (classes != np.round(classes)).any() or classes.min() < 0:
            raise UsageError(
                f"output '{self.output}' {list(scores.shape)} holds neither scores nor class indices of pixels",
                hint="expected [1, classes, rows, columns], [1, rows, columns, classes] or [1, rows, columns]; "
                "--scores NAME chooses another output",
            )
        found: Array = classes.astype(np.int64)
        return found

    def add(self, prediction: Array, label: Array | Path) -> None:
        """Add the pixels of one image to the confusion matrix."""
        name = f"{label}: " if isinstance(label, Path) else ""
        truth = read_label_image(label) if isinstance(label, Path) else label.astype(np.int64)
        if truth.shape != prediction.shape:
            found, wanted = ("x".join(map(str, array.shape)) for array in (truth, prediction))
            raise UsageError(f"{name}the label image has {found} pixels, the image {wanted}")
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
            raise UsageError("the label images have no labelled pixels", hint=f"{IGNORED} is ignored")
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


def _cells(pixels: int, cells: int) -> Array:
    """Return the index of the cell in which the center of each pixel lies."""
    found: Array = (2 * np.arange(pixels) + 1) * cells // (2 * pixels)
    return found
