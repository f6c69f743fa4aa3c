"""Head of text recognizers with a blank class (connectionist temporal classification)."""

from __future__ import annotations

import numpy as np

from tpuconvert.outputs.head import DecodedImage, Head, Outputs, Text, list_outputs, register_head
from tpuconvert.outputs.labels import TEXT_LABELS
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.text_decoding import blank_of, collapse
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array


@register_head("ctc")
class Ctc(Head):
    """Scores [1, T, C] or [T, 1, C] of C characters at T steps, or their class numbers [1, T]."""

    recognized = "with labels for the characters; class numbers always"

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for a single output of a sequence."""
        return _steps(outputs) is not None

    def fits_labels(self, outputs: Outputs, labels: int) -> bool:
        """Return True for class numbers, and for one label per class; the blank and the space may have none."""
        steps = _steps(outputs)
        return steps is not None and (steps.ndim == 1 or steps.shape[1] - labels in TEXT_LABELS)

    def decode(self, outputs: Outputs, image: DecodedImage) -> Text:
        """Return the characters with the highest score of each step, without repeats and blanks."""
        steps = _steps(outputs)
        if steps is None:
            raise UsageError(
                f"expected one output with scores [1, steps, characters], found {list_outputs(outputs)}",
                hint="end the model at the scores (convert --outputs)",
            )
        if steps.ndim == 1:
            classes, scores, count = steps.astype(np.int64), np.ones(len(steps)), None
        else:
            classes, scores, count = steps.argmax(axis=1), steps.max(axis=1).astype(np.float64), steps.shape[1]
        blank = blank_of(classes, count)
        chosen = collapse(classes, blank)
        return Text(classes[chosen], scores[chosen], count, blank)


def _steps(outputs: Outputs) -> Array | None:
    """Return scores [T, C] or class numbers [T]; None if the shape is another one."""
    array = next(iter(outputs.values())) if len(outputs) == 1 else None
    if array is None or array.size == 0:
        return None
    if array.dtype.kind in "iu":
        return array[0] if array.ndim == 2 and len(array) == 1 < array.shape[1] else None
    if array.ndim != 3 or array.shape[2] < 2 or array.shape[:2] == (1, 1) or 1 not in array.shape[:2]:
        return None
    steps: Array = array.reshape(-1, array.shape[2])
    return steps
