"""The native plans of a graph: one, or with open extents one per set of numbers that was fed for them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.gc_control import reduced_gc_frequency
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.graph_copy import copy_graph

_KEPT = 4
"""Plans that are kept, those used last. Each has packed weights of its own."""


def are_open_at_inputs_only(graph: Graph) -> bool:
    """Whether every extent is known as soon as those of the inputs are, so that none depends on data."""
    return not any("?" in name for name in _open_extents(graph))


def _open_extents(graph: Graph) -> set[str]:
    """Names that stand for extents."""
    return {extent for value in graph.values for extent in value.type.shape if isinstance(extent, str)}


class Plans:
    """Makes plans when they are first needed. Thread-safe.

    Args:
        graph: all of whose extents are known when those of its inputs are.
        chip: name of the chip whose arithmetic counts.
        isa: the instruction set.
        threads: at least 1.
    """

    def __init__(self, graph: Graph, chip: str, isa: str, threads: int) -> None:
        self._graph = graph
        self._settings = chip, isa, threads
        self._plans: OrderedDict[tuple[frozenset[tuple[str, int]], bool], NativePlan] = OrderedDict()
        self._lock = threading.Lock()
        if not _open_extents(graph):
            self.plan({})

    def plan(self, extents: Mapping[str, int], *, is_observed: bool = False) -> NativePlan:
        """The plan for these numbers in the place of the names of open extents, of which there may be none.

        Raises:
            UsageError: the model cannot take them.
        """
        key = frozenset(extents.items()), is_observed
        with self._lock:
            found = self._plans.get(key)
            if found is None:
                with reduced_gc_frequency():
                    graph = self._bound(extents) if extents else self._graph
                    found = self._plans[key] = NativePlan(graph, *self._settings, is_observed=is_observed)
            self._plans.move_to_end(key)
            while len(self._plans) > _KEPT:
                self._plans.popitem(last=False)
        return found

    @property
    def latest(self) -> NativePlan | None:
        """The plan that was asked for last; None while nothing was fed for open extents."""
        with self._lock:
            return next((plan for (_, observed), plan in reversed(self._plans.items()) if not observed), None)

    def _bound(self, extents: Mapping[str, int]) -> Graph:
        try:
            return copy_graph(self._graph, extents)
        except ShapeError as error:
            numbers = ", ".join(f"{name}={extent}" for name, extent in extents.items())
            raise UsageError(f"the model cannot take inputs with {numbers}: {error.message}") from error
