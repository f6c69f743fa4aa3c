"""Random samples, used if the user gives none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpuconvert.runtime.session.border import numpy_type
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.types import Array


def unknown_extents(ports: Sequence[Port]) -> dict[str, list[str]]:
    """Return port name -> symbolic extents that have no default. The batch, the first extent, has the default 1."""
    samples = {port.shape[0] for port in ports if len(port.shape) > 1}
    symbolic = {port.name: [extent for extent in port.shape if isinstance(extent, str)] for port in ports}
    symbolic = {name: [extent for extent in extents if extent not in samples] for name, extents in symbolic.items()}
    return {name: extents for name, extents in symbolic.items() if extents}


def random_feeds(ports: list[Port], count: int, seed: int = 0) -> list[dict[str, Array]]:
    """Create random samples: normal floats, 8-bit integers from their whole range, wider integers and Booleans 0 or 1.

    A symbolic batch extent becomes 1.

    Raises:
        UsageError: another extent is symbolic.

    """
    for name, extents in unknown_extents(ports).items():
        raise UsageError(f"input '{name}' has no fixed shape ({', '.join(extents)})", hint="give samples with --data")
    generator = np.random.default_rng(seed)
    feeds = []
    for _ in range(count):
        feed: dict[str, Array] = {}
        for port in ports:
            shape = [extent if isinstance(extent, int) else 1 for extent in port.shape]
            dtype = numpy_type(port.dtype)
            if dtype.kind not in "biu":
                feed[port.name] = generator.standard_normal(shape).astype(dtype)
            elif dtype.kind == "b":
                feed[port.name] = generator.integers(0, 2, shape).astype(dtype)
            else:
                low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.itemsize == 1 else (0, 1)
                feed[port.name] = generator.integers(low, high + 1, shape).astype(dtype)
        feeds.append(feed)
    return feeds
