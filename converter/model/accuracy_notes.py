"""The accuracy of a quantized model's outputs in its metadata and notes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpuconvert.text.text_format import several

if TYPE_CHECKING:
    from tpuconvert.model.model import Model

KEY = "accuracy"
"""Key of the accuracy in the metadata of a model, and kind of the notes about outputs below a limit."""


MOST = 3
"""Number of outputs below a limit that have a message of their own."""


class AccuracyWarning(UserWarning):
    """An output of a quantized model is below the accuracy limits on calibration samples."""


def warn_of_inaccurate_outputs(model: Model, stacklevel: int) -> None:
    """Issue a Python warning for each of the worst outputs below a limit, and one for the others."""
    advice = "; tpuconvert.attribute(model, source, data=samples) names the nodes that cause it"
    messages = [note.message + advice for note in model.notes if note.kind == KEY]
    for text in worst_messages(messages):
        warnings.warn(text, AccuracyWarning, stacklevel=stacklevel)


def worst_messages(messages: Sequence[str]) -> list[str]:
    """Return messages about outputs below a limit, the worst first, and the number of those that are left out."""
    more = len(messages) - MOST
    rest = [f"{several(more, 'more output')} below the limits"] if more > 0 else []
    return [*messages[:MOST], *rest]
