"""Correction of the scores of an integer graph, so that it responds as often as its float graph.

Rounding shifts the logits of scores. The bias correction removes the mean shift over all positions (``refinement``),
but a detector or a mask responds at few of them, and the errors of those that respond are others: a background of
logits of -1000 has errors of 10. The positions that respond in the float or the integer graph show what is left. One
number per tensor of scores, which is added to the biases of all its channels, makes the sums of the probabilities there
equal. It stays if the outputs are better with it.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.optimizer.quantize.legalize import Legalized
from tpuconvert.optimizer.quantize.refinement.refinement import add_to_biases
from tpuconvert.optimizer.quantize.search.output_error import OutputError, Vector

_RESPONSE = -2.94
"""Smallest logit of a position that responds: a score of 0.05."""

_STEPS = 8
"""Number of Newton steps. The sum of probabilities is monotonic in the shift."""

_LARGEST = 2.0
"""Largest shift, in logits. Larger ones have other causes."""

_SMALLEST = 0.1
"""Smallest shift, in logits: smaller ones change a probability of 0.5 by 0.025, as much as rounding does anyway."""

_PRIOR = 2.0
"""Number of positions at a score of 0.5 that speak for no shift: few responses do not determine it."""


def correct_responses(legalized: Legalized, samples: OutputError, error: OutputError) -> None:
    """Shift the biases of the scores of an integer graph in place, unless the outputs are worse then.

    Args:
        legalized: the refined integer graph.
        samples: the samples that determine the shifts.
        error: the samples on which the outputs are compared.
    """
    pairs = samples.measure_logits(legalized.graph)
    shifts = {tensor: _find_shift(*logits) for tensor, logits in pairs.items()}
    before = error.measure(legalized.graph)
    former = add_to_biases(legalized, shifts)
    if former and not error.measure(legalized.graph).is_preferred_to(before):
        for bias, data in former.items():
            bias.data = data


def _find_shift(floats: Vector, integers: Vector) -> float:
    """Shift of the logits of an integer graph that makes the sum of the probabilities equal to the float graph."""
    responds = np.maximum(floats, integers) > _RESPONSE
    floats, integers = floats[responds], integers[responds]
    target, shift = _probabilities(floats).sum(), 0.0
    for _ in range(_STEPS):
        probabilities = _probabilities(integers + shift)
        slope = (probabilities * (1.0 - probabilities)).sum() + _PRIOR / 4
        shift += float((target - probabilities.sum() - _PRIOR / 4 * shift) / slope)
    return min(max(shift, -_LARGEST), _LARGEST) if abs(shift) >= _SMALLEST else 0.0


def _probabilities(logits: Vector) -> Vector:
    return np.asarray(1.0 / (1.0 + np.exp(-logits)))
