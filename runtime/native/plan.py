"""Native execution plan of a graph, and its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tpuconvert.runtime.custom_kernel import NativeKernel, kernel_of
from tpuconvert.runtime.native.builder import arena
from tpuconvert.runtime.native.builder.builder import Builder, Group, NativeStep, ReferenceStep
from tpuconvert.runtime.native.builder.cache_analysis import CachedHeads
from tpuconvert.runtime.native.builder.constants import remove_constdata
from tpuconvert.runtime.native.builder.loader import native
from tpuconvert.runtime.native.builder.results import ResultMemory
from tpuconvert.runtime.native.builder.storage import ARENA, EXTERNAL, Stored
from tpuconvert.runtime.native.builder.winograd import spend_memory
from tpuconvert.runtime.native.direct_plan import DirectPlan
from tpuconvert.runtime.native.matchers import precision
from tpuconvert.runtime.native.matchers.matcher import Site, alternative_group, group_nodes, reason_without_kernel
from tpuconvert.runtime.native.statistics.observers import Binding, StatisticsObserver
from tpuconvert.runtime.reference.plan import Evaluate, Observer, failure
from tpuconvert.runtime.reference.profile import REFERENCE, StepProfile
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.types import I8, Array

MOST_BATCH_BYTES = 1 << 30
"""Largest size of the memory of all threads in a batch without a memory limit. Larger models run part by part."""

PARTS_AT_ONCE = 16
"""Number of parts of a batch that a thread runs before the interpreter can handle an interrupt."""


class _Segment(NamedTuple):
    """Consecutive native steps ``first..last-1``, or one reference step."""

    first: int
    last: int
    reference: ReferenceStep | None = None


class NativePlan:
    """Native execution plan of a graph. Thread-safe: each run has its own memory.

    Args:
        graph: with static shapes.
        chip: name of the chip whose arithmetic is computed.
        isa: the instruction set.
        threads: at least 1.
        is_observed: True to compute every value for an observer, without fusion.
        caches: attention operators with caches of the session, by result.
        like: a plan of the same graph for other extents, whose packed weights are shared.
        memory_limit: largest size of arena, scratch memory and packed weights, in bytes; None for no limit.
        drop: called with every constant that only the plan uses, as soon as it is packed.

    Raises:
        UsageError: if the plan does not fit the limit.
    """

    def __init__(
        self,
        graph: Graph,
        chip: str,
        isa: str,
        threads: int,
        *,
        is_observed: bool = False,
        caches: Mapping[Value, CachedHeads] | None = None,
        like: NativePlan | None = None,
        memory_limit: int | None = None,
        drop: Callable[[Value], None] | None = None,
    ) -> None:
        graph = graph if is_observed or caches else remove_constdata(graph)
        site = Site(graph, chip, isa, set(), precision.deciding_nodes(graph), is_observed, caches or {})
        earlier = {} if like is None else _steps_by_nodes(like._steps)
        builder = Builder(
            graph, isa, site.precise, earlier, memory_limit, alternative=partial(alternative_group, site=site)
        )
        self._made: dict[int, list[tuple[Value, Stored]]] = {}
        # Groups have arrays of constants: forget each one when it was emitted.
        items = group_nodes(site)[::-1]
        site.forget_matches()
        while items:
            item = items.pop()
            if isinstance(item, Group):
                builder.emit(item)
            else:
                builder.reference(item)
            if is_observed:
                node = item.nodes[-1] if isinstance(item, Group) else item
                # A fused step may not compute unused results, such as the statistics of a normalization.
                results = [(value, builder.memory_of(value)) for value in node.outputs if builder.is_made(value)]
                self._made.setdefault(len(builder.steps), []).extend(results)
            _release_constants(item.nodes if isinstance(item, Group) else ())
            if drop is not None:
                _drop_constants(item.nodes if isinstance(item, Group) else (), graph, drop)
        builder.finish()
        self._declined = builder.declined
        self._native, self._file = native(), graph.file
        self._inputs, self._outputs = builder.inputs, builder.outputs
        self._results = [ResultMemory(stored.shape, stored.dtype.numpy) for stored in builder.outputs]
        self._steps: list[NativeStep | ReferenceStep] = builder.steps
        used = [buffer for buffer in builder.buffers if buffer.kind == ARENA and buffer.first >= 0]
        slack = self._native.SLACK
        self.arena_lower_bound = arena.lower_bound(used, len(builder.steps), slack)
        size = max(arena.place(used, slack), arena.footprint(0, slack))
        spend_memory(builder, size, threads)
        self._program = self._native.Program(
            steps=[entry.step for entry in builder.native_steps],
            buffers=[
                (item.kind, item.arena_offset, item.size if item.kind != ARENA or item.first >= 0 else 0)
                for item in builder.buffers
            ],
            constants=[item.constant for item in builder.buffers if item.constant is not None],
            arena_bytes=size,
            threads=threads,
        )
        self._segments = _segments(builder.steps, is_observed=is_observed)
        self._memory_limit = memory_limit
        self._idle: list[Any] = []
        self._idle_of_batches: list[Any] = self._idle if threads == 1 else []  # memories of one thread

    @property
    def native_steps(self) -> list[NativeStep]:
        """The steps of the program."""
        return [entry for entry in self._steps if isinstance(entry, NativeStep)]

    @property
    def threads(self) -> int:
        """Number of threads."""
        return int(self._program.threads)

    @property
    def arena_bytes(self) -> int:
        """Size of the arena of one run, in bytes."""
        return int(self._program.arena_bytes)

    @property
    def packed_bytes(self) -> int:
        """Size of packed weights and parameters, in bytes."""
        return int(self._program.packed_bytes)

    @property
    def scratch_bytes(self) -> int:
        """Size of the scratch memory of all threads, in bytes."""
        return int(self._program.scratch_bytes)

    @property
    def kernels(self) -> set[str]:
        """Names of the kernels of the steps."""
        return {entry.kernel for entry in self.native_steps}

    @property
    def reference_nodes(self) -> list[Node]:
        """The nodes that have no native kernel."""
        return [entry.node for entry in self._steps if isinstance(entry, ReferenceStep)]

    @property
    def reference_reasons(self) -> dict[str, str]:
        """The reasons why nodes have no native kernel, by node name: of a kernel that declined, or of the matchers."""
        return {
            node.name: self._declined.get(node.name) or reason_without_kernel(node) for node in self.reference_nodes
        }

    def run(
        self,
        feeds: Sequence[Array],
        evaluate: Evaluate,
        observer: Observer | None = None,
        *,
        borrow: bool = False,
        results: Mapping[int, Array] = MappingProxyType({}),
    ) -> list[Array]:
        """Run once.

        Args:
            feeds: one array per graph input, in the graph's types.
            evaluate: runs the reference of a node without a kernel.
            observer: callback that is called with every result after its step, for plans with ``is_observed``.
            borrow: True to pass views of the arena to the observer where the representation allows it. They are valid
                during the call only.
            results: contiguous arrays for outputs, by index.

        Returns:
            One array per graph output: a new one, or the array in ``results``.
        """
        feeds = _contiguous(feeds)
        memory, outputs = self._begin(feeds, results)
        self._show(memory, 0, observer, borrow)
        for number, segment in enumerate(self._segments):
            if segment.reference is None:
                self._run_steps(self._program.run, memory, memory, segment.first, segment.last)
            else:
                self._run_reference(memory, segment.reference, evaluate)
            self._show(memory, number + 1, observer, borrow)
        self._idle.append(memory)
        return outputs

    def run_with_statistics(
        self, feeds: Sequence[Array], evaluate: Evaluate, observer: StatisticsObserver
    ) -> list[Array]:
        """Run once; the engine collects statistics of the values of an observed plan.

        Args:
            feeds: as for ``run``.
            evaluate: as for ``run``.
            observer: gets views of the arena, as with ``borrow``.
        """
        if any(segment.reference is not None for segment in self._segments):
            return self.run(feeds, evaluate, observer, borrow=True)
        feeds = _contiguous(feeds)
        memory, outputs = self._begin(feeds)
        bound = observer.binding
        if bound is None or bound.plan is not self or bound.key != observer.key:
            observer.release()
            bound = observer.binding = self._bind(memory, observer)
        steps = done = 0
        while True:
            run = self._program.run_observed
            steps, done = self._run_steps(run, memory, memory, bound.native, steps, done)
            if done == len(bound.values):
                break
            value, stored = bound.values[done]
            observer(value, self._load(memory, stored, borrow=True))
            done += 1
        self._idle.append(memory)
        return outputs

    def _bind(self, memory: Any, observer: StatisticsObserver) -> Binding:
        values, entries = [], []
        for steps, results in sorted(self._made.items()):
            for value, stored in results:
                if observer.takes(value):
                    view = stored.view(memory.read(self._program, stored.buffer.index))
                    location = self._native.Place(stored.buffer.index, stored.offset)
                    collector = observer.statistics(value, location, view)
                    values.append((value, stored))
                    entries.append((steps, None if collector is None else collector.native))
        return Binding(self, observer.key, values, self._program.observations(entries))

    def can_run_batches(self, parts: int) -> bool:
        """Return True if ``run_batch`` is possible and pays: no step needs Python, and the memory fits the limits."""
        memory = self.threads * (self.arena_bytes + self.scratch_bytes // self.threads)
        limit = MOST_BATCH_BYTES if self._memory_limit is None else self._memory_limit - self.packed_bytes
        is_native = all(segment.reference is None for segment in self._segments)
        return parts >= self.threads and is_native and memory <= limit

    def run_batch(self, feeds: Sequence[Array], parts: int, evaluate: Evaluate) -> list[Array]:
        """Run once for each part of a batch: every thread runs whole parts, each in a memory of its own.

        Threads then do not wait for each other after every step, as the threads of ``run`` do.

        Args:
            feeds: one array per graph input, in the graph's types, with the parts along the first axis.
            parts: number of parts. Those that are left after dividing by the number of threads run one after the other,
                on all threads.
            evaluate: as for ``run``.

        Returns:
            One array per graph output, with the results of the parts along the first axis.
        """
        feeds = _contiguous(feeds)
        outputs = [
            ResultMemory((parts * stored.shape[0], *stored.shape[1:]), stored.dtype.numpy).new()
            for stored in self._outputs
        ]
        together = parts - parts % self.threads
        at_once = self.threads * PARTS_AT_ONCE
        for start in range(0, together, at_once):
            end = min(start + at_once, together)
            inputs, results = ([_parts(array, start, end, parts) for array in arrays] for arrays in (feeds, outputs))
            self._run_parts(inputs, results, end - start)
        for part in range(together, parts):
            part_feeds = [_parts(array, part, part + 1, parts) for array in feeds]
            part_results = {index: _parts(array, part, part + 1, parts) for index, array in enumerate(outputs)}
            self.run(part_feeds, evaluate, results=part_results)
        return outputs

    def _run_parts(self, feeds: Sequence[Array], outputs: Sequence[Array], parts: int) -> None:
        memories = [self._pop_or_make(self._idle_of_batches, is_of_batch=True) for _ in range(self.threads)]
        pairs = zip(self._inputs, feeds, strict=True), zip(self._outputs, outputs, strict=True)
        arrays = [[(stored.buffer.index, _bytes(array)) for stored, array in each] for each in pairs]
        self._run_steps(self._program.run_batch, memories[0], memories, *arrays, parts)
        self._idle_of_batches.extend(memories)

    @property
    def direct(self) -> DirectPlan | None:
        """Access without conversions; None if a step is a reference, or if every value is computed for an observer."""
        if len(self._segments) != 1 or self._segments[0].reference is not None or self._made:
            return None
        inputs, outputs = ([stored.buffer.index for stored in each] for each in (self._inputs, self._outputs))
        return DirectPlan(self._program, inputs, outputs, self._results, self._run_all)

    def _run_all(self, memory: Any) -> None:
        self._run_steps(self._program.run, memory, memory, 0, self._segments[0].last)

    def profile(self, feeds: Sequence[Array], evaluate: Evaluate, clock: Callable[[], float]) -> list[StepProfile]:
        """Run once and return the wall time of each step."""
        feeds = _contiguous(feeds)
        memory, _ = self._begin(feeds)
        names = iter(self.native_steps)
        profiles = []
        for segment in self._segments:
            if segment.reference is not None:
                node = segment.reference.node
                start = clock()
                self._run_reference(memory, segment.reference, evaluate)
                seconds = clock() - start
                has_kernel = kernel_of(node.op) is not None
                kind = f"custom {node.op.name}" if has_kernel else REFERENCE
                profiles.append(StepProfile(node.name, kind, (node.name,), seconds, is_reference=not has_kernel))
                continue
            times: list[float] = self._run_steps(self._program.profile, memory, memory, segment.first, segment.last)
            for index, seconds in enumerate(times):
                nodes = tuple(node.name for node in next(names).nodes)
                kind = self._program.kind(segment.first + index)
                profiles.append(StepProfile(nodes[-1] if nodes else "", kind, nodes, seconds, is_reference=False))
        self._idle.append(memory)
        return profiles

    def _begin(
        self, feeds: Sequence[Array], results: Mapping[int, Array] = MappingProxyType({})
    ) -> tuple[Any, list[Array]]:
        memory = self._pop_or_make(self._idle, is_of_batch=False)
        for stored, array in zip(self._inputs, feeds, strict=True):
            memory.set_input(self._program, stored.buffer.index, _bytes(array))
        outputs = [results[index] if index in results else result.new() for index, result in enumerate(self._results)]
        for stored, array in zip(self._outputs, outputs, strict=True):
            memory.set_output(self._program, stored.buffer.index, _bytes(array))
        return memory, outputs

    def _pop_or_make(self, idle: list[Any], *, is_of_batch: bool) -> Any:
        try:
            return idle.pop()  # ``pop`` is atomic, so that no lock is needed.
        except IndexError:
            return self._program.make_memory(is_of_batch)

    def _run_steps(self, run: Callable[..., Any], memory: Any, *arguments: Any) -> Any:
        """Run steps. An index out of range raises the same error as the reference implementation.

        Args:
            run: method of the program.
            memory: has the index of the step that failed.
            arguments: of the method.
        """
        try:
            return run(*arguments)
        except IndexError as error:
            steps = self.native_steps
            raise failure(steps[memory.failed_step].nodes[-1], self._file, error) from error

    def _show(self, memory: Any, steps: int, observer: Observer | None, borrow: bool) -> None:
        """Pass the values that are complete after the first ``steps`` steps to the observer of an observed plan."""
        for value, stored in self._made.get(steps, ()):
            if observer is not None:
                observer(value, self._load(memory, stored, borrow=borrow))

    def _run_reference(self, memory: Any, step: ReferenceStep, evaluate: Evaluate) -> None:
        kernel = kernel_of(step.node.op)
        if kernel is not None:
            self._run_custom(memory, step, kernel)
            return
        arrays = [self._load(memory, item) if isinstance(item, Stored) else item for item in step.inputs]
        for stored, array in zip(step.outputs, evaluate(step.node, arrays), strict=True):
            self._store(memory, stored, array)

    def _run_custom(self, memory: Any, step: ReferenceStep, kernel: NativeKernel) -> None:
        """Run the C function of a plugin. Tensors that are row-major in the arena are not copied."""
        operands = []
        for item in step.inputs:
            view = self._plain_view(memory, item) if isinstance(item, Stored) else item
            operands.append(self._load(memory, item) if view is None and isinstance(item, Stored) else view)
        views = [self._plain_view(memory, stored) for stored in step.outputs]
        results = [
            np.empty(stored.shape, stored.dtype.numpy) if view is None else view
            for stored, view in zip(step.outputs, views, strict=True)
        ]
        kernel.run(step.node.op, [None if x is None else np.ascontiguousarray(x) for x in operands], results)
        for stored, view, array in zip(step.outputs, views, results, strict=True):
            if view is None:
                self._store(memory, stored, array)

    def _plain_view(self, memory: Any, stored: Stored) -> Array | None:
        """Return a view of a tensor in the arena, or None if its layout or representation is internal."""
        view = stored.view(memory.read(self._program, stored.buffer.index))
        is_plain = view.flags.c_contiguous and not (stored.dtype is I8 and stored.buffer.kind != EXTERNAL)
        return view if is_plain and view.dtype == stored.dtype.numpy else None

    def _load(self, memory: Any, stored: Stored, *, borrow: bool = False) -> Array:
        view = stored.view(memory.read(self._program, stored.buffer.index))
        if stored.dtype is not I8:
            return view if borrow else np.array(view, order="C")
        bias = 0 if stored.buffer.kind == EXTERNAL else self._native.STORED_BIAS
        return np.ascontiguousarray(view ^ np.uint8(bias)).view(np.int8)

    def _store(self, memory: Any, stored: Stored, array: Array) -> None:
        view = stored.view(memory.read(self._program, stored.buffer.index))
        if stored.dtype is I8:
            np.bitwise_xor(np.ascontiguousarray(array).view(np.uint8), self._native.STORED_BIAS, out=view)
        else:
            view[...] = array


def _release_constants(nodes: Sequence[Node]) -> None:
    """Free the memory of constants in mapped files: kernels have packed copies."""
    for node in nodes:
        for value in node.inputs:
            if value is not None and value.is_constant:
                value.release_memory()


def _drop_constants(nodes: Sequence[Node], graph: Graph, drop: Callable[[Value], None]) -> None:
    """Drop the constants that only these nodes use."""
    for node in nodes:
        for value in node.inputs:
            if value is not None and value.is_constant and graph.is_sole_use(value):
                drop(value)


def _steps_by_nodes(steps: Sequence[NativeStep | ReferenceStep]) -> dict[tuple[str, tuple[str, ...]], Any]:
    """Steps by kernel and names of their nodes, without steps of nodes that have several steps."""
    keys = [
        (entry.kernel, tuple(node.name for node in entry.nodes)) for entry in steps if isinstance(entry, NativeStep)
    ]
    counts = Counter(keys)
    natives = (entry.step for entry in steps if isinstance(entry, NativeStep))
    return {key: step for key, step in zip(keys, natives, strict=True) if counts[key] == 1}


def _contiguous(feeds: Sequence[Array]) -> list[Array]:
    """Return contiguous and aligned arrays. The caller must keep them alive: the program stores only addresses."""
    return [
        array if array.flags.c_contiguous and array.flags.aligned else np.require(array, None, ("C", "A"))
        for array in feeds
    ]


def _parts(array: Array, first: int, last: int, parts: int) -> Array:
    """Return parts ``first..last-1`` of an array that has ``parts`` of them along its first axis."""
    extent = len(array) // parts
    return array[first * extent : last * extent]


def _bytes(array: Array) -> Array:
    """The bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8)


def _segments(steps: Sequence[NativeStep | ReferenceStep], *, is_observed: bool) -> list[_Segment]:
    """Return runs of native steps between reference steps, or single steps for a plan that is observed."""
    segments: list[_Segment] = []
    done = 0
    for entry in steps:
        if isinstance(entry, ReferenceStep):
            segments.append(_Segment(done, done, entry))
        elif segments and segments[-1].reference is None and not is_observed:
            segments[-1] = segments[-1]._replace(last=done + 1)
        else:
            segments.append(_Segment(done, done + 1))
        done += isinstance(entry, NativeStep)
    return segments
