"""Cache of the native plans of a graph: one plan, or one per set of dynamic extents."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tpuconvert.runtime.native.builder.cache_analysis import bind_caches, find_caches, replanning_reason
from tpuconvert.runtime.native.direct_plan import DirectPlan
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.runtime.run_memory import check_run_memory
from tpuconvert.schema.errors import CorruptInputError, ShapeError, UsageError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.graph.states import State
from tpuconvert.schema.system.gc_control import reduced_gc_frequency
from tpuconvert.schema.types import Chip, format_shape

KEPT = 4
"""Maximum number of plans of a model without buckets; the least recently used one is dropped.

Plans share packed weights of float matmuls."""

_Key = tuple[frozenset[tuple[str, int]], str]
"""Numbers of the extents, and the kind of the plan: plain, observed or caches."""

T = TypeVar("T")


def are_open_at_inputs_only(graph: Graph) -> bool:
    """Return True if all extents follow from the extents of the inputs: none is data-dependent."""
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
        states: what a session keeps between runs.
        memory_limit: of each plan, see ``NativePlan``.
        buckets: extents for which plans are made beforehand and kept.
        drop: called by the plan of a graph without symbolic extents, see ``NativePlan``.

    Attributes:
        caches: result of the analysis of the states; None if plans cannot keep them in place.
        reason: the reason why every length of the caches has its own plan; empty if it has not.
    """

    def __init__(
        self,
        graph: Graph,
        chip: str,
        isa: str,
        threads: int,
        states: Sequence[State] = (),
        memory_limit: int | None = None,
        buckets: Sequence[Mapping[str, int]] = (),
        drop: Callable[[Value], None] | None = None,
    ) -> None:
        self._graph = graph
        self._drop = drop
        self._is_static = not _open_extents(graph)
        self._buckets = buckets
        self._kept = max(KEPT, len(buckets))
        caches = find_caches(graph, states, Chip[chip]) if states else "the model has no states"
        self.caches = None if isinstance(caches, str) else caches
        self.reason = replanning_reason(graph, states, caches)
        self._settings = chip, isa, threads
        self._memory_limit = memory_limit
        self._plans: OrderedDict[_Key, NativePlan] = OrderedDict()
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Create the plan of a model without symbolic extents, or the plans of all buckets."""
        if self._is_static:
            self.plan({})
        for extents in self._buckets:
            self.plan(extents)

    def plan(self, extents: Mapping[str, int], *, is_observed: bool = False) -> NativePlan:
        """Return the plan for the given values of the symbolic extents.

        Raises:
            UsageError: if the model does not accept them.
        """
        key = frozenset(extents.items()), "observed" if is_observed else "plain"
        return self._find(key, lambda like: self._make(extents, is_observed=is_observed, like=like))

    def plan_with_caches(self, extents: Mapping[str, int]) -> NativePlan:
        """Return the plan that keeps the caches in place; their capacity is one of the extents.

        Raises:
            UsageError: if the model does not accept the extents.
        """
        assert self.caches is not None, self.reason
        caches = self.caches

        def make(like: NativePlan | None) -> NativePlan:
            graph, heads = self._translate(lambda: bind_caches(extents, caches), extents)
            check_run_memory(graph)
            return NativePlan(graph, *self._settings, caches=heads, like=like, memory_limit=self._memory_limit)

        return self._find((frozenset(extents.items()), "caches"), make)

    def _make(self, extents: Mapping[str, int], *, is_observed: bool, like: NativePlan | None) -> NativePlan:
        graph = self._translate(lambda: copy_graph(self._graph, extents), extents) if extents else self._graph
        open_value = None if self._is_static else next((item for item in graph.values if not item.type.is_static), None)
        if open_value is not None:  # a type in a file hides that an extent depends on data
            raise CorruptInputError(
                f"'{open_value.name}' has the shape {format_shape(open_value.shape)}, whose extents do not follow from "
                "the extents of the inputs",
                file=self._graph.file,
            )
        check_run_memory(graph)
        return NativePlan(
            graph,
            *self._settings,
            is_observed=is_observed,
            like=like,
            memory_limit=self._memory_limit,
            drop=self._drop if self._is_static and not is_observed else None,
        )

    def _find(self, key: _Key, make: Callable[[NativePlan | None], NativePlan]) -> NativePlan:
        """Return a known plan, or make it; it shares packed weights with the plan that was used last.

        Observed plans share with observed ones: their steps are not fused.
        """
        is_observed = key[1] == "observed"
        with self._lock:
            cached = self._plans.get(key)
            if cached is None:
                plans = reversed(self._plans.items())
                like = next((plan for (_, kind), plan in plans if (kind == "observed") == is_observed), None)
                with reduced_gc_frequency():
                    cached = self._plans[key] = make(like)
            self._plans.move_to_end(key)
            while len(self._plans) > self._kept:
                self._plans.popitem(last=False)
        return cached

    def observed_plan(self, extents: Mapping[str, int]) -> NativePlan | None:
        """Return the plan that computes every value for an observer."""
        return self.plan(extents, is_observed=True)

    def batch_plan(self, extents: Mapping[str, int], parts: int) -> NativePlan | None:
        """Return the plan for the parts of a batch, or None if they have to run one after the other."""
        plan = self.plan(extents)
        return plan if plan.can_run_batches(parts) else None

    @property
    def latest(self) -> NativePlan | None:
        """The plan used last; None for a model with symbolic extents before its first run."""
        with self._lock:
            return next((plan for (_, kind), plan in reversed(self._plans.items()) if kind != "observed"), None)

    @property
    def direct_plan(self) -> DirectPlan | None:
        """Access to the plan of a model without symbolic extents, if it has no reference step."""
        return self.plan({}).direct if self._is_static else None

    def _translate(self, bind: Callable[[], T], extents: Mapping[str, int]) -> T:
        try:
            return bind()
        except ShapeError as error:
            numbers = ", ".join(f"{name}={extent}" for name, extent in extents.items())
            raise UsageError(f"the model cannot take inputs with {numbers}: {error.message}") from error
