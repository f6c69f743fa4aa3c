"""Construction of a native plan: memory of the values, steps, and buffer lifetimes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, cast

import numpy as np

from tpuconvert.runtime.native.builder.destinations import Destinations
from tpuconvert.runtime.native.builder.loader import native
from tpuconvert.runtime.native.builder.storage import (
    ARENA,
    CONSTANT,
    EXTERNAL,
    Buffer,
    Order,
    Stored,
    channels_last,
    row_major,
)
from tpuconvert.runtime.native.builder.views import View
from tpuconvert.schema.graph.graph import Graph, Node, Value, static
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.types import I8, Array, DType, Scalar

Tensors = dict[str, Stored | None]
"""Tensors of a step, by the field of its spec that contains the address. None is an absent tensor."""


class Candidate(NamedTuple):
    """A step of the direct kernel that the Winograd convolution would speed up.

    Args:
        position: index of the step in the plan.
        spec: spec of either kernel.
        gain: difference of the estimated costs, in register products.
        weight_bytes: size of the transformed weights.
    """

    position: int
    spec: Any
    gain: int
    weight_bytes: int


class NativeStep(NamedTuple):
    """A step of the extension, its kernel, and the nodes that it computes: none if it only changes a memory order."""

    step: Any
    kernel: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class ReferenceStep:
    """A node that runs its NumPy reference, with the memory of operands and results; None for an absent operand."""

    node: Node
    inputs: tuple[Stored | Array | None, ...]
    outputs: tuple[Stored, ...]


class Group(NamedTuple):
    """Nodes that are planned together, usually as one step.

    Args:
        nodes: in topological order; the matcher was called with the last one.
        emit: adds the steps; called after the groups of all operands.
        parts: smaller groups of the same nodes, which are emitted if the kernel declines the whole group.
    """

    nodes: tuple[Node, ...]
    emit: Callable[[Builder], None]
    parts: tuple[Group, ...] = ()


class Builder:
    """Plan under construction. The ``emit`` functions of groups add steps to it.

    ``read`` returns the memory of an operand, ``write`` the memory of a result, and ``step`` adds a step.
    """

    def __init__(
        self,
        graph: Graph,
        isa: str,
        precise: set[Node],
        earlier: Mapping[tuple[str, tuple[str, ...]], Any],
        memory_limit: int | None = None,
        alternative: Callable[[Node, bool], Group | None] | None = None,
    ) -> None:
        self.graph = graph
        self._alternative = alternative
        self._general: set[Node] = set()
        """Nodes for which a general kernel was tried."""
        self.isa = isa
        self.precise = precise
        self.native = native()
        self._earlier = earlier
        self.memory_limit = memory_limit
        self.candidates: list[Candidate] = []
        """Steps that a faster kernel with larger weights may replace within the memory limit."""
        self.steps: list[NativeStep | ReferenceStep] = []
        self.declined: dict[str, str] = {}
        """Reasons for which nodes that have a kernel run their reference, by node name."""
        self.buffers: list[Buffer] = []
        self.inputs: list[Stored] = []
        self.outputs: list[Stored] = []
        self._stored: dict[Value, list[Stored]] = {}
        self._made: list[Value] = []
        self._parts = _parts_of_concats(graph)
        self._current: tuple[Node, ...] = ()
        for value in graph.inputs:
            stored = self._dense(self._buffer(EXTERNAL, _bytes_of(value)), value, row_major(value.rank))
            self.inputs.append(stored)
            self._stored[value] = [stored]
        for value in graph.outputs:
            buffer = self._buffer(EXTERNAL, _bytes_of(value))
            self.outputs.append(self._dense(buffer, value, row_major(value.rank)))
        self._destinations = Destinations(graph, [stored.buffer for stored in self.outputs])

    # Methods for the ``emit`` functions of groups

    def shape(self, value: Value) -> tuple[int, ...]:
        """Extents of a value. Plans exist only for known extents."""
        return cast(tuple[int, ...], value.shape)

    def is_made(self, value: Value) -> bool:
        """Return True if memory is assigned to a value."""
        return bool(self._stored.get(value))

    def memory_of(self, value: Value) -> Stored:
        """Return the first memory of a value, which may be the caller's. Constants are row-major."""
        if not self._stored.get(value):
            assert value.is_constant, f"'{value.name}' is read before it is made"
            return self.constant_value(value, row_major(value.rank))
        return self._stored[value][0]

    def read(self, value: Value, order: Order | None = None, *, dense: bool = True) -> Stored:
        """Return an operand in the order that a kernel needs, with slack. Copy only if necessary.

        Args:
            value: the operand.
            order: required order of the axes in memory; None for any order.
            dense: True if rows must be contiguous.
        """
        if value.is_constant and not self._stored.get(value):
            return self.constant_value(value, row_major(value.rank) if order is None else order)
        requested = self.memory_of(value).order if order is None else order
        for stored in self._stored[value]:
            is_pitched = not stored.is_dense
            if stored.buffer.kind == EXTERNAL or not stored.has_order(requested) or (dense and is_pitched):
                continue
            return stored.in_order(requested)
        copy = self._dense(self._buffer(ARENA, _bytes_of(value)), value, requested)
        self.copy(View.of(self.memory_of(value)), View.of(copy))
        self._keep(value, copy)
        return copy

    def read_exactly(self, value: Value) -> Stored:
        """Return an operand for a step that does not read slack, so that a constant needs no copy."""
        if not value.is_constant or value.dtype is I8 or self._stored.get(value):
            return self.read(value)
        array = np.require(value.array, requirements=("C_CONTIGUOUS", "ALIGNED"))
        buffer = self._buffer(CONSTANT, array.nbytes)
        buffer.constant = array.reshape(-1).view(np.uint8)
        return Stored(buffer, value.dtype, self.shape(value), row_major(value.rank))

    def write(self, value: Value, order: Order | None = None, *, dense: bool = True) -> Stored:
        """Return memory for a result in the given order (None: row-major).

        Args:
            value: the result.
            order: the order of its axes in memory.
            dense: True if rows must be contiguous. Otherwise an operand of a channel concat may be written directly
                into the result of the concat.
        """
        order = row_major(value.rank) if order is None else order
        if self._stored.get(value):
            return self._stored[value][0]  # The value is the result of a concat whose operands were written in place.
        if not dense and value in self._parts and order == channels_last(value.rank):
            stored = self._part(value)
            self._keep(value, stored)
            return stored
        placed = self._destinations.of(value)
        if placed is not None and placed.has_order(order):
            stored = placed.in_order(order)
        else:
            stored = self._dense(self._buffer(ARENA, _bytes_of(value)), value, order)
        self._keep(value, stored)
        return stored

    def order_wanted(self, value: Value) -> Order | None:
        """Return the memory order in which a result needs no later copy, or None without a preference."""
        placed = self._destinations.of(value)
        return None if placed is None else placed.order

    def _part(self, value: Value) -> Stored:
        """Return the slice of a concat's result in which an operand is stored."""
        joined, start = self._parts[value]
        if not self._stored.get(joined):
            self._keep(joined, self._dense(self._buffer(ARENA, _bytes_of(joined)), joined, channels_last(joined.rank)))
        target = self._stored[joined][0]
        item = target.itemsize
        return target._replace(shape=self.shape(value), offset=target.offset + start * item, pitch=target.row_bytes)

    def alias(self, value: Value, stored: Stored) -> None:
        """Make a result an alias of existing memory, for permutes, reshapes and slices."""
        self._keep(value, stored if stored.dtype is value.dtype else stored._replace(dtype=value.dtype))

    def temporary(self, dtype: DType, shape: tuple[int, ...]) -> Stored:
        """Return an intermediate buffer for the steps of the current group."""
        size = prod(shape) * dtype.numpy.itemsize
        return Stored(self._buffer(ARENA, size), dtype, shape, row_major(len(shape)))

    def constant(self, array: Array) -> Stored:
        """Copy an array to the constants of the plan. It is row-major, and 128 is not added to INT8."""
        contiguous = np.ascontiguousarray(array)
        buffer = self._buffer(CONSTANT, contiguous.nbytes)
        padded = np.zeros(contiguous.nbytes + self.native.SLACK, np.uint8)
        padded[: contiguous.nbytes] = contiguous.reshape(-1).view(np.uint8)
        buffer.constant = padded
        return Stored(buffer, DType.of(contiguous.dtype), contiguous.shape, row_major(contiguous.ndim))

    def constant_value(self, value: Value, order: Order) -> Stored:
        """Return a constant of the graph in the given order, as kernels expect it: 128 is added to INT8."""
        for stored in self._stored.get(value, ()):
            if stored.has_order(order):
                return stored.in_order(order)
        array = value.array
        if value.dtype is I8:
            array = array.view(np.uint8) ^ np.uint8(self.native.STORED_BIAS)
        laid = self.constant(array.transpose(order))
        stored = Stored(laid.buffer, value.dtype, self.shape(value), order)
        self._keep(value, stored)
        return stored

    def place(self, stored: Stored) -> Any:
        """Return the address of a tensor for a field of a spec."""
        return self.native.Place(stored.buffer.index, stored.offset)

    def step(self, kernel: str, spec: Any, reads: Sequence[Stored], writes: Sequence[Stored]) -> None:
        """Add the step of a kernel. ``reads`` and ``writes`` contain all tensors that it accesses."""
        step = getattr(self.native, kernel)(spec, self.isa)
        self._touch(reads, writes)
        self.steps.append(NativeStep(step, kernel, self._current))

    def step_of_earlier_plan(self, kernel: str) -> Any:
        """Return the step of an earlier plan for the nodes of the current group, or None; it may share its weights."""
        return self._earlier.get((kernel, tuple(node.name for node in self._current)))

    def kernel_step(self, kernel: str, spec: str, reads: Tensors, writes: Tensors, **fields: object) -> None:
        """Add the step of a kernel.

        Args:
            kernel: its name.
            spec: class name of its spec.
            reads: the tensors that it reads.
            writes: the tensors that it writes.
            fields: the other fields of the spec.
        """
        places = {name: self.place(stored) for name, stored in (reads | writes).items() if stored is not None}
        tensors = [[stored for stored in group.values() if stored is not None] for group in (reads, writes)]
        self.step(kernel, getattr(self.native, spec)(**places, **fields), *tensors)

    def copy(self, source: View, target: View) -> None:
        """Add a step that copies a view to another view of the same shape. Either may be in the caller's memory."""
        assert source.shape == target.shape, f"{source.shape} is copied to {target.shape}"
        if 0 in source.shape:
            return
        is_outside = [view.stored.buffer.kind == EXTERNAL for view in (source, target)]
        has_bias_changed = source.stored.dtype is I8 and is_outside[0] != is_outside[1]
        self.kernel_step(
            "copy",
            "CopySpec",
            {"source": source.stored._replace(offset=source.offset)},
            {"target": target.stored._replace(offset=target.offset)},
            shape=source.shape,
            source_strides=source.strides,
            target_strides=target.strides,
            itemsize=source.stored.itemsize,
            flip=self.native.STORED_BIAS if has_bias_changed else 0,
        )

    def fill(self, target: View, value: Scalar) -> None:
        """Add a step that fills a view with a scalar."""
        if 0 in target.shape:
            return
        dtype = target.stored.dtype
        assert dtype is not I8 or target.stored.buffer.kind != EXTERNAL, "INT8 of the caller has another representation"
        element = value.array.astype(dtype.numpy).reshape(1)
        if dtype is I8:
            element = element.view(np.uint8) ^ np.uint8(self.native.STORED_BIAS)
        constant = self.constant(element)._replace(dtype=dtype)
        self.copy(View(constant, 0, target.shape, (0,) * len(target.shape)), target)

    # Methods for the planner

    @property
    def native_steps(self) -> list[NativeStep]:
        """The steps of the extension."""
        return [entry for entry in self.steps if isinstance(entry, NativeStep)]

    def emit(self, group: Group) -> None:
        """Add the steps of a group. If its kernel declines, add the steps of its parts, or the references of its nodes.

        Kernels decline accumulators that may overflow 32 bits (OverflowError) and parameters that they do not support
        (Declined), such as a zero point outside of its type.
        """
        self._current, steps, buffers = group.nodes, len(self.steps), len(self.buffers)
        candidates = len(self.candidates)
        self._made.clear()
        try:
            group.emit(self)
        except (OverflowError, self.native.Declined) as error:
            del self.steps[steps:], self.buffers[buffers:], self.candidates[candidates:]
            for value in self._made:
                self._stored[value].pop()
            for part in group.parts:
                self.emit(part)
            for node in () if group.parts else group.nodes:
                self._emit_declined(node, str(error), is_alone=len(group.nodes) == 1)
        self._current = ()

    def _emit_declined(self, node: Node, reason: str, *, is_alone: bool) -> None:
        """Add the steps of another group for a node whose kernel declined, or its reference.

        A node of a larger group is first tried alone, then with a general kernel.
        """
        self.declined[node.name] = reason
        is_general = is_alone and node not in self._general
        group = self._alternative(node, is_general) if self._alternative and (is_general or not is_alone) else None
        if is_general:
            self._general.add(node)
        if group is None:
            self.reference(node)
        else:
            self.emit(group)

    def reference(self, node: Node) -> None:
        """Add a step that runs the NumPy reference of a node."""
        inputs = tuple(
            None if value is None else value.array if value.is_constant else self.read(value) for value in node.inputs
        )
        outputs = tuple(self.write(value) for value in node.outputs)
        self._touch([item for item in inputs if isinstance(item, Stored)], outputs)
        self.steps.append(ReferenceStep(node, inputs, outputs))

    def finish(self) -> None:
        """Copy the graph outputs to the caller's memory, unless they were written there."""
        for value, target in zip(self.graph.outputs, self.outputs, strict=True):
            if self.memory_of(value).buffer is not target.buffer:
                self.copy(View.of(self.memory_of(value)), View.of(target))

    def _keep(self, value: Value, stored: Stored) -> None:
        self._stored.setdefault(value, []).append(stored)
        self._made.append(value)

    def _touch(self, reads: Sequence[Stored], writes: Sequence[Stored]) -> None:
        now = len(self.steps)
        for stored in (*reads, *writes):
            stored.buffer.first = now if stored.buffer.first < 0 else stored.buffer.first
            stored.buffer.last = now

    def _buffer(self, kind: str, size: int) -> Buffer:
        buffer = Buffer(len(self.buffers), kind, size)
        self.buffers.append(buffer)
        return buffer

    def _dense(self, buffer: Buffer, value: Value, order: Order) -> Stored:
        return Stored(buffer, value.dtype, self.shape(value), order)


def _parts_of_concats(graph: Graph) -> dict[Value, tuple[Value, int]]:
    """Map values whose only use is a channel concat of images to its result and to their first channel there."""
    parts: dict[Value, tuple[Value, int]] = {}
    for node in graph.nodes:
        if not isinstance(node.op, Concat) or node.outputs[0].rank != 4 or node.op.axis % 4 != 1:
            continue
        start = 0
        for value in node.inputs:
            assert value is not None
            if value.producer is not None and value.dtype is node.outputs[0].dtype and graph.is_sole_use(value):
                parts[value] = (node.outputs[0], start)
            start += static(value.shape)[1]
    return parts


def _bytes_of(value: Value) -> int:
    return prod(static(value.shape)) * value.dtype.numpy.itemsize
