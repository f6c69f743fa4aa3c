"""Plans of the native engine in a file with packed weights, which are made again without planning and packing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tpuconvert.runtime.native.builder import NativeStep, ReferenceStep
from tpuconvert.runtime.native.call_record import Call, Decoder, Json, NotRecordableError, Recorder, encode, recording
from tpuconvert.runtime.native.direct_plan import DirectPlan
from tpuconvert.runtime.native.loader import native
from tpuconvert.runtime.native.plan import NativePlan, Segment
from tpuconvert.runtime.native.plans import Plans
from tpuconvert.runtime.native.results import ResultMemory
from tpuconvert.runtime.native.storage import EXTERNAL, Buffer, Stored, row_major
from tpuconvert.runtime.packed_file import PackedFile, part_extent
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.types import Array, DType

REFUSED = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RuntimeError, RecursionError)
"""Exceptions that a description which is not valid causes."""


class PackedParts:
    """Arrays and packed weights of a file that is written."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self.parts: list[Array] = []
        self._end = 0

    def add_array(self, array: Array) -> int:
        """Add an argument of a step and return its number."""
        self.arrays.append(array)
        return len(self.arrays) - 1

    def add_packed(self, packed: Any) -> list[list[int]]:
        """Add the packed weights of a step; return offset, size and checksum of each part."""
        places = []
        for index in range(packed.saved):
            part = packed.part(index)
            places.append([self._end, part.nbytes, packed.checksum(index)])
            self.parts.append(part)
            self._end += part_extent(part.nbytes)
        return places


def describe_plan(graph: Graph, chip: str, isa: str, parts: PackedParts) -> dict[str, Json]:
    """Make the plan of a graph and describe it.

    Args:
        graph: with static shapes.
        chip: name of the chip whose arithmetic is computed.
        isa: the instruction set.
        parts: takes the arrays and the packed weights.

    Raises:
        UsageError: a node runs its NumPy reference, or a step cannot be recorded.
    """
    with recording(native()) as calls:
        plan = NativePlan(graph, chip, isa, 1)
    if plan.reference_nodes:
        names = ", ".join(node.name for node in plan.reference_nodes[:3])
        raise UsageError(
            f"nodes without a native kernel have no packed weights: {names}",
            file=graph.file,
            hint="'tpuconvert bench --profile' lists them; open the model without packed weights",
        )
    try:
        steps = [
            [entry.kernel, [node.name for node in entry.nodes], *_describe_step(calls, entry.step, parts)]
            for entry in plan.native_steps
        ]
    except NotRecordableError as error:
        raise UsageError(f"the plan cannot be stored: it has {error}", file=graph.file) from error
    program = calls.call_of(plan.program)
    assert program is not None, "the recorder has made the program"
    return {
        "inputs": [_describe_tensor(stored) for stored in plan.inputs],
        "outputs": [_describe_tensor(stored) for stored in plan.outputs],
        "buffers": [list(item) for item in program.named["buffers"]],
        "constants": [parts.add_array(array) for array in program.named["constants"]],
        "arena": [plan.arena_bytes, plan.arena_lower_bound],
        "steps": steps,
    }


def _describe_step(calls: Recorder, step: Any, parts: PackedParts) -> tuple[Json, list[list[int]]]:
    call = calls.call_of(step)
    if not isinstance(call, Call) or len(call.arguments) != 2:
        raise NotRecordableError("a step that was made otherwise")
    spec = encode(call.arguments[0], calls, parts.add_array, call.packed)
    return spec, parts.add_packed(call.packed)


def _describe_tensor(stored: Stored) -> list[Json]:
    return [stored.buffer.index, stored.dtype.name, list(stored.shape)]


