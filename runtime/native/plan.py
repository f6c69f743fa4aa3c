"""A graph as a native plan, and runs of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpuconvert.runtime.custom_kernel import NativeKernel, kernel_of
from tpuconvert.runtime.native import arena, precision
from tpuconvert.runtime.native.builder import ARENA, EXTERNAL, Builder, NativeStep, ReferenceStep
from tpuconvert.runtime.native.constants import reading_constants
from tpuconvert.runtime.native.groups import Group, Site, group_nodes
from tpuconvert.runtime.native.loader import native
from tpuconvert.runtime.native.results import ResultMemory
from tpuconvert.runtime.native.storage import Stored
from tpuconvert.runtime.plan import failure
from tpuconvert.runtime.profile import REFERENCE, StepProfile
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.types import I8, Array

Evaluate = Callable[[Node, list[Array | None]], tuple[Array, ...]]
"""Runs the NumPy reference of a node."""

Observer = Callable[[Value, Array], None]
"""Called with every result of a run, in the order in which they are made."""


@dataclass(frozen=True)
class _Segment:
    """Compiled steps first..last-1, or one reference step."""

    first: int
    last: int
    reference: ReferenceStep | None = None


class NativePlan:
    """The compiled form of a graph. Thread-safe: each run has a memory of its own.

    Args:
        graph: with known extents.
        chip: name of the chip whose arithmetic counts.
        isa: the instruction set.
        threads: at least 1.
        is_observed: whether every value is to be made, so that ``observe`` can show it; nothing is fused then.
    """

    def __init__(self, graph: Graph, chip: str, isa: str, threads: int, *, is_observed: bool = False) -> None:
        graph = graph if is_observed else reading_constants(graph)
        site = Site(graph, chip, isa, set(), precision.deciding_nodes(graph), is_observed)
        builder = Builder(graph, isa)
        self._made: dict[int, list[tuple[Value, Stored]]] = {}
        for item in group_nodes(site):
            if isinstance(item, Group):
                builder.emit(item)
            else:
                builder.reference(item)
            if is_observed:
                node = item.nodes[-1] if isinstance(item, Group) else item
                # Results that nobody reads, such as statistics of a normalization, may not be made at all.
                made = [(value, builder.stored(value)) for value in node.outputs if builder.is_made(value)]
                self._made.setdefault(len(builder.steps), []).extend(made)
        builder.finish()
        self._native, self._file = native(), graph.file
        self._inputs, self._outputs = builder.inputs, builder.outputs
        self._results = [ResultMemory(stored.shape, stored.dtype.numpy) for stored in builder.outputs]
        self._steps = builder.steps
        used = [buffer for buffer in builder.buffers if buffer.kind == ARENA and buffer.first >= 0]
        slack = self._native.SLACK
        self.arena_lower_bound = arena.lower_bound(used, len(builder.steps), slack)
        size = max(arena.place(used, slack), arena.footprint(0, slack))
        self._program = self._native.Program(
            steps=[entry.step for entry in builder.steps if isinstance(entry, NativeStep)],
            buffers=[
                (item.kind, item.arena_offset, item.size if item.kind != ARENA or item.first >= 0 else 0)
                for item in builder.buffers
            ],
            constants=[item.constant for item in builder.buffers if item.constant is not None],
            arena_bytes=size,
            threads=threads,
        )
        self._segments = list(_segments(builder.steps))
        self._idle: list[Any] = []

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena of one run."""
        return int(self._program.arena_bytes)

    @property
    def packed_bytes(self) -> int:
        """Bytes of packed weights and parameters."""
        return int(self._program.packed_bytes)

    @property
    def reference_nodes(self) -> list[Node]:
        """The nodes that have no native kernel."""
        return [entry.node for entry in self._steps if isinstance(entry, ReferenceStep)]

    def run(self, feeds: Sequence[Array], evaluate: Evaluate) -> list[Array]:
        """Run once.

        Args:
            feeds: one array per graph input, in the graph's types.
            evaluate: what runs the nodes without a kernel.

        Returns:
            One new array per graph output.
        """
        feeds = _contiguous(feeds)
        memory, outputs = self._begin(feeds)
        for segment in self._segments:
            if segment.reference is None:
                self._walk(self._program.run, memory, segment.first, segment.last)
            else:
                self._run_reference(memory, segment.reference, evaluate)
        self._idle.append(memory)
        return outputs

    def observe(self, feeds: Sequence[Array], evaluate: Evaluate, observer: Observer) -> list[Array]:
        """Run once and show every result right after it was made; for plans with ``is_observed``."""
        feeds = _contiguous(feeds)
        memory, outputs = self._begin(feeds)
        compiled = 0
        self._show(memory, 0, observer)
        for index, entry in enumerate(self._steps):
            if isinstance(entry, NativeStep):
                self._walk(self._program.run, memory, compiled, compiled + 1)
                compiled += 1
            else:
                self._run_reference(memory, entry, evaluate)
            self._show(memory, index + 1, observer)
        self._idle.append(memory)
        return outputs

    def profile(self, feeds: Sequence[Array], evaluate: Evaluate, clock: Callable[[], float]) -> list[StepProfile]:
        """Run once and tell what each step took."""
        feeds = _contiguous(feeds)
        memory, _ = self._begin(feeds)
        names = iter(entry for entry in self._steps if isinstance(entry, NativeStep))
        found = []
        for segment in self._segments:
            if segment.reference is not None:
                node = segment.reference.node
                start = clock()
                self._run_reference(memory, segment.reference, evaluate)
                seconds = clock() - start
                has_kernel = kernel_of(node.op) is not None
                kind = f"custom {node.op.name}" if has_kernel else REFERENCE
                found.append(StepProfile(node.name, kind, (node.name,), seconds, is_reference=not has_kernel))
                continue
            times: list[float] = self._walk(self._program.profile, memory, segment.first, segment.last)
            for index, seconds in enumerate(times):
                nodes = tuple(node.name for node in next(names).nodes)
                kind = self._program.kind(segment.first + index)
                found.append(StepProfile(nodes[-1] if nodes else "", kind, nodes, seconds, is_reference=False))
        self._idle.append(memory)
        return found

    def _begin(self, feeds: Sequence[Array]) -> tuple[Any, list[Array]]:
        try:
            memory = self._idle.pop()  # one operation, so that no lock is needed
        except IndexError:
            memory = self._program.make_memory()
        for stored, array in zip(self._inputs, feeds, strict=True):
            memory.set_input(self._program, stored.buffer.index, _bytes(array))
        outputs = [made.new() for made in self._results]
        for stored, array in zip(self._outputs, outputs, strict=True):
            memory.set_output(self._program, stored.buffer.index, _bytes(array))
        return memory, outputs

    def _walk(self, run: Callable[..., Any], memory: Any, first: int, last: int) -> Any:
        """Run steps; one that meets an index outside of its axis ends the run as the reference of its node does."""
        try:
            return run(memory, first, last)
        except IndexError as error:
            steps = [entry for entry in self._steps if isinstance(entry, NativeStep)]
            raise failure(steps[memory.failed_step].nodes[-1], self._file, error) from error

    def _show(self, memory: Any, steps: int, observer: Observer) -> None:
        """Show what is complete after that many steps."""
        for value, stored in self._made.get(steps, ()):
            observer(value, self._load(memory, stored))

    def _run_reference(self, memory: Any, step: ReferenceStep, evaluate: Evaluate) -> None:
        kernel = kernel_of(step.node.op)
        if kernel is not None:
            self._run_custom(memory, step, kernel)
            return
        arrays = [self._load(memory, item) if isinstance(item, Stored) else item for item in step.inputs]
        for stored, array in zip(step.outputs, evaluate(step.node, arrays), strict=True):
            self._store(memory, stored, array)

    def _run_custom(self, memory: Any, step: ReferenceStep, kernel: NativeKernel) -> None:
        """Run a plugin's C function on the arena itself, where a tensor lies there as C sees it."""
        operands = [(self._in_place(memory, item) if isinstance(item, Stored) else item) for item in step.inputs]
        loaded = [
            self._load(memory, item) if array is None and isinstance(item, Stored) else array
            for item, array in zip(step.inputs, operands, strict=True)
        ]
        places = [self._in_place(memory, stored) for stored in step.outputs]
        results = [
            np.empty(stored.shape, stored.dtype.numpy) if place is None else place
            for stored, place in zip(step.outputs, places, strict=True)
        ]
        kernel.run(step.node.op, [None if x is None else np.ascontiguousarray(x) for x in loaded], results)
        for stored, place, array in zip(step.outputs, places, results, strict=True):
            if place is None:
                self._store(memory, stored, array)

    def _in_place(self, memory: Any, stored: Stored) -> Array | None:
        """The bytes of the arena as an array, None where they are arranged or biased in a way of the engine's own."""
        view = stored.view(memory.read(self._program, stored.buffer.index))
        is_plain = view.flags.c_contiguous and not (stored.dtype is I8 and stored.buffer.kind != EXTERNAL)
        return view if is_plain and view.dtype == stored.dtype.numpy else None

    def _load(self, memory: Any, stored: Stored) -> Array:
        view = stored.view(memory.read(self._program, stored.buffer.index))
        if stored.dtype is not I8:
            return np.array(view, order="C")
        bias = 0 if stored.buffer.kind == EXTERNAL else self._native.STORED_BIAS
        return np.ascontiguousarray(view ^ np.uint8(bias)).view(np.int8)

    def _store(self, memory: Any, stored: Stored, array: Array) -> None:
        view = stored.view(memory.read(self._program, stored.buffer.index))
        if stored.dtype is I8:
            np.bitwise_xor(np.ascontiguousarray(array).view(np.uint8), self._native.STORED_BIAS, out=view)
        else:
            view[...] = array


def _contiguous(feeds: Sequence[Array]) -> list[Array]:
    """The operands as kernels read them: in one piece, elements at multiples of their size.

    Whoever runs the program holds on to them: it knows only their addresses.
    """
    return [
        array if array.flags.c_contiguous and array.flags.aligned else np.require(array, None, ("C", "A"))
        for array in feeds
    ]


def _bytes(array: Array) -> Array:
    """The bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8)


def _segments(steps: Sequence[NativeStep | ReferenceStep]) -> list[_Segment]:
    """Runs of compiled steps between reference steps."""
    found: list[_Segment] = []
    done = start = 0
    for entry in steps:
        if isinstance(entry, NativeStep):
            done += 1
            continue
        if done > start:
            found.append(_Segment(start, done))
        start = done
        found.append(_Segment(done, done, entry))
    if done > start:
        found.append(_Segment(start, done))
    return found
