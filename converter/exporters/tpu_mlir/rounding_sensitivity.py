"""Amplification of rounding errors by a network: the bound for differences of a device that computes in FLOAT32."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array

DRAWS = 2
"""Changes of the inputs that are tried."""


def rounding_sensitivity(graph: Graph, feed: Mapping[str, Array]) -> float:
    """Return the largest change of an output if each number of the inputs changes by one unit of its last place.

    Args:
        graph: a graph that computes in floating point.
        feed: arrays by input name.

    Returns:
        The change as a share of the output's largest magnitude.
    """
    largest = 0.0
    with Session(graph) as session:
        expected = session.run(dict(feed))
        for seed in range(DRAWS):
            rng = np.random.default_rng(seed)
            changed = {name: _changed(np.asarray(array), rng) for name, array in feed.items()}
            for name, array in session.run(changed).items():
                want = expected[name]
                if array.dtype.kind == "f" and array.shape == want.shape:
                    difference, magnitude = np.abs(array - want).max(initial=0), np.abs(want).max(initial=0)
                    largest = max(largest, float(difference / magnitude) if magnitude else 0.0)
    return largest if np.isfinite(largest) else 0.0


def _changed(array: Array, rng: np.random.Generator) -> Array:
    if array.dtype.kind != "f":
        return array
    towards = np.where(rng.integers(0, 2, array.shape), np.inf, -np.inf).astype(np.float32)
    return np.nextafter(array.astype(np.float32), towards)
