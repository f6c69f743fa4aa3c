"""Comparison of graphs on samples, as ``verify_source`` makes it for files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tpuconvert as tc
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array
from tpuconvert.verify.comparer import Comparer
from tpuconvert.verify.verification import Verification


def verify(
    source: Graph,
    optimized: Graph,
    model: tc.Model,
    feeds: Iterable[Mapping[str, Array]],
    *,
    origin: str = "",
    allow_nan: bool = False,
    **arguments: Any,
) -> Verification:
    """Compare a model with its source. Further arguments are passed to ``Comparer``."""
    with Comparer(source, optimized, model, **arguments) as comparer:
        for feed in feeds:
            comparer.step(feed)
    return comparer.result(origin=origin, allow_nan=allow_nan)
