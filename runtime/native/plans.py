"""Cache of the native plans of a graph: one plan, or one per set of dynamic extents."""

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
"""Maximum number of plans; the least recently used one is dropped. Each has its own packed weights."""


def are_open_at_inputs_only(graph: Graph) -> bool:
    """Return True if all extents follow from those of the inputs: none is data-dependent."""
    return not any("?" in name for name in _open_extents(graph))


def _open_extents(graph: Graph) -> set[str]:
    """Names of the symbolic extents."""
    return {extent for value in graph.values for extent in value.type.shape if isinstance(extent, str)}


class Plans:
    """Plans of a graph, created on demand. Thread-safe.

    Args:
        graph: without data-dependent extents.
        chip: name of the chip whose arithmetic is computed.
        isa: the instruction set.
        threads: at least 1.
    """

    def __init__(self, graph: Graph, chip: str, isa: str, threads: int) -> None:
        self._graph = graph
        self._settings = chip, isa, threads
        self._plans: OrderedDict[tuple[frozenset[tuple[str, int]], bool], NativePlan] = OrderedDict()
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Create the plan of a model without symbolic extents."""
        if not _open_extents(self._graph):
            self.plan({})

    def plan(self, extents: Mapping[str, int], *, is_observed: bool = False) -> NativePlan:
        """Return the plan for the given values of the symbolic extents.

        Raises:
            UsageError: if the model does not accept them.
        """
        key = frozenset(extents.items()), is_observed
        with self._lock:
            found = self._plans.get(key)
            if found is None:
                with reduced_gc_frequency():
                    graph = self._bind_extents(extents) if extents else self._graph
                    found = self._plans[key] = NativePlan(graph, *self._settings, is_observed=is_observed)
            self._plans.move_to_end(key)
            while len(self._plans) > _KEPT:
                self._plans.popitem(last=False)
        return found

    def observed_plan(self, extents: Mapping[str, int]) -> NativePlan | None:
        """Return the plan that computes every value for an observer."""
        return self.plan(extents, is_observed=True)

    @property
    def latest(self) -> NativePlan | None:
        """The plan used last; None for a model with symbolic extents before its first run."""
        with self._lock:
            return next((plan for (_, observed), plan in reversed(self._plans.items()) if not observed), None)

    def _bind_extents(self, extents: Mapping[str, int]) -> Graph:
        try:
            return copy_graph(self._graph, extents)
        except ShapeError as error:
            numbers = ", ".join(f"{name}={extent}" for name, extent in extents.items())
            raise UsageError(f"the model cannot take inputs with {numbers}: {error.message}") from error
