"""Counts of histograms as logarithmic levels: one byte per bin.

The level of a count is ``8 * log2(1 + count)``, rounded. It is exact on every machine, because only integers are
compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tpuconvert.schema.types import Array

_LEVELS_PER_DOUBLING = 8
_LEVELS = 256

_EDGES = np.array([math.isqrt(math.isqrt(math.isqrt(math.isqrt(1 << (2 * k - 1))))) for k in range(1, _LEVELS)])
"""Smallest count of each level: ``8 * log2(1 + count) >= k - 1/2`` is ``(1 + count)^16 >= 2^(2k - 1)``, and the right
side is not a 16th power."""


def levels_of(counts: Array) -> bytes:
    """Return the levels of counts; the level of 2^32 and more is 255."""
    return bytes(np.searchsorted(_EDGES, counts, side="right").tolist())


def counts_of(levels: Iterable[int]) -> list[int]:
    """Return the counts of levels. The error is at most 4.5 %."""
    return [round(2.0 ** (level / _LEVELS_PER_DOUBLING)) - 1 for level in levels]
