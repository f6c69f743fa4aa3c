"""host_if, host_loop, host_scan: control flow that depends on values, executed by the host."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from tpuconvert.schema.definition.extents import normalize_axis, shapes_of, unknown, with_extent
from tpuconvert.schema.definition.op import ALL, Operand, OpKind, case, on, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.control_flow import ControlFlowOp, RunSubgraph, Subgraph
from tpuconvert.schema.graph.graph_copy import specialize
from tpuconvert.schema.graph.live_memory import find_excess, value_bytes
from tpuconvert.schema.system.limits import exceeded, run_bytes_allowed
from tpuconvert.schema.types import F32, I32, NUMBERS_F16, U32, Array, TensorType, format_shape

_ANY = on(case({ALL: (*NUMBERS_F16, U32)}))
_CONDITION = Operand("condition", coeff=True)
_VALUES = Operand("values", coeff=True, optional=True, variadic=True)
_RESULTS = (Operand("results", variadic=True),)

T = TypeVar("T")

_ROUNDS = 3


@tpu_op("host_if", OpKind.HOST)
class HostIf(ControlFlowOp):
    """``then_branch(values)`` if condition is not 0, else ``else_branch(values)``.

    Only the selected branch runs. Both branches take all values.

    Shapes: condition has one element. An extent in which the results of the branches differ depends on data.
    """

    then_branch: Subgraph
    else_branch: Subgraph

    inputs = (_CONDITION, _VALUES)
    outputs = _RESULTS
    dtypes = _ANY
    decides_by = ("condition",)

    def infer(self, condition: TensorType, *values: TensorType | None) -> tuple[TensorType, ...]:
        """Shapes: the common extents of both branches. One of them may not accept the shapes of the values."""
        _check_single(self.name, "condition", condition)
        operand_types = _present(values)
        branches: list[tuple[TensorType, ...]] = []
        for branch, other in ((self.then_branch, self.else_branch), (self.else_branch, self.then_branch)):
            try:
                branches.append(tuple(branch.result_types(operand_types)))
            except ShapeError:  # it does not run with them: the types of the two branches must agree
                branches.append(tuple(other.result_types(operand_types)))
        if len(branches[0]) != len(branches[1]) or not branches[0]:
            raise ShapeError(f"{self.name}: the branches have {len(branches[0])} and {len(branches[1])} results")
        pairs = enumerate(zip(*branches, strict=True))
        return tuple(_common_type(self.name, first, second, str(index)) for index, (first, second) in pairs)

    def execute(self, run: RunSubgraph, condition: Array, *values: Array | None) -> tuple[Array, ...]:
        """Run the selected branch."""
        branch = self.then_branch if condition.reshape(-1)[0] != 0 else self.else_branch
        return tuple(run(branch, _present(values)))


@tpu_op("host_loop", OpKind.HOST)
class HostLoop(ControlFlowOp):
    """Repeat ``condition, states, items = body(iteration, condition, states, captures)`` while condition is not 0.

    The first ``states`` values are the initial states, the others are the same in every iteration. ``trips`` is the
    largest number of iterations; the body gets their number from 0 as INT32. The results are the last states, then for
    each item of the body the concatenation of its values along axis 0.

    Shapes: trips and condition have one element. Items have the extent 1 on axis 0; the extent of their concatenation
    depends on data, as do extents of states that differ between iterations. Without an iteration, extents of items that
    depend on data are 0.

    Args:
        body: takes iteration, condition, states and captures.
        states: number of states.
        max_iterations: more iterations are an error.
    """

    body: Subgraph
    states: int
    max_iterations: int

    inputs = (Operand("trips", coeff=True), _CONDITION, _VALUES)
    outputs = _RESULTS
    dtypes = on(case({ALL: (*NUMBERS_F16, U32), "trips": (I32,)}))
    decides_by = ("trips", "condition")

    def __post_init__(self) -> None:
        if self.states < 0 or self.max_iterations < 1:
            raise ValueError(f"{self.name}: states {self.states}, max_iterations {self.max_iterations}")

    def infer(self, trips: TensorType, condition: TensorType, *values: TensorType | None) -> tuple[TensorType, ...]:
        """Shapes: the types of the initial states, except for extents that the body changes."""
        _check_single(self.name, "trips", trips)
        _check_single(self.name, "condition", condition)
        operand_types = _present(values)
        _check_states(self.name, self.states, len(operand_types))
        head = [TensorType(I32, (1,)), TensorType(F32, (1,))]
        captures = operand_types[self.states :]
        states, results = _iterated_types(self.name, self.body, head, operand_types[: self.states], captures, skipped=1)
        _check_single(self.name, "condition of the body", results[0])
        items = results[1 + self.states :]
        return (*states, *(_joined_type(self.name, item, 0, unknown(self.name, k)) for k, item in enumerate(items)))

    def execute(self, run: RunSubgraph, trips: Array, condition: Array, *values: Array | None) -> tuple[Array, ...]:
        """Run the body until the condition is 0 or the trips are used up."""
        operands = _present(values)
        states, captures = operands[: self.states], operands[self.states :]
        memory = _LoopMemory(self.body, operands)
        limit, going = int(trips.reshape(-1)[0]), condition.reshape(-1)[0] != 0
        collected: list[list[Array]] = []
        for iteration in itertools.count():
            if not going or iteration >= limit:
                break
            if iteration >= self.max_iterations:
                raise RuntimeError(
                    f"the loop has more than {self.max_iterations} iterations; "
                    "convert the model with a larger --max-iterations"
                )
            head = [np.array([iteration], np.int32), np.ones(1, np.float32)]
            memory.check_next(states, [*head, *states, *captures])
            going_array, *results = run(self.body, [*head, *states, *captures])
            going, states = going_array.reshape(-1)[0] != 0, results[: self.states]
            collected.append(results[self.states :])
            memory.check(states, collected[-1])
        types = [value.type for value in self.body.graph.outputs[1 + self.states :]]
        return (*states, *(_join([row[k] for row in collected], type_, 0) for k, type_ in enumerate(types)))


@tpu_op("host_scan", OpKind.HOST)
class HostScan(ControlFlowOp):
    """Repeat ``states, items = body(states, slices, captures)`` for every slice of the scanned values.

    The first ``states`` values are the initial states; then there is one scanned value per entry of ``axes``; the
    others are the same in every iteration. A slice has the extent 1 on its axis. The results are the last states, then
    for each item of the body the concatenation of its values.

    Shapes: scanned values have equal extents on their axes, which are the extents of the concatenations.

    Args:
        body: takes states, slices and captures.
        states: number of states.
        axes: axis of each scanned value.
        backward: for each scanned value, True to begin with the last slice.
        item_axes: axis of the concatenation of each item.
        items_backward: for each item, True to concatenate in reverse order.
    """

    body: Subgraph
    states: int
    axes: tuple[int, ...]
    backward: tuple[bool, ...]
    item_axes: tuple[int, ...]
    items_backward: tuple[bool, ...]

    inputs = (Operand("values", coeff=True, variadic=True),)
    outputs = _RESULTS
    dtypes = _ANY

    def __post_init__(self) -> None:
        if self.states < 0 or not self.axes or len(self.axes) != len(self.backward):
            raise ValueError(f"{self.name}: states {self.states}, axes {self.axes}, backward {self.backward}")
        if len(self.item_axes) != len(self.items_backward) or min((*self.axes, *self.item_axes)) < 0:
            raise ValueError(f"{self.name}: item_axes {self.item_axes}, items_backward {self.items_backward}")

    def infer(self, *values: TensorType | None) -> tuple[TensorType, ...]:
        """Shapes: the number of iterations is the extent of the scanned axes."""
        operand_types = _present(values)
        _check_states(self.name, self.states + len(self.axes), len(operand_types))
        states, scanned, captures = self._parts(operand_types)
        slices, lengths = [], []
        for value, axis in zip(scanned, self.axes, strict=True):
            lengths.append(value.shape[normalize_axis(self.name, axis, value)])
            slices.append(TensorType(value.dtype, with_extent(value.shape, axis, 1)))
        numbers = {length for length in lengths if isinstance(length, int)}
        if len(numbers) > 1:
            raise ShapeError(f"{self.name}: axes {list(self.axes)} of {shapes_of(scanned)} have different extents")
        length = numbers.pop() if numbers else lengths[0]
        states, results = _iterated_types(self.name, self.body, [], states, [*slices, *captures], skipped=0)
        items = results[self.states :]
        if len(items) != len(self.item_axes):
            raise ShapeError(f"{self.name}: {len(self.item_axes)} item_axes for {len(items)} items")
        pairs = zip(items, self.item_axes, strict=True)
        return (*states, *(_joined_type(self.name, item, axis, length) for item, axis in pairs))

    def execute(self, run: RunSubgraph, *values: Array | None) -> tuple[Array, ...]:
        """Run the body once per slice."""
        states, scanned, captures = self._parts(_present(values))
        lengths = {value.shape[axis] for value, axis in zip(scanned, self.axes, strict=True)}
        if len(lengths) != 1:
            raise RuntimeError(f"the scanned values have different extents {sorted(lengths)}")
        (length,) = lengths
        collected = []
        memory = _LoopMemory(self.body, _present(values))
        for trip in range(length):
            slices = []
            for value, axis, backward in zip(scanned, self.axes, self.backward, strict=True):
                position = length - 1 - trip if backward else trip
                slices.append(value[(slice(None),) * axis + (slice(position, position + 1),)])
            memory.check_next(states, [*states, *slices, *captures])
            results = list(run(self.body, [*states, *slices, *captures]))
            states = results[: self.states]
            collected.append(results[self.states :])
            memory.check(states, collected[-1])
        joined = []
        types = [value.type for value in self.body.graph.outputs[self.states :]]
        for k, (type_, axis, backward) in enumerate(zip(types, self.item_axes, self.items_backward, strict=True)):
            column = [row[k] for row in collected]
            joined.append(_join(column[::-1] if backward else column, type_, axis))
        return (*states, *joined)

    def _parts(self, values: list[T]) -> tuple[list[T], list[T], list[T]]:
        """Split the values into states, scanned values and captures."""
        first, last = self.states, self.states + len(self.axes)
        return values[:first], values[first:last], values[last:]


class _LoopMemory:
    """Limit on the states and items of a loop, which may grow in each iteration: a Concat can double a state.

    Args:
        body: the body of the loop.
        operands: the values of the loop.
    """

    def __init__(self, body: Subgraph, operands: Sequence[Array]) -> None:
        self._body = body.graph
        self._allowed = run_bytes_allowed(sum(array.nbytes for array in operands) + self._body.constant_bytes)
        self._items = 0
        self._unchecked = math.inf if all(value.type.is_static for value in self._body.values) else 0.0

    def check_next(self, states: Sequence[Array], inputs: Sequence[Array]) -> None:
        """Check an iteration before its tensors are allocated, as far as the shapes of its inputs determine its shapes.

        The shapes are inferred again when the states have grown by a quarter, so that a state that grows by a row per
        iteration costs few inferences.

        Raises:
            ResourceLimitError: the iteration takes too much memory.
        """
        size = sum(array.nbytes for array in states)
        if size < self._unchecked:
            return
        self._unchecked = 1.25 * size + 1
        try:
            graph = specialize(self._body, [array.shape for array in inputs])
        except ShapeError:
            return  # the run reports it, with the node
        self._check_size(2 * (self._items + sum(map(value_bytes, graph.outputs))))
        if (excess := find_excess(graph, self._allowed - size - 2 * self._items)) is not None:
            self._check_size(excess.size + size + 2 * self._items)

    def check(self, states: Sequence[Array], items: Sequence[Array]) -> None:
        """Check the states after an iteration, and the items that were collected so far.

        Both count twice: an iteration reads the old states while it computes new ones, and the items are joined.

        Raises:
            ResourceLimitError: they take too much memory.
        """
        self._items += sum(array.nbytes for array in items)
        self._check_size(2 * (self._items + sum(array.nbytes for array in states)))

    def _check_size(self, size: int) -> None:
        if size > self._allowed:
            excess = f"a loop takes {size:,} bytes"
            raise exceeded(excess, "max_run_bytes", file=self._body.file, node=self._body.name)


def _present(values: Sequence[T | None]) -> list[T]:
    return [value for value in values if value is not None]


def _check_single(name: str, what: str, type_: TensorType) -> None:
    if any(isinstance(extent, int) and extent != 1 for extent in type_.shape):
        raise ShapeError(f"{name}: {what} {format_shape(type_.shape)} must have one element")


def _check_states(name: str, needed: int, actual: int) -> None:
    if needed > actual:
        raise ShapeError(f"{name} needs {needed} values, got {actual}")


def _common_type(name: str, first: TensorType, second: TensorType, label: str) -> TensorType:
    """Type of a tensor that has one of two types: extents that differ depend on data."""
    if first.dtype is not second.dtype or first.rank != second.rank:
        raise ShapeError(f"{name}: a result is {first} or {second}; data types and ranks must be equal")
    pairs = enumerate(zip(first.shape, second.shape, strict=True))
    return TensorType(first.dtype, tuple(a if a == b else unknown(name, f"{label}_{axis}") for axis, (a, b) in pairs))


def _iterated_types(
    name: str,
    body: Subgraph,
    head: list[TensorType],
    states: list[TensorType],
    others: list[TensorType],
    skipped: int,
) -> tuple[list[TensorType], tuple[TensorType, ...]]:
    """Return the types of the states in every iteration, and the types of the results of the body.

    Extents that an iteration changes depend on data; types are inferred again until no further extent changes.
    """
    for _ in range(_ROUNDS):
        results = body.result_types([*head, *states, *others])
        if len(results) < skipped + len(states):
            raise ShapeError(f"{name}: the body has {len(results)} results, expected {skipped + len(states)} or more")
        pairs = enumerate(zip(states, results[skipped:], strict=False))
        merged = [_common_type(name, old, new, str(index)) for index, (old, new) in pairs]
        if merged == states:
            return states, results
        states = merged
    return states, results


def _joined_type(name: str, item: TensorType, axis: int, extent: int | str) -> TensorType:
    if item.shape[normalize_axis(name, axis, item)] != 1:
        raise ShapeError(f"{name}: an item {format_shape(item.shape)} must have the extent 1 on axis {axis}")
    return TensorType(item.dtype, with_extent(item.shape, axis, extent))


def _join(parts: Sequence[Array], type_: TensorType, axis: int) -> Array:
    """Concatenate the items of all iterations; without any, return an empty array."""
    if parts:
        return np.concatenate(parts, axis)
    shape = (extent if isinstance(extent, int) else 0 for extent in with_extent(type_.shape, axis, 0))
    return np.empty(tuple(shape), type_.dtype.numpy)
