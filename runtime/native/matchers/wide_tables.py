"""Lookup tables with more than 256 entries, in the form that the quantizer writes.

The TPU operator set has tables of 256 entries only. Larger ones are FLOAT32 constants of exact integers, from which
``index_select`` gathers (``optimizer/quantize/lowering/tflite/steps.py``)::

    reshape(cast(index_select(numbers, reshape(place, [-1]))), shape of place)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpuconvert.runtime.native.matchers.matcher import Site
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import I32, Array


@dataclass(frozen=True)
class WideLookUp:
    """A lookup of integers.

    Args:
        nodes: the nodes that compute it, in execution order.
        positions: INT32 positions in the table, in the shape of the result.
        entries: the table, as INT32.
    """

    nodes: tuple[Node, ...]
    positions: Value
    entries: Array


def match_wide_look_up(last: Node, site: Site) -> WideLookUp | None:
    """Return the lookup that ends with a reshape, or None."""
    y = last.outputs[0]
    if not isinstance(last.op, Reshape) or not y.dtype.is_integer:
        return None
    rounded = site.absorbable(last.inputs[0], Cast)
    chosen = None if rounded is None else site.absorbable(rounded.inputs[0], IndexSelect)
    if rounded is None or chosen is None:
        return None
    numbers, index = chosen.inputs[0], chosen.inputs[1]
    flat = site.absorbable(index, Reshape)
    if flat is None or numbers is None or not numbers.is_constant or numbers.rank != 1:
        return None
    indices = flat.inputs[0]
    if indices is None or indices.dtype is not I32 or indices.shape != y.shape or flat.outputs[0].rank != 1:
        return None
    entries = numbers.array.astype(np.float64)
    is_exact = np.isfinite(entries).all() and (entries == np.rint(entries)).all()
    if not is_exact or not (y.dtype.holds(int(entries.min())) and y.dtype.holds(int(entries.max()))):
        return None
    return WideLookUp((flat, chosen, rounded, last), indices, entries.astype(np.int32))
