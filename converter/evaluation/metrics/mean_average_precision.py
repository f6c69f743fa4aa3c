"""Mean average precision of a detector, with the rules of the COCO evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpuconvert.evaluation.average_precision import average_precisions
from tpuconvert.evaluation.classes import Labeled
from tpuconvert.evaluation.metric import Metric, Sample, Setup, evaluation_metric
from tpuconvert.evaluation.objects import Objects, load_objects
from tpuconvert.outputs.detector import find_detector
from tpuconvert.outputs.head import DecodedImage, DetectorHead, detector_names, recognize_head
from tpuconvert.schema.arithmetic.boxes import Detections, match_detections
from tpuconvert.schema.errors import UsageError

KEPT_IOU = 0.9
KEPT_SCORE = 0.25
"""Detections of the other model with at least this score are compared. Those below are mostly noise."""


@evaluation_metric("map")
class MeanAveragePrecision(Metric):
    """Mean over classes and IoU limits 0.50, 0.55 ... 0.95 of the average precision (``map``); ``map50`` at 0.5."""

    agreement_names = ("kept", "detections")

    def __init__(self, setup: Setup, name: str) -> None:
        super().__init__(setup, name)
        self.detector = None if setup.decode is None else find_detector(setup.decode)
        self.rule = setup.image_rule()
        self.predictions: list[Detections] = []
        self.labeled: list[Objects] = []
        self.matched = 0
        self.compared = 0

    @classmethod
    def value_names(cls, name: str) -> tuple[str, ...]:
        """Return the keys of ``values()``."""
        return name, "map50"

    def load(self, samples: Any, labels: Any) -> Labeled:
        """Load images with labeled boxes."""
        return load_objects(samples, labels)

    def predict(self, sample: Sample) -> Detections:
        """Return the detections in pixels of the image file."""
        if self.detector is None:
            head = recognize_head(sample.outputs, self.rule)
            if not isinstance(head, DetectorHead):
                decoders = f"{', '.join(detector_names())}, or a function as module:function"
                raise UsageError(
                    f"metric 'map' for outputs of the head '{head.name}', which finds no boxes",
                    file=self.setup.model.graph.file,
                    hint=f"--decode {decoders}",
                )
            self.detector = head
        image = DecodedImage(self.rule, sample.size(), self.setup.min_score, self.setup.nms_iou)
        return self.detector.decode(sample.outputs, image)

    def add(self, prediction: Detections, label: Objects) -> None:
        """Keep the detections and the labels of one image."""
        self.predictions.append(prediction)
        self.labeled.append(label)

    def values(self) -> dict[str, float]:
        """Return ``map`` and ``map50``, from 0 to 1."""
        precisions = self._precisions()
        return {
            self.name: float(np.mean([row.mean() for row in precisions.values()])),
            "map50": float(np.mean([row[0] for row in precisions.values()])),
        }

    def per_class(self) -> dict[int, float]:
        """Return the average precision of each class that has labels, mean over the IoU limits."""
        return {index: float(row.mean()) for index, row in self._precisions().items()}

    def _precisions(self) -> dict[int, Any]:
        precisions = average_precisions(self.predictions, self.labeled)
        if not precisions:
            raise UsageError("the labels have no boxes", hint="give images with labeled objects")
        return precisions

    def compare(self, prediction: Detections, reference: Detections) -> None:
        """Count the reference detections that this model also has: same class, IoU of at least 0.9."""
        reference = reference.take(reference.scores >= KEPT_SCORE)
        prediction = prediction.take(prediction.scores >= KEPT_SCORE)
        self.matched += len(match_detections(reference, prediction, KEPT_IOU))
        self.compared += len(reference.scores)

    def agreement(self) -> dict[str, float]:
        """Return the number of compared detections, and the share of them that is kept."""
        share = {"kept": self.matched / self.compared} if self.compared else {}
        return {**share, "detections": self.compared}
