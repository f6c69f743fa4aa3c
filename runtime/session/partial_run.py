"""Runs of a part of a model: chosen tensors as outputs, and tensors that functions change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tpuconvert.runtime.session.border import TensorInfo
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.graph.graph_copy import copy_subgraph
from tpuconvert.schema.text.spelling import did_you_mean
from tpuconvert.schema.types import Array, Chip, format_shape

MOST_PARTS = 16
"""Number of parts whose sessions are kept; the part that was made first is dropped."""

Change = Callable[[Array], Array]


@dataclass(frozen=True)
class Part:
    """A part of a model, which a session can run."""

    graph: Graph
    chip: Chip


class Runner(Protocol):
    """A session of a part."""

    @property
    def inputs(self) -> list[TensorInfo]:
        """Inputs of the part."""

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run it."""


class PartialRuns:
    """Sessions of parts of a graph, made when they are needed.

    Args:
        graph: the whole graph.
        chip: chip of the model.
        open_session: makes the session of a part.
    """

    def __init__(self, graph: Graph, chip: Chip, open_session: Callable[[Part], Runner]) -> None:
        self._graph, self._chip, self._open = graph, chip, open_session
        self._sessions: dict[tuple[tuple[Value, ...], tuple[Value, ...]], Runner] = {}

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str] | None, change: Mapping[str, Change]
    ) -> dict[str, Array]:
        """Run the nodes that the outputs need.

        Args:
            feeds: one array per name of an input.
            outputs: names of outputs or of computed tensors; None for the outputs of the model.
            change: functions that replace a tensor before other nodes read it, by name. They are called in the order of
                the graph, so that the tensors after a changed one depend on it.

        Raises:
            UsageError: a name does not exist or occurs twice, or a function returns another type or shape.
        """
        names = [port.name for port in self._graph.output_ports] if outputs is None else list(outputs)
        wanted = [self._find(name) for name in names]
        if len(set(names)) < len(names) or not names:
            raise UsageError("outputs has no names, or a name twice", hint="outputs=['logits']")
        functions = {self._find(name): (name, function) for name, function in change.items()}
        if any(value.producer is None for value in functions):
            raise UsageError("change names an input of the model", hint="give the other array as its feed")
        changed: dict[Value, Array] = {}
        for value in self._graph.values:  # in the order of the graph
            if value in functions:
                name, function = functions[value]
                array = self._compute(feeds, changed, [value])[0]
                changed[value] = _checked(name, function(array.copy()), array)
        results = self._compute(feeds, changed, wanted)
        return dict(zip(names, results, strict=True))

    def _find(self, name: str) -> Value:
        """Return the value of an output or of a tensor; outputs come first."""
        ports = {port.name: value for port, value in zip(self._graph.output_ports, self._graph.outputs, strict=True)}
        value = ports.get(name) or self._graph.find(name)
        if value is None:
            known = [*ports, *(value.name for value in self._graph.values if not value.is_constant)]
            hint = did_you_mean(name, known) or "tpuconvert inspect lists the tensors"
            raise UsageError(f"the model has no tensor '{name}'", hint=hint)
        return value

    def _compute(self, feeds: Mapping[str, Array], changed: Mapping[Value, Array], wanted: list[Value]) -> list[Array]:
        """Return the arrays of values, with those that are changed instead of computed."""
        key = tuple(changed), tuple(dict.fromkeys(wanted))
        if key not in self._sessions:
            while len(self._sessions) >= MOST_PARTS:
                self._sessions.pop(next(iter(self._sessions)))  # another thread may still run it
            self._sessions[key] = self._open(Part(self._part(*key), self._chip))
        session = self._sessions[key]
        given = {**feeds, **{value.name: array for value, array in changed.items()}}
        unknown = feeds.keys() - {port.name for port in self._graph.input_ports}
        if unknown:
            raise UsageError(f"unknown inputs {sorted(unknown)}")
        results = session.run({tensor.name: given[tensor.name] for tensor in session.inputs if tensor.name in given})
        arrays = dict(zip(key[1], results.values(), strict=True))
        return [arrays[value] for value in wanted]

    def _part(self, changed: Iterable[Value], wanted: Sequence[Value]) -> Graph:
        """Copy the nodes that some values need, with the ports of the model where they have some.

        A changed value is an input of the copy. If it is wanted itself, it is an output, too.
        """
        inputs = [*_needed_inputs(wanted, set(changed)), *changed]
        part = copy_subgraph(self._graph, inputs, wanted)
        ports = dict(zip(self._graph.inputs, self._graph.input_ports, strict=True))
        part.input_ports[:] = [ports.get(value, port) for value, port in zip(inputs, part.input_ports, strict=True)]
        ports = dict(zip(self._graph.outputs, self._graph.output_ports, strict=True))
        part.output_ports[:] = [ports.get(value, port) for value, port in zip(wanted, part.output_ports, strict=True)]
        return part


def _needed_inputs(wanted: Iterable[Value], changed: set[Value]) -> list[Value]:
    """Return the inputs of the graph on which values depend, but for changed ones."""
    found: dict[Value, None] = {}
    seen, stack = set(changed), list(wanted)
    while stack:
        value = stack.pop()
        if value in seen or value.is_constant:
            continue
        seen.add(value)
        if value.producer is None:
            found[value] = None
        else:
            stack += [operand for operand in value.producer.inputs if operand is not None]
    return list(found)


def _checked(name: str, array: object, before: Array) -> Array:
    """Return what a function has made of a tensor.

    Raises:
        UsageError: it has another type or shape.
    """
    if isinstance(array, np.ndarray) and array.shape == before.shape and array.dtype == before.dtype:
        return array
    returned = f"{array.dtype} {format_shape(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
    expected = f"{before.dtype} {format_shape(before.shape)}"
    raise UsageError(f"the change of '{name}' returned {returned}, expected {expected}", hint="return a new array")
