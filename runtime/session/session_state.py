"""State that a session keeps between runs: key-value caches, and the inputs that follow from their length."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tpuconvert.runtime.derived_inputs import DERIVED, MASK, derive
from tpuconvert.runtime.session.border import TensorInfo, info, numpy_type
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph, Port, Value
from tpuconvert.schema.graph.states import FIXED, State, growth
from tpuconvert.schema.types import Array, Dim, format_shape

if TYPE_CHECKING:
    from tpuconvert.runtime.native.direct_plan import BoundPlan
    from tpuconvert.runtime.native.plan import NativePlan

_SMALLEST = 64
"""Smallest capacity of a cache, in tokens."""

_ALIGNMENT = 64
"""Alignment of a cache in the block of all caches, in bytes."""


class SessionState:
    """States of one session. ``lock`` is held while a run reads and replaces them.

    Args:
        graph: the program.
        states: which of its inputs and outputs are states.
    """

    def __init__(self, graph: Graph, states: Sequence[State]) -> None:
        self.lock = threading.Lock()
        self.states = tuple(states)
        self.ports = {graph.input_ports[state.input].name: state for state in states}
        self.results = {graph.output_ports[state.output].name: state for state in states}
        self.inputs = [port for port in graph.input_ports if port.name not in self.ports]
        self.outputs = [port for port in graph.output_ports if port.name not in self.results]
        self.required = [port for port in self.inputs if port.name not in DERIVED]
        self.graph = graph
        self._added = next((self._growth(state) for state in states if state.axis != FIXED), "1")
        self._arrays: dict[str, Array] = {}
        self._mask: Array | None = None
        self._bound: BoundPlan | None = None
        self._bound_to: NativePlan | None = None
        self.length = 0

    def _growth(self, state: State) -> str:
        """Extent by which a run appends to a state: a number, or a symbol of the inputs."""
        before = self.graph.input_ports[state.input].shape[state.axis]
        after = self.graph.output_ports[state.output].shape[state.axis]
        return str(growth(before, after))

    def reset(self) -> None:
        """Return to the initial state: caches without tokens, and zeros in states of fixed shape."""
        self._arrays, self._mask, self.length = {}, None, 0
        self._forget_plan()

    def truncate(self, length: int) -> None:
        """Remove the last tokens of the caches, in place: their arrays remain, and the next run overwrites them.

        Raises:
            UsageError: the caches have fewer tokens, or a state of fixed shape has no entry per token to remove.
        """
        if not 0 <= length <= self.length:
            raise UsageError(f"the caches have {self.length} tokens, and cannot be truncated to {length}")
        if length == 0:
            self.reset()
        elif length < self.length:
            fixed = next((name for name, state in self.ports.items() if state.axis == FIXED), None)
            if fixed is not None:
                hint = "reset the session, and run the tokens again"
                raise UsageError(f"the state '{fixed}' has no entry per token, and cannot be truncated", hint=hint)
            self.length = length
            self._mask = None if self._mask is None else self._mask[:, :length]

    def _forget_plan(self) -> None:
        """Release the plan that is bound to the arrays, before they are replaced."""
        self._bound = self._bound_to = None

    def bound_plan(self, plan: NativePlan, size_of: Callable[[Value], int]) -> BoundPlan | None:
        """Bind a plan to the arrays that ``reserve`` returned; they remain its caches until they are replaced.

        The result is None if the plan has a reference step.

        Args:
            plan: a plan that keeps the caches in place.
            size_of: number of elements of an input of the plan, which checks it but does not use all of the array.
        """
        if self._bound is None or self._bound_to is not plan:
            direct = plan.direct
            if direct is None:
                return None
            feeds = {}
            for name, state in self.ports.items():
                size = size_of(self.graph.inputs[state.input])
                feeds[state.input] = self._arrays[name].reshape(-1)[:size]
            results = {state.output: self._arrays[name] for name, state in self.ports.items()}
            self._bound, self._bound_to = direct.bind(feeds, results), plan
        return self._bound

    @property
    def tensors(self) -> list[TensorInfo]:
        """Names, types and shapes of the states."""
        return [info(self.graph.input_ports[state.input]) for state in self.states]

    def arrays(self) -> dict[str, Array]:
        """Copies of the states by input name; empty before the first run and after a reset."""
        return {name: array.copy() for name, array in self._valid().items()}

    def _valid(self) -> dict[str, Array]:
        """Views of the tokens that are in the states, whose arrays may have room for more."""
        valid = {}
        for name, array in self._arrays.items():
            axis = self.ports[name].axis
            valid[name] = array if axis == FIXED else array[(slice(None),) * axis + (slice(self.length),)]
        return valid

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Replace all states.

        Raises:
            UsageError: a name is missing or unknown, or the shapes do not fit the model or each other.
        """
        if not arrays:
            self.reset()
            return
        _check_names(arrays, self.ports)
        bound: dict[str, int] = {}
        checked: dict[str, Array] = {}
        lengths: set[int] = set()
        for name, state in self.ports.items():
            port = self.graph.input_ports[state.input]
            array = np.array(arrays[name], numpy_type(port.dtype), order="C")
            is_like = array.ndim == len(port.shape) and all(
                bound.setdefault(want, have) == have if isinstance(want, str) else have == want
                for have, want in zip(array.shape, port.shape, strict=True)
            )
            if not is_like:
                shape, expected = format_shape(array.shape), format_shape(port.shape)
                raise UsageError(f"the state '{name}' has shape {shape}, the model takes {expected}")
            checked[name] = array
            lengths |= set() if state.axis == FIXED else {array.shape[state.axis]}
        if len(lengths) > 1:
            raise UsageError(f"the states have different lengths: {sorted(lengths)}")
        self._forget_plan()
        self._arrays, self._mask, self.length = checked, None, max(lengths, default=0)

    def is_given(self, feeds: Mapping[str, Any]) -> bool:
        """Return True if the feeds contain all states, so that the run is independent of the session's.

        Raises:
            UsageError: they contain some of them only.
        """
        given_ports = [name for name in self.ports if name in feeds]
        if given_ports and len(given_ports) < len(self.ports):
            missing = [name for name in self.ports if name not in feeds]
            raise UsageError(
                f"the feeds contain the state '{given_ports[0]}', but not '{missing[0]}'",
                hint="give all states for a run without the session's state, or none of them",
            )
        return bool(given_ports)

    def complete(self, feeds: Mapping[str, Any]) -> tuple[dict[str, Array], int]:
        """Return the feeds with the inputs that follow from the length of the caches, and the number of new tokens.

        Raises:
            UsageError: an input is missing and cannot be computed, is unknown, or the mask has another length.
        """
        unknown = [name for name in feeds if name not in {port.name for port in self.inputs}]
        missing = [port.name for port in self.required if port.name not in feeds]
        if unknown or missing:
            parts = [f"missing inputs {missing}"] if missing else []
            parts += [f"unknown inputs {unknown}"] if unknown else []
            raise UsageError(f"{' and '.join(parts)}; the model takes {[port.name for port in self.required]}")
        batch, count = self._new_tokens(feeds)
        mask = self._whole_mask(feeds.get(MASK), batch, count)
        complete_feeds: dict[str, Array] = {}
        for port in self.inputs:
            array = mask if port.name == MASK else feeds.get(port.name)
            complete_feeds[port.name] = self._derive(port, mask, count) if array is None else np.asarray(array)
        return complete_feeds, count

    def initial(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The states as feeds; before the first run, empty caches with the batch of the other feeds."""
        if not self._arrays:
            bound: dict[str, int] = {}
            for port in self.inputs:
                for want, have in zip(port.shape, feeds[port.name].shape, strict=False):
                    bound.setdefault(want, have) if isinstance(want, str) else None
            self._forget_plan()
            self._arrays = {name: self._empty(name, state, bound) for name, state in self.ports.items()}
        return self._valid()

    def reserve(self, feeds: Mapping[str, Array], count: int) -> dict[str, Array]:
        """The arrays of the states, with room for more than ``count`` new tokens.

        The capacity is doubled when it is exhausted, so that the copies cost a constant time per token.
        """
        if self._bound is not None and self.length + count < self.capacity:
            return self._arrays
        self.initial(feeds)
        self._forget_plan()
        capacity = _SMALLEST
        while capacity <= self.length + count:
            capacity *= 2
        if self.capacity < capacity:
            shapes = {}
            for name, array in self._valid().items():
                axis = self.ports[name].axis
                shapes[name] = (*array.shape[:axis], capacity, *array.shape[axis + 1 :]), array.dtype
            wide = _allocate(shapes)
            for name, array in self._valid().items():
                wide[name][(slice(None),) * self.ports[name].axis + (slice(self.length),)] = array
            self._arrays = wide
        return self._arrays

    @property
    def current(self) -> dict[str, Array]:
        """The arrays of the states by input name, with room for more tokens."""
        return self._arrays

    @property
    def capacity(self) -> int:
        """Number of tokens for which the arrays have room."""
        return next((array.shape[self.ports[name].axis] for name, array in self._arrays.items()), 0)

    def advance(self, results: Mapping[str, Array], feeds: Mapping[str, Array], count: int) -> None:
        """Replace the states by the results of a run with ``count`` new tokens."""
        names = [port.name for port in self.graph.input_ports]
        self._forget_plan()
        self._arrays = {names[state.input]: results[name] for name, state in self.results.items()}
        self.note_tokens(feeds, count)

    def note_tokens(self, feeds: Mapping[str, Array], count: int) -> None:
        """Record that a run has appended ``count`` tokens."""
        self.length += count
        mask = feeds.get(MASK)
        self._mask = None if mask is None else np.array(mask)

    def _empty(self, name: str, state: State, bound: Mapping[str, int]) -> Array:
        port = self.graph.input_ports[state.input]
        shape: list[Dim] = [0 if axis == state.axis else extent for axis, extent in enumerate(port.shape)]
        extents = [extent if isinstance(extent, int) else bound.get(extent, 0) for extent in shape]
        return np.zeros(extents, numpy_type(port.dtype))

    def _new_tokens(self, feeds: Mapping[str, Any]) -> tuple[int, int]:
        """Batch and number of new tokens: the extents of the inputs by which the states grow."""
        bound: dict[str, int] = {}
        for port in self.required:
            shape = np.shape(feeds[port.name])
            if len(shape) != len(port.shape):
                expected = format_shape(port.shape)
                raise UsageError(f"input '{port.name}' has shape {format_shape(shape)}, the model takes {expected}")
            bound |= {want: have for want, have in zip(port.shape, shape, strict=True) if isinstance(want, str)}
        batch = next((np.shape(feeds[port.name])[0] for port in self.required if port.shape), 1)
        count = int(self._added) if self._added.isdigit() else bound.get(self._added, 0)
        if count < 1:
            raise UsageError(f"the inputs have {count} new tokens, expected at least one")
        return batch, count

    def _whole_mask(self, new_mask: Any, batch: int, count: int) -> Array:
        """Mask of all tokens: of earlier runs, and the given mask, which may also contain the earlier tokens."""
        past = np.ones((batch, self.length), np.int64) if self._mask is None else self._mask
        if len(past) != batch:
            raise UsageError(
                f"the inputs have {batch} sequences, the caches of the session have {len(past)}",
                hint="call reset() before other sequences",
            )
        if new_mask is None:
            return np.concatenate([past, np.ones((batch, count), past.dtype)], axis=1)
        mask = np.asarray(new_mask)
        if mask.ndim == 2 and mask.shape == (batch, self.length + count):
            return mask
        if mask.ndim == 2 and mask.shape == (batch, count):
            return np.concatenate([past, mask.astype(past.dtype)], axis=1)
        raise UsageError(
            f"'{MASK}' has shape {format_shape(mask.shape)}, expected {[batch, count]} for the new tokens or "
            f"{[batch, self.length + count]} for all"
        )

    def _derive(self, port: Port, mask: Array, count: int) -> Array:
        """Value of an input of DERIVED."""
        shape = tuple(len(mask) if isinstance(extent, str) else extent for extent in port.shape)
        return derive(port.name, mask, self.length, count, shape).astype(numpy_type(port.dtype))


def _allocate(shapes: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> dict[str, Array]:
    """Return arrays of zeros in one block of memory.

    The allocator returns the pages of one large block to the system when the caches grow, but keeps the pages of many
    small arrays. Pages of zeros take no memory before tokens are written to them.
    """
    sizes = [-(-math.prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT for shape, dtype in shapes.values()]
    block = np.zeros(sum(sizes), np.uint8)
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return {
        name: np.ndarray(shape, dtype, block, start)
        for (name, (shape, dtype)), start in zip(shapes.items(), starts, strict=True)
    }


def _check_names(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    if set(actual) != set(expected):
        raise UsageError(f"the states are {sorted(expected)}, got {sorted(actual)}")
