"""The accuracy of a quantized model's outputs in its metadata and notes."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuconvert.model.model import Model

KEY = "accuracy"
"""Key of the accuracy in the metadata of a model, and kind of the notes about outputs below a limit."""


class AccuracyWarning(UserWarning):
    """An output of a quantized model is below the accuracy limits on calibration samples."""


def warn_of_inaccurate_outputs(model: Model, stacklevel: int) -> None:
    """Issue a Python warning for each output below a limit."""
    for note in model.notes:
        if note.kind == KEY:
            text = f"{note.message}; tpuconvert.attribute(model, source, data=samples) names the nodes that cause it"
            warnings.warn(text, AccuracyWarning, stacklevel=stacklevel)