class PackedPlan(NativePlan):
    """A plan that was read from a file. Its nodes are read from the model when they are needed.

    Args:
        file: the open file.
        isa: the instruction set.
        threads: at least 1.
        graph: returns the graph of the model.
        is_mapped: True to leave the packed weights in the file.

    Raises:
        CorruptInputError: the file is damaged.
    """

    def __init__(
        self, file: PackedFile, isa: str, threads: int, graph: Callable[[], Graph], *, is_mapped: bool
    ) -> None:
        self._graph = graph
        self._damaged = file.damaged
        try:
            self._make(file, isa, threads, is_mapped=is_mapped)
        except REFUSED as error:
            raise file.damaged(error) from error

    def _make(self, file: PackedFile, isa: str, threads: int, *, is_mapped: bool) -> None:
        found, module = file.description, native()
        mapped = module.MappedFile(file.descriptor, file.size) if is_mapped else None
        decoder = Decoder(module, file.arrays)
        steps, self._names = [], list[tuple[str, list[str]]]()
        for kernel, nodes, spec, places in found["steps"]:
            parts = [(file.parts_offset + offset, size, checksum) for offset, size, checksum in places]
            steps.append(decoder.step(kernel, spec, isa, module.PackedRecord(file.descriptor, parts, mapped)))
            self._names.append((str(kernel), [str(name) for name in nodes]))
        size, self.arena_lower_bound = found["arena"]
        buffers = [(str(kind), offset, count) for kind, offset, count in found["buffers"]]
        constants = [file.arrays[index] for index in found["constants"]]
        self._inputs, self._outputs = (
            [_tensor(buffers, *item) for item in found[name]] for name in ("inputs", "outputs")
        )
        program = module.Program(steps=steps, buffers=buffers, constants=constants, arena_bytes=size, threads=threads)
        self._set_program(program, [Segment(0, len(steps))] if steps else [], None)
        self._results = [ResultMemory(stored.shape, stored.dtype.numpy) for stored in self._outputs]
        self._native, self._declined, self._made = module, {}, {}
        self._file = str(found["graph"][1])

    @property
    def kernels(self) -> set[str]:
        """Names of the kernels of the steps."""
        return {kernel for kernel, _ in self._names}

    @property
    def reference_nodes(self) -> list[Node]:
        """No nodes: all of them have a native kernel."""
        return []

    @cached_property
    def _steps(self) -> list[NativeStep | ReferenceStep]:  # type: ignore[override]  # read from the model at first use
        known = {node.name: node for node in self._graph().nodes}
        try:
            return [NativeStep(None, kernel, tuple([known[name] for name in names])) for kernel, names in self._names]
        except KeyError as error:
            raise self._damaged(f"the model has no node {error}") from error


def _tensor(buffers: Sequence[tuple[str, int, int]], buffer: int, dtype: str, shape: list[int]) -> Stored:
    """Return an input or output of the plan, whose buffer must be the caller's and have its size."""
    extents = tuple(shape)
    stored = Stored(Buffer(buffer, EXTERNAL, 0), DType[dtype], extents, row_major(len(extents)))
    if not all(type(extent) is int and extent >= 0 for extent in (buffer, *extents)):
        raise ValueError("an input or output with an impossible shape")
    kind, _, size = buffers[buffer]
    if kind != EXTERNAL or size != stored.size * stored.itemsize:
        raise ValueError("an input or output does not fit its buffer")
    return stored


class PackedPlans:
    """The plan of a file, with the interface of ``Plans``. Plans for observers are made from the model.

    Args:
        plan: the plan.
        make_plans: returns the plans of the model, which is read then.
    """

    caches = None
    reason = "the model has no states"

    def __init__(self, plan: PackedPlan, make_plans: Callable[[], Plans]) -> None:
        self._plan = plan
        self._make_plans = make_plans

    def prepare(self) -> None:
        """Do nothing: the plan exists."""

    def plan(self, extents: Mapping[str, int]) -> NativePlan:
        """Return the plan; the model has no symbolic extents."""
        return self._plan

    def observed_plan(self, extents: Mapping[str, int]) -> NativePlan | None:
        """Return the plan that computes every value for an observer."""
        return self._make_plans().observed_plan(extents)

    def batch_plan(self, extents: Mapping[str, int], parts: int) -> NativePlan | None:
        """Return the plan for the parts of a batch, or None if they have to run one after the other."""
        return self._plan if self._plan.can_run_batches(parts) else None

    @property
    def latest(self) -> NativePlan:
        """The plan."""
        return self._plan

    @property
    def direct_plan(self) -> DirectPlan | None:
        """Access to the plan without conversions."""
        return self._plan.direct
