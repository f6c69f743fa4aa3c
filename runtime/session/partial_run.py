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
        self._sessions: dict[tuple[tuple[Value, ...], tuple[Value, ...], bool], Runner] = {}

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
        unknown = feeds.keys() - {port.name for port in self._graph.input_ports}
        if unknown:
            raise UsageError(f"unknown inputs {sorted(unknown)}")
        names = [port.name for port in self._graph.output_ports] if outputs is None else list(outputs)
        values = [self._find(name) for name in names]
        if len(set(names)) < len(names) or not names:
            raise UsageError("no names of outputs, or a name twice", hint="give at least one name, and each once")
        functions = {self._find(name): (name, function) for name, function in change.items()}
        if len(functions) < len(change):
            raise UsageError("change has two names of one tensor", hint="leave one of them out")
        if any(value.producer is None for value in functions):
            raise UsageError("change names an input or a constant", hint="give another array as the feed of an input")
        changed: dict[Value, Array] = {}
        # The order of the values is not the order in which they are computed: rules add nodes before others.
        for value in (value for node in self._graph.sorted_nodes() for value in node.outputs):
            if value in functions:
                name, function = functions[value]
                array = self._compute(feeds, changed, [value], has_ports=False)[0]
                changed[value] = _checked(name, function(array.copy()), array)
        results = self._compute(feeds, changed, values, has_ports=True)
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

    def _compute(
        self, feeds: Mapping[str, Array], changed: Mapping[Value, Array], values: list[Value], *, has_ports: bool
    ) -> list[Array]:
        """Return the arrays of values, with those that are changed instead of computed.

        With ``has_ports``, an output of the model has the type of its port.
        """
        distinct = tuple(dict.fromkeys(values))
        session = self._session(tuple(changed), distinct, has_ports)
        arrays = {**feeds, **{value.name: array for value, array in changed.items()}}
        results = session.run({tensor.name: arrays[tensor.name] for tensor in session.inputs if tensor.name in arrays})
        by_value = dict(zip(distinct, results.values(), strict=True))
        return [by_value[value] for value in values]

    def _session(self, changed: tuple[Value, ...], values: tuple[Value, ...], has_ports: bool) -> Runner:
        """Return the session of a part. Other threads may drop it while it runs."""
        key = changed, values, has_ports
        session = self._sessions.get(key)
        if session is None:
            session = self._open(Part(self._part(changed, values, has_ports), self._chip))
            while len(self._sessions) >= MOST_PARTS:
                self._sessions.pop(next(iter(self._sessions)), None)
            self._sessions[key] = session
        return session

    def _part(self, changed: Sequence[Value], values: Sequence[Value], has_ports: bool) -> Graph:
        """Copy the nodes that some values need. The inputs of the model keep their ports, the outputs if ``has_ports``.

        A changed value is an input of the copy. If it is asked for itself, it is an output, too.
        """
        inputs = [*_needed_inputs(values, set(changed)), *changed]
        part = copy_subgraph(self._graph, inputs, values)
        ports = dict(zip(self._graph.inputs, self._graph.input_ports, strict=True))
        part.input_ports[:] = [ports.get(value, port) for value, port in zip(inputs, part.input_ports, strict=True)]
        if has_ports:
            ports = dict(zip(self._graph.outputs, self._graph.output_ports, strict=True))
            pairs = zip(values, part.output_ports, strict=True)
            part.output_ports[:] = [ports.get(value, port) for value, port in pairs]
        return part


def _needed_inputs(values: Iterable[Value], changed: set[Value]) -> list[Value]:
    """Return the inputs of the graph on which values depend, but for changed ones."""
    inputs: dict[Value, None] = {}
    seen, stack = set(changed), list(values)
    while stack:
        value = stack.pop()
        if value in seen or value.is_constant:
            continue
        seen.add(value)
        if value.producer is None:
            inputs[value] = None
        else:
            stack += [operand for operand in value.producer.inputs if operand is not None]
    return list(inputs)


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
