"""Normalized mean error of landmarks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.evaluation.classes import LABELS, Labeled, image_files
from tpuconvert.evaluation.metric import Metric, Sample, Setup, evaluation_metric
from tpuconvert.outputs.head import DecodedImage, Points, find_head, recognize_head
from tpuconvert.samples.array_files import load_arrays
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array
from tpuconvert.text.text_format import several

FORM = "expected an array [images, points, 2] of x and y in pixels of the image"


@evaluation_metric("nme")
class PointError(Metric):
    """Mean distance of the points from the labeled ones, as a share of the diagonal of the box around these."""

    agreement_names = ("moved",)

    def __init__(self, setup: Setup, name: str) -> None:
        super().__init__(setup, name)
        self.rule = setup.image_rule()
        self.head = find_head(setup.decode) if isinstance(setup.decode, str) else None
        self.errors: list[float] = []
        self.moves: list[float] = []

    def load(self, samples: Any, labels: Any) -> Labeled:
        """Load images with an array of points, or a file of it."""
        images = [Path(item) for item in samples] if isinstance(samples, list | tuple) else image_files(Path(samples))
        if isinstance(labels, str | os.PathLike):
            arrays = load_arrays(Path(labels))
            labels = arrays.get(LABELS, next(iter(arrays.values()), None))
        points = np.asarray([] if labels is None else labels, np.float64)
        if points.ndim != 3 or points.shape[2] != 2 or points.shape[1] < 2:
            raise UsageError(f"labels of points are {list(points.shape)}", hint=FORM)
        if len(points) != len(images):
            raise UsageError(
                f"points of {several(len(points), 'image')} for {several(len(images), 'image')}", hint=FORM
            )
        return Labeled(images, list(points))

    def predict(self, sample: Sample) -> Array:
        """Return the points in pixels of the image."""
        head = self.head or recognize_head(sample.outputs, self.rule)
        decoded = head.decode(sample.outputs, DecodedImage(self.rule, sample.size()))
        if not isinstance(decoded, Points):
            raise UsageError(f"head '{head.name}' finds no points", hint="--decode points2d or points3d")
        return decoded.places

    def add(self, prediction: Array, label: Array) -> None:
        """Add the error of one image."""
        self.errors.append(_mean_distance(prediction, label, label))

    def values(self) -> dict[str, float]:
        """Return the mean error."""
        return {self.name: float(np.mean(self.errors))}

    def compare(self, prediction: Array, reference: Array) -> None:
        """Add the distance between the points of both models."""
        self.moves.append(_mean_distance(prediction, reference, reference))

    def agreement(self) -> dict[str, float]:
        """Return the mean distance between the points of both models."""
        return {"moved": float(np.mean(self.moves))}


def _mean_distance(points: Array, others: Array, scale: Array) -> float:
    """Return the mean distance of points, as a share of the diagonal of the box around ``scale``."""
    if points.shape != others.shape:
        raise UsageError(f"the model finds {len(points)} points, the labels have {len(others)}", hint=FORM)
    diagonal = float(np.linalg.norm(np.ptp(scale, axis=0)))
    if not diagonal > 0.0:
        raise UsageError("all labeled points of an image are the same", hint=FORM)
    return float(np.linalg.norm(points - others, axis=1).mean()) / diagonal
