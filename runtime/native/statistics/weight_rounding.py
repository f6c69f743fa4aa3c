"""Rounding of weights in the native engine."""

from __future__ import annotations

import numpy as np

from tpuconvert.runtime.native.builder.loader import chosen_isa, extension
from tpuconvert.runtime.threads import available_threads
from tpuconvert.schema.types import Array


def round_weights(
    covariance: Array, weights: Array, limit: float, *, overwrite_covariance: bool = False
) -> Array | None:
    """Round weights to integers so that their errors compensate each other, the last input first, in binary32.

    Results do not depend on the instruction set and the number of threads.

    Args:
        covariance: positive definite matrices, [groups, inputs, inputs].
        weights: weights, [groups, inputs, outputs].
        limit: largest magnitude of the results.
        overwrite_covariance: whether contiguous matrices in binary32 may be overwritten. This saves a copy.

    Returns:
        Integers as binary32; None without the engine, or if a matrix is not positive definite in binary32.
    """
    native = getattr(extension(), "round_weights", None)
    if native is None:
        return None
    result = np.empty(weights.shape, np.float32)
    # The engine replaces both.
    is_done = native(
        covariance.astype(np.float32, order="C", copy=not overwrite_covariance),
        weights.astype(np.float32, order="C"),
        result,
        limit,
        chosen_isa(),
        available_threads(),
    )
    return result if is_done else None
