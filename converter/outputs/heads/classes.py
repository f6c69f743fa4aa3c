"""Head of classifiers."""

from __future__ import annotations

import numpy as np

from tpuconvert.outputs.head import DecodedImage, Head, Outputs, Scores, list_outputs, register_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import UsageError


@register_head("classes")
class Classes(Head):
    """Scores [1, C]."""

    recognized = "yes"

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for a single output with one score per class."""
        return len(outputs) == 1 and all(
            _is_vector(array.shape) and array.dtype.kind == "f" for array in outputs.values()
        )

    def classes(self, outputs: Outputs, rule: Preprocess) -> int:
        """Return the number of scores."""
        return int(outputs[_scores_output(outputs)].size)

    def decode(self, outputs: Outputs, image: DecodedImage) -> Scores:
        """Return the scores."""
        output = _scores_output(outputs)
        return Scores(outputs[output].reshape(-1).astype(np.float64), output)


def _is_vector(shape: tuple[int, ...]) -> bool:
    """Return True for a shape of the scores of one image: only one axis has an extent above 1."""
    return len(shape) > 1 and shape[0] == 1 and 0 not in shape and sum(extent > 1 for extent in shape) == 1


def _scores_output(outputs: Outputs) -> str:
    names = [name for name, array in outputs.items() if _is_vector(array.shape)]
    if len(names) != 1:
        raise UsageError(
            f"expected one output with scores [1, classes], found {list_outputs(outputs)}",
            hint="end the model at the scores (convert --outputs)",
        )
    return names[0]
