"""Similarity of results to the results of a float graph."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.schema.types import Array


def cosine_similarity(a: Array, b: Array) -> float:
    """Cosine similarity of two vectors; 1 for two vectors of zeros, 0 if only one of them is zero.

    The vectors are scaled first: the squares of huge and of tiny numbers are not representable.
    """
    largest, other = (float(np.max(np.abs(array), initial=0.0)) for array in (a, b))
    if largest == 0.0 or other == 0.0:
        return float(largest == other)
    a, b = a / largest, b / other
    return float(np.clip(a @ b / math.sqrt(float(a @ a) * float(b @ b)), -1.0, 1.0))
