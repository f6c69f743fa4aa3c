"""Native plans of a graph with data-dependent extents: one plan per part of the graph and per set of shapes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tpuconvert.runtime.native.builder.cache_analysis import replanning_reason
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.runtime.native.plans import KEPT, Plans, are_open_at_inputs_only
from tpuconvert.runtime.reference.graph_partition import Part, split
from tpuconvert.runtime.reference.plan import Evaluate, Plan, make_plan, run_plan
from tpuconvert.runtime.reference.profile import REFERENCE, StepProfile
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.graph.graph_copy import specialize
from tpuconvert.schema.graph.states import State
from tpuconvert.schema.system.gc_control import reduced_gc_frequency
from tpuconvert.schema.types import Array


class _PartPlans:
    """Plans of one part, created on demand. Thread-safe."""

    def __init__(
        self,
        part: Part,
        settings: tuple[str, str, int],
        memory_limit: int | None,
        *,
        is_subgraph: bool,
        max_plans: int,
    ) -> None:
        self.part = part
        self._max_plans = max_plans
        self._settings = settings
        self._memory_limit = memory_limit
        self._lock = threading.Lock()
        self._native: OrderedDict[tuple[tuple[int, ...], ...], NativePlan] = OrderedDict()
        self._reference: Plan | None = None
        self._is_static = is_static = all(value.type.is_static for value in part.graph.values)
        varies = not is_static if is_subgraph else part.has_data_dependent_shapes
        self.is_native = part.has_macs or not varies

    def prepare(self) -> None:
        """Create the plan of a part without symbolic extents."""
        if self.is_native and self._is_static:
            self.native_plan([value.type.static_shape for value in self.part.graph.inputs])

    def native_plan(self, shapes: Sequence[tuple[int, ...]]) -> NativePlan:
        """Return the plan for the shapes of the inputs."""
        key = tuple(shapes)
        with self._lock:
            plan = self._native.get(key)
            if plan is None:
                with reduced_gc_frequency():
                    graph = self.part.graph
                    if key != tuple(value.shape for value in graph.inputs):
                        graph = specialize(graph, shapes)
                    plan = self._native[key] = NativePlan(graph, *self._settings, memory_limit=self._memory_limit)
            self._native.move_to_end(key)
            while len(self._native) > self._max_plans:
                self._native.popitem(last=False)
        return plan

    def run(self, arrays: Sequence[Array], evaluate: Evaluate) -> list[Array]:
        """Compute the outputs of the part."""
        if self.is_native:
            return self.native_plan([array.shape for array in arrays]).run(arrays, evaluate)
        return run_plan(self.reference_plan, arrays, evaluate)

    @property
    def reference_plan(self) -> Plan:
        """The plan of the NumPy executor."""
        if self._reference is None:
            self._reference = make_plan(self.part.graph)
        return self._reference

    @property
    def latest(self) -> NativePlan | None:
        """The native plan used last."""
        with self._lock:
            return next(reversed(self._native.values()), None)

    def profile(self, arrays: Sequence[Array], evaluate: Evaluate, clock: Callable[[], float]) -> list[StepProfile]:
        """Run once and return the wall time of each step."""
        if self.is_native:
            return self.native_plan([array.shape for array in arrays]).profile(arrays, evaluate, clock)
        timed = _Timed(evaluate, clock)
        run_plan(self.reference_plan, arrays, timed)
        return timed.steps


class _Timed:
    """Function that runs the reference of a node and measures its time."""

    def __init__(self, evaluate: Evaluate, clock: Callable[[], float]) -> None:
        self._evaluate, self._clock = evaluate, clock
        self.steps: list[StepProfile] = []

    def __call__(self, node: Node, arrays: list[Array | None]) -> tuple[Array, ...]:
        start = self._clock()
        results = self._evaluate(node, arrays)
        seconds = self._clock() - start
        self.steps.append(StepProfile(node.name, REFERENCE, (node.name,), seconds, is_reference=True))
        return results


class SplitPlans:
    """Plans of a graph whose extents may depend on data.

    Nodes that create data-dependent extents run their reference; the parts between them have native plans for each set
    of shapes. A part whose shapes depend on data has no native plan if it has no multiply-accumulates: creating a plan
    takes longer than running its few nodes by NumPy.

    Args:
        graph: any graph.
        chip: name of the chip whose arithmetic is computed.
        isa: the instruction set.
        threads: at least 1.
        is_subgraph: True for the body of a loop or a branch, whose symbolic extents may change in every call.
        memory_limit: of the plan of each part, see ``NativePlan``.
        max_plans: maximum number of plans of a part; the least recently used one is dropped.
        states: what a session keeps between runs.
    """

    caches: None = None  # states are not kept in place, see ``Plans``

    def __init__(
        self,
        graph: Graph,
        chip: str,
        isa: str,
        threads: int,
        *,
        is_subgraph: bool = False,
        memory_limit: int | None = None,
        max_plans: int = KEPT,
        states: Sequence[State] = (),
    ) -> None:
        self._graph = graph
        self.reason = replanning_reason(graph, states)
        settings = chip, isa, threads
        self._steps = [
            step
            if isinstance(step, Node)
            else _PartPlans(step, settings, memory_limit, is_subgraph=is_subgraph, max_plans=max_plans)
            for step in split(graph)
        ]
        plans = [step for step in self._steps if not isinstance(step, Node)]
        self._new = {value for step in plans if step.is_native for value in step.part.outputs}
        """Values whose arrays are never views of other arrays."""

    def prepare(self) -> None:
        """Create the plans of the parts without symbolic extents."""
        for step in self._steps:
            if not isinstance(step, Node):
                step.prepare()

    def plan(self, _extents: Mapping[str, int]) -> SplitPlans:
        """Return the object itself, which chooses the plans of its parts by the shapes of arrays."""
        return self

    def observed_plan(self, _extents: Mapping[str, int]) -> None:
        """Return None: values are observed by the NumPy executor."""

    def batch_plan(self, _extents: Mapping[str, int], _parts: int) -> None:
        """Return None: the parts of a batch run one after the other."""

    def run(self, arrays: Sequence[Array], evaluate: Evaluate) -> list[Array]:
        """Compute the outputs of the graph. No later run changes them."""
        array_of = dict(zip(self._graph.inputs, arrays, strict=True))
        for step in self._steps:
            if isinstance(step, Node):
                array_of.update(zip(step.outputs, evaluate(step, _operands(step, array_of)), strict=True))
            else:
                results = step.run([array_of[value] for value in step.part.inputs], evaluate)
                array_of.update(zip(step.part.outputs, results, strict=True))
        return [
            array_of[value] if value in self._new else np.array(value.array if value.is_constant else array_of[value])
            for value in self._graph.outputs
        ]

    def profile(self, arrays: Sequence[Array], evaluate: Evaluate, clock: Callable[[], float]) -> list[StepProfile]:
        """Run once and return the wall time of each step."""
        array_of = dict(zip(self._graph.inputs, arrays, strict=True))
        profiles: list[StepProfile] = []
        for step in self._steps:
            if isinstance(step, Node):
                timed = _Timed(evaluate, clock)
                array_of.update(zip(step.outputs, timed(step, _operands(step, array_of)), strict=True))
                profiles += timed.steps
            else:
                part_feeds = [array_of[value] for value in step.part.inputs]
                profiles += step.profile(part_feeds, evaluate, clock)
                array_of.update(zip(step.part.outputs, step.run(part_feeds, evaluate), strict=True))
        return profiles

    @property
    def direct_plan(self) -> None:
        """None: there is a plan for each part."""
        return None

    @property
    def latest(self) -> SplitPlans:
        """The object itself; its properties describe the plans used last."""
        return self

    @property
    def _native_plans(self) -> list[NativePlan]:
        plans = [step.latest for step in self._steps if not isinstance(step, Node)]
        return [plan for plan in plans if plan is not None]

    @property
    def arena_bytes(self) -> int:
        """Size of the largest arena of a part, in bytes."""
        return max((plan.arena_bytes for plan in self._native_plans), default=0)

    @property
    def arena_lower_bound(self) -> int:
        """Lower bound of the largest arena of a part, in bytes."""
        return max((plan.arena_lower_bound for plan in self._native_plans), default=0)

    @property
    def packed_bytes(self) -> int:
        """Size of the packed weights and parameters of all parts, in bytes."""
        return sum(plan.packed_bytes for plan in self._native_plans)

    @property
    def scratch_bytes(self) -> int:
        """Size of the largest scratch memory of a part, in bytes."""
        return max((plan.scratch_bytes for plan in self._native_plans), default=0)

    @property
    def reference_nodes(self) -> list[Node]:
        """The nodes that run their NumPy reference."""
        return [node for node, _ in self._references()]

    @property
    def reference_reasons(self) -> dict[str, str]:
        """The reasons why nodes have no native kernel, by node name."""
        return {node.name: reason for node, reason in self._references()}

    def _references(self) -> Iterator[tuple[Node, str]]:
        for step in self._steps:
            if isinstance(step, Node):
                yield step, "the extents of its results depend on data"
            elif not step.is_native:
                for node in step.part.graph.nodes:
                    yield node, "extents depend on data, and this part has no multiply-accumulates"
            elif step.latest is not None:
                reasons = step.latest.reference_reasons
                yield from ((node, reasons[node.name]) for node in step.latest.reference_nodes)


def _operands(node: Node, arrays: dict[Value, Array]) -> list[Array | None]:
    return [None if x is None else x.array if x.is_constant else arrays[x] for x in node.inputs]


def plans_of(
    graph: Graph,
    chip: str,
    isa: str,
    threads: int,
    states: Sequence[State] = (),
    memory_limit: int | None = None,
    buckets: Sequence[Mapping[str, int]] = (),
    drop: Callable[[Value], None] | None = None,
) -> Plans | SplitPlans:
    """Return the plans of a graph: whole ones if the extents of the inputs determine all others, otherwise split ones.

    Args:
        graph: any graph.
        chip: name of the chip whose arithmetic is computed.
        isa: the instruction set.
        threads: at least 1.
        states: states that whole plans may keep in place.
        memory_limit: of each plan, see ``NativePlan``.
        buckets: values of the symbolic extents for which plans are kept.
        drop: called by the plan of a graph without symbolic extents, see ``NativePlan``.

    """
    if are_open_at_inputs_only(graph):
        return Plans(graph, chip, isa, threads, states, memory_limit, buckets, drop)
    return SplitPlans(
        graph, chip, isa, threads, memory_limit=memory_limit, max_plans=max(KEPT, len(buckets)), states=states
    )
