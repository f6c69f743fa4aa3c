"""Graph inputs whose shapes determine symbolic extents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tpuconvert.schema.definition.extents import is_formula, names_in_formula
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import Dim


class FormulaSource(NamedTuple):
    """A graph input, and the names of its extents that occur in formulas, with their axes."""

    value: Value
    names: tuple[str, ...]
    axes: tuple[int, ...]


def formula_source(graph: Graph, extents: Iterable[Dim]) -> FormulaSource | None:
    """Return a graph input whose extents determine all symbolic extents, or None."""
    formulas = [extent for extent in extents if isinstance(extent, str)]
    names = tuple(sorted({name for text in formulas for name in names_in_formula(text)}))
    if not names or not all(is_formula(text, names) for text in formulas):
        return None
    for value in graph.inputs:
        if set(names) <= set(value.shape):
            return FormulaSource(value, names, tuple(value.shape.index(name) for name in names))
    return None
